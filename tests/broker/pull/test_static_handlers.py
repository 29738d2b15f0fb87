"""Pulls of static topics, over the brokers that a logical queue has lived on."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aerobee.protocol import codes
from aerobee.protocol.command import Command
from aerobee.protocol.headers.offsets import OffsetResponse, QueryConsumerOffset
from aerobee.protocol.headers.pull import COMMIT_OFFSET, PullMessageResponse
from aerobee.protocol.headers.send import SendMessageResponse

from ...waiting import until
from ..conftest import parked, records
from ..static_cluster import BLOCK, StaticCluster, static_cluster
from ..virtual_time import monotonic_ms

IN_VIRTUAL_TIME = True

T = "Static"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[StaticCluster]:
    async with static_cluster(tmp_path, "a", "b") as running:
        yield running


async def send(cluster: StaticCluster, broker: str, *bodies: bytes, queue_id: int = 0) -> list[int]:
    """The logical offsets of these messages."""
    answers = [await cluster.callers[broker].send(T, body, queue_id=queue_id) for body in bodies]
    assert {answer.code for answer in answers} == {codes.SUCCESS}, answers[0].remark
    return [answer.header(SendMessageResponse).queue_offset for answer in answers]


def read(answer: Command) -> tuple[int, list[tuple[int, bytes]], PullMessageResponse]:
    """The code of a pull's answer, its messages with their logical offsets, its offsets."""
    header = answer.header(PullMessageResponse)
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


async def test_a_reader_waits_at_the_end_of_a_logical_queue_for_its_next_message(
    cluster: StaticCluster,
) -> None:
    await cluster.create(T, ["a"])
    await cluster.move(T, 0, "b")
    waiting = asyncio.create_task(cluster.callers["b"].pull(T, BLOCK, suspend_ms=60_000))
    await parked(cluster.brokers["b"], 1)
    await send(cluster, "b", b"1")
    code, found, _ = read(await waiting)
    assert (code, found) == (codes.SUCCESS, [(BLOCK, b"1")])


async def test_a_reader_who_waits_is_sent_away_when_the_queue_moves(
    cluster: StaticCluster,
) -> None:
    await cluster.create(T, ["a"])
    waiting = asyncio.create_task(cluster.callers["a"].pull(T, suspend_ms=60_000))
    await parked(cluster.brokers["a"], 1)
    await cluster.move(T, 0, "b")
    assert (await waiting).code == codes.NOT_LEADER_FOR_QUEUE


async def test_a_reader_does_not_wait_where_the_next_broker_has_what_follows(
    cluster: StaticCluster,
) -> None:
    await cluster.create(T, ["a"])
    await send(cluster, "a", b"1")
    await cluster.move(T, 0, "b")
    code, _, header = read(await cluster.callers["b"].pull(T, 1, suspend_ms=60_000))
    assert (code, header.next_offset) == (codes.PULL_RETRY_IMMEDIATELY, BLOCK)


async def test_a_reader_waits_a_moment_while_what_follows_has_no_offset_yet(
    cluster: StaticCluster,
) -> None:
    await cluster.create(T, ["a"])
    await send(cluster, "a", b"1")
    await cluster.begin_move(T, 0, "b")
    waiting = asyncio.create_task(cluster.callers["b"].pull(T, 1, suspend_ms=60_000))
    await parked(cluster.brokers["a"], 1)  # RocketMQ answers at once, and clients ask again
    (hold,) = cluster.brokers["a"].long_polls.parked[T, 0]
    assert hold.header.suspend_ms == 1_000
    begun_ms = monotonic_ms()
    assert (await waiting).code == codes.PULL_NOT_FOUND
    assert monotonic_ms() - begun_ms >= 900  # it was parked before that


async def test_an_offset_before_the_first_message_or_behind_the_last_is_corrected(
    cluster: StaticCluster,
) -> None:
    await cluster.create(T, ["a"])
    await send(cluster, "a", b"1")
    await cluster.move(T, 0, "b")
    await send(cluster, "b", b"2")
    code, _, header = read(await cluster.callers["b"].pull(T, BLOCK + 7))
    assert (code, header.next_offset) == (codes.PULL_OFFSET_MOVED, BLOCK + 1)
    code, _, header = read(await cluster.callers["b"].pull(T, 7))
    assert (code, header.next_offset) == (codes.PULL_RETRY_IMMEDIATELY, BLOCK)


async def test_the_progress_that_comes_with_a_pull_is_a_logical_offset(
    cluster: StaticCluster,
) -> None:
    await cluster.create(T, ["a"])
    await cluster.move(T, 0, "b")
    await send(cluster, "b", b"1", b"2")
    caller = cluster.callers["b"]
    await caller.pull(T, BLOCK + 1, sys_flag=COMMIT_OFFSET, commit_offset=BLOCK + 1)
    assert cluster.brokers["b"].offsets.get(T, "cg", 0) == 1
    header = QueryConsumerOffset("cg", T, 0)
    known = await caller.ask(codes.QUERY_CONSUMER_OFFSET, header)
    assert known.header(OffsetResponse).offset == BLOCK + 1


async def test_a_reset_is_told_as_a_logical_offset(cluster: StaticCluster) -> None:
    await cluster.create(T, ["a"])
    await cluster.move(T, 0, "b")
    await send(cluster, "b", b"1", b"2")
    cluster.brokers["b"].offsets.reset(T, "cg", 0, 1)
    answer = await cluster.callers["b"].pull(T, BLOCK)
    assert (answer.code, answer.remark) == (codes.PULL_OFFSET_MOVED, "OFFSET_RESET")
    assert answer.header(PullMessageResponse).next_offset == BLOCK + 1


async def test_ordinary_topics_of_the_broker_are_read_as_ever(cluster: StaticCluster) -> None:
    await cluster.create(T, ["a"])
    caller = cluster.callers["a"]
    await caller.send("Ordinary", b"1")
    waiting = asyncio.create_task(caller.pull("Ordinary", 1, suspend_ms=60_000))
    await parked(cluster.brokers["a"], 1)
    await caller.send("Ordinary", b"2")
    answer = await waiting
    assert [each.body for each in records(answer)] == [b"2"]
    assert answer.header(PullMessageResponse).offset_delta is None


async def test_a_broker_without_static_topics_looks_for_none(cluster: StaticCluster) -> None:
    broker = cluster.brokers["a"]
    await cluster.callers["a"].send("Ordinary", b"1")
    await cluster.callers["a"].pull("Ordinary")
    assert broker.pulls.logical is None
    await cluster.create(T, ["a"])
    assert broker.pulls.logical is not None


async def test_a_slave_sends_nobody_on_and_forgets_nothing_before_it_has_all_messages(
    tmp_path: Path,
) -> None:
    async with static_cluster(tmp_path, "a", "b") as cluster:
        await cluster.create(T, ["a"])
        await send(cluster, "a", b"1")
        await cluster.move(T, 0, "b")
        await cluster.move(T, 0, "a")
        role = {
            "broker_role": "SLAVE",
            "broker_id": 1,
            "slave_read_enable": True,
            "delete_when": ";".join(f"{hour:02}" for hour in range(24)),
        }
        slave = await cluster.start("a", tmp_path / "slave", key="slave", **role)
        await until(lambda: slave.topics.static.table)
        assert len(slave.topics.static.table[T].hosted_queues[0]) == 3
        _, found, header = read(await cluster.callers["slave"].pull(T))
        assert header.next_offset == len(found)  # 0 or 1, by how far it has followed
        _, found, header = read(await cluster.callers["slave"].pull(T, 1))
        assert (found, header.next_offset) == ([], 1)
