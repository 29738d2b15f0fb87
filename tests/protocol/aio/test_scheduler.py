"""What a loop iteration serves, and when its responses leave."""

import itertools
import math
import socket
from collections import Counter

import pytest
from aerobee.protocol.aio import scheduler as schedulers
from aerobee.protocol.aio.connection import (
    READ_BYTES,
    READ_BYTES_ALONE,
    Connection,
    Row,
)
from aerobee.protocol.aio.memory_budget import RESPONSE_BYTES_PER_TICK, UNSENT_BYTES_MAX
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.aio.scheduler import COMMANDS_ALONE, COMMANDS_SHARED, Lane, Scheduler
from aerobee.protocol.aio.server import Server, table
from aerobee.protocol.codec.frame import FrameDecoder, encode_request
from aerobee.protocol.command import Command, Response

from .support import BIG, BIG_BYTES, ECHO, Desk, Name, address, big_requests, until


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
    each = UNSENT_BYTES_MAX // BIG_BYTES
    await until(lambda: answered[-1] >= 8 * each)
    assert max(b - a for a, b in itertools.pairwise(answered)) <= 2 * (each + 1)
    for peer in peers:
        peer.close()


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
    most = RESPONSE_BYTES_PER_TICK // (BIG_BYTES // 2) + 1
    assert max(Counter(turns_of["big"]).values()) <= 2 * most  # the end counts as the next
    assert turns_of["small"][0] < turns_of["big"][-20]
    for peer in peers:
        peer.close()
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


async def test_a_fault_of_one_connection_leaves_the_fast_path_to_the_others() -> None:
    class Faulty(Connection):
        def data_received(self, data: bytes) -> None:
            raise MemoryError

    scheduler = Scheduler()
    scheduler.lane = lane = Lane(lambda: None, lambda: None, frozenset(), bool)
    with pytest.raises(MemoryError):
        Faulty(scheduler, {}).serve(b"x")
    assert scheduler.lane is lane
