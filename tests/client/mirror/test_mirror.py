"""A mirror between two clusters: what is at the target, after faults, too."""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aerobee.client import Admin, Consumer, Message, Producer
from aerobee.client.base.start_from import StartFrom
from aerobee.client.errors import ClientError, NoAnswerError
from aerobee.client.mirror import mirror as mirroring
from aerobee.client.mirror.kafka import copyable
from aerobee.client.mirror.mirror import Mirror
from aerobee.client.mirror.origin import PROPERTY, progress_group
from aerobee.client.mirror.side import Side
from aerobee.client.mirror.source import Copyable, Found, Source
from aerobee.client.pull.reader import Reader
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.group import SubscriptionGroupConfig
from aerobee.protocol.bodies.topic import TopicConfig
from aerobee.protocol.message import properties as props
from aerobee.protocol.message.record import Record, decode_all
from aerobee.testing.cluster import LocalCluster

from ...waiting import LONG
from ..fakes import until

SECONDS = LONG


@pytest.fixture(scope="module")
def source() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as one:
        yield one


@pytest.fixture(scope="module")
def target() -> Iterator[LocalCluster]:
    with LocalCluster() as one:
        yield one


async def fill(
    cluster: LocalCluster, topic: str, count: int, *, queues: int = 2, first: int = 0
) -> None:
    """Messages with bodies of their numbers, keys, tags and a property."""
    async with Admin(cluster.name_server) as admin:
        if not first:
            await admin.create_topic(topic, queues)
    async with Producer(cluster.name_server) as producer:
        for number in range(first, first + count):
            await producer.send(
                Message(
                    topic,
                    str(number).encode(),
                    tags="even" if number % 2 == 0 else "odd",
                    keys=[f"k{number}"],
                    properties={"number": str(number)},
                )
            )


async def stored(cluster: LocalCluster, topic: str) -> dict[MessageQueue, list[Record]]:
    """All messages of a topic, by queue."""
    found: dict[MessageQueue, list[Record]] = {}
    async with Reader(cluster.name_server) as reader:
        for queue in await reader.queues(topic):
            records = found[queue] = []
            end = await reader.max_offset(queue)
            while len(records) < end:
                pulled = await reader.pull(queue, len(records), 1_024, bulk=True)
                records += decode_all(pulled.body)
    return found


def numbers(found: dict[MessageQueue, list[Record]]) -> list[list[int]]:
    """The bodies of each queue, in the order of the queues."""
    return [[int(each.body) for each in found[queue]] for queue in sorted(found)]


async def mirrored(
    source: LocalCluster, target: LocalCluster, topics: str, groups: str = "none"
) -> Mirror:
    async with Mirror(
        source.name_server, target.name_server, topics=topics, groups=groups
    ) as mirror:
        await mirror.copy_once()
        return mirror


def assert_copies(copies: list[Record], records: list[Record]) -> None:
    """Each is the copy of the record in its place."""
    for was, now in zip(records, copies, strict=True):
        pairs = now.properties
        assert pairs.pop(PROPERTY).startswith("DefaultCluster/broker-")
        names = ("KEYS", "TAGS", "number", "UNIQ_KEY")
        assert [pairs[name] for name in names] == [was.properties[name] for name in names]
        assert (now.born_ms, now.flag, now.body) == (was.born_ms, was.flag, was.body)


def in_order(found: dict[MessageQueue, list[Record]]) -> list[Record]:
    return [one for queue in sorted(found) for one in found[queue]]


async def test_each_message_is_copied_once_and_in_order(
    source: LocalCluster, target: LocalCluster
) -> None:
    await fill(source, "orders", 40)
    before = await stored(source, "orders")
    mirror = await mirrored(source, target, "orders")
    report = mirror.report()
    assert (report.topics, report.queues, report.copied, report.lag) == (1, 4, 40, 0)
    assert report.failures == ()
    after = await stored(target, "orders")
    assert numbers(after) == numbers(before)
    assert_copies(in_order(after), in_order(before))


async def test_another_mirror_goes_on_where_the_first_ended(
    source: LocalCluster, target: LocalCluster
) -> None:
    await fill(source, "resumed", 10)
    await mirrored(source, target, "resumed")
    await fill(source, "resumed", 10, first=10)
    mirror = await mirrored(source, target, "resumed")
    assert mirror.report().copied == 10
    async with Admin(source.name_server) as admin:  # its progress is that of a group
        group = progress_group(target.name_server)
        stats = await admin.consume_stats(group, "resumed")
    assert [each.consumer_offset for each in stats.offset_table.values()] == [
        each.broker_offset for each in stats.offset_table.values()
    ]
    assert numbers(await stored(target, "resumed")) == numbers(await stored(source, "resumed"))


async def test_a_second_target_gets_all_messages_as_well(
    source: LocalCluster, target: LocalCluster
) -> None:
    await fill(source, "twice", 10)
    await mirrored(source, target, "twice")
    with LocalCluster() as second:
        mirror = await mirrored(source, second, "twice")
        assert mirror.report().copied == 10
        records = in_order(await stored(source, "twice"))
        for each in (target, second):
            assert_copies(in_order(await stored(each, "twice")), records)


async def test_a_second_target_with_messages_of_its_own_gets_all_as_well(
    source: LocalCluster, target: LocalCluster
) -> None:
    await fill(source, "merged", 10)
    await mirrored(source, target, "merged")
    with LocalCluster() as second:
        await fill(second, "merged", 4, queues=4)
        mirror = await mirrored(source, second, "merged")
        assert mirror.report().copied == 10


async def test_a_topic_that_was_deleted_at_the_target_is_copied_again(
    source: LocalCluster, target: LocalCluster
) -> None:
    await fill(source, "again", 10)
    await mirrored(source, target, "again")
    async with Admin(target.name_server) as admin:
        await admin.delete_topic("again")
    mirror = await mirrored(source, target, "again")
    assert mirror.report().copied == 10
    records = in_order(await stored(source, "again"))
    assert_copies(in_order(await stored(target, "again")), records)


async def test_a_topic_that_others_have_made_again_at_the_target_is_copied_again(
    source: LocalCluster, target: LocalCluster
) -> None:
    """Its progress at the source is that of the old one, whose copies are gone."""
    await fill(source, "rebuilt", 10)
    await mirrored(source, target, "rebuilt")
    async with Admin(target.name_server) as admin:
        await admin.delete_topic("rebuilt")
    await fill(target, "rebuilt", 4, queues=4)
    mirror = await mirrored(source, target, "rebuilt")
    assert mirror.report().copied == 10
    copies = [
        one for one in in_order(await stored(target, "rebuilt")) if PROPERTY in one.properties
    ]
    assert_copies(copies, in_order(await stored(source, "rebuilt")))


async def left(cluster: LocalCluster, topic: str) -> list[Record]:
    """The messages of queue 0 that retention has left."""
    async with Reader(cluster.name_server) as reader:
        (queue,) = await reader.queues(topic)
        begin = await reader.min_offset(queue)
        count = await reader.max_offset(queue) - begin
        return decode_all((await reader.pull(queue, begin, 1_024, bulk=True)).body) if count else []


async def forget(cluster: LocalCluster, topic: str) -> None:
    """All messages of a topic so far are older than it keeps them."""
    async with Admin(cluster.name_server) as admin:
        await admin.create_topic(topic, 1, attributes={"retention.ms": "3600000"})
    cluster.advance(hours=2)
    cluster.restart()
    assert await left(cluster, topic) == []


async def test_copies_that_retention_took_at_the_target_do_not_come_again() -> None:
    with LocalCluster() as source, LocalCluster() as target:
        await fill(source, "orders", 10, queues=1)
        await mirrored(source, target, "orders")
        await forget(target, "orders")
        await fill(source, "orders", 10, queues=1, first=10)
        mirror = await mirrored(source, target, "orders")
        assert mirror.report().copied == 10
        records = await left(source, "orders")
        assert_copies(await left(target, "orders"), records[10:])


async def test_what_retention_has_left_at_the_source_is_copied() -> None:
    with LocalCluster() as source, LocalCluster() as target:
        await fill(source, "orders", 10, queues=1)
        await forget(source, "orders")
        await fill(source, "orders", 10, queues=1, first=10)
        mirror = await mirrored(source, target, "orders")
        assert (mirror.report().copied, mirror.report().lag) == (10, 0)
        assert_copies(await left(target, "orders"), await left(source, "orders"))


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_send_without_an_answer_is_neither_lost_nor_copied_twice(
    source: LocalCluster,
    target: LocalCluster,
    monkeypatch: pytest.MonkeyPatch,
    is_stored: bool,
) -> None:
    topic = f"unsure-{is_stored}".lower()
    await fill(source, topic, 12)
    send: Callable[..., Awaitable[int]] = Side.send
    count = 0

    async def unsure(side: Side, *arguments: object) -> int:
        nonlocal count
        count += 1
        if count % 3 != 1:
            return await send(side, *arguments)
        if is_stored:
            await send(side, *arguments)
        raise NoAnswerError("no answer")

    monkeypatch.setattr(Side, "send", unsure)
    async with Mirror(source.name_server, target.name_server, topics=topic) as mirror:
        await mirror.copy_once()
        assert "no answer" in mirror.report().failures[0]
        while mirror.report().failures:
            await mirror.copy_once()
    assert numbers(await stored(target, topic)) == numbers(await stored(source, topic))


async def test_a_group_goes_on_at_the_target_where_it_was_at_the_source(
    source: LocalCluster, target: LocalCluster
) -> None:
    await fill(source, "moved", 20, queues=1)
    await fill(target, "moved", 6, queues=2)  # of another sender: the offsets differ
    async with Consumer(
        source.name_server, group="movers", topics=["moved"], start="earliest"
    ) as consumer:
        done = set()
        for _ in range(7):
            message = await consumer.receive(SECONDS)
            assert message is not None
            done.add(int(message.body))
            await message.ack()
    await mirrored(source, target, "moved", "movers")
    async with Admin(target.name_server) as admin:
        assert "movers" in (await admin.groups())["broker-a"].subscription_group_table
    rest = set()
    async with Consumer(
        target.name_server, group="movers", topics=["moved"], start="earliest"
    ) as consumer:
        for _ in range(13):
            message = await consumer.receive(SECONDS)
            assert message is not None
            assert PROPERTY in message.record.properties
            rest.add(int(message.body))
            await message.ack()
    assert done | rest == set(range(20))
    assert not done & rest


async def test_progress_at_the_target_is_not_taken_back(
    source: LocalCluster, target: LocalCluster
) -> None:
    await fill(source, "ahead", 8, queues=1)
    async with Side(source.name_server) as side:
        await side.update_group(SubscriptionGroupConfig("leaders"))
        for queue in await side.queues("ahead"):
            await side.commit_for("leaders", queue, 1)
    await mirrored(source, target, "ahead", "leaders")
    async with Side(target.name_server) as side:
        queues = await side.queues("ahead")
        for queue in queues:
            await side.commit_for("leaders", queue, await side.max_offset(queue))
        await mirrored(source, target, "ahead", "leaders")
        for queue in queues:
            assert await side.committed("leaders", queue) == await side.max_offset(queue)


async def test_two_mirrors_in_opposite_directions_copy_nothing_back(
    source: LocalCluster, target: LocalCluster
) -> None:
    await fill(source, "both", 5)
    await mirrored(source, target, "both")
    await mirrored(target, source, "both")
    assert sum(map(len, numbers(await stored(source, "both")))) == 5
    async with Mirror(
        target.name_server, source.name_server, topics="both", groups="none", relay=True
    ) as mirror:
        await mirror.copy_once()
        assert mirror.report().copied == 5


async def test_a_topic_with_fewer_queues_at_the_target_is_refused_and_others_go_on(
    source: LocalCluster, target: LocalCluster
) -> None:
    await fill(source, "narrow", 4, queues=3)
    await fill(source, "wide", 4, queues=3)
    async with Admin(target.name_server) as admin:
        await admin.create_topic("narrow", 5)
    mirror = await mirrored(source, target, "narrow|wide")
    [failure] = mirror.report().failures
    assert "6 queues at the source and 5 at the target" in failure
    assert "aerobee topics create narrow --queues N" in failure
    assert sum(map(len, numbers(await stored(target, "wide")))) == 4


async def test_what_a_delay_or_a_transaction_asked_for_is_not_done_again(
    source: LocalCluster, target: LocalCluster
) -> None:
    async with Admin(source.name_server) as admin:
        await admin.create_topic("done", 1)
    async with Producer(source.name_server) as producer:
        await producer.send(Message("done", b"1", delay_level=1))
        await producer.send(Message("done", b"2", delay=60))
    source.advance(minutes=2)
    async with Consumer(
        source.name_server, group="waiters", topics=["done"], start="earliest"
    ) as consumer:
        for _ in range(2):
            message = await consumer.receive(SECONDS)
            assert message is not None
            await message.ack()
    await mirrored(source, target, "done")
    found = [record for records in (await stored(target, "done")).values() for record in records]
    assert sorted(each.body for each in found) == [b"1", b"2"]
    asked = {props.DELAY, props.TIMER_DELIVER_MS, props.TIMER_DELAY_SEC, props.REAL_TOPIC}
    assert not any(asked & each.properties.keys() for each in found)


async def test_a_running_mirror_copies_what_comes_and_new_topics(
    source: LocalCluster, target: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.client.mirror.mirror.TOPICS_SECONDS", 0.1)
    await fill(source, "live-1", 3)
    async with Mirror(source.name_server, target.name_server, topics="live-.") as mirror:
        running = asyncio.create_task(mirror.run())
        await until(lambda: mirror.report().copied == 3)
        await fill(source, "live-2", 3)
        await fill(source, "live-1", 3, first=3)
        await until(lambda: mirror.report().copied == 9)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert numbers(await stored(target, "live-2")) == numbers(await stored(source, "live-2"))


async def test_a_mirror_of_a_cluster_into_itself_is_refused(source: LocalCluster) -> None:
    await fill(source, "own", 10)
    spelled = source.name_server.replace("127.0.0.1", "localhost")
    for target in (source.name_server, spelled):
        with pytest.raises(ClientError, match="the source and the target are one cluster"):
            async with Mirror(source.name_server, target):
                pass
    assert sum(map(len, (await stored(source, "own")).values())) == 10


async def test_a_pattern_that_fits_no_topic_is_a_failure_until_one_fits(
    source: LocalCluster, target: LocalCluster
) -> None:
    async with Mirror(source.name_server, target.name_server, topics="late.*") as mirror:
        await mirror.copy_once()
        (failure,) = mirror.report().failures
        assert failure.startswith("looking for topics and groups: none of the ")
        assert failure.endswith("topics of the source fits late.*")
        await fill(source, "later", 3)
        await mirror.copy_once()
        assert (mirror.report().copied, mirror.report().failures) == (3, ())


async def test_a_wrong_pattern_is_refused() -> None:
    with pytest.raises(ClientError, match=r"topics is '\(', which is no regular expression"):
        Mirror("127.0.0.1:1", "127.0.0.1:2", topics="(")


class Records(Source):
    """A source with these records of Kafka by topic, each of one partition."""

    def __init__(self, topics: dict[str, list[Copyable]]) -> None:
        self._topics = topics

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def name(self) -> str:
        return "kfk"

    async def topics(self) -> list[str]:
        return sorted(self._topics)

    async def settings(self, topic: str) -> TopicConfig:
        return TopicConfig(topic)

    async def queues(self, topic: str) -> list[MessageQueue]:
        return [MessageQueue(topic, "kfk", 0)]

    async def ends(self, queues: list[MessageQueue]) -> Mapping[MessageQueue, int]:
        return {queue: len(self._topics[queue.topic or ""]) for queue in queues}

    async def first_offset(self, queue: MessageQueue, start: StartFrom, *, is_new: bool) -> int:
        return 0

    async def read(self, queue: MessageQueue, offset: int) -> Found:
        found = self._topics[queue.topic or ""][offset:]
        return Found(found, offset + len(found))

    async def groups(self) -> Mapping[str, SubscriptionGroupConfig]:
        return {}

    async def offsets(
        self, matches: Callable[[str], bool]
    ) -> Mapping[tuple[str, MessageQueue], int]:
        return {}

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None: ...


def records(*keys: bytes, each_ms: bool = False) -> list[Copyable]:
    """Records with these keys, of one millisecond or of one each."""
    return [
        copyable(
            SimpleNamespace(
                offset=number, timestamp=1 + number * each_ms, key=key, value=b"v", headers=()
            )
        )
        for number, key in enumerate(keys)
    ]


@pytest.mark.parametrize(
    ("each_ms", "lost"),
    [(False, [4]), (True, [3, 4])],  # in a batch a broker adds no properties
    ids=["in a batch", "alone"],
)
async def test_a_record_with_a_long_key_is_copied_and_one_too_long_holds_up_no_other(
    target: LocalCluster, monkeypatch: pytest.MonkeyPatch, each_ms: bool, lost: list[int]
) -> None:
    orders, other = f"wide{each_ms}", f"narrow{each_ms}"
    keys = (b"a", b"k" * 12_000, b"k" * 31_000, b"k" * 32_650, b"k" * 40_000, b"b")
    given = {orders: records(*keys, each_ms=each_ms), other: records(*[b"c"] * 5)}
    monkeypatch.setattr(mirroring, "_source", lambda *_, **__: Records(given))
    async with Mirror("kafka://nowhere", target.name_server) as mirror:
        running = asyncio.create_task(mirror.run())
        report = mirror.report
        await until(lambda: report().copied == 11 - len(lost), lambda: str(report()))
        await until(lambda: report().lag == len(lost), lambda: str(report()))
        failures = report().failures
        assert not running.done()
        running.cancel()
    (copied,) = (each for each in (await stored(target, orders)).values() if each)
    wanted = [key for at, key in enumerate(keys) if at not in lost]
    assert [each.properties["kafka.key"].encode() for each in copied] == wanted
    for each in copied:
        size = len(each.properties["kafka.key"])
        assert (props.SHARDING_KEY in each.properties) is (size <= 12_000)
        assert (props.KEYS in each.properties) is (size < 12_000)
    for offset, failure in zip(lost, sorted(failures), strict=True):
        assert f"of {orders}" in failure
        assert f"message {offset} can't be copied: its properties are too large" in failure
        assert "the limit is 32767" in failure


async def test_what_is_passed_over_counts_once_although_a_send_before_it_is_tried_again(
    target: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"retried": records(b"a", b"k" * 40_000, b"b", each_ms=True)}
    monkeypatch.setattr(mirroring, "_source", lambda *_, **__: Records(given))
    send, failures = Side.send, [NoAnswerError("lost")] * 2

    async def send_late(self: Side, *arguments: Any) -> int:
        if failures:
            raise failures.pop()
        return await send(self, *arguments)

    monkeypatch.setattr(Side, "send", send_late)
    async with Mirror("kafka://nowhere", target.name_server) as mirror:
        for copied, lag in ((0, 3), (0, 3), (2, 1)):
            await mirror.copy_once()
            assert (mirror.report().copied, mirror.report().lag) == (copied, lag)
        assert len(mirror.report().failures) == 1


async def test_an_error_of_our_own_ends_one_queue_and_not_the_mirror(
    target: LocalCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Records):
        async def read(self, queue: MessageQueue, offset: int) -> Found:
            if queue.topic == "broken":
                raise struct.error("a fault")
            return await super().read(queue, offset)

        async def ends(self, queues: list[MessageQueue]) -> Mapping[MessageQueue, int]:
            if queues[0].topic == "lost":
                raise KeyError("another")
            return await super().ends(queues)

    given = {"broken": records(b"a"), "lost": records(b"b"), "sound": records(b"c", b"d")}
    monkeypatch.setattr(mirroring, "_source", lambda *_, **__: Broken(given))
    async with Mirror("kafka://nowhere", target.name_server) as mirror:
        await mirror.copy_once()
        await mirror.copy_once()
        report = mirror.report()
    assert (report.copied, report.lag) == (2, 1)
    assert sorted(failure.split(":")[0] for failure in report.failures) == [
        "queue 0 of broken on kfk",
        "topic lost",
    ]
    assert caplog.messages.count("queue 0 of broken on kfk can't be copied") == 1


class Dotted(Records):
    """With groups and offsets, named as Kafka's may be."""

    async def groups(self) -> Mapping[str, SubscriptionGroupConfig]:
        return {name: SubscriptionGroupConfig(name) for name in ("my.readers", "others")}

    async def offsets(
        self, matches: Callable[[str], bool]
    ) -> Mapping[tuple[str, MessageQueue], int]:
        return {("my.readers", MessageQueue("orders.v1", "kfk", 0)): 2}


async def test_a_topic_that_can_not_be_made_counts_as_lag_and_holds_up_no_other(
    target: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"orders.v1": records(b"a", b"b", b"c"), "plain": records(b"d")}
    monkeypatch.setattr(mirroring, "_source", lambda *_, **__: Dotted(given))
    async with Mirror("kafka://nowhere", target.name_server) as mirror:
        await mirror.copy_once()
        report = mirror.report()
    assert (report.copied, report.lag) == (1, 3)
    group, topic = sorted(report.failures)
    assert "group my.readers can't be made at the target" in group
    assert topic.startswith("topic orders.v1: ")
    assert "others" in (await groups_of(target))


async def test_names_are_changed_on_the_way(
    target: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"orders.v1": records(b"a", b"b", b"c")}
    monkeypatch.setattr(mirroring, "_source", lambda *_, **__: Dotted(given))
    async with Mirror("kafka://nowhere", target.name_server, rename=(r"\.", "-")) as mirror:
        await mirror.copy_once()
        assert (mirror.report().copied, mirror.report().lag) == (3, 0)
        assert mirror.report().failures == ()
    (copied,) = (each for each in (await stored(target, "orders-v1")).values() if each)
    assert [each.properties["kafka.key"] for each in copied] == ["a", "b", "c"]
    assert "my-readers" in await groups_of(target)
    async with Admin(target.name_server) as admin:
        stats = await admin.consume_stats("my-readers", "orders-v1")
        assert 2 in {each.consumer_offset for each in stats.offset_table.values()}


async def test_two_topics_are_not_copied_into_one(
    target: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"one.v1": records(b"a"), "one-v1": records(b"b")}
    monkeypatch.setattr(mirroring, "_source", lambda *_, **__: Records(given))
    async with Mirror("kafka://nowhere", target.name_server, rename=(r"\.", "-")) as mirror:
        await mirror.copy_once()
        report = mirror.report()
    assert report.copied == 1
    (failure,) = report.failures
    assert "the copies of one-v1 and one.v1 would both be one-v1" in failure


@pytest.mark.parametrize(
    ("rename", "says"),
    [
        (("(", "x"), r"rename is '\(', which is no regular expression"),
        (("a", r"\2"), r"rename puts '\\\\2' in, which can't be: invalid group reference"),
    ],
)
def test_a_wrong_change_of_names_is_refused(rename: tuple[str, str], says: str) -> None:
    with pytest.raises(ClientError, match=says):
        Mirror("127.0.0.1:1", "127.0.0.1:2", rename=rename)


async def groups_of(cluster: LocalCluster) -> set[str]:
    async with Admin(cluster.name_server) as admin:
        return {
            name
            for wrapper in (await admin.groups()).values()
            for name in wrapper.subscription_group_table
        }
