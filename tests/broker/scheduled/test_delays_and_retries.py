"""Messages that come later: delay levels, send-backs, dead letters, over a restart."""

import asyncio
import json
from struct import pack, unpack

import pytest
from aerobee.broker.server import Broker
from aerobee.broker.settings.delay_levels import parse_levels
from aerobee.protocol import codes
from aerobee.protocol.bodies.group import SubscriptionGroupConfig
from aerobee.protocol.bodies.topic import TopicConfig
from aerobee.protocol.headers.send import ConsumerSendMsgBack
from aerobee.protocol.message.record import Record

from ...clocks import Clock
from ..conftest import Caller, Config, Run, counted, records

ON_BOTH_ENGINES = True


def deliver(broker: Broker) -> None:
    broker.delays.deliver(broker.now_ms())


async def bodies(caller: Caller, topic: str = "T", offset: int = 0) -> list[bytes]:
    return [record.body for record in records(await caller.pull(topic, offset))]


async def test_a_delayed_message_comes_when_its_level_says(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config())
    answer = await caller.send("T", b"late", DELAY="2", TAGS="x")
    assert (answer.code, answer.fields()["queueId"]) == (0, "0")
    assert await bodies(caller) == []
    clock.ms += 4_999
    deliver(broker)
    assert await bodies(caller) == []
    clock.ms += 1
    deliver(broker)
    (record,) = records(await caller.pull("T", expression="x"))
    assert (record.body, record.queue_id, record.store_ms) == (b"late", 0, clock.ms)
    deliver(broker)
    assert len(await bodies(caller)) == 1


async def test_levels_keep_their_own_order_and_a_level_too_high_is_the_last(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config(message_delay_level="1s 5s"))
    await caller.send("T", b"last", DELAY="99")
    await caller.send("T", b"first", DELAY="1")
    await caller.send("T", b"now", DELAY="0")
    assert await bodies(caller) == [b"now"]
    clock.ms += 1_000
    deliver(broker)
    clock.ms += 4_000
    deliver(broker)
    assert await bodies(caller) == [b"now", b"first", b"last"]


@pytest.mark.parametrize("pairs", [{}, {"TIMER_DELAY_SEC": "60"}])
async def test_readers_are_told_the_level_that_a_message_had(
    run: Run, config: Config, clock: Clock, pairs: dict[str, str]
) -> None:
    broker, caller = await run(config(message_delay_level="1s 5s"))
    await caller.send("T", b"m", DELAY="99", k="v", pairs=pairs)
    clock.ms += 5_000
    deliver(broker)
    (record,) = records(await caller.pull("T"))
    assert (record.properties["DELAY"], record.properties["k"]) == ("2", "v")


async def test_a_clock_that_was_set_back_does_not_lock_a_message_in(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config())
    await caller.send("T", b"late", DELAY="1")
    clock.ms += 999
    deliver(broker)
    assert await bodies(caller) == []
    # Now it is further away than its level says: as in RocketMQ it comes at once.
    clock.ms -= 3_600_000
    deliver(broker)
    assert await bodies(caller) == [b"late"]


async def test_what_waits_survives_a_restart_and_comes_once(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config())
    await caller.send("T", b"one", DELAY="1")
    clock.ms += 1_000
    deliver(broker)
    await caller.send("T", b"two", DELAY="1")
    await caller.peers.close()
    await broker.stop()
    clock.ms += 1_000
    broker, caller = await run(config())
    deliver(broker)
    assert await bodies(caller) == [b"one", b"two"]


async def test_a_delivered_message_wakes_its_reader(run: Run, config: Config, clock: Clock) -> None:
    broker, caller = await run(config())
    await caller.send("T", b"now")
    waiting = asyncio.ensure_future(caller.pull("T", 1, suspend_ms=15_000))
    await caller.send("T", b"late", DELAY="1")
    clock.ms += 1_000
    deliver(broker)
    assert [record.body for record in records(await waiting)] == [b"late"]


async def send_back(caller: Caller, record: Record, level: int = 0, most: int | None = None) -> int:
    header = ConsumerSendMsgBack(
        record.log_offset, "cg", level, "ID", record.topic, max_reconsume_times=most
    )
    return (await caller.ask(codes.CONSUMER_SEND_MSG_BACK, header)).code


async def test_a_message_sent_back_comes_again_each_time_later(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config())
    await caller.send("T", b"hard", TAGS="x", KEYS="k")
    (record,) = records(await caller.pull("T"))
    first_id = record.offset_id
    for times, wait_s in ((1, 10), (2, 30), (3, 60)):
        assert await send_back(caller, record) == 0
        clock.ms += wait_s * 1_000 - 1
        deliver(broker)
        assert len(await bodies(caller, "%RETRY%cg")) == times - 1
        clock.ms += 1
        deliver(broker)
        record = records(await caller.pull("%RETRY%cg"))[-1]
        assert (record.body, record.reconsume_times) == (b"hard", times)
        assert record.properties["RETRY_TOPIC"] == "T"
        assert record.properties["ORIGIN_MESSAGE_ID"] == first_id
        assert (record.properties["TAGS"], record.properties["KEYS"]) == ("x", "k")


async def test_a_message_counts_for_its_topic_once_it_has_come_there(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config())
    await caller.send("T", b"late", DELAY="1")
    assert counted(broker) == {"SCHEDULE_TOPIC_XXXX": 1}
    clock.ms += 1_000
    deliver(broker)
    assert counted(broker) == {"SCHEDULE_TOPIC_XXXX": 1, "T": 1}
    (record,) = records(await caller.pull("T"))
    assert broker.stats.puts("T").bytes == record.size
    assert await send_back(caller, record) == 0
    assert counted(broker) == {"SCHEDULE_TOPIC_XXXX": 2, "T": 1}
    clock.ms += 10_000
    deliver(broker)
    assert counted(broker) == {"SCHEDULE_TOPIC_XXXX": 2, "T": 1, "%RETRY%cg": 1}
    assert broker.stats.users_puts().messages == 2


async def test_a_message_that_failed_too_often_is_a_dead_letter(run: Run, config: Config) -> None:
    _broker, caller = await run(config())
    await caller.send("T", b"hopeless")
    (record,) = records(await caller.pull("T"))
    assert await send_back(caller, record, most=0) == 0
    (dead,) = records(await caller.pull("%DLQ%cg"))
    assert (dead.body, dead.properties["RETRY_TOPIC"]) == (b"hopeless", "T")
    assert dead.properties["DELAY"] == "0"
    assert not [name for name in dead.properties if name.startswith("DLQ_ORIGIN")]
    assert await send_back(caller, record, level=-1) == 0
    assert len(await bodies(caller, "%DLQ%cg")) == 2


async def test_a_dead_letter_keeps_what_its_last_try_had(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config())
    await caller.send("T", b"m", TIMER_DELIVER_MS="1", TAGS="x")
    (record,) = records(await caller.pull("T"))
    assert await send_back(caller, record, level=-1) == 0
    assert await send_back(caller, record, level=1) == 0
    clock.ms += 1_000
    deliver(broker)
    (again,) = records(await caller.pull("%RETRY%cg"))
    assert await send_back(caller, again, level=-1) == 0
    first, second = (each.properties for each in records(await caller.pull("%DLQ%cg")))
    assert (first["TIMER_DELIVER_MS"], first["TAGS"]) == ("1", "x")
    assert second["REAL_TOPIC"] == "%RETRY%cg"
    assert "TIMER_DELIVER_MS" not in second  # the level took it away


async def test_only_a_closed_retry_topic_keeps_a_message_from_coming_back(
    run: Run, config: Config
) -> None:
    broker, caller = await run(config())
    await caller.send("T", b"m")
    (record,) = records(await caller.pull("T"))
    broker.topics.put(TopicConfig("%DLQ%cg", 1, 1, perm=4))
    # RocketMQ checks no permission for a dead letter.
    assert await send_back(caller, record, level=-1) == codes.SUCCESS
    assert await bodies(caller, "%DLQ%cg") == [b"m"]
    assert broker.topics.get("%RETRY%cg") is not None
    broker.topics.put(TopicConfig("%RETRY%cg", 1, 1, perm=4))
    for level in (0, -1):
        header = ConsumerSendMsgBack(record.log_offset, "cg", level)
        answer = await caller.ask(codes.CONSUMER_SEND_MSG_BACK, header)
        assert answer.code == codes.NO_PERMISSION
        assert "the topic[%RETRY%cg] is not writable: its perm is 4" in (answer.remark or "")
    assert await bodies(caller, "%DLQ%cg") == [b"m"]


async def test_an_origin_of_blanks_is_none(run: Run, config: Config) -> None:
    _broker, caller = await run(config())
    await caller.send("T", b"m", ORIGIN_MESSAGE_ID=" ")
    (record,) = records(await caller.pull("T"))
    assert await send_back(caller, record, level=-1) == codes.SUCCESS
    (dead,) = records(await caller.pull("%DLQ%cg"))
    assert dead.properties["ORIGIN_MESSAGE_ID"] == record.offset_id


async def test_the_limit_of_tries_is_the_clients_from_one_version_on_or_its_groups(
    run: Run, config: Config
) -> None:
    broker, caller = await run(config())
    await caller.send("T", b"m")
    (record,) = records(await caller.pull("T"))
    fields = {"offset": str(record.log_offset), "delayLevel": "0", "originTopic": "T"}
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    # The group's limit, the client's, its version, and whether this was one try too many.
    for most, clients, version, is_dead in (
        (0, None, 479, True),
        (1, None, 479, False),
        (0, 1, 121, False),
        (1, 0, 121, True),
        (0, 1, 120, True),
        (1, 0, 120, False),
    ):
        name = f"g{most}{clients}{version}"
        broker.groups.put(SubscriptionGroupConfig(name, retry_max_times=most))
        ext = fields | {"group": name}
        if clients is not None:
            ext["maxReconsumeTimes"] = str(clients)
        header = json.dumps(
            {
                "code": 36,
                "language": "JAVA",
                "version": version,
                "opaque": 1,
                "flag": 0,
                "extFields": ext,
            }
        ).encode()
        writer.write(pack(">ii", 4 + len(header), len(header)) + header)
        answer = await reader.readexactly(*unpack(">i", await reader.readexactly(4)))
        assert json.loads(answer[4:])["code"] == codes.SUCCESS
        assert (broker.topics.get(f"%DLQ%{name}") is not None) is is_dead
    writer.close()
    await writer.wait_closed()


async def test_a_retry_topic_follows_its_groups_number_of_queues(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config())
    await caller.send("T", b"m")
    (record,) = records(await caller.pull("T"))

    async def used(queues: int) -> set[int]:
        """The retry queues that get messages now."""
        broker.groups.put(SubscriptionGroupConfig("cg", retry_queue_nums=queues))
        ends = [broker.store.max_offset("%RETRY%cg", n) for n in range(3)]
        for _ in range(40):
            assert await send_back(caller, record, level=1) == 0
        clock.ms += 1_000
        while broker.delays.deliver(clock.ms):
            pass
        return {n for n in range(3) if broker.store.max_offset("%RETRY%cg", n) > max(0, ends[n])}

    for queues in (1, 3, 2):
        assert await used(queues) == set(range(queues))
    topic = broker.topics.get("%RETRY%cg")
    assert topic is not None
    # What waits in the third is read on.
    assert (topic.read_queue_nums, topic.write_queue_nums) == (3, 3)


async def test_a_message_that_comes_back_twice_counts_for_its_first_topic(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config())
    await caller.send("T", b"m")
    (record,) = records(await caller.pull("T"))
    for _ in range(2):
        assert await send_back(caller, record, level=1) == 0
        clock.ms += 1_000
        deliver(broker)
        record = records(await caller.pull("%RETRY%cg"))[-1]
    assert broker.stats.send_backs("T", "cg").messages == 2
    assert broker.stats.send_backs("%RETRY%cg", "cg").messages == 0


async def test_a_message_that_is_not_there_can_not_come_back(run: Run, config: Config) -> None:
    _broker, caller = await run(config())
    header = ConsumerSendMsgBack(123_456, "cg", 0)
    answer = await caller.ask(codes.CONSUMER_SEND_MSG_BACK, header)
    assert answer.code == 1
    assert (answer.remark or "").startswith("look message by offset failed, 123456: no message")


def test_levels_are_read_from_their_text() -> None:
    assert parse_levels("1s 2m 3h 1d") == [1_000, 120_000, 10_800_000, 86_400_000]
    for bad in ("", "5", "s", "1s 2x"):
        with pytest.raises(ValueError, match="messageDelayLevel"):
            parse_levels(bad)
