"""The reader: limits, bulk, and slaves that respond for their master."""

from collections.abc import AsyncIterator

import pytest
from aerobee.client.cluster.route import MessageQueue
from aerobee.client.errors import ClientError
from aerobee.client.pull.reader import Reader
from aerobee.protocol import codes
from aerobee.protocol.aio.connection import Connection
from aerobee.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from aerobee.protocol.command import Command, Response
from aerobee.protocol.headers.pull import BULK, PullMessage

from ..fakes import Answer, FakeBroker, FakeCluster, pulled, record

QUEUE = MessageQueue("orders", "broker-a", 0)
SLAVE_ID = 7


@pytest.fixture
async def slave(fake: FakeCluster) -> AsyncIterator[FakeBroker]:
    """A slave of the fake's broker, in its route."""
    slave = FakeBroker("broker-a")
    await slave.start()

    def route(command: Command, _: Connection) -> Response:
        addresses = {0: fake.broker.address, SLAVE_ID: slave.address}
        route = TopicRouteData(
            None, [QueueData("broker-a", 1, 1, 6)], [BrokerData("c", "broker-a", addresses)]
        )
        return Response(body=route.encode())

    fake.answers[codes.GET_ROUTEINFO_BY_TOPIC] = route
    yield slave
    await slave.stop()


@pytest.fixture
async def reader(fake: FakeCluster) -> AsyncIterator[Reader]:
    async with Reader(fake.address, group="g") as reader:
        yield reader


def offsets(server: FakeBroker) -> list[int]:
    return [each.header(PullMessage).offset for each in server.requests[codes.PULL_MESSAGE]]


def says(suggested: int, *, code: int = codes.SUCCESS) -> Answer:
    """An answer of one message that suggests this broker for the next pull."""

    def answer(command: Command, _: Connection) -> Response:
        offset = command.header(PullMessage).offset
        extra = {"suggestWhichBrokerId": str(suggested)}
        if code != codes.SUCCESS:
            return pulled(None, offset, code, extra)
        return pulled([record(offset)], offset + 1, extra=extra)

    return answer


async def test_a_pull_asks_for_many_only_in_bulk(fake: FakeCluster, reader: Reader) -> None:
    fake.broker.answers[codes.PULL_MESSAGE] = says(0)
    await reader.pull(QUEUE, 0)
    await reader.pull(QUEUE, 0, 5_000, bulk=True)
    single, bulk = (each.header(PullMessage) for each in fake.broker.requests[codes.PULL_MESSAGE])
    assert (single.max_messages, single.sys_flag & BULK) == (32, 0)
    assert (bulk.max_messages, bulk.sys_flag & BULK) == (5_000, BULK)
    with pytest.raises(ClientError, match="max_messages is 5000; give 1 to 1024"):
        await reader.pull(QUEUE, 0, 5_000)
    with pytest.raises(ClientError, match="max_messages is 9000; give 1 to 8192"):
        await reader.pull(QUEUE, 0, 9_000, bulk=True)


async def test_a_slave_is_asked_for_as_long_as_it_is_suggested(
    fake: FakeCluster, slave: FakeBroker, reader: Reader
) -> None:
    fake.broker.answers[codes.PULL_MESSAGE] = says(SLAVE_ID)
    slave.answers[codes.PULL_MESSAGE] = says(SLAVE_ID)
    for offset in range(3):
        assert (await reader.pull(QUEUE, offset)).next_offset == offset + 1
    slave.answers[codes.PULL_MESSAGE] = says(0)
    for offset in range(3, 5):
        await reader.pull(QUEUE, offset)
    assert (offsets(fake.broker), offsets(slave)) == ([0, 4], [1, 2, 3])


async def test_what_a_slave_has_not_got_is_asked_of_the_master(
    fake: FakeCluster, slave: FakeBroker, reader: Reader
) -> None:
    fake.broker.answers[codes.PULL_MESSAGE] = says(SLAVE_ID)
    moved = says(SLAVE_ID, code=codes.PULL_OFFSET_MOVED)
    slave.answers[codes.PULL_MESSAGE] = moved
    await reader.pull(QUEUE, 0)
    found = await reader.pull(QUEUE, 1)
    assert (found.code, found.next_offset) == (codes.SUCCESS, 2)
    assert (offsets(fake.broker), offsets(slave)) == ([0, 1], [1])


async def test_a_slave_that_is_gone_is_not_missed(
    fake: FakeCluster, slave: FakeBroker, reader: Reader
) -> None:
    fake.broker.answers[codes.PULL_MESSAGE] = says(SLAVE_ID)
    await reader.pull(QUEUE, 0)
    await slave.stop()
    assert (await reader.pull(QUEUE, 1)).next_offset == 2
    assert offsets(fake.broker) == [0, 1]
