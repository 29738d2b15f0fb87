"""Offsets of static topics: of a logical queue as if it had always been on one broker."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aerobee.protocol import codes
from aerobee.protocol.bodies.stats import ConsumeStats
from aerobee.protocol.command import Command
from aerobee.protocol.headers.groups import ConsumeStats as ConsumeStatsHeader
from aerobee.protocol.headers.offsets import (
    OffsetResponse,
    QueryConsumerOffset,
    QueueAddress,
    SearchOffset,
    TimestampResponse,
    UpdateConsumerOffset,
)

from ..static_cluster import BLOCK, StaticCluster, static_cluster

T = "Static"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[StaticCluster]:
    """Queue 0 had two messages on a, then one on b, which leads it."""
    async with static_cluster(tmp_path, "a", "b") as running:
        await running.create(T, ["a"])
        await running.callers["a"].send(T, b"1")
        await running.callers["a"].send(T, b"2")
        await running.move(T, 0, "b")
        await running.callers["b"].send(T, b"3")
        await running.callers["a"].heartbeat(group="g", topics={T: "*"})
        await running.callers["b"].heartbeat(group="g", topics={T: "*"})
        yield running


def offset(answer: Command) -> int:
    assert answer.code == codes.SUCCESS, answer.remark
    return answer.header(OffsetResponse).offset


async def progress(cluster: StaticCluster, broker: str = "b") -> Command:
    header = QueryConsumerOffset("g", T, 0, zero_if_missing=False)
    return await cluster.callers[broker].ask(codes.QUERY_CONSUMER_OFFSET, header)


async def commit(cluster: StaticCluster, at: int, broker: str = "b") -> Command:
    header = UpdateConsumerOffset("g", T, 0, at)
    return await cluster.callers[broker].ask(codes.UPDATE_CONSUMER_OFFSET, header)


async def test_the_leader_tells_where_the_whole_queue_begins_and_ends(
    cluster: StaticCluster,
) -> None:
    ask, address = cluster.callers["b"].ask, QueueAddress(T, 0)
    assert offset(await ask(codes.GET_MIN_OFFSET, address)) == 0
    assert offset(await ask(codes.GET_MAX_OFFSET, address)) == BLOCK + 1
    first_ms = cluster.brokers["a"].store.earliest_store_ms(T, 0)
    earliest = await ask(codes.GET_EARLIEST_MSG_STORETIME, address)
    assert earliest.header(TimestampResponse).timestamp_ms == first_ms > 0


async def test_between_brokers_ids_and_offsets_are_physical(cluster: StaticCluster) -> None:
    there = QueueAddress(T, 0, lo=False)
    for broker, most in (("a", 2), ("b", 1)):
        assert offset(await cluster.callers[broker].ask(codes.GET_MAX_OFFSET, there)) == most


async def test_the_end_of_a_queue_that_is_moving_is_where_its_old_broker_ends(
    cluster: StaticCluster,
) -> None:
    await cluster.callers["b"].send(T, b"4")
    await cluster.begin_move(T, 0, "a")
    await cluster.callers["a"].send(T, b"not to be read yet")
    most = await cluster.callers["a"].ask(codes.GET_MAX_OFFSET, QueueAddress(T, 0))
    assert offset(most) == BLOCK + 2


@pytest.mark.parametrize("code", [codes.GET_MAX_OFFSET, codes.GET_MIN_OFFSET])
async def test_only_the_leader_answers(cluster: StaticCluster, code: int) -> None:
    refused = await cluster.callers["a"].ask(code, QueueAddress(T, 0))
    assert refused.code == codes.NOT_LEADER_FOR_QUEUE
    assert "Static-0 does not exit" in (refused.remark or "")


async def test_a_time_is_found_on_whichever_broker_has_it(cluster: StaticCluster) -> None:
    store_a, store_b = cluster.brokers["a"].store, cluster.brokers["b"].store
    last_ms = store_b.store_ms_at(T, 0, 0)

    async def at(ms: int, boundary: str = "LOWER") -> int:
        header = SearchOffset(T, 0, ms, boundary)
        return offset(await cluster.callers["b"].ask(codes.SEARCH_OFFSET_BY_TIMESTAMP, header))

    assert await at(0) == 0
    assert await at(store_a.earliest_store_ms(T, 0)) == 0
    assert store_a.store_ms_at(T, 0, 1) < last_ms
    assert await at(last_ms) == BLOCK
    assert await at(last_ms + 60_000) == BLOCK + 1
    assert await at(last_ms - 1, "UPPER") in (0, 1)
    assert await at(last_ms, "UPPER") == BLOCK


async def test_a_groups_progress_is_kept_where_the_messages_are(cluster: StaticCluster) -> None:
    assert (await progress(cluster)).code == codes.QUERY_NOT_FOUND
    assert (await commit(cluster, 1)).code == codes.SUCCESS
    assert cluster.brokers["a"].offsets.get(T, "g", 0) == 1
    assert cluster.brokers["b"].offsets.get(T, "g", 0) == -1
    assert offset(await progress(cluster)) == 1
    assert (await commit(cluster, BLOCK + 1)).code == codes.SUCCESS
    assert cluster.brokers["b"].offsets.get(T, "g", 0) == 1
    assert offset(await progress(cluster)) == BLOCK + 1
    assert (await commit(cluster, 1, "a")).code == codes.NOT_LEADER_FOR_QUEUE
    assert (await progress(cluster, "a")).code == codes.NOT_LEADER_FOR_QUEUE


async def test_a_broker_that_is_gone_is_named(cluster: StaticCluster) -> None:
    await cluster.brokers["a"].stop()
    refused = await progress(cluster)
    assert refused.code == codes.SYSTEM_ERROR
    assert "QUERY_CONSUMER_OFFSET is for broker a, which can't be asked" in (refused.remark or "")


async def test_the_progress_of_a_group_in_a_queue_of_the_past_is_not_zero(
    cluster: StaticCluster,
) -> None:
    await commit(cluster, 2)
    header = ConsumeStatsHeader("g", T)
    found = {}
    for name, caller in cluster.callers.items():
        answer = await caller.ask(codes.GET_CONSUME_STATS, header)
        table = ConsumeStats.decode(answer.body).offset_table
        found[name] = [(one.consumer_offset, one.broker_offset) for one in table.values()]
    assert found == {"a": [(2, 2)], "b": [(-1, 1)]}
