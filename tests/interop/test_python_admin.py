"""The calls of our administration on the real servers."""

from __future__ import annotations

import asyncio

import pytest
from aerobee.client import Admin, Consumer, Message, Producer
from aerobee.client.errors import BrokerError, ClientError, NoRouteError
from aerobee.client.group.received import ReceivedMessage
from aerobee.harness.clusters import JavaCluster
from aerobee.protocol.bodies.group import SubscriptionGroupConfig

from .programs import SECONDS
from .support import until

TOPIC, GROUP = "administered", "AdminReaders"


async def read_all(cluster: JavaCluster, count: int) -> list[ReceivedMessage]:
    """What a member of the group receives, each acknowledged."""
    consumer = Consumer(cluster.namesrv, group=GROUP, topics=[TOPIC], start="earliest")
    found: list[ReceivedMessage] = []
    async with consumer, asyncio.timeout(SECONDS):
        async for message in consumer:
            found.append(message)
            await message.ack()
            if len(found) == count:
                return found
    raise AssertionError("the consumer ended")


async def test_a_topic_and_its_messages(java_cluster: JavaCluster) -> None:
    async with Admin(java_cluster.namesrv) as admin, Producer(java_cluster.namesrv) as producer:
        await admin.create_topic(TOPIC, 2)
        queues = [queue for queue in await producer.queues(TOPIC)]
        receipts = [
            await producer.send(
                Message(TOPIC, b"%d" % number, keys=f"key-{number}", tags="t"),
                queue=queues[number % 2],
            )
            for number in range(10)
        ]
        (address,) = (await admin.masters()).values()
        assert TOPIC in await admin.topics()
        (name,) = (await admin.cluster_info()).cluster_addr_table
        assert TOPIC in await admin.topics_of_cluster(name)
        (config,) = (await admin.topic_config(TOPIC)).values()
        assert (config.read_queue_nums, config.write_queue_nums) == (2, 2)
        assert TOPIC in (await admin.topic_configs(address)).topic_config_table
        stats = await admin.topic_stats(TOPIC)
        assert {bounds.max_offset for bounds in stats.offset_table.values()} == {5}
        entries = await admin.queue_entries(receipts[0].queue, 0, 5)
        assert len(entries.queue_data) == 5
        # The real one fills its index a moment later.
        await until(lambda: admin.query(TOPIC, "key-7"), "key-7")
        assert [record.body for record in await admin.query(TOPIC, "key-7")] == [b"7"]
        (record,) = await admin.query(TOPIC, receipts[3].msg_id, unique=True)
        assert record.offset_id == receipts[3].offset_msg_id
        assert (await admin.message(receipts[4].offset_msg_id)).body == b"4"
        assert await admin.query(TOPIC, "no such key") == []


async def test_a_group_and_its_progress(java_cluster: JavaCluster) -> None:
    async with Admin(java_cluster.namesrv) as admin:
        await read_all(java_cluster, 10)
        assert GROUP in await admin.groups_of_topic(TOPIC)
        assert TOPIC in await admin.topics_of_group(GROUP)
        (groups,) = (await admin.groups()).values()
        assert GROUP in groups.subscription_group_table
        (config,) = (await admin.group_config(GROUP)).values()
        assert config.group_name == GROUP
        progress = (await admin.consume_stats(GROUP, TOPIC)).offset_table
        assert {each.consumer_offset for each in progress.values()} == {5}
        assert len(await admin.time_span(TOPIC, GROUP)) == 2
        (address,) = (await admin.masters()).values()
        assert f"{TOPIC}@{GROUP}" in (await admin.all_offsets(address)).offset_table
        assert await admin.consumer_connection(GROUP) is None
        assert set((await admin.reset_offsets(GROUP, TOPIC, 0)).values()) <= {0}
        assert len(await read_all(java_cluster, 10)) == 10
        await admin.update_group(SubscriptionGroupConfig("Cloned"))
        await admin.clone_offsets(GROUP, "Cloned", TOPIC)
        cloned = (await admin.consume_stats("Cloned", TOPIC)).offset_table
        assert {each.consumer_offset for each in cloned.values()} == {5}
        queue = next(iter(cloned))
        await admin.set_offset("Cloned", queue, 3)
        moved = (await admin.consume_stats("Cloned", TOPIC)).offset_table
        assert moved[queue].consumer_offset == 3
        with pytest.raises(NoRouteError, match="no broker has a member"):
            await admin.running_info(GROUP, "nobody@nowhere")


async def test_a_member_is_asked(java_cluster: JavaCluster) -> None:
    consumer = Consumer(java_cluster.namesrv, group="Asked", topics=[TOPIC], start="earliest")
    async with Admin(java_cluster.namesrv) as admin, consumer:
        async with asyncio.timeout(SECONDS):
            message = await anext(aiter(consumer))
        connection = await admin.consumer_connection("Asked")
        assert connection is not None
        (member,) = connection.connection_set
        info = await admin.running_info("Asked", member.client_id or "")
        assert {queue.topic for queue in info.mq_table} >= {TOPIC}
        # What the broker passed on came from a client in Python; the broker is what it is.
        offsets = await admin.member_offsets("Asked", TOPIC)
        assert set(offsets) == {member.client_id}
        subscription = await admin.subscription("Asked", TOPIC)
        assert subscription.subscription_data is not None
        assert subscription.subscription_data.sub_string == "*"
        await message.ack()


async def test_brokers_and_name_servers(java_cluster: JavaCluster) -> None:
    async with Admin(java_cluster.namesrv) as admin:
        ((name, address),) = (await admin.masters()).items()
        assert "bootTimestamp" in await admin.broker_runtime(address)
        assert "brokerName=" in await admin.broker_config(address)
        before = "autoCreateTopicEnable=true" in await admin.broker_config(address)
        await admin.update_broker_config(address, {"autoCreateTopicEnable": not before})
        after = "autoCreateTopicEnable=true" in await admin.broker_config(address)
        assert after is not before
        await admin.update_broker_config(address, {"autoCreateTopicEnable": before})
        with pytest.raises(BrokerError):
            await admin.update_broker_config(address, {"brokerConfigPath": "/tmp/elsewhere"})
        assert (await admin.ha_status(address)).master
        stats = await admin.broker_stats(address, "TOPIC_PUT_NUMS", TOPIC)
        assert stats.stats_minute is not None
        await admin.broker_consume_stats(address)
        await admin.clean_unused_topics(address)
        await admin.clean_expired_queues(address)
        await admin.delete_expired_log(address)
        assert await admin.wipe_write_permission(name) > 0
        assert await admin.add_write_permission(name) > 0
        await admin.put_kv("space", "key", "value")
        assert await admin.get_kv("space", "key") == "value"
        assert await admin.list_kv("space") == {"key": "value"}
        await admin.delete_kv("space", "key")
        assert await admin.get_kv("space", "key") is None
        assert "listenPort=" in await admin.namesrv_config()


async def test_what_is_asked_wrongly_is_told_here(java_cluster: JavaCluster) -> None:
    async with Admin(java_cluster.namesrv) as admin:
        with pytest.raises(ClientError, match="no setting is given"):
            await admin.update_broker_config("127.0.0.1:1", {})
        with pytest.raises(ClientError, match="may break the line"):
            await admin.update_broker_config("127.0.0.1:1", {"a": "b\nc=d"})
        with pytest.raises(ClientError, match="give PULL or POP"):
            await admin.set_request_mode(GROUP, TOPIC, "PUSH")
