"""An aerobee master and its slave behind a name server: reads, refusals, failover."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from aerobee.broker import server
from aerobee.broker.monitoring.overview import fault, not_ready, note, overview
from aerobee.broker.naming import registration
from aerobee.broker.pull.role import MASTER_MS
from aerobee.broker.replication import slave as ha_slave
from aerobee.protocol import codes
from aerobee.protocol.bodies.cluster import ClusterInfo
from aerobee.protocol.headers.offsets import QueryConsumerOffset, UpdateConsumerOffset
from aerobee.protocol.headers.topics import TopicName, UpdateTopic

from ...steps import result_of
from ...waiting import until
from ..conftest import Config, parked, records
from ..monitoring.test_metrics import values
from ..pairs import Pair
from ..virtual_time import monotonic_ms

IN_VIRTUAL_TIME = True


@pytest.fixture
async def pair(config: Config, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    monkeypatch.setattr(ha_slave, "RETRY_SECONDS", 0.05)
    made = Pair(config)
    await made.start()
    yield made
    await made.stop()


async def test_both_are_registered_and_the_slave_knows_its_master(pair: Pair) -> None:
    answer = await pair.caller(pair.master).peers.request(
        pair.namesrv.address, codes.GET_BROKER_CLUSTER_INFO
    )
    found = ClusterInfo.decode(answer.body or b"").broker_addr_table["broker-a"]
    assert found.broker_addrs == {0: pair.master.address, 1: pair.slave.address}
    assert pair.replica.master() == pair.master.address
    await until(lambda: pair.replica.sync.synced_ms > 0)
    assert pair.slave.topics.version == pair.master.topics.version


async def test_a_slave_shows_the_address_of_its_master(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The metrics ask the system for the room on a disk, which has no folder of a simulated one.
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(used=0))
    found = result_of(overview(pair.slave))
    assert (found["role"], found["broker_id"], found["follows_now"]) == ("SLAVE", 1, True)
    assert found["follows"] == f"127.0.0.1:{pair.master.ha_port}"
    assert values(pair.slave, "aerobee_follows") == {(): 1}
    await pair.halt(pair.master)
    await until(lambda: values(pair.slave, "aerobee_follows") == {(): 0})
    assert result_of(overview(pair.slave))["follows_now"] is False


async def test_a_slave_without_its_master_is_healthy_and_reports_that_it_is_read_only(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert note(pair.slave) is None
    assert note(pair.master) is None
    await pair.halt(pair.master)
    slave = pair.slave.ha_slave
    assert slave is not None
    await until(lambda: not slave.connected)
    later = pair.slave.alive_ms() + 90_000
    monkeypatch.setattr(slave, "now_ms", lambda: later)
    said = re.fullmatch(
        r"reading only, the master of broker-a has been away for (\d+) s", note(pair.slave) or ""
    )
    assert said is not None
    assert 85 <= int(said[1]) <= 90
    assert (fault(pair.slave), not_ready(pair.slave)) == (None, None)


async def test_replicated_messages_can_be_read_from_the_slave(pair: Pair) -> None:
    await until(lambda: pair.replica.sync.synced_ms > 0)
    await pair.ask_master.send("T", b"one")
    await pair.caught_up()
    # The topic of a replicated message is copied at the next tick, not the next minute.
    await pair.replica.tick()
    answer = await pair.ask_slave.pull("T")
    assert [one.body for one in records(answer)] == [b"one"]
    assert answer.fields()["suggestWhichBrokerId"] == "0"


async def has_topic(pair: Pair, name: str = "T") -> None:
    """Creates a topic on both brokers."""
    await pair.ask_master.ask(codes.UPDATE_AND_CREATE_TOPIC, UpdateTopic(name, 1, 1, 6))
    await until(lambda: pair.replica.sync.synced_ms > 0)
    await pair.copied()
    assert pair.slave.topics.get(name) is not None


async def test_a_pull_that_finds_nothing_on_the_slave_is_sent_to_the_master(pair: Pair) -> None:
    await has_topic(pair)
    for offset in (0, 7):  # the end, and an offset not replicated yet
        answer = await pair.ask_slave.pull("T", offset)
        assert answer.code == codes.PULL_RETRY_IMMEDIATELY
        fields = answer.fields()
        assert fields["suggestWhichBrokerId"] == "0"
        assert fields["nextBeginOffset"] == str(offset)  # a slave doesn't correct offsets


async def test_a_long_poll_on_the_slave_is_sent_to_the_master_after_a_moment(pair: Pair) -> None:
    await has_topic(pair)
    pair.replica.sweep()  # the master's return is not a recent event
    begun_ms = monotonic_ms()
    answer = await pair.ask_slave.pull("T", suspend_ms=60_000)
    assert answer.code == codes.PULL_RETRY_IMMEDIATELY
    assert monotonic_ms() - begun_ms >= MASTER_MS
    waits = asyncio.create_task(pair.ask_slave.pull("T", suspend_ms=60_000))
    await parked(pair.slave, 1)
    await pair.ask_master.send("T", b"one")  # the message arrives first
    assert [one.body for one in records(await waits)] == [b"one"]


async def test_without_its_master_a_slave_parks_pulls_until_the_master_returns(pair: Pair) -> None:
    await has_topic(pair)
    await pair.ask_master.send("T", b"one")
    await pair.caught_up()
    await pair.halt(pair.master)
    await until(lambda: not pair.replica.is_master_there())
    answer = await pair.ask_slave.pull("T")
    assert [one.body for one in records(answer)] == [b"one"]
    waits = asyncio.create_task(pair.ask_slave.pull("T", 1, suspend_ms=60_000))
    beyond = asyncio.create_task(pair.ask_slave.pull("T", 5, suspend_ms=60_000))
    await parked(pair.slave, 2)
    await pair.return_master()
    for waiting in (waits, beyond):
        assert (await waiting).code == codes.PULL_RETRY_IMMEDIATELY


# What a slave answers, and how its remark begins.
BUSY = codes.SYSTEM_BUSY, "[REJECTREQUEST]this broker is a slave"
POP = codes.SLAVE_NOT_AVAILABLE, "this broker is a slave, which can't note what is popped"
TRANSACTION = codes.SLAVE_NOT_AVAILABLE, "this broker is a slave, which ends no transactions"
CHANGE = codes.SYSTEM_ERROR, "Can't modify topic or subscription group from slave broker"
RESET = codes.SYSTEM_ERROR, "Can not reset offset in slave broker"
REFUSED = {
    codes.SEND_MESSAGE: BUSY,
    codes.SEND_MESSAGE_V2: BUSY,
    codes.SEND_BATCH_MESSAGE: BUSY,
    codes.CONSUMER_SEND_MSG_BACK: BUSY,
    codes.END_TRANSACTION: TRANSACTION,
    codes.RESUME_CHECK_HALF_MESSAGE: TRANSACTION,
    codes.RECALL_MESSAGE: (codes.SLAVE_NOT_AVAILABLE, "recall failed: this broker is a slave"),
    codes.POP_MESSAGE: POP,
    codes.ACK_MESSAGE: POP,
    codes.BATCH_ACK_MESSAGE: POP,
    codes.CHANGE_MESSAGE_INVISIBLETIME: POP,
    codes.NOTIFICATION: POP,
    codes.UPDATE_AND_CREATE_TOPIC: CHANGE,
    codes.UPDATE_AND_CREATE_TOPIC_LIST: CHANGE,
    codes.UPDATE_AND_CREATE_STATIC_TOPIC: CHANGE,
    codes.DELETE_TOPIC_IN_BROKER: CHANGE,
    codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: CHANGE,
    codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: CHANGE,
    codes.DELETE_SUBSCRIPTIONGROUP: CHANGE,
    codes.UPDATE_AND_GET_GROUP_FORBIDDEN: CHANGE,
    codes.SET_MESSAGE_REQUEST_MODE: CHANGE,
    codes.CLEAN_UNUSED_TOPIC: CHANGE,
    codes.INVOKE_BROKER_TO_RESET_OFFSET: RESET,
    codes.CLONE_GROUP_OFFSET: RESET,
}


async def test_a_refusal_gives_the_reason_and_the_address_of_the_master(pair: Pair) -> None:
    for code in codes.REQUEST_NAMES:
        answer = await pair.ask_slave.ask(code)
        assert (f"its master is {pair.master.address}" in (answer.remark or "")) is (
            code in REFUSED
        ), code
        if code not in REFUSED:
            continue
        assert answer.code == REFUSED[code][0]
        assert (answer.remark or "").startswith(REFUSED[code][1])
        assert (answer.remark or "").endswith(f"its master is {pair.master.address}, take it there")


async def test_groups_report_their_offsets_to_a_slave_as_well(pair: Pair) -> None:
    await has_topic(pair)
    where = ("cg", "T", 0)
    await pair.ask_slave.heartbeat(topics={"T": "*"})
    answer = await pair.ask_slave.ask(codes.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffset(*where, 4))
    assert answer.code == codes.SUCCESS
    answer = await pair.ask_slave.ask(codes.QUERY_CONSUMER_OFFSET, QueryConsumerOffset(*where))
    assert answer.fields() == {"offset": "4"}


async def test_a_slave_does_not_deliver_delayed_messages(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    await has_topic(pair)
    await pair.ask_master.send("T", b"late", DELAY="1")
    await pair.caught_up()
    end = pair.slave.store.log_end
    await pair.halt(pair.master)
    pair.ahead_ms = 60_000  # the level is a second
    await pair.slave.catch_up()
    assert pair.slave.store.log_end == end
    assert "delay level" not in caplog.text  # not even tried: the log of a slave refuses it


async def test_a_new_master_does_not_repeat_the_deliveries_of_the_old_one(
    pair: Pair,
) -> None:
    await has_topic(pair)
    soon = str(server.wall_clock_ms() + 1_000)
    await pair.ask_master.send("T", b"by level", DELAY="1")
    await pair.ask_master.send("T", b"by time", TIMER_DELIVER_MS=soon)
    await pair.ask_master.send("T", b"much later", DELAY="18")
    pair.ahead_ms = 10_000
    await until(lambda: pair.master.store.max_offset("T", 0) == 2)
    await pair.caught_up()
    slave = pair.slave
    assert slave.timers is not None
    assert pair.master.timers is not None
    state, other = slave.timers.state, pair.master.timers.state
    await until(lambda: other.check.queue_offset == 1)
    await pair.copied()
    await until(lambda: state.queue_offset == 1 and state.read_ms >= other.check.read_ms)
    assert slave.delays.offsets == {1: 1}
    await pair.halt(pair.master)
    await pair.halt(slave)
    new = await pair.broker("slave")
    await new.catch_up()
    assert new.store.max_offset("T", 0) == 2
    pair.ahead_ms = 3 * 3_600_000
    await until(lambda: new.store.max_offset("T", 0) == 3)
    found = records(await pair.caller(new).pull("T"))
    assert sorted(one.body for one in found) == [b"by level", b"by time", b"much later"]


async def test_a_slave_started_as_master_has_all_state_and_serves(pair: Pair) -> None:
    await has_topic(pair)
    for number in range(20):
        await pair.ask_master.send("T", b"%d" % number)
    await pair.ask_master.send("T", b"late", DELAY="1")
    pair.master.offsets.commit("T", "cg", 0, 7)
    await pair.copied()
    await pair.halt(pair.master)
    await pair.halt(pair.slave)
    new = await pair.broker("slave")  # brokerRole=ASYNC_MASTER, and so brokerId=0
    caller = pair.caller(new)
    assert (await caller.send("T", b"20")).code == codes.SUCCESS
    found = [one.body for one in records(await caller.pull("T"))]
    assert found[:20] == [b"%d" % number for number in range(20)]
    assert new.offsets.get("T", "cg", 0) == 7
    await until(lambda: new.store.max_offset("T", 0) == 22)
    assert sorted(one.body for one in records(await caller.pull("T", 20))) == [b"20", b"late"]


async def test_a_slave_holds_what_a_group_has_not_read_at_its_master(pair: Pair) -> None:
    attributes = UpdateTopic("T", 1, 1, 6, attributes="+retention.bytes=1")
    assert (await pair.ask_master.ask(codes.UPDATE_AND_CREATE_TOPIC, attributes)).code == 0
    for number in range(20):
        await pair.ask_master.send("T", b"%d" % number)
    await pair.caught_up()
    await pair.ask_slave.ask(codes.UPDATE_BROKER_CONFIG, None, b"retainUntilConsumedBy=cg")
    for offset, least in ((7, 7), (20, 19)):
        pair.master.offsets.commit("T", "cg", 0, offset)
        await pair.copied()
        await pair.slave.cleaner.run()
        assert pair.slave.store.min_offset("T", 0) == least


async def test_a_recreated_topic_starts_at_offset_0_on_the_slave(
    pair: Pair,
) -> None:
    await has_topic(pair)
    for number in range(5):
        await pair.ask_master.send("T", b"old %d" % number)
    await pair.caught_up()
    await pair.ask_master.ask(codes.DELETE_TOPIC_IN_BROKER, TopicName("T"))
    await has_topic(pair)
    await pair.ask_master.send("T", b"new")
    await pair.caught_up()
    found = [(one.queue_offset, one.body) for one in records(await pair.ask_slave.pull("T"))]
    assert found == [(0, b"new")]


async def test_reading_from_a_slave_must_be_allowed(config: Config) -> None:
    made = Pair(config, slave_read_enable=False)
    await made.start()
    answer = await made.caller(made.slave).pull("T")
    assert answer.code == codes.SYSTEM_BUSY
    assert "slaveReadEnable is false" in (answer.remark or "")
    await made.stop()


async def test_the_answer_of_a_name_server_that_knows_the_master_wins() -> None:
    told: list[registration.MasterAddresses] = []
    one = registration.Registration.__new__(registration.Registration)
    one._servers = ["a:1", "b:1"]
    one._masters, one._master = {}, registration.NO_MASTER
    master = registration.MasterAddresses("m:10911", "m:10912")

    def says(server: str, found: registration.MasterAddresses) -> None:
        class Answer:
            @staticmethod
            def header(kind: Any) -> Any:
                return kind(found.ha_address or None, found.address or None)

        one._take_master(server, Answer(), told.append)  # type: ignore[arg-type]

    says("b:1", master)
    says("a:1", registration.NO_MASTER)  # it was restarted a moment ago
    assert told == [master]
    says("b:1", registration.NO_MASTER)
    assert told == [master, registration.NO_MASTER]
