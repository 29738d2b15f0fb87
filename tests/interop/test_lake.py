"""A topic of the real broker as a table: pulled from it, and read from its files."""

from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

from aerobee.client.admin.admin import Admin
from aerobee.client.base.message import Message
from aerobee.client.producer.producer import Producer
from aerobee.harness.clusters import JavaCluster
from aerobee.lake.materializer import Materializer
from aerobee.lake.progress import progress_of, queue_key
from aerobee.lake.topic_log import TopicLog
from aerobee.lake.verify import verify

from ..lake.tables import catalog_in, contents

TOPIC = "lake_orders"
BODIES = [f"order {number}".encode() for number in range(200)]


@pytest.mark.java
@pytest.mark.smoke
@pytest.mark.parametrize("from_files", [False, True], ids=["pulled", "from its files"])
async def test_every_message_of_a_topic_is_a_row(
    java_cluster: JavaCluster, tmp_path: Path, from_files: bool
) -> None:
    topic = f"{TOPIC}_{from_files}"
    async with Admin(java_cluster.namesrv) as admin, Producer(java_cluster.namesrv) as producer:
        await admin.create_topic(topic, 4)
        for body in BODIES[:20]:
            await producer.send(Message(topic, body, tags="a", keys=["k", "l"]))
        await producer.send_batch([Message(topic, body) for body in BODIES[20:]])
        names = sorted((await admin.cluster_info()).broker_addr_table)
    stores = {name: java_cluster.store for name in names} if from_files else {}
    source = TopicLog(java_cluster.namesrv, stores=stores)
    try:
        catalog = catalog_in(tmp_path)
        catalog.create(topic, topic)
        group = f"group_of_{topic}"
        copier = Materializer(catalog, source, topic, topic, group=group)
        done = copier.copy()
        assert (done.rows, done.group_failures) == (len(BODIES), ())
        table = catalog.load(topic, topic)
        async with Admin(java_cluster.namesrv) as admin:
            progress = await admin.consume_stats(group, topic)
        at = {queue_key(each): one.consumer_offset for each, one in progress.offset_table.items()}
        assert at == progress_of(table.metadata, topic).offsets
        assert all(
            one.consumer_offset == one.broker_offset for one in progress.offset_table.values()
        )
        assert sorted(contents(table).values()) == sorted(BODIES)
        found = list(verify(table, source, topic))
    finally:
        source.close()
    assert sum(each.compared for each in found) == len(BODIES)
    assert all(each.is_clean for each in found)
