"""How many queues of a topic are written and read: at the broker, in the route, and in clients."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest
from aerobee.client import Consumer, Message, Producer
from aerobee.client.cluster.cluster import Cluster
from aerobee.client.errors import NoRouteError
from aerobee.protocol import codes
from aerobee.protocol.headers.send import SendMessage
from aerobee.protocol.headers.topics import UpdateTopic
from aerobee.testing import LocalCluster

from ..waiting import LONG
from .fakes import until

TOPIC = "orders"
READ_AND_WRITE = 6


@pytest.fixture
async def client(aerobee_cluster: LocalCluster) -> AsyncIterator[Cluster]:
    """A client of a cluster with one broker."""
    client = Cluster(aerobee_cluster.name_server)
    yield client
    await client.close()


async def numbers(client: Cluster) -> list[tuple[int, int]]:
    """The numbers of read and write queues in the route; none until the topic is there."""
    try:
        route = await client.route_data(TOPIC)
    except NoRouteError:
        return []
    return [(row.read_queue_nums, row.write_queue_nums) for row in route.queue_datas]


def broker_address(cluster: LocalCluster) -> str:
    return f"127.0.0.1:{cluster.brokers[0].port}"


@pytest.mark.parametrize(("wanted", "made"), [(16, 8), (4, 4)])
async def test_a_first_send_makes_the_queues_it_asks_for_but_at_most_the_brokers_8(
    aerobee_cluster: LocalCluster, client: Cluster, wanted: int, made: int
) -> None:
    broker = aerobee_cluster.brokers[0]
    header = SendMessage("pg", TOPIC, "TBW102", wanted, 0, 0, 1, 0, "")
    await client.ask(broker_address(aerobee_cluster), codes.SEND_MESSAGE_V2, header, b"first")
    topic = aerobee_cluster.call(lambda: broker.topics.get(TOPIC))
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums) == (made, made)
    await until(lambda: numbers(client))
    assert await numbers(client) == [(made, made)]


@pytest.mark.parametrize(("read", "write"), [(4, 8), (8, 4)])
async def test_write_queues_are_sent_to_and_read_queues_are_consumed(
    aerobee_cluster: LocalCluster, client: Cluster, read: int, write: int
) -> None:
    header = UpdateTopic(TOPIC, read, write, READ_AND_WRITE)
    await client.ask(broker_address(aerobee_cluster), codes.UPDATE_AND_CREATE_TOPIC, header)
    await until(lambda: numbers(client))
    assert await numbers(client) == [(read, write)]
    server = aerobee_cluster.name_server
    async with Producer(server) as producer:
        sent = [await producer.send(Message(TOPIC, b"%d" % at)) for at in range(2 * write)]
    assert Counter(each.queue.queue_id for each in sent) == dict.fromkeys(range(write), 2)
    wanted = sorted(each.msg_id for each in sent if each.queue.queue_id < read)
    async with Consumer(server, group="g", topics=[TOPIC], start="earliest") as consumer:
        await consumer.rebalance()
        assert sorted(each.queue_id for each in consumer.queues) == list(range(read))
        found = list[str]()
        for _ in wanted:
            message = await consumer.receive(LONG)
            assert message is not None
            await message.ack()
            found.append(message.msg_id)
    assert sorted(found) == wanted
