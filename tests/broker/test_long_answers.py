"""Long responses about whole tables: made in slices, between which sends are served."""

import asyncio
from collections.abc import Callable

import pytest
from aerobee.broker.groups import offsets
from aerobee.broker.server import Broker
from aerobee.client.admin.admin import Admin
from aerobee.protocol import codes
from aerobee.protocol.aio import slices as slicing
from aerobee.protocol.aio.slices import Slices
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from aerobee.protocol.bodies.stats import ConsumeStats, ConsumeStatsList, OffsetWrapper
from aerobee.protocol.bodies.topic import TopicConfig, TopicConfigAndMappingSerializeWrapper
from aerobee.protocol.headers import groups as headers
from aerobee.protocol.headers.topics import TopicName

from ..waiting import LONG
from .conftest import Caller, Config, Start

QUEUES = 4
ANSWERED = {
    codes.GET_ALL_TOPIC_CONFIG: None,
    codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: None,
    codes.GET_ALL_CONSUMER_OFFSET: None,
    codes.GET_BROKER_CONSUME_STATS: headers.BrokerConsumeStats(False),
    codes.QUERY_TOPIC_CONSUME_BY_WHO: TopicName("topic-0"),
}


def fill(broker: Broker, number: int) -> None:
    """Creates `number` topics and groups; each group has offsets in its own and the first topic."""
    names = [f"topic-{one}" for one in range(number)]
    broker.topics.put_all([TopicConfig(name, QUEUES, QUEUES) for name in names])
    groups = [f"group-{one}" for one in range(number)]
    broker.groups.put_all([SubscriptionGroupConfig(name) for name in groups])
    for topic, group in zip(names, groups, strict=True):
        for queue_id in range(QUEUES):
            broker.offsets.commit(topic, group, queue_id, 0)
        broker.offsets.commit("topic-0", group, 0, 0)


def expected_317(broker: Broker) -> bytes:
    """The response to 317 as one body."""
    found = ConsumeStatsList(broker_addr=broker.address)
    for group in broker.groups.all():
        each = []
        for topic in broker.offsets.topics_of(group):
            queues = range(QUEUES)
            table = {MessageQueue(topic, "broker-a", q): OffsetWrapper(0, 0, 0, 0) for q in queues}
            each.append(ConsumeStats(table, 0.0))
        found.consume_stats_list.append({group: each})
    return found.encode()


def whole(broker: Broker) -> dict[int, bytes]:
    """The responses as encoded by their body classes, by request code."""
    topics, groups = broker.topics, broker.groups
    forbidden = groups.forbidden
    return {
        codes.GET_ALL_TOPIC_CONFIG: TopicConfigAndMappingSerializeWrapper(
            topics.all(), topics.version
        ).encode(),
        codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: SubscriptionGroupWrapper(
            groups.all(), forbidden, groups.version
        ).encode(),
        codes.GET_ALL_CONSUMER_OFFSET: broker.offsets.to_body().encode(),
        codes.GET_BROKER_CONSUME_STATS: expected_317(broker),
    }


@pytest.mark.parametrize("number", [1, 300])
async def test_responses_made_in_slices_have_the_bytes_of_the_whole_body(
    broker: Broker, caller: Caller, number: int
) -> None:
    fill(broker, number)
    for code, body in whole(broker).items():
        answer = await caller.ask(code, ANSWERED[code])
        assert answer.code == codes.SUCCESS
        assert bytes(answer.body or b"") == body, codes.REQUEST_NAMES[code]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Makes each slice one step on any machine; returns a function that counts them."""
    count = 0

    def tick() -> float:
        nonlocal count
        count += 1
        return float(count)

    monkeypatch.setattr(offsets, "OFFSETS_PER_PIECE", 10)
    init = Slices.__init__
    monkeypatch.setattr(
        Slices,
        "__init__",
        lambda self, *given: init(self, *given, clock=tick),
    )
    return lambda: count


@pytest.mark.parametrize("code", ANSWERED)
async def test_sends_are_served_while_a_long_response_is_made(
    steps: Callable[[], int], start: Start, config: Config, code: int
) -> None:
    broker = await start(config())
    fill(broker, 100)
    asker, sender = Caller(broker), Caller(broker)
    assert (await sender.send("topic-0")).code == codes.SUCCESS
    await asker.ask(codes.GET_BROKER_CONFIG)
    answer = asyncio.ensure_future(asker.ask(code, ANSWERED[code]))
    sends = 0
    while not answer.done():
        assert (await sender.send("topic-0")).code == codes.SUCCESS
        sends += 1
    assert (await answer).code == codes.SUCCESS
    assert sends > 1  # a step is at most one entry with its queues
    for one in (asker, sender):
        await one.peers.close()


async def test_a_disconnect_ends_the_work_for_the_response(
    steps: Callable[[], int], start: Start, config: Config
) -> None:
    broker = await start(config())
    fill(broker, 300)
    asker, sender = Caller(broker), Caller(broker)
    await sender.send("topic-0")
    answer = asyncio.ensure_future(
        asker.ask(codes.GET_BROKER_CONSUME_STATS, ANSWERED[codes.GET_BROKER_CONSUME_STATS])
    )
    while not broker.slices._answers:
        await sender.send("topic-0")
    await asker.peers.close()
    with pytest.raises(ConnectionError):
        await answer
    async with asyncio.timeout(LONG):
        while broker.slices._answers:
            await sender.send("topic-0")
    await sender.peers.close()


async def test_tables_may_change_while_a_long_response_is_made(
    steps: Callable[[], int], start: Start, config: Config
) -> None:
    broker = await start(config())
    fill(broker, 100)
    asker = Caller(broker)
    tasks = [asyncio.ensure_future(asker.ask(code, ANSWERED[code])) for code in ANSWERED]
    number = 0
    while not all(task.done() for task in tasks):
        if number < 90:
            broker.topics.delete(f"topic-{number}")
            broker.groups.delete(f"group-{99 - number}")
            broker.offsets.delete_group(f"group-{99 - number}")
            broker.topics.put(TopicConfig(f"new-{number}"))
            broker.offsets.commit(f"new-{number}", "new", 0, 1)
        number += 1
        await asyncio.sleep(0)
    for task in tasks:
        assert (await task).code == codes.SUCCESS
    await asker.peers.close()
    # The next response is exact again.
    for code, body in whole(broker).items():
        if code != codes.GET_BROKER_CONSUME_STATS:
            again = Caller(broker)
            assert bytes((await again.ask(code)).body or b"") == body
            await again.peers.close()


async def test_the_client_reads_a_response_of_six_megabytes(broker: Broker) -> None:
    groups = [f"group-{number:04d}-{'long' * 20}" for number in range(2_000)]
    broker.groups.put_all([SubscriptionGroupConfig(name) for name in groups])
    topic = "topic-" + "long" * 20
    broker.topics.put(TopicConfig(topic, 16, 16))
    for group in groups:
        broker.offsets.commit(topic, group, 0, 0)
    async with Admin("127.0.0.1:1") as admin:
        found = await admin.broker_consume_stats(broker.address)
    assert len(found.encode()) > 6_000_000
    table = {name: stats for each in found.consume_stats_list for name, stats in each.items()}
    assert all(len(table[group][0].offset_table) == 16 for group in groups)


async def test_a_response_over_the_frame_limit_is_refused_with_the_limit(
    broker: Broker, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, 300)
    monkeypatch.setattr(slicing, "FRAME_BYTES_MAX", 100_000)
    answer = await caller.ask(codes.GET_BROKER_CONSUME_STATS, headers.BrokerConsumeStats(False))
    assert answer.code == codes.SYSTEM_ERROR
    assert "ask for less at a time" in (answer.remark or "")
    assert (await caller.send("topic-0")).code == codes.SUCCESS
