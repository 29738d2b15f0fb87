"""Connections and servers over real sockets: both directions, bad bytes, limits, lost peers."""

import asyncio
import contextlib
import itertools
import math
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest
from aerobee.protocol import codes
from aerobee.protocol.aio import scheduler as schedulers
from aerobee.protocol.aio.connection import (
    READ_BYTES,
    READ_BYTES_ALONE,
    WRITE_BYTES_MAX,
    Connection,
    Row,
    host_bytes,
)
from aerobee.protocol.aio.memory_budget import OWED_BYTES_MAX, OWED_IN_TURN_MAX, MemoryBudget
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.aio.scheduler import COMMANDS_ALONE, COMMANDS_SHARED, Lane, Scheduler
from aerobee.protocol.aio.server import UNFINISHED_ROUND_BYTES, Server, table
from aerobee.protocol.codec.frame import HEAD, FrameDecoder, encode_request
from aerobee.protocol.command import CODEC_MSGPACK, Command, Response
from aerobee.protocol.errors import Refusal
from aerobee.protocol.wire import Header

ECHO, REFUSE, BREAK, SLOW, LATER, HIDE, BIG = range(9001, 9008)
BIG_BYTES = 1 << 20
LOOP_ITERATIONS = 1_000  # a server that keeps reading takes 64 MiB in fewer


class Name(Header):
    name: str


class Desk:
    """Handlers of every kind."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.parked: list[tuple[Command, Connection]] = []
        self.gate = asyncio.Event()

    def rows(self) -> dict[int, Row]:
        return table(
            [
                Row(ECHO, Name, self.echo),
                Row(REFUSE, None, self.refuse),
                Row(BREAK, None, self.break_),
                Row(SLOW, None, self.slow),
                Row(LATER, None, self.later),
                Row(BIG, Name, self.big),
            ]
        )

    def echo(self, header: Name, command: Command, connection: Connection) -> Response:
        self.seen.append(header.name)
        return Response(0, {"name": header.name}, body=command.body)

    def big(self, header: Name, command: Command, connection: Connection) -> Response:
        self.seen.append(header.name)
        return Response(0, body=b"x" * BIG_BYTES)

    def refuse(self, header: None, command: Command, connection: Connection) -> Response:
        raise Refusal(codes.TOPIC_NOT_EXIST, "no", {"why": "because"})

    def break_(self, header: None, command: Command, connection: Connection) -> Response:
        raise KeyError("a secret of ours")

    async def slow(self, header: None, command: Command, connection: Connection) -> Response:
        await self.gate.wait()
        return Response(0, remark="slow")

    def later(self, header: None, command: Command, connection: Connection) -> None:
        self.parked.append((command, connection))


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def server(desk: Desk) -> AsyncIterator[Server]:
    server = Server()
    server.port = await server.listen("127.0.0.1", 0, desk.rows())  # type: ignore[attr-defined]
    yield server
    await server.stop()


@pytest.fixture
async def peers(server: Server) -> AsyncIterator[Peers]:
    peers = Peers()
    yield peers
    await peers.close()


def address(server: Server) -> str:
    return f"127.0.0.1:{server.port}"  # type: ignore[attr-defined]


async def raw(server: Server, data: bytes) -> list[Command]:
    """Sends bytes, closes our half, and reads commands until the server closes too."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)  # type: ignore[attr-defined]
    writer.write(data)
    writer.write_eof()
    commands = FrameDecoder().feed(await reader.read())
    writer.close()
    await writer.wait_closed()
    return commands


async def test_each_request_reaches_its_handler(server: Server, peers: Peers) -> None:
    names = [f"n{i}" for i in range(50)]
    calls = [peers.request(address(server), ECHO, {"name": n}, n.encode()) for n in names]
    answers = await asyncio.gather(*calls)
    assert [answer.fields() for answer in answers] == [{"name": name} for name in names]
    assert [answer.body for answer in answers] == [name.encode() for name in names]
    assert len(server.connections) == 1


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


@pytest.mark.requirement("Bad input: What is no frame closes its connection, the server goes on")
@pytest.mark.parametrize(
    "bad",
    [
        HEAD.pack(0, 0),
        HEAD.pack(-1, 0),
        HEAD.pack(17 << 20, 5),
        HEAD.pack(10, 11) + b"x" * 10,
        HEAD.pack(6, 7 << 24 | 2) + b"{}",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_malformed_bytes_close_only_their_connection(
    server: Server, peers: Peers, bad: bytes
) -> None:
    before = await peers.request(address(server), ECHO, {"name": "before"})
    good = encode_request(ECHO, 8, {"name": "good"})
    answers = await raw(server, good + bad + good)
    assert [answer.opaque for answer in answers] == [8]
    after = await peers.request(address(server), ECHO, {"name": "after"})
    assert (before.code, after.code) == (0, 0)
    assert len(server.connections) == 1


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


async def test_requests_use_msgpack_once_the_peer_is_known(server: Server, peers: Peers) -> None:
    connection = await peers.connect(address(server))
    assert connection.codec == 0
    await peers.request(address(server), ECHO, {"name": "é"})
    assert connection.codec == CODEC_MSGPACK
    answer = await peers.request(address(server), ECHO, {"name": "ü"})
    assert (answer.codec, answer.fields()) == (CODEC_MSGPACK, {"name": "ü"})


async def test_a_request_without_a_response_times_out(server: Server, peers: Peers) -> None:
    with pytest.raises(TimeoutError, match=r"no answer from .* to request 9005 within 0\.1 s"):
        await peers.request(address(server), LATER, timeout_s=0.1)
    assert (await peers.request(address(server), ECHO, {"name": "on"})).code == 0


async def test_a_lost_connection_fails_pending_requests_and_is_opened_again(
    server: Server, peers: Peers
) -> None:
    waiting = asyncio.ensure_future(peers.request(address(server), LATER))
    await peers.request(address(server), ECHO, {"name": "x"})
    (theirs,) = server.connections
    theirs.abort()
    with pytest.raises(ConnectionResetError):
        await waiting
    assert (await peers.request(address(server), ECHO, {"name": "again"})).code == 0


async def test_a_server_that_is_down_is_a_connection_error() -> None:
    peers = Peers()
    with pytest.raises(ConnectionError, match=r"can't connect to 127\.0\.0\.1:1"):
        await peers.request("127.0.0.1:1", ECHO)
    with pytest.raises(ConnectionError, match="host:port"):
        await peers.request("nonsense", ECHO)
    await peers.close()


async def test_a_port_in_use_is_reported_in_one_sentence(server: Server) -> None:
    second = Server()
    with pytest.raises(OSError, match=r"can't listen on 127\.0\.0\.1:\d+: another program"):
        await second.listen("127.0.0.1", server.port, {})  # type: ignore[attr-defined]
    await second.stop()


async def test_a_connection_over_the_limit_is_closed(desk: Desk) -> None:
    server = Server(connections_max=1)
    server.port = await server.listen("127.0.0.1", 0, desk.rows())  # type: ignore[attr-defined]
    first, second = Peers(), Peers()
    assert (await first.request(address(server), ECHO, {"name": "in"})).code == 0
    with pytest.raises(ConnectionError):
        await second.request(address(server), ECHO, {"name": "out"})
    assert (await first.request(address(server), ECHO, {"name": "still"})).code == 0
    for part in (first, second):
        await part.close()
    await server.stop()


async def test_responses_of_a_failed_loop_iteration_are_never_sent(desk: Desk) -> None:
    broken = False

    def before_write() -> None:
        if broken:
            raise OSError("the disk is gone")

    server = Server(before_write=before_write)
    server.port = await server.listen("127.0.0.1", 0, desk.rows())  # type: ignore[attr-defined]
    peers = Peers()
    assert (await peers.request(address(server), ECHO, {"name": "ok"})).code == 0
    broken = True
    with pytest.raises(ConnectionResetError):
        await peers.request(address(server), ECHO, {"name": "lost"})
    await peers.close()
    await server.stop()


async def test_the_server_stops_reading_from_a_peer_that_does_not_read(
    desk: Desk, server: Server
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 10)  # type: ignore[attr-defined]
    body = b"x" * (1 << 20)
    total = 64
    for number in range(total):
        writer.write(encode_request(ECHO, number, {"name": "big"}, body))
    await until(lambda: any(one.is_behind for one in server.connections))
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


def big_requests(count: int, name: str = "big") -> bytes:
    return b"".join(encode_request(BIG, number, {"name": name}) for number in range(count))


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - the server has no event for tests
            await asyncio.sleep(0.01)


async def read_responses(reader: asyncio.StreamReader, count: int) -> list[Command]:
    decoder, found = FrameDecoder(), []  # type: tuple[FrameDecoder, list[Command]]
    async with asyncio.timeout(60):
        while len(found) < count:
            found += decoder.feed(await reader.read(1 << 20))
    return found


@pytest.mark.requirement(
    "Transactions, operation, overload: A slow reader is not read from, memory is bounded"
)
async def test_small_requests_wait_until_the_client_reads_earlier_large_responses(
    desk: Desk, server: Server
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 10)  # type: ignore[attr-defined]
    writer.write(big_requests(64))  # all of them arrive at once
    await until(lambda: len(desk.seen) > 1)
    await asyncio.sleep(0)
    # The kernel's buffers take some responses, too; how many depends on the machine.
    assert len(desk.seen) < 64
    assert BIG_BYTES < server.scheduler.budget.bytes <= OWED_BYTES_MAX + BIG_BYTES
    answers = await read_responses(reader, 64)
    assert sorted(answer.opaque for answer in answers) == list(range(64))
    await until(lambda: server.scheduler.budget.bytes == 0)
    # Later requests are served as usual.
    writer.write(big_requests(1))
    assert len(await read_responses(reader, 1)) == 1
    writer.close()
    await writer.wait_closed()


async def test_the_budget_counts_unsent_bytes_before_they_are_written() -> None:
    owed: list[int] = []

    def big(header: Name, command: Command, connection: Connection) -> Response:
        owed.append(connection.budget.bytes)
        return Response(0, body=b"x" * BIG_BYTES)

    server = Server()
    port = await server.listen("127.0.0.1", 0, table([Row(BIG, Name, big)]))
    peers = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
    await until(lambda: len(server.connections) == 4)
    for peer in peers:  # all are connected and idle before they send
        peer.sendall(big_requests(1))
    await until(lambda: len(owed) == 4)
    assert all(so_far >= number * BIG_BYTES for number, so_far in enumerate(owed))
    for peer in peers:
        peer.close()
    await until(lambda: server.scheduler.budget.bytes == 0)
    await server.stop()


@pytest.mark.finding("F4")
async def test_a_loop_iteration_serves_large_responses_to_few_connections(
    desk: Desk, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered: list[int] = [0]
    monkeypatch.setattr(server.scheduler, "before_write", lambda: answered.append(len(desk.seen)))
    where = ("127.0.0.1", server.port)  # type: ignore[attr-defined]
    peers = [socket.create_connection(where) for _ in range(8)]
    await until(lambda: len(server.connections) == 8)
    for peer in peers:  # all are connected and idle before they send
        peer.sendall(big_requests(20))
    each = OWED_BYTES_MAX // BIG_BYTES
    await until(lambda: answered[-1] >= 8 * each)
    assert max(b - a for a, b in itertools.pairwise(answered)) <= 2 * (each + 1)
    for peer in peers:
        peer.close()


@pytest.mark.finding("F4")
async def test_large_responses_are_spread_over_iterations_and_small_ones_are_not_delayed() -> None:
    turns_of: dict[str, list[int]] = {"big": [], "small": []}

    def big(header: Name, command: Command, connection: Connection) -> Response:
        turns_of["big"].append(scheduler)
        return Response(0, body=b"x" * (BIG_BYTES // 2))

    def small(header: Name, command: Command, connection: Connection) -> Response:
        turns_of["small"].append(scheduler)
        return Response(0)

    scheduler = 0

    def count() -> None:
        nonlocal scheduler
        scheduler += 1

    server = Server(before_write=count)
    rows = table([Row(BIG, Name, big, bulk=True), Row(ECHO, Name, small)])
    port = await server.listen("127.0.0.1", 0, rows)
    peers = [socket.create_connection(("127.0.0.1", port)) for _ in range(41)]
    await until(lambda: len(server.connections) == 41)
    for peer in peers[1:]:  # all are connected and idle before they send
        peer.sendall(big_requests(1))
    peers[0].sendall(encode_request(ECHO, 1, {"name": "small"}))
    await until(lambda: len(turns_of["big"]) == 40)
    most = OWED_IN_TURN_MAX // (BIG_BYTES // 2) + 1
    assert max(Counter(turns_of["big"]).values()) <= 2 * most  # the end counts as the next
    assert turns_of["small"][0] < turns_of["big"][-20]
    for peer in peers:
        peer.close()
    await server.stop()


@pytest.mark.finding("F4")
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
        before = sum(map(len, connection.out))
        flush(connection)
        written.append(before - sum(map(len, connection.out)))

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
        desk.big = lambda header, command, connection, body=body: Response(0, body=body)  # type: ignore[assignment, misc]
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
        gathered.append(sum(map(len, connection.out)))
        return Response(0, body=b"x" * BIG_BYTES)

    server = Server()
    port = await server.listen("127.0.0.1", 0, table([Row(BIG, Name, big)]))
    peer = socket.create_connection(("127.0.0.1", port))
    await until(lambda: len(server.connections) == 1)
    peer.sendall(big_requests(60))
    await until(lambda: server.scheduler.budget.bytes > 0)
    peer.close()
    await until(lambda: len(gathered) == 60)
    assert max(gathered) <= OWED_BYTES_MAX + BIG_BYTES
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
        await until(lambda: one.is_full)  # noqa: B023
    # The first connection may have unsent bytes up to its limit; the second only one response.
    assert server.scheduler.budget.owed_max == 0
    assert BIG_BYTES < one.owed < 2 * BIG_BYTES
    assert len(desk.seen) < 20
    for reader, writer in pairs:
        assert len(await read_responses(reader, 10)) == 10
        writer.close()
        await writer.wait_closed()
    await server.stop()


@pytest.mark.requirement(
    "Transactions, operation, overload: A slow reader is not read from, memory is bounded"
)
async def test_a_partial_request_is_disconnected_when_its_end_exceeds_the_budget(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(budget=MemoryBudget(100_000))
    server.port = await server.listen("127.0.0.1", 0, desk.rows())  # type: ignore[attr-defined]
    whole = encode_request(ECHO, 1, {"name": "large"}, b"x" * 300_000)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)  # type: ignore[attr-defined]
    writer.write(whole[:150_000])
    await until(lambda: server.scheduler.budget.bytes == 150_000)
    writer.write(whole[150_000:250_000])
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    assert "bytes wait for clients in memory, the limit is twice 100000" in caplog.text
    assert (server.scheduler.budget.bytes, server.scheduler.budget.refused) == (0, 1)
    writer.transport.abort()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    await server.stop()


async def half_of_a_request(server: Server, size: int) -> asyncio.StreamWriter:
    """A client that has sent the first `size` bytes of a larger request."""
    before = server.scheduler.budget.held
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)  # type: ignore[attr-defined]
    writer.write(encode_request(ECHO, 1, {"name": "half"}, b"x" * (2 * size))[:size])
    await until(lambda: server.scheduler.budget.held == before + size)
    return writer


@pytest.mark.requirement(
    "Transactions, operation, overload: A request without an end is not kept: by time, and by the "
    "memory of all"
)
async def test_partial_requests_are_disconnected_when_they_fill_the_budget(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(budget=MemoryBudget(100_000))
    server.port = await server.listen("127.0.0.1", 0, desk.rows())  # type: ignore[attr-defined]
    writers = [await half_of_a_request(server, 60_000) for _ in range(3)]
    reader, fourth = await asyncio.open_connection("127.0.0.1", server.port)  # type: ignore[attr-defined]
    fourth.write(encode_request(ECHO, 1, {"name": "half"}, b"x" * 120_000)[:60_000])
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""  # the budget has no room for it
    assert (server.scheduler.budget.bytes, len(server.connections)) == (180_000, 3)
    assert "in the middle of a request: 2" in caplog.text
    assert await raw(server, encode_request(ECHO, 1, {"name": "whole"}, b"x"))  # complete
    for writer in writers:
        writer.close()
    fourth.transport.abort()
    with contextlib.suppress(ConnectionError):
        await fourth.wait_closed()
    await until(lambda: server.scheduler.budget.bytes == 0)
    assert server.scheduler.budget.held == 0
    await server.stop()


@pytest.mark.requirement(
    "Transactions, operation, overload: A request without an end is not kept: by time, and by the "
    "memory of all"
)
async def test_a_request_must_be_complete_within_the_idle_time_however_its_bytes_arrive(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(idle_seconds=30)
    server.port = await server.listen("127.0.0.1", 0, desk.rows())  # type: ignore[attr-defined]
    stuck = await half_of_a_request(server, 1_000)
    (one,) = server.connections
    reader, other = await asyncio.open_connection("127.0.0.1", server.port)  # type: ignore[attr-defined]
    whole = encode_request(ECHO, 1, {"name": "other"}, b"x" * 2_000)
    other.write(whole[:1_000])
    for second in range(1, 5):
        stuck.write(b"x")
        other.write(whole[1_000:] + whole[:1_000])  # each time in the middle of a new request
        assert len(await read_responses(reader, 1)) == 1
        await until(lambda: server.scheduler.budget.held == 2_000 + second)  # noqa: B023
        server.close_idle()
    assert len(server.connections) == 2
    stuck.write(b"x")
    await until(lambda: server.scheduler.budget.held == 2_005)
    server.close_idle()
    await until(lambda: one not in server.connections)
    assert (
        f"closing {one.address} in the middle of a request: of that came only 1005 bytes in 40"
        in (caplog.text)
    )
    assert (len(server.connections), server.scheduler.budget.bytes) == (1, 1_000)
    for writer in (stuck, other):
        writer.close()
    await server.stop()


@pytest.mark.requirement(
    "Transactions, operation, overload: A request without an end is not kept: by time, and by the "
    "memory of all"
)
async def test_a_large_request_may_arrive_slowly_unless_the_budget_is_full(desk: Desk) -> None:
    server = Server(idle_seconds=10, budget=MemoryBudget(10 << 20))
    server.port = await server.listen("127.0.0.1", 0, desk.rows())  # type: ignore[attr-defined]
    writer = await half_of_a_request(server, 5 * UNFINISHED_ROUND_BYTES)
    (one,) = server.connections
    for _ in range(1 + 1 + 5):
        one.idle_rounds = 0  # as if a byte had arrived
        server.close_idle()
    assert server.connections == {one}
    server.scheduler.budget.add(20 << 20)  # as if clients that don't read had filled it
    server.close_idle()
    await until(lambda: not server.connections)
    assert server.scheduler.budget.bytes == 20 << 20
    writer.close()
    await server.stop()


@pytest.mark.requirement(
    "Transactions, operation, overload: A request without an end is not kept: by time, and by the "
    "memory of all"
)
async def test_an_idle_connection_is_closed_and_one_that_does_not_read_is_aborted(
    desk: Desk,
) -> None:
    server = Server(idle_seconds=20)
    server.port = await server.listen("127.0.0.1", 0, desk.rows())  # type: ignore[attr-defined]
    silent, writer = await asyncio.open_connection("127.0.0.1", server.port)  # type: ignore[attr-defined]
    _, deaf = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 10)  # type: ignore[attr-defined]
    deaf.write(big_requests(20))
    await until(lambda: len(server.connections) == 2 and server.scheduler.budget.bytes > 0)
    for _ in range(2):
        server.close_idle()
    assert len(server.connections) == 2
    server.close_idle()
    assert await silent.read() == b""
    await until(lambda: len(server.connections) == 1)
    server.close_idle()  # the unread responses of the other can't be written
    await until(lambda: not server.connections)
    assert server.scheduler.budget.bytes == 0
    for each in (writer, deaf):
        each.transport.abort()
    await server.stop()


@pytest.mark.requirement("Transactions, operation, overload: A burst does not hold up others")
async def test_many_requests_of_one_client_do_not_delay_another_client(
    desk: Desk, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedulers, "SHARED_SECONDS", math.inf)  # however slow this machine is
    where = ("127.0.0.1", server.port)  # type: ignore[attr-defined]
    one, other = socket.create_connection(where), socket.create_connection(where)
    await until(lambda: len(server.connections) == 2)
    # Both are connected and idle; then the first sends a thousand requests, the other one.
    burst = [encode_request(ECHO, n, {"name": "burst"}) for n in range(1_000)]
    one.sendall(b"".join(burst))
    other.sendall(encode_request(ECHO, 1, {"name": "single"}))
    await until(lambda: len(desk.seen) == 1_001)
    assert desk.seen.index("single") <= COMMANDS_ALONE
    # Now the server knows that a light client is active, and keeps the quantum small.
    desk.seen.clear()
    one.sendall(b"".join(burst))
    other.sendall(encode_request(ECHO, 2, {"name": "single"}))
    await until(lambda: len(desk.seen) == 1_001)
    assert desk.seen.index("single") <= COMMANDS_SHARED
    # When no light client has been active for a while, the quantum is large again.
    server.scheduler._shared_until = 0.0
    one.sendall(b"".join(burst))
    await until(lambda: len(desk.seen) == 2_001)
    assert server.scheduler.share == COMMANDS_ALONE
    one.close()
    other.close()


@pytest.mark.requirement("Transactions, operation, overload: A burst does not hold up others")
async def test_a_loop_iteration_decodes_a_limited_number_of_bytes_of_many_clients(
    desk: Desk, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedulers, "SHARED_SECONDS", math.inf)
    where = ("127.0.0.1", server.port)  # type: ignore[attr-defined]
    burst = b"".join(encode_request(ECHO, n, {"name": "burst"}, b"x" * 100) for n in range(500))
    taken = [0]
    feed = FrameDecoder.feed

    def counted(decoder: FrameDecoder, data: bytes) -> list[Command]:
        taken[-1] += len(data)
        return feed(decoder, data)

    monkeypatch.setattr(FrameDecoder, "feed", counted)
    monkeypatch.setattr(server.scheduler, "before_write", lambda: taken.append(0))
    greedy = [socket.create_connection(where) for _ in range(4)]
    other = socket.create_connection(where)
    await until(lambda: len(server.connections) == 5)
    # Before the server knows that a light client is active, then while it knows.
    for piece, commands in ((READ_BYTES_ALONE, COMMANDS_ALONE), (READ_BYTES, COMMANDS_SHARED)):
        taken[:], desk.seen = [0], []
        if commands == COMMANDS_SHARED:  # even if the first round took long
            server.scheduler.share, server.scheduler._shared_until = commands, math.inf
        for sock in greedy:
            sock.sendall(burst)
        other.sendall(encode_request(ECHO, 1, {"name": "single"}))
        await until(lambda: len(desk.seen) == 2_001)
        # One iteration may decode arriving bytes, waiting bytes and the single request.
        assert sum(taken) > 4 * len(burst)
        assert max(taken) <= 2 * piece + 1_000
        assert desk.seen.index("single") <= 2 * commands
    for sock in (*greedy, other):
        sock.close()
    await until(lambda: not server.connections)


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
    await until(lambda: connection.is_full and not connection.out)  # all responses are in it
    before = connection._transport.get_write_buffer_size()  # type: ignore[union-attr]
    for _ in range(1_000):
        connection.oneway(codes.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"})
    await asyncio.sleep(0)
    assert connection._transport.get_write_buffer_size() <= before  # type: ignore[union-attr]
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
def test_hosts_are_written_as_rocketmq_stores_them(name: tuple, expected: str) -> None:
    assert host_bytes(name).hex() == expected


def test_two_rows_for_one_code_are_an_error() -> None:
    row = Row(ECHO, None, Desk.later)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="9001 has two rows"):
        table([row, row])


@pytest.mark.parametrize("code", [codes.GET_CONSUMER_RUNNING_INFO, codes.CONSUME_MESSAGE_DIRECTLY])
async def test_a_relayed_response_does_not_set_the_codec_of_the_relaying_broker(code: int) -> None:
    seen: list[int] = []

    def answer(_: None, command: Command, __: Connection) -> Response:
        seen.append(command.codec)
        return Response()

    server = Server()
    rows = table([Row(each, None, answer) for each in (code, codes.GET_BROKER_RUNTIME_INFO)])
    address = f"127.0.0.1:{await server.listen('127.0.0.1', 0, rows)}"
    peers = Peers(relayed=frozenset([code]))
    for each in (code, code, codes.GET_BROKER_RUNTIME_INFO, code):
        await peers.request(address, each)
    await peers.close()
    await server.stop()
    assert seen == [0, 0, 0, CODEC_MSGPACK]


async def test_a_fault_of_one_connection_leaves_the_fast_path_to_the_others() -> None:
    class Faulty(Connection):
        def data_received(self, data: bytes) -> None:
            raise MemoryError

    scheduler = Scheduler()
    scheduler.lane = lane = Lane(lambda: None, lambda: None, frozenset(), bool)
    with pytest.raises(MemoryError):
        Faulty(scheduler, {}).serve(b"x")
    assert scheduler.lane is lane
