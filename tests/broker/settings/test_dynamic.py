"""Settings that are changed while the broker runs: UPDATE_BROKER_CONFIG (25)."""

import asyncio
import json
import logging
from pathlib import Path

import pytest
from aerobee.broker.server import Broker
from aerobee.broker.settings.config import KEYS, BrokerConfig
from aerobee.broker.settings.dynamic import AT_START, DYNAMIC, DynamicSettings
from aerobee.broker.transactions.transactions import Transactions
from aerobee.conf.load import text_of
from aerobee.protocol import codes
from aerobee.protocol.bodies.data_version import DataVersion
from aerobee.protocol.codec import java_properties
from aerobee.protocol.command import Command

from ...waiting import LONG, until
from ..conftest import Caller, Config, Start, records


async def update(caller: Caller, text: str | bytes) -> Command:
    body = text if isinstance(text, bytes) else text.encode()
    return await caller.ask(codes.UPDATE_BROKER_CONFIG, None, body)


async def shown(caller: Caller, key: str) -> str:
    answer = await caller.ask(codes.GET_BROKER_CONFIG)
    return java_properties.parse((answer.body or b"").decode())[key]


async def version(caller: Caller) -> int:
    answer = await caller.ask(codes.GET_BROKER_CONFIG)
    return DataVersion.decode(answer.fields()["version"].encode()).counter


def test_no_path_name_address_or_size_of_files_is_hot() -> None:
    assert KEYS.fields.keys() >= DYNAMIC
    for key in DYNAMIC:
        kind = KEYS.fields[key].type
        is_bounded = kind is bool or "int" in str(kind) or "pattern=" in str(kind)
        assert is_bounded, f"{key} may be any text"
        assert not key.lower().endswith(("path", "dir", "addr", "address", "port", "name"))
        assert "filesize" not in key.lower()


async def test_a_change_holds_at_once_and_is_shown(caller: Caller) -> None:
    assert (await caller.send("New1")).code == codes.SUCCESS
    answer = await update(caller, "autoCreateTopicEnable=false\nmaxMessageSize = 2000\n")
    assert answer.code == codes.SUCCESS, answer.remark
    assert (await caller.send("New2")).code == codes.TOPIC_NOT_EXIST
    assert (await caller.send("New1", b"x" * 2_001)).code == codes.MESSAGE_ILLEGAL
    assert (await caller.send("New1", b"x" * 2_000)).code == codes.SUCCESS
    assert await shown(caller, "autoCreateTopicEnable") == "false"
    assert await shown(caller, "maxMessageSize") == "2000"
    assert await version(caller) == 1
    assert (await update(caller, "maxMessageSize=2000")).code == codes.SUCCESS
    assert await version(caller) == 1  # nothing is different


async def test_each_hot_key_can_be_set_to_what_it_is(caller: Caller, broker: Broker) -> None:
    text = "".join(
        f"{key}={text_of(getattr(broker.config, KEYS.fields[key].name))}\n"
        for key in sorted(DYNAMIC)
    )
    assert (await update(caller, text)).code == codes.SUCCESS
    assert await version(caller) == 0


async def test_switching_on_the_making_of_topics_makes_the_model_for_them(
    start: Start, config: Config
) -> None:
    broker = await start(config(auto_create_topic_enable=False))
    caller = Caller(broker)
    assert (await caller.send("New")).code == codes.TOPIC_NOT_EXIST
    await update(caller, "autoCreateTopicEnable=true")
    assert (await caller.send("New")).code == codes.SUCCESS
    await caller.peers.close()


async def test_switching_off_the_making_of_groups_refuses_new_ones(caller: Caller) -> None:
    await caller.send("T")
    assert (await caller.pull("T", group="G1")).code == codes.SUCCESS
    await update(caller, "autoCreateSubscriptionGroup=false")
    assert (await caller.pull("T", group="G2")).code == codes.SUBSCRIPTION_GROUP_NOT_EXIST
    assert (await caller.pull("T", group="G1")).code == codes.SUCCESS


async def test_the_memory_for_clients_can_be_changed(broker: Broker, caller: Caller) -> None:
    assert (await update(caller, f"clientMemoryBytesMax={32 << 20}")).code == codes.SUCCESS
    assert broker.server.scheduler.budget.bytes_max == 32 << 20
    assert (await update(caller, "clientMemoryBytesMax=1")).code == codes.INVALID_PARAMETER


async def test_the_hours_in_which_old_files_go_can_be_changed(
    broker: Broker, caller: Caller
) -> None:
    assert (await update(caller, "deleteWhen=05;23")).code == codes.SUCCESS
    assert broker.store.settings.rules.hours == {5, 23}
    answer = await update(caller, "deleteWhen=24")
    assert answer.code == codes.INVALID_PARAMETER
    assert "deleteWhen is 24" in (answer.remark or "")
    assert broker.store.settings.rules.hours == {5, 23}


async def test_lite_pulls_can_be_switched_off(caller: Caller) -> None:
    await caller.send("T")
    lite = codes.LITE_PULL_MESSAGE
    assert (await caller.pull("T", code=lite)).code == codes.SUCCESS
    await update(caller, "litePullMessageEnable=false")
    assert (await caller.pull("T", code=lite)).code == codes.NO_PERMISSION


async def test_filters_can_be_switched_on_for_groups_that_are_there_and_off_again(
    caller: Caller,
) -> None:
    for number in range(3):
        await caller.send("T", b"%d" % number, a=str(number))
    await caller.heartbeat(topics={"T": "a > 1"}, kind="SQL92")

    async def pull(expression: str | None) -> Command:
        return await caller.pull("T", expression=expression, kind="SQL92")

    for expression in (None, "a > 1"):  # as the heartbeat told it, and in the request
        assert (await pull(expression)).code == codes.SYSTEM_ERROR
    assert (await update(caller, "enablePropertyFilter=true")).code == codes.SUCCESS
    for expression in (None, "a > 1"):
        assert [record.body for record in records(await pull(expression))] == [b"2"]
    assert (await update(caller, "enablePropertyFilter=false")).code == codes.SUCCESS
    for expression in (None, "a > 1"):
        assert "enablePropertyFilter=true" in ((await pull(expression)).remark or "")


async def test_a_changed_permission_is_told_to_the_name_servers_with_every_topic(
    broker: Broker, caller: Caller
) -> None:
    told: list[str] = []
    broker.topics.on_change = lambda config: told.append(config.topic_name or "")
    before = broker.topics.version
    await update(caller, "brokerPermission=4")
    assert set(told) == broker.topics.all().keys()
    assert broker.topics.version != before


@pytest.mark.parametrize(
    ("key", "work"),
    [
        ("transactionCheckInterval", "check"),
        ("transactionOpBatchInterval", "write_ended"),
    ],
)
async def test_a_shorter_period_of_transactions_holds_at_once(
    start: Start,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    work: str,
) -> None:
    done = asyncio.Event()
    monkeypatch.setattr(Transactions, work, lambda *_: done.set())
    hour = 3_600_000
    broker = await start(
        config(transaction_check_interval=hour, transaction_op_batch_interval=hour)
    )
    caller = Caller(broker)
    assert (await update(caller, f"{key}=10")).code == codes.SUCCESS
    async with asyncio.timeout(LONG):
        await done.wait()
        done.clear()
        await done.wait()  # again and again
    assert (await update(caller, f"{key}={hour}")).code == codes.SUCCESS
    await caller.peers.close()


async def test_a_shorter_period_of_counts_holds_at_once(start: Start, config: Config) -> None:
    broker = await start(config(transaction_metric_flush_interval=3_600_000))
    caller = Caller(broker)
    assert (await caller.send("T", TRAN_MSG="true", PGROUP="pg")).code == codes.SUCCESS
    assert broker.transaction_counts.changed
    assert (await update(caller, "transactionMetricFlushInterval=10")).code == codes.SUCCESS
    await until(broker.transaction_counts.path.exists)
    await caller.peers.close()


async def test_members_are_not_told_of_each_other_once_that_is_switched_off(
    broker: Broker, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(broker.notices, "tell", lambda group: told.append(group.name))
    await caller.heartbeat(group="G1", topics={"T": "*"})
    assert told == ["G1"]
    await update(caller, "notifyConsumerIdsChangedEnable=false")
    await caller.heartbeat(group="G2", topics={"T": "*"})
    assert told == ["G1"]


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("storePathRootDir=/tmp/x", codes.NO_PERMISSION, "black list. storePathRootDir may be"),
        ("brokerConfigPath=/etc/passwd", codes.NO_PERMISSION, "black list. brokerConfigPath"),
        ("messageStorePlugIn=com.evil.Store", codes.NO_PERMISSION, "messageStorePlugIn may be"),
        ("namesrvAddr=evil:9876", codes.NO_PERMISSION, "namesrvAddr may be"),
        ("listenPort=1", codes.NO_PERMISSION, "listenPort may be"),
        ("authenticationEnabled=false", codes.NO_PERMISSION, "authenticationEnabled may be"),
        ("mappedFileSizeCommitLog=4096", codes.NO_PERMISSION, "mappedFileSizeCommitLog may be"),
        ("authConfigPath=/etc", codes.NO_PERMISSION, "authConfigPath may be"),
        ("socksProxyConfig={}", codes.NO_PERMISSION, "socksProxyConfig may be"),
        ("configManagerVersion=" + "v" * 1_025, codes.INVALID_PARAMETER, "at most 1024"),
        ("configManagerVersion=a\\nb=c", codes.INVALID_PARAMETER, "printable"),
        (
            "subscriptionExpiredTimeout=soon",
            codes.INVALID_PARAMETER,
            "subscriptionExpiredTimeout is 'soon'",
        ),
        ("popPollingSize=-1", codes.INVALID_PARAMETER, "popPollingSize is '-1'"),
        ("maxMessageSize=many", codes.INVALID_PARAMETER, "maxMessageSize is 'many'"),
        ("maxMessageSize=-1", codes.INVALID_PARAMETER, "maxMessageSize is '-1'"),
        ("brokerPermission=8", codes.INVALID_PARAMETER, "brokerPermission is '8'"),
        ("autoCreateTopicEnable=perhaps", codes.INVALID_PARAMETER, "autoCreateTopicEnable"),
        (b"maxMessageSize=\xff", codes.INVALID_PARAMETER, "the settings can't be read"),
        (b"#" * ((1 << 20) + 1), codes.INVALID_PARAMETER, "the limit is 1048576"),
    ],
)
async def test_what_may_not_be_changed_is_refused_with_the_reason(
    caller: Caller, text: str | bytes, code: int, words: str
) -> None:
    answer = await update(caller, text)
    assert answer.code == code
    assert words in (answer.remark or "")
    assert await version(caller) == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("enableNotifyAfterPopOrderLockRelease", "false"),
        ("enablePopLog", "true"),
        ("onlyTheFileKnowsThis", "42"),
        ("metricsOtelCardinalityLimit", "70000"),
    ],
)
async def test_a_key_without_an_effect_is_kept_and_shown_and_outlives_a_restart(
    start: Start, config: Config, caplog: pytest.LogCaptureFixture, key: str, value: str
) -> None:
    caplog.set_level("INFO")
    for is_first in (True, False):
        broker = await start(config(others={"onlyTheFileKnowsThis": "1"}))
        caller = Caller(broker)
        if is_first:
            answer = await update(caller, f"{key}={value}")
            assert answer.code == codes.SUCCESS, answer.remark
            assert f"{key} is {value} now" in caplog.text
            assert "without effect" in caplog.text
        assert await shown(caller, key) == value
        await caller.peers.close()
        await broker.stop()


async def test_a_setting_that_is_read_once_holds_from_the_next_start_on(
    start: Start, config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    broker = await start(config())
    caller = Caller(broker)
    assert (await update(caller, "flushDiskType=SYNC_FLUSH")).code == codes.SUCCESS
    assert "takes effect at the next start" in caplog.text
    assert await shown(caller, "flushDiskType") == "SYNC_FLUSH"
    assert broker.config.flush_disk_type == "ASYNC_FLUSH"
    await caller.peers.close()
    await broker.stop()
    broker = await start(config())
    assert broker.config.flush_disk_type == "SYNC_FLUSH"
    assert broker.syncer.for_responses is not None


async def test_an_unknown_key_is_not_kept_as_in_rocketmq(
    start: Start, config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start(config())
    caller = Caller(broker)
    before = await version(caller)
    answer = await update(caller, "noSuchSetting=1")
    assert answer.code == codes.SUCCESS
    assert await version(caller) == before
    assert (await update(caller, "fileReservdTime=9\nfileReservedTime=48")).code == codes.SUCCESS
    assert await shown(caller, "fileReservedTime") == "48"
    found = (await caller.ask(codes.GET_BROKER_CONFIG)).body or b""
    assert b"noSuchSetting" not in found
    assert b"fileReservdTime" not in found
    assert "fileReservdTime; did you mean fileReservedTime?" in caplog.text
    await caller.peers.close()


async def test_an_unknown_key_that_an_older_version_has_kept_is_dropped(
    start: Start, config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "store" / "config" / "hotKeys.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"changes":{"noSuchSetting":{"text":"1","insteadOf":""}}}')
    caller = Caller(await start(config()))
    assert b"noSuchSetting" not in ((await caller.ask(codes.GET_BROKER_CONFIG)).body or b"")
    assert "unknown keys (hotKeys.json) are not kept, the first is noSuchSetting" in caplog.text
    await caller.peers.close()


def test_each_setting_that_waits_for_a_start_is_a_number_a_switch_or_a_word_of_a_list() -> None:
    assert KEYS.fields.keys() >= AT_START
    assert not AT_START & DYNAMIC
    for key in AT_START:
        kind = str(KEYS.fields[key].type)
        assert "int" in kind or "bool" in kind or "Literal" in kind, key
        assert "filesize" not in key.lower()


async def test_traces_are_switched_off_for_messages_and_answers_at_once(
    caller: Caller, broker: Broker
) -> None:
    for is_on in ("true", "false", "true"):
        await update(caller, f"traceOn={is_on}")
        answer = await caller.send("T")
        assert answer.fields()["TRACE_ON"] == is_on
        found = await caller.pull("T", int(answer.fields()["queueOffset"]))
        assert records(found)[0].properties["TRACE_ON"] == is_on


async def test_one_wrong_key_keeps_all_from_changing(caller: Caller) -> None:
    answer = await update(caller, "rejectTransactionMessage=true\nlistenPort=1\n")
    assert answer.code == codes.NO_PERMISSION
    assert await shown(caller, "rejectTransactionMessage") == "false"


async def test_an_empty_change_is_taken(caller: Caller) -> None:
    assert (await update(caller, "")).code == codes.SUCCESS
    assert (await update(caller, "# nothing\n")).code == codes.SUCCESS


async def test_a_change_outlives_a_restart(start: Start, config: Config) -> None:
    broker = await start(config())
    caller = Caller(broker)
    await update(caller, "rejectTransactionMessage=true")
    await caller.peers.close()
    await broker.stop()
    caller = Caller(await start(config()))
    assert await shown(caller, "rejectTransactionMessage") == "true"
    assert await version(caller) == 1
    await caller.peers.close()


async def test_a_change_that_is_taken_back_leaves_nothing_behind(
    start: Start, config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    broker = await start(config())
    caller = Caller(broker)
    for text in ("true", "false"):
        await update(caller, f"rejectTransactionMessage={text}\n")
        assert await shown(caller, "rejectTransactionMessage") == text
    assert "rejectTransactionMessage is false now, it was true" in caplog.text
    await caller.peers.close()
    await broker.stop()
    caller = Caller(await start(config()))
    assert await version(caller) == 2
    assert "set over the network" not in caplog.text
    await caller.peers.close()


async def test_a_change_gives_way_to_a_configuration_that_has_changed_since(
    start: Start, config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start(config())
    caller = Caller(broker)
    await update(caller, "maxMessageSize=2000\ntransactionCheckMax=3")
    await caller.peers.close()
    await broker.stop()
    caller = Caller(await start(config(max_message_size=3_000)))
    assert await shown(caller, "maxMessageSize") == "3000"
    assert await shown(caller, "transactionCheckMax") == "3"
    assert "maxMessageSize is 3000: the configuration has a new value" in caplog.text
    await caller.peers.close()


def test_a_kept_change_of_a_key_that_is_not_hot_is_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "hotKeys.json"
    changes = {
        "listenPort": {"text": "1", "insteadOf": "10911"},
        "shortPollingTimeMills": {"text": "soon", "insteadOf": "1000"},
    }
    path.write_text(json.dumps({"changes": changes}))
    config = BrokerConfig()
    DynamicSettings(config, path, lambda: 0).load()
    assert (config.listen_port, config.short_polling_time_mills) == (10_911, 1_000)
    assert caplog.text.count("is dropped") == 2


async def test_levels_of_loggers_change_while_the_broker_runs(caller: Caller) -> None:
    logger = logging.getLogger("aerobee.broker.pull")
    before = logger.level
    try:
        answer = await update(caller, "logLevel=aerobee.broker.pull=error\n")
        assert answer.code == codes.SUCCESS, answer.remark
        assert logger.level == logging.ERROR
        for text in ("aerobee.broker.pul=error", "loud", "/etc/passwd=info"):
            assert (await update(caller, f"logLevel={text}")).code == codes.INVALID_PARAMETER
        assert (await update(caller, "logFile=x")).code == codes.NO_PERMISSION
        assert logger.level == logging.ERROR
    finally:
        answer = await update(caller, "logLevel=\n")
    assert answer.code == codes.SUCCESS, answer.remark
    assert logger.level == before
