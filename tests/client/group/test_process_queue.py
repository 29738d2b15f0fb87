"""Limits of a process queue: reached by count, by bytes or by span, and lifted by settling."""

import asyncio

import pytest
from aerobee.client.group.process_queue import Limits, ProcessQueue
from aerobee.protocol.bodies.body import MessageQueue

from ...waiting import LONG

QUEUE = MessageQueue("orders", "broker-a", 0)


@pytest.mark.parametrize(
    ("limits", "held"),
    [
        (Limits(messages_max=2), [(0, 1), (1, 1), (2, 1)]),
        (Limits(bytes_max=10), [(0, 6), (1, 6)]),
        (Limits(span_max=100), [(0, 1), (101, 1)]),
    ],
    ids=["messages", "bytes", "span"],
)
async def test_a_limit_stops_the_flow_until_the_first_message_is_settled(
    limits: Limits, held: list[tuple[int, int]]
) -> None:
    queue = ProcessQueue(QUEUE, 0, limits)
    for offset, size in held:
        assert not queue.is_full
        assert queue.hold(offset, size)
    assert queue.is_full
    waiting = asyncio.ensure_future(queue.room())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.settle(0)
    await asyncio.wait_for(waiting, LONG)
    assert not queue.is_full


def test_settling_gives_the_offset_to_commit_and_only_once() -> None:
    queue = ProcessQueue(QUEUE, 0, Limits())
    for offset in (3, 4, 5):
        queue.hold(offset, 10)
    assert queue.settle(4) == 3
    assert queue.settle(3) == 5
    assert queue.settle(3) == -1
    assert queue.bytes == 10
    assert queue.settle(5) == 6
    assert queue.is_empty


def test_nothing_is_settled_in_a_dropped_queue() -> None:
    queue = ProcessQueue(QUEUE, 0, Limits())
    queue.hold(3, 10)
    queue.drop()
    assert queue.settle(3) == -1


async def test_dropping_wakes_whoever_waits_for_room() -> None:
    queue = ProcessQueue(QUEUE, 0, Limits(messages_max=0))
    queue.hold(0, 1)
    waiting = asyncio.ensure_future(queue.room())
    await asyncio.sleep(0)
    queue.drop()
    await asyncio.wait_for(waiting, LONG)
    assert queue.dropped


def test_settling_many_counts_those_that_were_open() -> None:
    queue = ProcessQueue(QUEUE, 0, Limits())
    for offset in (3, 4, 5, 9):
        queue.hold(offset, 10)
    assert queue.settle_all([4, 4, 7]) == (1, 3)
    assert queue.settle_all([3, 5]) == (2, 9)
    assert queue.settle_all([3]) == (0, -1)
    assert queue.bytes == 10
