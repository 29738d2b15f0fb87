"""Servers over real sockets: bad bytes, limits, idle clients."""

import asyncio
import contextlib
import gc
import socket
from collections.abc import Iterator

import pytest
from aerobee.protocol.aio.connection import (
    Row,
)
from aerobee.protocol.aio.memory_budget import MemoryBudget
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.aio.server import UNFINISHED_ROUND_BYTES, Server, table
from aerobee.protocol.codec.frame import HEAD, encode_request

from ...client.clock import Clock
from .support import (
    ECHO,
    LATER,
    Desk,
    address,
    big_requests,
    raw,
    read_responses,
    until,
)


async def test_each_request_reaches_its_handler(server: Server, peers: Peers) -> None:
    names = [f"n{i}" for i in range(50)]
    calls = [peers.request(address(server), ECHO, {"name": n}, n.encode()) for n in names]
    answers = await asyncio.gather(*calls)
    assert [answer.fields() for answer in answers] == [{"name": name} for name in names]
    assert [answer.body for answer in answers] == [name.encode() for name in names]
    assert len(server.connections) == 1


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


async def test_a_request_without_a_response_times_out(server: Server, peers: Peers) -> None:
    clock = Clock()
    asking = asyncio.create_task(peers.request(address(server), LATER, timeout_s=9))
    await until(lambda: server.connections)
    await clock.run_ready()
    await clock.advance(10)
    with pytest.raises(TimeoutError, match=r"no answer from .* to request 9005 within 9 s"):
        await asking
    clock.run()
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


@pytest.fixture
def given_port() -> Iterator[int]:
    """A port that nobody gets who asks for any. Who asks for this one gets it."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


async def test_of_two_that_take_a_port_the_first_to_accept_has_it(
    desk: Desk, given_port: int
) -> None:
    first, second = Server(), Server()
    port = given_port
    for each in (first, second):
        assert await each.listen("127.0.0.1", port, what="their port") == port
    await second.accept({port: desk.rows()})
    why = rf"can't listen on 127\.0\.0\.1:{port}: another program.*\(their port\)"
    with pytest.raises(OSError, match=why):
        await first.accept({port: desk.rows()})
    for each in (first, second):
        await each.stop()


@pytest.mark.parametrize("is_held", [True, False])
async def test_nobody_else_can_take_a_port_that_is_held_or_was_any(
    desk: Desk, given_port: int, is_held: bool
) -> None:
    first, second = Server(), Server()
    port = await first.listen("127.0.0.1", given_port if is_held else 0, hold=is_held)
    with pytest.raises(OSError, match=rf"can't listen on 127\.0\.0\.1:{port}: another program"):
        await second.listen("127.0.0.1", port)
    await first.accept({port: desk.rows()})
    peers = Peers()
    assert (await peers.request(f"127.0.0.1:{port}", ECHO, {"name": "in"})).code == 0
    await peers.close()
    for each in (first, second):
        await each.stop()


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


@pytest.mark.parametrize(
    ("files", "connections"),
    [(1, 1), (1_024, 512), (1 << 16, 49_152), (1 << 20, 50_000), (None, 50_000)],
)
async def test_connections_leave_open_files_for_the_store(
    desk: Desk,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    files: int | None,
    connections: int,
) -> None:
    resource = pytest.importorskip("resource")
    most = resource.RLIM_INFINITY if files is None else files
    monkeypatch.setattr(resource, "getrlimit", lambda _: (most, most))
    server = Server()
    server.port = await server.listen("127.0.0.1", 0, desk.rows())  # type: ignore[attr-defined]
    monkeypatch.setattr(server, "_connections", dict.fromkeys(range(connections)))
    with contextlib.suppress(ConnectionError):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)  # type: ignore[attr-defined]
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    wanted = f"{connections} are open, the limit is {connections}; close some, or raise the "
    assert wanted in caplog.text
    monkeypatch.undo()
    await server.stop()


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


async def test_an_idle_connection_is_closed_and_one_that_does_not_read_is_aborted(
    desk: Desk,
) -> None:
    server = Server(idle_seconds=20)
    server.port = await server.listen("127.0.0.1", 0, desk.rows())  # type: ignore[attr-defined]
    silent, writer = await asyncio.open_connection("127.0.0.1", server.port)  # type: ignore[attr-defined]
    _, deaf = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 10)  # type: ignore[attr-defined]
    await until(lambda: len(server.connections) == 2)
    for one in server.connections:  # else the system may take all responses while it closes
        own = one.transport._transport.get_extra_info("socket")  # type: ignore[union-attr]
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
    deaf.write(big_requests(20))
    await until(lambda: server.scheduler.budget.bytes > 0)
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


def test_two_rows_for_one_code_are_an_error() -> None:
    row = Row(ECHO, None, Desk.later)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="9001 has two rows"):
        table([row, row])


@pytest.mark.parametrize("iterations", range(6))
async def test_a_connection_that_is_accepted_as_the_server_stops_is_closed(iterations: int) -> None:
    server = Server()
    port = await server.listen("127.0.0.1", 0, {})
    with socket.create_connection(("127.0.0.1", port)):
        for _ in range(iterations):  # of the loop, in one of which the connection is accepted
            await asyncio.sleep(0)
        await server.stop()
        assert not server.connections
        gc.collect()  # an open transport would be a warning, which fails this test
