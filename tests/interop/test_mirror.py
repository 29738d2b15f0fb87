"""A mirror from RocketMQ's broker to ours and back: each reads what the other kept."""

from __future__ import annotations

import pytest
from aerobee.client import Admin, Consumer, Message, Producer
from aerobee.client.mirror.mirror import Mirror
from aerobee.harness.clusters import AerobeeCluster, Cluster, JavaCluster

from ..waiting import PROCESS

COUNT = 60
READ = 25


async def consume(cluster: Cluster, group: str, topic: str, count: int) -> set[int]:
    """The bodies of a group's next messages."""
    found: set[int] = set()
    async with Consumer(cluster.namesrv, group=group, topics=[topic], start="earliest") as consumer:
        while len(found) < count:
            message = await consumer.receive(PROCESS)
            assert message is not None
            found.add(int(message.body))
            await message.ack()
    return found


@pytest.mark.java
@pytest.mark.parametrize("forth", [True, False], ids=["from-java", "to-java"])
async def test_consumers_go_on_in_the_copy(
    java_cluster: JavaCluster, aerobee_cluster: AerobeeCluster, forth: bool
) -> None:
    clusters: tuple[Cluster, Cluster] = (java_cluster, aerobee_cluster)
    source, target = clusters if forth else clusters[::-1]
    topic, group = f"mirrored-{forth}".lower(), f"moving-{forth}".lower()
    async with Admin(source.namesrv) as admin:
        await admin.create_topic(topic, 3)
    async with Producer(source.namesrv) as producer:
        for number in range(0, COUNT, 2):
            await producer.send(Message(topic, str(number).encode(), keys=[f"k{number}"]))
            await producer.send_batch([Message(topic, str(number + 1).encode())])
    done = await consume(source, group, topic, READ)
    for _ in range(2):  # the second copies nothing
        async with Mirror(source.namesrv, target.namesrv, topics=topic, groups=group) as mirror:
            await mirror.copy_once()
            report = mirror.report()
            assert (report.lag, report.failures) == (0, ())
    assert report.copied == 0
    rest = await consume(target, group, topic, COUNT - READ)
    assert done | rest == set(range(COUNT))
    async with Admin(target.namesrv) as admin:
        stats = (await admin.topic_stats(topic)).offset_table.values()
        assert sum(each.max_offset for each in stats) == COUNT
