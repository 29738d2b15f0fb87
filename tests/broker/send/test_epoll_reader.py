"""The epoll reader: its connections are served as others are, and leave it when needed."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator

import pytest

pytest.importorskip("numba", reason="numba is not installed (extra: fast)")

from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.protocol.aio.connection import READER_CONNECTIONS_MIN, Connection, host_text
from aerobee.protocol.aio.epoll_reader import READ_BYTES, EpollReader
from aerobee.protocol.codec.frame import encode_request
from aerobee.protocol.headers.send import SendMessage
from aerobee.protocol.message.batch import Entry, encode_batch

from ...waiting import LONG, until
from ..conftest import BORN_MS, Config
from .test_fast_path import Client, compiled_broker, send, stored

pytestmark = pytest.mark.skipif(not EpollReader.can_be, reason="there is no epoll on this system")

ON_BOTH_LOOPS = True
CLIENTS = 3 * READER_CONNECTIONS_MIN
NO_HOST = bytes(8)


@pytest.fixture
async def broker(config: Config) -> AsyncIterator[Broker]:
    async with compiled_broker(config) as broker:
        yield broker


@pytest.fixture
async def clients(broker: Broker) -> AsyncIterator[list[Client]]:
    """Clients whose connections the epoll reader has, after three rounds of sends."""
    clients = [await Client.connect(broker, NO_HOST) for _ in range(CLIENTS)]
    for _ in range(3):
        await all_send(clients)
    assert joined(broker) == CLIENTS
    yield clients
    for client in clients:
        client.close()


def joined(broker: Broker) -> int:
    batch = broker.server.scheduler.batch
    assert batch is not None
    assert isinstance(batch.reader, EpollReader)
    return len(batch.reader)


def connection_of(broker: Broker, client: Client) -> Connection:
    """The broker's end of the client's connection."""
    name = host_text(client.writer.get_extra_info("sockname"))
    (found,) = [each for each in broker.server.connections if each.address == name]
    return found


async def all_send(clients: list[Client]) -> None:
    for number, client in enumerate(clients):
        client.writer.write(send(number))
    for number, client in enumerate(clients):
        (answer,) = await client.answers(1)
        assert (answer.code, answer.opaque) == (codes.SUCCESS, number)


async def test_each_client_gets_its_own_responses(broker: Broker, clients: list[Client]) -> None:
    for _ in range(5):
        await all_send(clients)
    assert joined(broker) == CLIENTS
    assert stored(broker) == 1 + 8 * CLIENTS


async def test_a_connection_with_another_request_leaves_the_epoll_reader(
    broker: Broker, clients: list[Client]
) -> None:
    one = clients[7]
    one.writer.write(send(1) + encode_request(codes.GET_BROKER_CONFIG, 2) + send(3))
    found = await one.answers(3)
    assert [answer.code for answer in found] == [codes.SUCCESS] * 3
    assert b"brokerName" in (found[1].body or b"")
    assert joined(broker) == CLIENTS - 1
    for _ in range(10):  # in one of these rounds it joins again
        await all_send(clients)
    assert joined(broker) == CLIENTS


async def test_a_request_in_pieces_is_assembled(broker: Broker, clients: list[Client]) -> None:
    frames = [send(number) for number in range(CLIENTS)]
    before = stored(broker)
    for start in range(0, len(frames[0]), 40):
        for client, frame in zip(clients, frames, strict=True):
            client.writer.write(frame[start : start + 40])
        await asyncio.sleep(0)
    for client, frame in zip(clients, frames, strict=True):
        client.writer.write(frame[len(frames[0]) // 40 * 40 + 40 :])
    for number, client in enumerate(clients):
        (answer,) = await client.answers(1)
        assert (answer.code, answer.opaque) == (codes.SUCCESS, number)
    assert stored(broker) == before + CLIENTS


async def test_large_messages_and_batches_are_stored(broker: Broker, clients: list[Client]) -> None:
    before = stored(broker)
    entries = [Entry(0, b"%d" % number, b"") for number in range(500)]
    header = SendMessage(
        "pg", "orders", "TBW102", 4, 0, 0, BORN_MS, 0, "UNIQ_KEY\x01AC1100\x02", 0, batch=True
    )
    batch = encode_request(codes.SEND_BATCH_MESSAGE, 1, header.to_fields(), encode_batch(entries))
    assert len(batch) > READ_BYTES
    for client in clients:
        client.writer.write(send(0) + batch + send(2))
    for client in clients:
        assert [answer.code for answer in await client.answers(3)] == [codes.SUCCESS] * 3
    assert stored(broker) == before + 502 * CLIENTS


async def test_a_closed_or_reset_connection_leaves_the_epoll_reader(
    broker: Broker, clients: list[Client]
) -> None:
    ended, failed, closed, aborted = clients[:4]
    ended.close()
    # This resets the connection.
    failed.writer.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )
    failed.close()
    connection_of(broker, closed).close()
    connection_of(broker, aborted).abort()
    await until(lambda: len(broker.server.connections) == CLIENTS - 4)
    assert joined(broker) == CLIENTS - 4
    assert await closed.reader.read() == b""
    await all_send(clients[4:])
    # The new connections get the same file descriptors.
    fresh = [await Client.connect(broker, NO_HOST) for _ in range(4)]
    await all_send(fresh + clients[4:])
    assert joined(broker) == CLIENTS
    for client in fresh:
        client.close()


async def test_a_client_that_does_not_read_is_not_read_from(
    broker: Broker, clients: list[Client]
) -> None:
    one = clients[0]
    ours = connection_of(broker, one)
    ours.pause_writing()  # as the transport calls it if the peer doesn't read
    before = stored(broker)
    one.writer.write(send(0))
    await all_send(clients[1:])
    assert stored(broker) == before + CLIENTS - 1
    ours.resume_writing()
    assert [answer.code for answer in await one.answers(1)] == [codes.SUCCESS]
    assert stored(broker) == before + CLIENTS


async def test_a_stop_closes_all_connections(broker: Broker, clients: list[Client]) -> None:
    await broker.stop()
    for client in clients:
        async with asyncio.timeout(LONG):
            assert await client.reader.read() == b""
    batch = broker.server.scheduler.batch
    assert batch is not None
    assert batch.reader is None
