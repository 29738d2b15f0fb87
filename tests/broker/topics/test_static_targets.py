"""Sends to static topics: from the logical queue to the physical queue."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aerobee.protocol import codes
from aerobee.protocol.command import Command
from aerobee.protocol.headers.send import SendMessageResponse
from aerobee.protocol.message.batch import Entry, encode_batch

from ...clocks import Clock
from ...waiting import until
from ..conftest import records
from ..static_cluster import BLOCK, StaticCluster, static_cluster

T = "Static"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[StaticCluster]:
    async with static_cluster(tmp_path, "a", "b") as running:
        yield running


def place(answer: Command) -> tuple[int, int]:
    """The queue id and offset in a send's response."""
    assert answer.code == codes.SUCCESS, answer.remark
    found = answer.header(SendMessageResponse)
    return found.queue_id, found.queue_offset


async def test_a_send_response_has_the_logical_queue_and_offset(cluster: StaticCluster) -> None:
    await cluster.create(T, ["a", "b", "a"])
    assert place(await cluster.callers["a"].send(T, queue_id=2)) == (2, 0)
    await cluster.move(T, 2, "b")
    for offset in (BLOCK, BLOCK + 1):
        assert place(await cluster.callers["b"].send(T, queue_id=2)) == (2, offset)
    assert cluster.brokers["a"].store.max_offset(T, 1) == 1
    assert cluster.brokers["b"].store.max_offset(T, 1) == 2


async def test_only_the_leader_takes_messages_for_a_logical_queue(cluster: StaticCluster) -> None:
    await cluster.create(T, ["a", "b"])
    for queue_id in (1, 7):
        refused = await cluster.callers["a"].send(T, queue_id=queue_id)
        assert refused.code == codes.NOT_LEADER_FOR_QUEUE
        assert refused.remark == (
            f"{T}-{queue_id} does not exit in request process of current broker a"
        )
    await cluster.move(T, 0, "b")
    assert (await cluster.callers["a"].send(T)).code == codes.NOT_LEADER_FOR_QUEUE


async def test_a_send_without_a_queue_goes_to_a_queue_led_by_the_broker(
    cluster: StaticCluster,
) -> None:
    await cluster.create(T, ["b", "a"])
    assert place(await cluster.callers["a"].send(T, queue_id=-1)) == (1, 0)


async def test_a_batch_is_stored_in_the_physical_queue(cluster: StaticCluster) -> None:
    await cluster.create(T, ["b", "a", "a"])
    await cluster.move(T, 0, "a")
    batch = encode_batch([Entry(0, b"%d" % number, b"") for number in range(3)])
    for start in (BLOCK, BLOCK + 3):
        sent = await cluster.callers["a"].send(T, batch, code=codes.SEND_BATCH_MESSAGE, batch=True)
        assert place(sent) == (0, start)
    assert len(records(await cluster.callers["a"].pull(T, BLOCK))) == 6


async def test_a_delayed_message_is_delivered_to_the_logical_queue(tmp_path: Path) -> None:
    clock = Clock()
    async with static_cluster(tmp_path, "a", "b", now_ms=clock) as cluster:
        await cluster.create(T, ["b", "a"])
        caller = cluster.callers["a"]
        sent = await caller.send(T, queue_id=1, TIMER_DELIVER_MS=str(clock.ms + 60_000))
        assert place(sent)[0] == 1
        clock.ms += 60_000
        await until(lambda: cluster.brokers["a"].store.max_offset(T, 0))
        assert [each.body for each in records(await caller.pull(T, queue_id=1))] == [b"body"]


async def test_static_topics_take_the_slow_path(cluster: StaticCluster) -> None:
    pytest.importorskip("numba")
    await cluster.create(T, ["a", "b"])
    broker, caller = cluster.brokers["a"], cluster.callers["a"]
    await broker.engine.load()
    assert place(await caller.send(T)) == (0, 0)
    assert (await caller.send(T, queue_id=1)).code == codes.NOT_LEADER_FOR_QUEUE
    # An ordinary topic known to the fast path becomes static.
    for offset in (0, 1):
        assert place(await caller.send("Later", queue_id=0)) == (0, offset)
    await cluster.create("Later", ["b", "a"])
    assert (await caller.send("Later", queue_id=0)).code == codes.NOT_LEADER_FOR_QUEUE
    assert place(await caller.send("Later", queue_id=1)) == (1, 2)
