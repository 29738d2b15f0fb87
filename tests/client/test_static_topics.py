"""The client on a static topic whose logical queues move between brokers during sends and
receives."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aerobee.client import Admin, Consumer, LitePullConsumer, Message, Producer, SimpleConsumer
from aerobee.client.group.received import ReceivedMessage
from aerobee.client.pull.reader import Reader
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.group import SubscriptionGroupConfig
from aerobee.protocol.message.record import decode_all

from ..broker.static_cluster import BLOCK, StaticCluster, static_cluster
from ..clocks import Clock
from ..waiting import LONG

T = "Static"
LOGICAL = "__syslo__global__"
AGAIN_MS = 10_000  # level 3, the first of a retry topic


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[StaticCluster]:
    async with static_cluster(tmp_path, "a", "b", "c") as running:
        yield running


def address_of(cluster: StaticCluster) -> str:
    return f"127.0.0.1:{cluster.names.port}"


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue(T, LOGICAL, queue_id)


async def drain(consumer: Consumer, count: int) -> list[ReceivedMessage]:
    """The next messages, each acknowledged."""
    found: list[ReceivedMessage] = []
    async with asyncio.timeout(LONG):
        while len(found) < count:
            message = await consumer.receive()
            assert message is not None
            async with message.process():
                found.append(message)
    return found


async def test_all_messages_come_once_and_in_order_while_the_queues_move(
    cluster: StaticCluster,
) -> None:
    await cluster.create(T, ["a", "b"])
    names, sent = address_of(cluster), list[tuple[MessageQueue, bytes]]()
    async with Producer(names, group="p") as producer:

        async def send(count: int) -> None:
            for _ in range(count):
                body = b"%d" % len(sent)
                to = queue(len(sent) % 2)
                receipt = await producer.send(Message(T, body), queue=to)
                assert receipt.queue == to
                sent.append((receipt.queue, body))

        await send(20)
        consumer = Consumer(names, group="g", topics=[T], start="earliest", ordered=True)
        async with consumer:
            got = await drain(consumer, 20)
            await cluster.move(T, 0, "c")
            await send(20)
            move = await cluster.begin_move(T, 1, "a")
            await send(20)  # some of them before they have a logical offset
            await cluster.decide(move)
            await send(20)
            got += await drain(consumer, 60)
    by_queue = defaultdict[MessageQueue, list[bytes]](list)
    for to, body in sent:
        by_queue[to].append(body)
    found = defaultdict[MessageQueue, list[tuple[int, bytes]]](list)
    for message in got:
        found[message.queue].append((message.offset, message.body))
        assert message.queue_id == message.queue.queue_id
    assert by_queue.keys() == {queue(0), queue(1)}
    for each in by_queue:
        assert [body for _, body in found[each]] == by_queue[each]
        assert [at for at, _ in found[each]] == sorted(at for at, _ in found[each])
        assert found[each][-1][0] >= BLOCK


async def test_a_group_goes_on_where_it_was_when_its_queue_has_moved(
    cluster: StaticCluster,
) -> None:
    await cluster.create(T, ["a"])
    names = address_of(cluster)
    async with Producer(names, group="p") as producer:
        await producer.send(Message(T, b"1"))
        async with Consumer(names, group="g", topics=[T], start="earliest") as consumer:
            await drain(consumer, 1)
        await producer.send(Message(T, b"2"))
        await cluster.move(T, 0, "b")
        await producer.send(Message(T, b"3"))
        async with Consumer(names, group="g", topics=[T], start="earliest") as consumer:
            assert [message.body for message in await drain(consumer, 2)] == [b"2", b"3"]


async def test_a_failed_message_of_a_static_topic_comes_again(tmp_path: Path) -> None:
    clock = Clock()
    async with static_cluster(tmp_path, "a", now_ms=clock) as cluster:
        await cluster.create(T, ["a"])
        names = address_of(cluster)
        async with (
            Producer(names, group="p") as producer,
            Consumer(names, group="g", topics=[T], start="earliest") as consumer,
        ):
            await producer.send(Message(T, b"again"))
            first = await consumer.receive()
            assert first is not None
            await first.nack(1)
            clock.ms += AGAIN_MS
            second = await drain(consumer, 1)
            assert (second[0].body, second[0].reconsume_times) == (b"again", 1)


async def test_a_reader_a_puller_and_an_admin_see_logical_queues(cluster: StaticCluster) -> None:
    await cluster.create(T, ["a", "b"])
    names = address_of(cluster)
    async with Producer(names, group="p") as producer:
        await producer.send(Message(T, b"1"), queue=queue(1))
        await cluster.move(T, 1, "c")
        receipt = await producer.send(Message(T, b"2"), queue=queue(1))
        assert (receipt.queue, receipt.queue_offset) == (queue(1), BLOCK)
    async with Reader(names, group="r") as reader:
        assert await reader.queues(T) == [queue(0), queue(1)]
        assert await reader.min_offset(queue(1)) == 0
        assert await reader.max_offset(queue(1)) == BLOCK + 1
        pulled = await reader.pull(queue(1), BLOCK)
        (record,) = decode_all(pulled.body)
        assert (record.queue_id, record.queue_offset, record.body) == (1, BLOCK, b"2")
    async with Admin(names) as admin:
        assert (await admin.offsets_at(T, 0))[queue(1)] == 0
        await admin.update_group(SubscriptionGroupConfig("lite"))
        await admin.set_offset("lite", queue(1), BLOCK)
    async with LitePullConsumer(names, group="lite", start="earliest") as lite:
        await lite.assign([queue(1)])
        assert [(m.offset, m.body) for m in await lite.poll(LONG)] == [(BLOCK, b"2")]


async def test_pops_take_what_every_broker_of_a_static_topic_has(cluster: StaticCluster) -> None:
    await cluster.create(T, ["a"])
    names = address_of(cluster)
    async with Producer(names, group="p") as producer:
        await producer.send(Message(T, b"1"))
        await cluster.move(T, 0, "b")
        await producer.send(Message(T, b"2"))
    bodies = set[bytes]()
    async with SimpleConsumer(names, group="s", topics=[T], start="earliest") as simple:
        async with asyncio.timeout(LONG):
            while len(bodies) < 2:
                for message in await simple.receive(timeout=5):
                    bodies.add(message.body)
                    await message.ack()
    assert bodies == {b"1", b"2"}
