"""Logical queues lose what is no longer needed of their past."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aerobee.protocol import codes

from ..static_cluster import BLOCK, StaticCluster, detail_of, static_cluster

T = "Static"
ALWAYS = ";".join(f"{hour:02}" for hour in range(24))


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[StaticCluster]:
    """Queue 0 was on a, then on b, and is on c."""
    async with static_cluster(tmp_path, "a", "b", "c", delete_when=ALWAYS) as running:
        await running.create(T, ["a"])
        for old, new in (("a", "b"), ("b", "c")):
            await running.callers[old].send(T)
            await running.move(T, 0, new)
        yield running


async def clean(cluster: StaticCluster) -> dict[str, dict[int, list[str | None]]]:
    """Clean; returns the brokers of the items of each queue, by broker."""
    await asyncio.gather(*(broker.static_cleaner.run() for broker in cluster.brokers.values()))
    return {
        name: {
            queue_id: [item.bname for item in items]
            for queue_id, items in detail_of(await cluster.config(T, name)).hosted_queues.items()
        }
        for name in cluster.brokers
    }


async def test_a_leader_before_the_last_one_forgets_the_queue(cluster: StaticCluster) -> None:
    assert await clean(cluster) == {"a": {}, "b": {0: ["a", "b", "c"]}, "c": {0: ["a", "b", "c"]}}


async def test_an_item_without_messages_is_forgotten_by_the_leader(
    cluster: StaticCluster,
) -> None:
    cluster.brokers["a"].store.delete_topic(T)
    assert (await clean(cluster))["c"] == {0: ["b", "c"]}
    cluster.brokers["b"].store.delete_topic(T)
    assert (await clean(cluster))["c"] == {0: ["c"]}
    await cluster.callers["c"].send(T)
    assert (await cluster.callers["c"].pull(T, 2 * BLOCK)).code == codes.SUCCESS


async def test_nothing_is_forgotten_while_its_broker_cannot_be_asked(
    cluster: StaticCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.brokers["a"].stop()
    await cluster.brokers["c"].static_cleaner.run()
    assert "GET_TOPIC_STATS_INFO is for broker a, which can't be asked" in caplog.text
    assert len(cluster.brokers["c"].topics.static.table[T].hosted_queues[0]) == 3


async def test_at_other_hours_nothing_is_cleaned_up(tmp_path: Path) -> None:
    async with static_cluster(tmp_path, "a", "b") as cluster:
        await cluster.create(T, ["a"])
        await cluster.move(T, 0, "b")
        broker = cluster.brokers["b"]
        hour = broker.static_cleaner.hour()
        broker.config.delete_when = f"{(hour + 2) % 24:02}"
        await broker.static_cleaner.run()
        assert len(broker.topics.static.table[T].hosted_queues[0]) == 2
        broker.config.delete_when = f"{hour:02};{(hour + 1) % 24:02}"
        await broker.static_cleaner.run()
        assert len(broker.topics.static.table[T].hosted_queues[0]) == 1
