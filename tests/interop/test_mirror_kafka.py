"""A mirror from a real Kafka broker to ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from aerobee.client import Admin, Consumer
from aerobee.client.mirror.mirror import Mirror
from aerobee.client.pull.reader import Reader
from aerobee.harness.kafka_side import KafkaBroker
from aerobee.protocol.message import properties as props
from aerobee.protocol.message.record import decode_all
from aerobee.testing.cluster import LocalCluster
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import OffsetAndMetadata

from ..waiting import PROCESS

COUNT = 30


@pytest.fixture(scope="module")
def kafka(java_is_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


@pytest.fixture(scope="module")
def target() -> Iterator[LocalCluster]:
    with LocalCluster() as one:
        yield one


async def make_topic(kafka: KafkaBroker, topic: str, partitions: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.address)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, partitions, 1)])
    finally:
        await admin.close()


@pytest.mark.java
async def test_records_groups_and_offsets_are_copied(
    kafka: KafkaBroker, target: LocalCluster
) -> None:
    await make_topic(kafka, "orders", 2)
    producer = AIOKafkaProducer(bootstrap_servers=kafka.address, transactional_id="t")
    await producer.start()
    for number in range(COUNT):  # each transaction leaves a marker, which has an offset
        async with producer.transaction():
            await producer.send(
                "orders",
                str(number).encode(),
                key=f"k{number}".encode(),
                partition=number % 2,
                headers=[("shop", b"berlin"), ("raw", b"\xff"), ("TAGS", b"t")],
            )
    await producer.stop()
    reader = AIOKafkaConsumer(
        bootstrap_servers=kafka.address, group_id="movers", enable_auto_commit=False
    )
    await reader.start()
    partition = TopicPartition("orders", 0)
    reader.assign([partition])
    reader.seek(partition, 0)
    done = {int((await reader.getone(partition)).value) for _ in range(4)}
    position = await reader.position(partition)
    await reader.commit({partition: OffsetAndMetadata(position, "")})
    await reader.stop()
    for count in (COUNT, 0):  # the second mirror goes on where the first ended
        async with Mirror(
            f"kafka://{kafka.address}", target.name_server, topics="orders", groups="movers"
        ) as mirror:
            await mirror.copy_once()
            report = mirror.report()
            assert (report.copied, report.lag, report.failures) == (count, 0, ())
    rest: set[int] = set()
    async with Consumer(
        target.name_server, group="movers", topics=["orders"], start="earliest"
    ) as consumer:
        while len(rest) < COUNT - len(done):
            message = await consumer.receive(PROCESS)
            assert message is not None
            rest.add(int(message.body))
            assert message.keys == [f"k{int(message.body)}"]
            pairs = message.stored_properties
            assert pairs[props.SHARDING_KEY] == pairs["kafka.key"] == message.keys[0]
            assert (pairs["shop"], pairs["raw.base64"], pairs["kafka.TAGS"]) == (
                "berlin",
                "/w==",
                "t",
            )
            await message.ack()
    assert done == {0, 2, 4, 6}
    assert rest == set(range(COUNT)) - done


@pytest.mark.java
async def test_a_tombstone_and_a_key_that_is_no_text_are_copied(
    kafka: KafkaBroker, target: LocalCluster
) -> None:
    await make_topic(kafka, "gone", 1)
    producer = AIOKafkaProducer(bootstrap_servers=kafka.address)
    await producer.start()
    await producer.send_and_wait("gone", None, key=b"\x00\xff")
    await producer.stop()
    async with Mirror(
        f"kafka://{kafka.address}", target.name_server, topics="gone", groups="none"
    ) as mirror:
        await mirror.copy_once()
        assert mirror.report().failures == ()
    async with Consumer(
        target.name_server, group="mourners", topics=["gone"], start="earliest"
    ) as consumer:
        message = await consumer.receive(PROCESS)
        assert message is not None
        assert message.body == b"\0"
        pairs = message.stored_properties
        assert (pairs["kafka.key.base64"], pairs["kafka.value"]) == ("AP8=", "null")
        await message.ack()


@pytest.mark.java
async def test_each_target_gets_every_record_also_after_it_was_emptied(
    kafka: KafkaBroker, target: LocalCluster
) -> None:
    """What the mirror has committed in Kafka for one target says nothing of another, or of what
    has been made again."""
    await make_topic(kafka, "spread.v1", 2)
    producer = AIOKafkaProducer(bootstrap_servers=kafka.address)
    await producer.start()
    wanted: list[tuple[bytes, bytes]] = []
    for number in range(COUNT):
        key, value = f"k{number}".encode(), str(number).encode()
        wanted.append((key, value))
        await producer.send_and_wait("spread.v1", value, key=key, partition=number % 2)
    await producer.stop()

    async def mirrored(to: LocalCluster) -> int:
        async with Mirror(
            f"kafka://{kafka.address}",
            to.name_server,
            topics=r"spread\.v1",
            groups="none",
            rename=(r"\.", "-"),
        ) as mirror:
            await mirror.copy_once()
            report = mirror.report()
            assert (report.lag, report.failures) == (0, ())
            return report.copied

    async def stored(at: LocalCluster) -> list[tuple[bytes, bytes]]:
        found = []
        async with Reader(at.name_server) as reader:
            for queue in await reader.queues("spread-v1"):
                for record in decode_all((await reader.pull(queue, 0, 1_024, bulk=True)).body):
                    found.append((record.properties["kafka.key"].encode(), record.body))
        return sorted(found)

    assert await mirrored(target) == COUNT
    assert await mirrored(target) == 0
    with LocalCluster() as second:
        assert await mirrored(second) == COUNT
        assert await stored(second) == sorted(wanted)
    async with Admin(target.name_server) as admin:
        await admin.delete_topic("spread-v1")
    assert await mirrored(target) == COUNT
    assert await stored(target) == sorted(wanted)
