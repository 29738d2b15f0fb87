"""`Admin.resend`: the destination of a dead letter, depending on its group."""

from collections.abc import Iterator

import pytest
from aerobee.client import Admin, Consumer, Message, Producer, SimpleConsumer
from aerobee.client.admin.dead_letters import origin_of
from aerobee.client.errors import ClientError
from aerobee.client.pull.reader import Reader
from aerobee.protocol.message import properties as props
from aerobee.protocol.message.record import Record, decode_all
from aerobee.testing.cluster import LocalCluster

from ...waiting import LONG


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as one:
        yield one


async def give_up(cluster: LocalCluster, topic: str, group: str) -> Record:
    """The dead letter that a group leaves of a message."""
    async with Producer(cluster.name_server) as producer:
        await producer.send(Message(topic, b"x", keys=["k"], properties={"p": "1"}))
    async with Consumer(
        cluster.name_server, group=group, topics=[topic], start="earliest"
    ) as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        await message.nack(delay_level=-1)
    async with Reader(cluster.name_server) as reader:
        [queue] = await reader.queues(f"%DLQ%{group}")
        [letter] = decode_all((await reader.pull(queue, 0)).body)
    assert origin_of(letter, group) == topic
    return letter


async def test_a_group_that_pops_gets_it_where_it_pops_retries(cluster: LocalCluster) -> None:
    letter = await give_up(cluster, "popped", "poppers")
    async with Admin(cluster.name_server) as admin:
        await admin.create_topic("%RETRY%poppers_popped", 1)
        assert await admin.resend(letter, "poppers") == "%RETRY%poppers_popped"
    async with SimpleConsumer(cluster.name_server, group="poppers", topics=["popped"]) as consumer:
        [message] = await consumer.receive(timeout=LONG)
        assert (message.body, message.keys) == (b"x", ["k"])
        await message.ack()


async def test_a_group_in_order_is_refused_and_gets_it_through_the_topic(
    cluster: LocalCluster,
) -> None:
    letter = await give_up(cluster, "lined", "liners")
    async with (
        Consumer(cluster.name_server, group="liners", topics=["lined"], ordered=True) as consumer,
        Admin(cluster.name_server) as admin,
    ):
        assert await admin.consumer_connection("liners") is not None
        with pytest.raises(ClientError, match=r"liners consumes in order.*send to the original"):
            await admin.resend(letter, "liners")
        assert await admin.resend(letter, "liners", original=True) == "lined"
        message = await consumer.receive(LONG)
        assert message is not None
        assert message.body == b"x"
        pairs = message.record.properties
        assert pairs["p"] == "1"
        assert not {props.RETRY_TOPIC, props.ORIGIN_MESSAGE_ID, props.DELAY} & pairs.keys()
        await message.ack()
