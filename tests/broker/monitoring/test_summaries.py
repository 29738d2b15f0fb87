"""Our own requests for pages of topics and groups: figures, pages, slices, refusals."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from aerobee.broker.server import Broker
from aerobee.client.admin.admin import Admin
from aerobee.protocol import codes
from aerobee.protocol.aio.slices import Slices
from aerobee.protocol.bodies.group import SubscriptionGroupConfig
from aerobee.protocol.bodies.stats import ConsumeStats
from aerobee.protocol.bodies.summaries import (
    GroupSummaries,
    GroupSummary,
    TopicSummaries,
    TopicSummary,
)
from aerobee.protocol.bodies.topic import TopicConfig
from aerobee.protocol.headers.groups import ConsumeStats as ConsumeStatsHeader
from aerobee.protocol.headers.groups import SummaryPage
from aerobee.protocol.headers.offsets import UpdateConsumerOffset

from ...clocks import Clock
from ..conftest import Caller, Config, Start


def topic_of(found: TopicSummaries, name: str) -> TopicSummary:
    return next(one for one in found.topics if one.topic == name)


async def topics(caller: Caller, after: str = "", count: int = 1_000) -> TopicSummaries:
    answer = await caller.ask(codes.GET_TOPIC_SUMMARIES, SummaryPage(after, count))
    assert answer.code == codes.SUCCESS
    return TopicSummaries.decode(bytes(answer.body or b""))


async def groups(caller: Caller, after: str = "", count: int = 1_000) -> list[GroupSummary]:
    answer = await caller.ask(codes.GET_GROUP_SUMMARIES, SummaryPage(after, count))
    assert answer.code == codes.SUCCESS
    return GroupSummaries.decode(bytes(answer.body or b"")).groups


@pytest.fixture
async def timed(config: Config, clock: Clock) -> AsyncIterator[Broker]:
    """A broker whose time moves only when the test says so."""
    broker = Broker(config(), now_ms=clock)
    await broker.start()
    yield broker
    await broker.stop()


async def test_a_topic_has_its_messages_and_the_times_of_the_first_and_the_last(
    timed: Broker, clock: Clock
) -> None:
    broker = timed
    caller = Caller(broker)
    began = clock()
    await caller.send("T", b"one")
    clock.ms += 5_000
    await caller.send("T", b"two")
    broker.topics.put(TopicConfig("empty", 2, 3, 6, attributes={"message.type": "FIFO"}))
    found = await topics(caller)
    one = topic_of(found, "T")
    assert (one.messages, one.puts, one.first_ms, one.last_ms) == (2, 2, began, began + 5_000)
    empty = topic_of(found, "empty")
    assert (empty.messages, empty.first_ms, empty.last_ms) == (0, None, None)
    assert (empty.read_queues, empty.write_queues, empty.message_type) == (2, 3, "FIFO")


async def test_a_group_has_its_lag_in_messages_and_in_time(timed: Broker, clock: Clock) -> None:
    broker = timed
    caller = Caller(broker)
    broker.groups.put(SubscriptionGroupConfig("G"))
    for _ in range(3):
        await caller.send("T")
        clock.ms += 1_000
    queue = UpdateConsumerOffset("G", "T", 0, 1)
    await caller.ask(codes.UPDATE_CONSUMER_OFFSET, queue)
    (row,) = [one for one in await groups(caller) if one.group == "G"]
    (in_topic,) = row.topics
    assert (row.members, row.dead_letters, row.differing) == (0, 0, None)
    assert (in_topic.topic, in_topic.lag, in_topic.lag_ms) == ("T", 2, 2_000)
    queue = UpdateConsumerOffset("G", "T", 0, 3)
    await caller.ask(codes.UPDATE_CONSUMER_OFFSET, queue)
    (row,) = [one for one in await groups(caller) if one.group == "G"]
    assert (row.topics[0].lag, row.topics[0].lag_ms) == (0, 0)


@pytest.mark.parametrize(
    ("wanted", "kind", "lag", "at_most"),
    [("*", "TAG", 3, False), ("a", "TAG", 2, False), ("n > 1", "SQL92", 3, True)],
)
async def test_a_lag_says_whether_it_may_hold_what_the_filter_skips(
    timed: Broker, wanted: str, kind: str, lag: int, at_most: bool
) -> None:
    caller = Caller(timed)
    timed.groups.put(SubscriptionGroupConfig("G"))
    for tag in ("a", "b", "a"):
        await caller.send("T", TAGS=tag)
    await caller.ask(codes.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffset("G", "T", 0, 0))
    (offline,) = [one for one in await groups(caller) if one.group == "G"]
    assert (offline.topics[0].lag, offline.topics[0].lag_is_at_most) == (3, True)
    await caller.heartbeat(topics={"T": wanted}, group="G", kind=kind)
    (online,) = [one for one in await groups(caller) if one.group == "G"]
    assert (online.topics[0].lag, online.topics[0].lag_is_at_most) == (lag, at_most)


async def test_nothing_is_in_flight_for_a_group_without_members(timed: Broker) -> None:
    caller = Caller(timed)
    timed.groups.put(SubscriptionGroupConfig("G"))
    for _ in range(3):
        await caller.send("T")
    await caller.heartbeat(topics={"T": "*"}, group="G")
    await caller.ask(codes.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffset("G", "T", 0, 1))
    await caller.pull("T", 1, group="G")
    (row,) = [one for one in await groups(caller) if one.group == "G"]
    assert (row.members, row.topics[0].lag, row.topics[0].in_flight) == (1, 2, 2)
    await caller.ask(codes.UNREGISTER_CLIENT, {"clientID": "c1", "consumerGroup": "G"})
    (row,) = [one for one in await groups(caller) if one.group == "G"]
    assert (row.members, row.topics[0].lag, row.topics[0].in_flight) == (0, 2, 0)


@pytest.mark.parametrize("count", [1, 3, 700])
async def test_pages_put_together_have_every_name_once_and_in_order(
    broker: Broker, caller: Caller, count: int
) -> None:
    names = [f"topic-{one}" for one in range(600)]
    broker.topics.put_all([TopicConfig(name) for name in names[: 20 if count < 700 else 600]])
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        page = await topics(caller, after, count)
        found += [one.topic for one in page.topics]
        after = page.next
    assert found == sorted(broker.topics.all())


@pytest.mark.parametrize("count", [0, 1_001])
@pytest.mark.parametrize("code", [codes.GET_TOPIC_SUMMARIES, codes.GET_GROUP_SUMMARIES])
async def test_a_page_of_too_many_rows_is_refused(caller: Caller, code: int, count: int) -> None:
    answer = await caller.ask(code, SummaryPage("", count))
    assert answer.code == codes.INVALID_PARAMETER
    assert f"count is {count}; a page has 1 to 1000 rows" in (answer.remark or "")


@pytest.mark.parametrize("code", [codes.GET_TOPIC_SUMMARIES, codes.GET_GROUP_SUMMARIES])
async def test_sends_are_served_while_a_page_is_made(
    monkeypatch: pytest.MonkeyPatch, start: Start, config: Config, code: int
) -> None:
    count = 0

    def tick() -> float:  # each slice is one step on any machine
        nonlocal count
        count += 1
        return float(count)

    init: Callable[..., None] = Slices.__init__
    monkeypatch.setattr(Slices, "__init__", lambda self, *given: init(self, *given, clock=tick))
    broker = await start(config())
    broker.topics.put_all([TopicConfig(f"topic-{one}") for one in range(200)])
    broker.groups.put_all([SubscriptionGroupConfig(f"group-{one}") for one in range(200)])
    asker, sender = Caller(broker), Caller(broker)
    assert (await sender.send("topic-0")).code == codes.SUCCESS
    await asker.ask(codes.GET_BROKER_CONFIG)
    answer = asyncio.ensure_future(asker.ask(code, SummaryPage()))
    sends = 0
    while not answer.done():
        assert (await sender.send("topic-0")).code == codes.SUCCESS
        sends += 1
    assert (await answer).code == codes.SUCCESS
    assert sends > 1


async def test_the_client_reads_pages(broker: Broker) -> None:
    broker.topics.put(TopicConfig("T"))
    async with Admin("127.0.0.1:1") as admin:
        address = f"127.0.0.1:{broker.port}"
        page = await admin.topic_summaries(address, "S")
        assert page is not None
        assert "T" in [one.topic for one in page.topics]
        assert await admin.group_summaries(address) is not None


async def test_a_queue_without_progress_counts_as_in_the_progress_of_the_group(
    timed: Broker,
) -> None:
    caller = Caller(timed)
    timed.groups.put(SubscriptionGroupConfig("G"))
    timed.topics.put(TopicConfig("T", 2, 2, 6))
    for queue_id in (0, 0, 1, 1, 1):
        await caller.send("T", queue_id=queue_id)
    await caller.heartbeat(topics={"T": "*"}, group="G")
    (row,) = [one for one in await groups(caller) if one.group == "G"]
    assert row.topics[0].lag == 0  # it has no progress at all, as broadcasting groups
    await caller.ask(codes.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffset("G", "T", 0, 1))
    (row,) = [one for one in await groups(caller) if one.group == "G"]
    answer = await caller.ask(codes.GET_CONSUME_STATS, ConsumeStatsHeader("G", None))
    table = ConsumeStats.decode(bytes(answer.body or b"")).offset_table.values()
    assert row.topics[0].lag == sum(one.broker_offset - one.consumer_offset for one in table) == 4
