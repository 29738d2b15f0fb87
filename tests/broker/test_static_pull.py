"""Pulls of static topics, over the brokers that a logical queue has lived on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aerobee.protocol import codes
from aerobee.protocol.command import Command
from aerobee.protocol.headers.pull import PullMessageAnswer
from aerobee.protocol.headers.send import SendMessageAnswer

from .conftest import records
from .static_cluster import BLOCK, StaticCluster, static_cluster

T = "Static"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[StaticCluster]:
    async with static_cluster(tmp_path, "a", "b") as running:
        yield running


async def send(cluster: StaticCluster, broker: str, *bodies: bytes, queue_id: int = 0) -> list[int]:
    """The logical offsets of these messages."""
    answers = [await cluster.callers[broker].send(T, body, queue_id=queue_id) for body in bodies]
    assert {answer.code for answer in answers} == {codes.SUCCESS}, answers[0].remark
    return [answer.header(SendMessageAnswer).queue_offset for answer in answers]


def read(answer: Command) -> tuple[int, list[tuple[int, bytes]], PullMessageAnswer]:
    """The code of a pull's answer, its messages with their logical offsets, its offsets."""
    header = answer.header(PullMessageAnswer)
    delta = header.offset_delta
    assert delta is not None
    found = [(each.queue_offset + delta, each.body) for each in records(answer)]
    return answer.code, found, header


async def read_all(cluster: StaticCluster, broker: str, start: int = 0) -> list[tuple[int, bytes]]:
    """All messages from a logical offset on, as a consumer reads them, until none is found."""
    offset, all_of_them = start, []
    for _ in range(20):
        code, found, header = read(await cluster.callers[broker].pull(T, offset))
        all_of_them += found
        if code == codes.PULL_NOT_FOUND:
            return all_of_them
        assert header.next_offset > offset
        offset = header.next_offset
    raise AssertionError("the reader goes in circles")


async def test_a_logical_queue_is_read_by_its_logical_id_and_offsets(
    cluster: StaticCluster,
) -> None:
    await cluster.create(T, ["a", "b", "a"])
    assert await send(cluster, "a", b"2a", b"2b", queue_id=2) == [0, 1]
    code, found, header = read(await cluster.callers["a"].pull(T, queue_id=2))
    assert (code, found) == (codes.SUCCESS, [(0, b"2a"), (1, b"2b")])
    assert (header.next_offset, header.min_offset, header.max_offset) == (2, 0, 2)


async def test_only_the_leader_of_a_logical_queue_serves_it(cluster: StaticCluster) -> None:
    await cluster.create(T, ["a", "b"])
    refused = await cluster.callers["b"].pull(T, queue_id=0)
    assert refused.code == codes.NOT_LEADER_FOR_QUEUE
    assert refused.remark == (
        f"{T}-0 cannot find mapping item in request process of current broker b"
    )


async def test_a_queue_that_moved_is_read_whole_and_in_order_at_its_new_leader(
    cluster: StaticCluster,
) -> None:
    await cluster.create(T, ["a"])
    await send(cluster, "a", b"1", b"2")
    await cluster.move(T, 0, "b")
    assert await send(cluster, "b", b"3") == [BLOCK]
    await cluster.move(T, 0, "a")
    assert await send(cluster, "a", b"4", b"5") == [2 * BLOCK, 2 * BLOCK + 1]
    assert await read_all(cluster, "a") == [
        (0, b"1"),
        (1, b"2"),
        (BLOCK, b"3"),
        (2 * BLOCK, b"4"),
        (2 * BLOCK + 1, b"5"),
    ]


async def test_what_is_sent_while_a_queue_moves_is_read_once_its_offset_is_decided(
    cluster: StaticCluster,
) -> None:
    await cluster.create(T, ["a"])
    await send(cluster, "a", b"old")
    move = await cluster.begin_move(T, 0, "b")
    assert await send(cluster, "b", b"new") == [-1]
    assert await read_all(cluster, "b") == [(0, b"old")]
    await cluster.decide(move)
    assert await read_all(cluster, "b") == [(0, b"old"), (BLOCK, b"new")]
