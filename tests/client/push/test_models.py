"""Clustering and broadcasting, conditions, progress: each kind of consumer on our own broker."""

import asyncio
import json
from collections import Counter
from pathlib import Path

from aerobee.broker.server import Broker
from aerobee.client import (
    Admin,
    Consumer,
    LitePullConsumer,
    Message,
    Producer,
    SimpleConsumer,
    by_sql,
)
from aerobee.client.cluster.cluster import Cluster
from aerobee.client.group.local_offsets import LocalOffsetStore
from aerobee.client.group.membership import Membership
from aerobee.client.group.offsets import RemoteOffsetStore

from ...waiting import LONG
from ..fakes import until
from ..queues import filled


async def consume(consumer: Consumer, into: Counter[bytes]) -> None:
    """Counts what a member gets until it is closed."""
    async for message in consumer:
        async with message.process():
            into[message.body] += 1


async def test_the_model_picks_the_store_of_offsets(tmp_path: Path) -> None:
    cluster = Cluster("127.0.0.1:1", client_id="me")
    stores = {
        model: Membership.read(None, "g", model=model, offsets_folder=tmp_path).store(cluster)
        for model in ("clustering", "broadcasting")
    }
    assert isinstance(stores["clustering"], RemoteOffsetStore)
    assert isinstance(stores["broadcasting"], LocalOffsetStore)
    await cluster.close()


async def test_clustering_shares_the_messages_and_broadcasting_repeats_them(
    address: str, tmp_path: Path
) -> None:
    bodies = {b"%d" % number for number in range(40)}
    counts = [Counter[bytes]() for _ in range(4)]
    models = ["clustering", "clustering", "broadcasting", "broadcasting"]
    members = [
        Consumer(
            address,
            group=model,
            topics=["orders"],
            start="earliest",
            model=model,
            instance=f"here-{number}",
            offsets_folder=tmp_path,
        )
        for number, model in enumerate(models)
    ]
    await filled(address, 0, queues=4)
    for member in members:
        await member.start()
    await until(lambda: [len(member.queues) for member in members] == [2, 2, 4, 4])
    tasks = [
        asyncio.create_task(consume(member, count))
        for member, count in zip(members, counts, strict=True)
    ]
    await filled(address, 40, queues=4)
    await until(lambda: [len(count) for count in counts[2:]] == [40, 40])
    await until(lambda: len(counts[0]) + len(counts[1]) == 40)
    for member in members:
        await member.close()
    await asyncio.gather(*tasks)
    assert counts[0] + counts[1] == Counter(bodies)
    assert counts[2] == counts[3] == Counter(bodies)
    assert counts[0]
    assert counts[1]


async def test_progress_is_kept_by_the_broker_under_topic_and_group(
    address: str, broker: Broker, tmp_path: Path
) -> None:
    await filled(address, 3)
    async with Consumer(address, group="g", topics=["orders"], start="earliest") as consumer:
        for _ in range(2):
            message = await consumer.receive(LONG)
            assert message is not None
            await message.ack()
    await broker.stop()
    text = (tmp_path / "store" / "config" / "consumerOffset.json").read_text()
    assert json.loads(text.replace("{0:", '{"0":'))["offsetTable"]["orders@g"] == {"0": 2}


async def test_a_condition_on_properties_picks_messages_for_every_kind_of_consumer(
    address: str,
) -> None:
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic("orders", 1)
        for number in range(6):
            properties = {"amount": str(number * 10), "region": "eu" if number % 2 else "us"}
            await producer.send(Message("orders", b"%d" % number, properties=properties))
    wanted = by_sql("amount > 10 AND region = 'eu'")
    topics = {"orders": wanted}
    found: list[bytes] = []
    async with Consumer(address, group="push", topics=topics, start="earliest") as consumer:
        for _ in range(2):
            message = await consumer.receive(LONG)
            assert message is not None
            found.append(message.body)
            await message.ack()
    async with LitePullConsumer(address, group="lite", start="earliest") as lite:
        await lite.subscribe("orders", wanted)
        async with asyncio.timeout(LONG):
            while len(found) < 4:
                found += [message.body for message in await lite.poll(1)]
    async with SimpleConsumer(address, group="pop", topics=topics, start="earliest") as simple:
        async with asyncio.timeout(LONG):
            while len(found) < 6:
                found += [message.body for message in await simple.receive(timeout=1)]
    assert found == [b"3", b"5"] * 3
