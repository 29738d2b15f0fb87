"""Queues that end before the offset of their consumer: made again, or cut."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
from aerobee.client import Admin, Consumer, LitePullConsumer, Message, Producer
from aerobee.client.pull import lite_pulling
from aerobee.client.push import pulling
from aerobee.testing import LocalCluster

from ...waiting import LONG

Receive = Callable[[], Awaitable[bytes]]
Consuming = Callable[[str, str, str], AbstractAsyncContextManager[Receive]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as one:
        yield one


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pull of a topic that is away is tried again soon."""
    monkeypatch.setattr(pulling, "PULL_AGAIN_SECONDS", (0.01,))
    monkeypatch.setattr(lite_pulling, "FAILED_SECONDS", 0.01)


@asynccontextmanager
async def pushed(address: str, topic: str, start: str):  # type: ignore[no-untyped-def]
    async with Consumer(address, group=f"g-{topic}", topics=[topic], start=start) as consumer:

        async def receive() -> bytes:
            message = await consumer.receive(LONG)
            assert message is not None
            await message.ack()
            return message.body

        yield receive


@asynccontextmanager
async def lite_pulled(address: str, topic: str, start: str):  # type: ignore[no-untyped-def]
    waiting: list[bytes] = []
    async with LitePullConsumer(address, group=f"g-{topic}", start=start) as consumer:
        await consumer.subscribe(topic)

        async def receive() -> bytes:
            while not waiting:
                waiting.extend(one.body for one in await consumer.poll(LONG))
            return waiting.pop(0)

        yield receive


OLD, NEW = [b"old%d" % n for n in range(20)], [b"new%d" % n for n in range(5)]


@asynccontextmanager
async def having_read(cluster: LocalCluster, consuming: Consuming, topic: str, start: str):  # type: ignore[no-untyped-def]
    """A consumer that has read OLD a second ago: how it receives, an Admin, and how NEW is sent."""
    address = cluster.name_server
    async with Admin(address) as admin, Producer(address) as producer, asyncio.timeout(LONG):
        await admin.create_topic(topic, 1)

        async def send_new() -> None:
            for body in NEW:
                await producer.send(Message(topic, body))

        async with consuming(address, topic, start) as receive:
            for body in OLD:
                await producer.send(Message(topic, body))
                cluster.advance(seconds=0.002)
            assert [await receive() for _ in OLD] == OLD
            cluster.advance(seconds=1)
            yield receive, admin, send_new


@pytest.mark.parametrize("start", ["earliest", "latest"])
@pytest.mark.parametrize("consuming", [pushed, lite_pulled])
async def test_a_consumer_misses_nothing_of_it(
    consuming: Consuming, start: str, cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"again-{consuming.__name__}-{start}"
    async with having_read(cluster, consuming, topic, start) as (receive, admin, send_new):
        await admin.delete_topic(topic)
        await admin.create_topic(topic, 1)
        await send_new()
        assert [await receive() for _ in NEW] == NEW
    assert f"going on at offset 0 of queue 0 of {topic} on broker-a instead of 20" in caplog.text


@pytest.mark.parametrize("consuming", [pushed, lite_pulled])
async def test_one_that_has_lost_its_end_goes_on_there(
    consuming: Consuming, cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """As when a slave that was behind takes the place of its master."""
    topic = f"shorter-{consuming.__name__}"
    async with having_read(cluster, consuming, topic, "earliest") as (receive, _, send_new):
        queues = cluster.brokers[0].store.state.queues
        cluster.call(lambda: queues.simple[topic, 0].cut(18))
        await send_new()
        found = [await receive()]
        while found[-1] != NEW[-1]:
            found.append(await receive())
        # Those of the last millisecond may come once more.
        assert [body for body in found if body not in OLD] == NEW
        assert len(found) < len(NEW) + len(OLD) - 2
    assert f"of queue 0 of {topic} on broker-a instead of 20: it ends at" in caplog.text
