"""The pull consumer against our own broker."""

import asyncio

import pytest
from aerobee.broker.server import Broker
from aerobee.client import (
    Message,
    Producer,
    PullConsumer,
)
from aerobee.client.base.identity import now_ms
from aerobee.client.errors import ClientError, ClosedError, NoRouteError
from aerobee.protocol import codes

from ..queues import filled


async def test_a_pull_goes_anywhere_and_commits_what_it_is_told(
    address: str, broker: Broker
) -> None:
    queue = await filled(address, 5)
    async with PullConsumer(address, group="audit", topics=["orders"]) as consumer:
        assert await consumer.queues("orders") == [queue]
        assert await consumer.balanced_queues("orders") == [queue]
        assert (await consumer.min_offset(queue), await consumer.max_offset(queue)) == (0, 5)
        assert await consumer.offset_for_time(queue, now_ms() + 60_000) == 5
        assert await consumer.committed(queue) in (-1, 0)
        outcome = await consumer.pull(queue, 1, max_messages=2)
        assert [message.body for message in outcome.messages] == [b"1", b"2"]
        assert (outcome.code, outcome.next_offset, outcome.max_offset) == (0, 3, 5)
        tagged = await consumer.pull(queue, 0, "a")
        assert [message.body for message in tagged.messages] == [b"0", b"2", b"4"]
        beyond = await consumer.pull(queue, 5)
        assert (beyond.code, beyond.messages) == (codes.PULL_NOT_FOUND, [])
        await consumer.commit(queue, outcome.next_offset)
        assert await consumer.committed(queue, from_store=True) == 3
        with pytest.raises(ClientError, match="is -1; give 0 or more"):
            await consumer.pull(queue, -1)
        with pytest.raises(NoRouteError):
            await consumer.queues("nope")
    async with PullConsumer(address, group="audit") as consumer:
        assert await consumer.committed(queue) == 3
    with pytest.raises(ClosedError):
        await consumer.committed(queue)


async def test_a_pull_may_wait_for_a_message(address: str) -> None:
    queue = await filled(address, 0)
    async with PullConsumer(address, group="audit") as consumer, Producer(address) as producer:
        waiting = asyncio.create_task(consumer.pull(queue, 0, wait_ms=10_000))
        while not waiting.done():
            await producer.send(Message("orders", b"now"), queue=queue)
            await asyncio.wait([waiting], timeout=0.2)
        assert (await waiting).messages[0].body == b"now"
