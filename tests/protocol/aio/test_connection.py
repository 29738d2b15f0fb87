"""A connection over a real socket: both directions, unsent bytes, peers that leave."""

import asyncio
import contextlib
import socket
from collections.abc import Coroutine
from inspect import CORO_CLOSED, getcoroutinestate
from typing import Any

import pytest
from aerobee.protocol import codes
from aerobee.protocol.aio.chunks import ChunkBatch
from aerobee.protocol.aio.connection import Connection, Row, host_bytes
from aerobee.protocol.aio.frame_transport import WRITE_BYTES_MAX
from aerobee.protocol.aio.memory_budget import COUNTED_BYTES_MIN, UNSENT_BYTES_MAX, MemoryBudget
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.aio.scheduler import Scheduler
from aerobee.protocol.aio.server import Server, table
from aerobee.protocol.codec.frame import FrameDecoder, encode_request
from aerobee.protocol.command import Command, Response

from .support import (
    BIG,
    BIG_BYTES,
    BREAK,
    ECHO,
    HIDE,
    LATER,
    LOOP_ITERATIONS,
    REFUSE,
    SLOW,
    Desk,
    Name,
    address,
    big_requests,
    raw,
    read_responses,
    until,
)


async def test_each_kind_of_error_has_its_response(
    server: Server, peers: Peers, caplog: pytest.LogCaptureFixture
) -> None:
    where = address(server)
    refused = await peers.request(where, REFUSE)
    assert (refused.code, refused.remark, refused.fields()) == (17, "no", {"why": "because"})
    broken = await peers.request(where, BREAK)
    assert broken.code == codes.SYSTEM_ERROR
    assert "secret" not in (broken.remark or "")
    assert "a secret of ours" in caplog.text
    unknown = await peers.request(where, HIDE)
    assert (unknown.code, unknown.remark) == (3, f" request type {HIDE} not supported")
    missing = await peers.request(where, ECHO)
    assert missing.code == codes.SYSTEM_ERROR
    assert "name" in (missing.remark or "")


async def test_a_handler_may_respond_later_or_be_a_coroutine(
    server: Server, peers: Peers, desk: Desk
) -> None:
    later = asyncio.ensure_future(peers.request(address(server), LATER))
    slow = asyncio.ensure_future(peers.request(address(server), SLOW))
    await peers.request(address(server), ECHO, {"name": "x"})
    assert not later.done()
    assert not slow.done()
    ((command, connection),) = desk.parked
    connection.respond(command, Response(5, remark="later"))
    desk.gate.set()
    assert ((await later).code, (await slow).remark) == (5, "slow")


async def test_a_oneway_request_gets_no_response(server: Server, desk: Desk) -> None:
    data = b"".join(
        [
            encode_request(ECHO, 1, {"name": "quiet"}, oneway=True),
            encode_request(REFUSE, 2, oneway=True),
            encode_request(HIDE, 3, oneway=True),
            encode_request(ECHO, 4, {"name": "loud"}),
        ]
    )
    answers = await raw(server, data)
    assert [answer.opaque for answer in answers] == [4]
    assert desk.seen == ["quiet", "loud"]


async def test_a_server_can_send_requests_to_its_client_over_the_same_connection(
    server: Server,
) -> None:
    desk = Desk()
    peers = Peers(desk.rows())
    await peers.connect(address(server))
    await peers.request(address(server), ECHO, {"name": "here"})
    (theirs,) = server.connections
    answer = await theirs.request(ECHO, {"name": "client"}, b"", 3)
    assert answer.fields() == {"name": "client"}
    await peers.close()


async def test_the_server_stops_reading_from_a_peer_that_does_not_read(
    desk: Desk, server: Server
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 10)  # type: ignore[attr-defined]
    body = b"x" * (1 << 20)
    total = 64
    for number in range(total):
        writer.write(encode_request(ECHO, number, {"name": "big"}, body))
    await until(lambda: any(one.transport.over_unsent_limit for one in server.connections))
    # Each request of another client is at least one more loop iteration of the server.
    peers = Peers()
    for _ in range(LOOP_ITERATIONS):
        await peers.request(address(server), ECHO, {"name": "small"})
    await peers.close()
    assert desk.seen.count("big") < total, "the server took everything although nobody read"
    decoder, answers = FrameDecoder(), 0
    while answers < total:
        answers += len(decoder.feed(await reader.read(1 << 20)))
    writer.close()
    await writer.wait_closed()


async def test_small_requests_wait_until_the_client_reads_earlier_large_responses(
    desk: Desk, server: Server
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 10)  # type: ignore[attr-defined]
    writer.write(big_requests(64))  # all of them arrive at once
    await until(lambda: len(desk.seen) > 1)
    await asyncio.sleep(0)
    # The kernel's buffers take some responses, too; how many depends on the machine.
    assert len(desk.seen) < 64
    assert BIG_BYTES < server.scheduler.budget.bytes <= UNSENT_BYTES_MAX + BIG_BYTES
    answers = await read_responses(reader, 64)
    assert sorted(answer.opaque for answer in answers) == list(range(64))
    await until(lambda: server.scheduler.budget.bytes == 0)
    # Later requests are served as usual.
    writer.write(big_requests(1))
    assert len(await read_responses(reader, 1)) == 1
    writer.close()
    await writer.wait_closed()


async def test_the_budget_counts_unsent_bytes_before_they_are_written() -> None:
    unsent: list[int] = []

    def big(header: Name, command: Command, connection: Connection) -> Response:
        unsent.append(connection.budget.bytes)
        return Response(0, body=b"x" * BIG_BYTES)

    server = Server()
    port = await server.listen("127.0.0.1", 0, table([Row(BIG, Name, big)]))
    peers = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
    await until(lambda: len(server.connections) == 4)
    for peer in peers:  # all are connected and idle before they send
        peer.sendall(big_requests(1))
    await until(lambda: len(unsent) == 4)
    assert all(so_far >= number * BIG_BYTES for number, so_far in enumerate(unsent))
    for peer in peers:
        peer.close()
    await until(lambda: server.scheduler.budget.bytes == 0)
    await server.stop()


async def test_a_large_response_is_written_in_parts_of_limited_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bodies = [bytes([number]) * 100_000 for number in range(100)]

    def big(header: Name, command: Command, connection: Connection) -> Response:
        if header.name == "last":  # the unsent part of the response is sent before the close
            asyncio.get_running_loop().call_soon(connection.close)
        return Response(0, body=[*bodies, b"y" * (2 << 20)])

    written: list[int] = []
    flush = Connection.flush

    def note(connection: Connection) -> None:
        before = sum(map(len, connection.transport.out))
        flush(connection)
        written.append(before - sum(map(len, connection.transport.out)))

    monkeypatch.setattr(Connection, "flush", note)
    server = Server()
    port = await server.listen("127.0.0.1", 0, table([Row(BIG, Name, big)]))
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 25)
    writer.write(big_requests(1))
    (answer,) = await read_responses(reader, 1)
    assert answer.body == b"".join(bodies) + b"y" * (2 << 20)
    assert max(written) <= WRITE_BYTES_MAX
    assert len(written) >= len(answer.body) // WRITE_BYTES_MAX
    writer.write(big_requests(1, "last"))
    assert len(await read_responses(reader, 1)) == 1
    assert await reader.read() == b""
    writer.close()
    await server.stop()


async def test_a_response_over_the_frame_limit_is_refused_and_the_connection_stays_open(
    desk: Desk, server: Server, peers: Peers
) -> None:
    for body in (bytes(16 << 20), [bytes(8 << 20), bytes(8 << 20)]):
        desk.big = lambda header, command, connection, body=body: Response(0, body=body)  # type: ignore[method-assign, misc]
        server = Server()
        port = await server.listen("127.0.0.1", 0, desk.rows())
        where = f"127.0.0.1:{port}"
        answer = await peers.request(where, BIG, Name("n"), timeout_s=60)
        assert answer.code == codes.SYSTEM_ERROR
        assert "the limit of a frame is 16777216 bytes; ask for less" in (answer.remark or "")
        assert (await peers.request(where, ECHO, Name("n"), timeout_s=60)).code == 0
        await server.stop()


async def test_responses_for_a_client_that_left_do_not_accumulate() -> None:
    gathered: list[int] = []

    def big(header: Name, command: Command, connection: Connection) -> Response:
        gathered.append(sum(map(len, connection.transport.out)))
        return Response(0, body=b"x" * BIG_BYTES)

    server = Server()
    port = await server.listen("127.0.0.1", 0, table([Row(BIG, Name, big)]))
    peer = socket.create_connection(("127.0.0.1", port))
    await until(lambda: len(server.connections) == 1)
    peer.sendall(big_requests(60))
    await until(lambda: server.scheduler.budget.bytes > 0)
    peer.close()
    await until(lambda: len(gathered) == 60)
    assert max(gathered) <= UNSENT_BYTES_MAX + BIG_BYTES
    await server.stop()


async def test_deferred_requests_are_served_when_their_client_leaves() -> None:
    seen: list[str] = []

    def big(header: Name, command: Command, connection: Connection) -> Response:
        seen.append(header.name)
        return Response(0, body=b"x" * BIG_BYTES)

    server = Server()
    port = await server.listen("127.0.0.1", 0, table([Row(BIG, Name, big, bulk=True)]))
    peer = socket.create_connection(("127.0.0.1", port))
    await until(lambda: len(server.connections) == 1)
    peer.sendall(big_requests(6))
    peer.close()
    await until(lambda: not server.connections)
    assert len(seen) == 6
    await server.stop()


async def test_the_batch_outlives_a_client_that_leaves_in_a_faulty_request() -> None:
    class Stop(BaseException):
        """As KeyboardInterrupt: a handler can't turn it into a response."""

    def stop(header: Name, command: Command, connection: Connection) -> Response:
        raise Stop

    lost: list[Connection] = []
    scheduler = Scheduler()
    batch = scheduler.batch = ChunkBatch({})
    connection = Connection(scheduler, table([Row(BIG, Name, stop)]), on_lost=lost.append)
    connection.data_received(big_requests(1))
    connection.transport.add_unsent(COUNTED_BYTES_MIN + 1)
    with pytest.raises(Stop):
        connection.connection_lost(None)
    assert scheduler.batch is batch, "the compiled engine would not be used any more"
    assert (lost, scheduler.budget.bytes) == ([connection], 0)


async def test_a_coroutine_of_a_client_that_left_at_once_is_closed() -> None:
    made: list[Coroutine[None, None, Response]] = []

    async def never_begun() -> Response:
        return Response(0)

    def handle(header: Name, command: Command, connection: Connection) -> Any:
        made.append(never_begun())
        return made[-1]

    scheduler = Scheduler()
    connection = Connection(scheduler, table([Row(BIG, Name, handle)]))
    connection.data_received(big_requests(1))
    connection.connection_lost(None)  # serves what had arrived
    await until(lambda: getcoroutinestate(made[0]) == CORO_CLOSED)


async def test_the_unsent_bytes_of_a_client_that_left_are_not_counted(
    desk: Desk, server: Server
) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 10)  # type: ignore[attr-defined]
    writer.write(big_requests(20))
    await until(lambda: server.scheduler.budget.bytes > 0)
    writer.transport.abort()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    await until(lambda: not server.connections)
    assert server.scheduler.budget.bytes == 0


async def test_with_the_budget_exhausted_each_connection_gets_one_response_at_a_time(
    desk: Desk,
) -> None:
    server = Server(budget=MemoryBudget(BIG_BYTES // 4))
    server.port = await server.listen("127.0.0.1", 0, desk.rows())  # type: ignore[attr-defined]
    pairs, seen = [], set()  # type: ignore[var-annotated]
    for name in ("first", "second"):
        pairs.append(await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 10))  # type: ignore[attr-defined]
        pairs[-1][1].write(big_requests(10, name))
        await until(lambda: len(server.connections - seen) == 1)
        (one,) = server.connections - seen
        seen.add(one)
        # The system's own buffers take the first bytes at once; then there is no more room.
        await until(lambda: one.transport.is_full)  # noqa: B023
    # The first connection may have unsent bytes up to its limit; the second only one response.
    assert server.scheduler.budget.unsent_max == 0
    assert BIG_BYTES < one.transport.unsent < 2 * BIG_BYTES
    assert len(desk.seen) < 20
    for reader, writer in pairs:
        assert len(await read_responses(reader, 10)) == 10
        writer.close()
        await writer.wait_closed()
    await server.stop()


async def test_requests_that_a_client_sent_before_it_left_are_served(
    desk: Desk, server: Server
) -> None:
    sock = socket.create_connection(("127.0.0.1", server.port))  # type: ignore[attr-defined]
    await until(lambda: len(server.connections) == 1)
    frames = [encode_request(ECHO, n, {"name": "last"}, oneway=True) for n in range(500)]
    sock.sendall(b"".join(frames))
    sock.close()
    await until(lambda: not server.connections)
    assert len(desk.seen) == 500


async def test_notifications_are_dropped_for_a_client_that_does_not_read(
    desk: Desk, server: Server
) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 10)  # type: ignore[attr-defined]
    writer.write(big_requests(20))
    (connection,) = server.connections
    await until(
        lambda: connection.transport.is_full and not connection.transport.out
    )  # all responses are in it
    before = connection.transport._transport.get_write_buffer_size()  # type: ignore[union-attr]
    for _ in range(1_000):
        connection.oneway(codes.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"})
    await asyncio.sleep(0)
    assert connection.transport._transport.get_write_buffer_size() <= before  # type: ignore[union-attr]
    writer.transport.abort()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (("127.0.0.1", 10911), "7f00000100002a9f"),
        (("::1", 10911, 0, 0), "0" * 31 + "100002a9f"),
        (("::ffff:10.0.0.1", 1, 0, 0), "0a00000100000001"),
        (("fe80::1%eth0", 1, 0, 3), "fe80" + "0" * 27 + "100000001"),
    ],
)
def test_hosts_are_written_as_rocketmq_stores_them(name: tuple[object, ...], expected: str) -> None:
    assert host_bytes(name).hex() == expected
