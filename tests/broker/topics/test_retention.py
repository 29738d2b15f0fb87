"""A topic's retention, from its attribute to the offsets that clients see."""

import asyncio

from aerobee.client import Message, blocking
from aerobee.client.admin.admin import Admin
from aerobee.store.base.retention import TopicRule
from aerobee.testing import LocalCluster


def test_a_topic_forgets_what_is_older_than_its_own_time_also_after_a_restart() -> None:
    async def make(cluster: LocalCluster, change: dict[str, str]) -> None:
        async with Admin(cluster.name_server) as admin:
            await admin.create_topic("short", 1, attributes=change)
            await admin.create_topic("usual", 1)

    def offsets(cluster: LocalCluster, topic: str) -> tuple[int, int]:
        store = cluster.brokers[0].store
        return cluster.call(lambda: (store.min_offset(topic, 0), store.max_offset(topic, 0)))

    with LocalCluster() as cluster:
        asyncio.run(make(cluster, {"retention.ms": "3600000"}))
        with blocking.Producer(cluster.name_server) as producer:
            for topic in ("short", "usual"):
                producer.send(Message(topic, b"early"))
            cluster.advance(minutes=50)
            producer.send(Message("short", b"late"))
        cluster.advance(minutes=20)
        cluster.restart()
        assert offsets(cluster, "short") == (1, 2)
        assert offsets(cluster, "usual") == (0, 1)


def test_a_rule_follows_the_attributes_and_goes_with_them() -> None:
    async def change(cluster: LocalCluster) -> list[dict[str, TopicRule]]:
        found = []
        rules = cluster.brokers[0].store.state.topic_rules
        async with Admin(cluster.name_server) as admin:
            await admin.create_topic("T", attributes={"retention.bytes": "5"})
            found.append(dict(rules))
            await admin.create_topic("T", attributes={"retention.bytes": "7"})
            found.append(dict(rules))
            await admin.delete_topic("T")
            found.append(dict(rules))
        return found

    with LocalCluster() as cluster:
        first, second, third = asyncio.run(change(cluster))
    assert (first, second, third) == ({"T": (None, 5)}, {"T": (None, 7)}, {})
