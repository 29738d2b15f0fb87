"""What a loop iteration serves, and when its responses leave."""

import asyncio
import itertools
import math
import socket
from collections import Counter

import pytest
from aerobee.protocol.aio import scheduler
from aerobee.protocol.aio.connection import AHEAD_BYTES_MAX, Connection, Row
from aerobee.protocol.aio.memory_budget import (
    RESPONSE_BYTES_PER_TICK,
    UNSENT_BYTES_MAX,
    MemoryBudget,
)
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.aio.scheduler import (
    QUANTUM_BYTES,
    QUANTUM_BYTES_ALONE,
    REQUEST_BYTES,
    DeficitRoundRobin,
)
from aerobee.protocol.aio.server import Server, table
from aerobee.protocol.codec.frame import FrameDecoder, encode_request
from aerobee.protocol.command import Command, Response

from .support import BIG, BIG_BYTES, ECHO, Desk, Name, address, big_requests, until

READ_BYTES = 256 << 10  # that a transport of asyncio reads at once


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
    ticks_of: dict[str, list[int]] = {"big": [], "small": []}

    def big(header: Name, command: Command, connection: Connection) -> Response:
        ticks_of["big"].append(tick)
        return Response(0, body=b"x" * (BIG_BYTES // 2))

    def small(header: Name, command: Command, connection: Connection) -> Response:
        ticks_of["small"].append(tick)
        return Response(0)

    tick = 0

    def count() -> None:
        nonlocal tick
        tick += 1

    server = Server(before_write=count)
    rows = table([Row(BIG, Name, big, bulk=True), Row(ECHO, Name, small)])
    port = await server.listen("127.0.0.1", 0, rows)
    peers = [socket.create_connection(("127.0.0.1", port)) for _ in range(41)]
    await until(lambda: len(server.connections) == 41)
    for peer in peers[1:]:  # all are connected and idle before they send
        peer.sendall(big_requests(1))
    peers[0].sendall(encode_request(ECHO, 1, {"name": "small"}))
    await until(lambda: len(ticks_of["big"]) == 40)
    most = RESPONSE_BYTES_PER_TICK // (BIG_BYTES // 2) + 1
    assert max(Counter(ticks_of["big"]).values()) <= 2 * most  # the end counts as the next
    assert ticks_of["small"][0] < ticks_of["big"][-20]
    for peer in peers:
        peer.close()
    await server.stop()


async def test_many_requests_of_one_client_do_not_delay_another_client(
    desk: Desk, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "LIGHT_SECONDS", math.inf)  # however slow this machine is
    where = ("127.0.0.1", server.port)  # type: ignore[attr-defined]
    one, other = socket.create_connection(where), socket.create_connection(where)
    await until(lambda: len(server.connections) == 2)
    # Both are connected and idle; then the first sends a thousand requests, the other one.
    burst = [encode_request(ECHO, n, {"name": "burst"}) for n in range(1_000)]
    one.sendall(b"".join(burst))
    other.sendall(encode_request(ECHO, 1, {"name": "single"}))
    await until(lambda: len(desk.seen) == 1_001)
    assert desk.seen.index("single") <= QUANTUM_BYTES_ALONE // REQUEST_BYTES
    assert server.scheduler.is_shared
    # Now the server knows that a light client is active, and keeps the quantum small.
    desk.seen.clear()
    one.sendall(b"".join(burst))
    other.sendall(encode_request(ECHO, 2, {"name": "single"}))
    await until(lambda: len(desk.seen) == 1_001)
    assert desk.seen.index("single") <= QUANTUM_BYTES // REQUEST_BYTES
    # When no light client has been active for a while, the quantum is large again.
    monkeypatch.setattr(scheduler, "LIGHT_SECONDS", 0)
    server.scheduler._shared_until = 0.0
    one.sendall(b"".join(burst))
    await until(lambda: len(desk.seen) == 2_001)
    assert not server.scheduler.is_shared
    one.close()
    other.close()


async def test_a_tick_decodes_a_limited_number_of_bytes_of_many_clients(
    desk: Desk, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "LIGHT_SECONDS", math.inf)
    where = ("127.0.0.1", server.port)  # type: ignore[attr-defined]
    burst = b"".join(encode_request(ECHO, n, {"name": "burst"}, b"x" * 100) for n in range(500))
    taken = [0]
    feed = FrameDecoder.feed

    def counted(decoder: FrameDecoder, data: bytes) -> list[Command]:
        taken[-1] += len(data)
        return feed(decoder, data)

    monkeypatch.setattr(FrameDecoder, "feed", counted)
    monkeypatch.setattr(server.scheduler, "before_write", lambda: taken.append(0))
    heavy = [socket.create_connection(where) for _ in range(4)]
    other = socket.create_connection(where)
    await until(lambda: len(server.connections) == 5)
    # Before the server knows that a light client is active, then while it knows.
    for quantum, is_shared in ((QUANTUM_BYTES_ALONE, False), (QUANTUM_BYTES, True)):
        taken[:], desk.seen = [0], []
        server.scheduler.is_shared = is_shared  # even if the first round took long
        for sock in heavy:
            sock.sendall(burst)
        other.sendall(encode_request(ECHO, 1, {"name": "single"}))
        await until(lambda: len(desk.seen) == 2_001)
        # At first each has a quantum; then one that waits, beside what arrives.
        assert sum(taken) > 4 * len(burst)
        assert max(taken) <= 5 * quantum + 1_000
        assert sorted(taken)[-8] <= 2 * quantum + 1_000
    for sock in (*heavy, other):
        sock.close()
    await until(lambda: not server.connections)


async def test_a_fault_of_one_connection_is_not_one_of_the_others(
    desk: Desk, server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    peers, others = Peers(), Peers()
    await peers.request(address(server), ECHO, {"name": "before"})
    (faulty,) = server.connections
    await others.request(address(server), ECHO, {"name": "before"})
    serve = Connection.serve

    def fail(connection: Connection, allowed: int) -> int:
        if connection is faulty:
            raise MemoryError("no room")
        return serve(connection, allowed)

    monkeypatch.setattr(Connection, "serve", fail)
    with pytest.raises(ConnectionResetError):
        await peers.request(address(server), ECHO, {"name": "lost"})
    assert "no room" in caplog.text
    assert (await others.request(address(server), ECHO, {"name": "served"})).code == 0
    await peers.close()
    await others.close()
    await until(lambda: not server.connections)  # a faulty one is forgotten, too


class Sender:
    """A flow whose requests, of these sizes in bytes, wait."""

    def __init__(self, name: str, sizes: list[int], log: list[tuple[str, int]]) -> None:
        self.name, self.sizes, self.log = name, sizes, log
        self.deficit = 0
        self.in_run_queue = False
        self.has_more = bool(sizes)
        self.is_broken = False

    def serve(self, allowed: int) -> int:
        if self.is_broken:
            raise OSError("broken")
        served = 0
        while self.sizes and served + self.sizes[0] <= allowed:
            served += self.sizes.pop(0)
        self.has_more = bool(self.sizes)
        self.log.append((self.name, served))
        return served

    def abort(self) -> None:
        self.log.append((self.name, -1))


def rounds(quantum: int, *senders: Sender) -> None:
    """Serve until nothing waits."""
    round_robin: DeficitRoundRobin[Sender] = DeficitRoundRobin()
    for sender in senders:
        round_robin.add(sender)
        round_robin.add(sender)  # it has its place already
    while round_robin.flows:
        round_robin.serve_next(quantum)


def test_a_heavy_sender_does_not_starve_the_others() -> None:
    log: list[tuple[str, int]] = []
    heavy = Sender("heavy", [100] * 1_000, log)
    rounds(1_000, heavy, Sender("large", [900] * 10, log), Sender("small", [50] * 30, log))
    assert log[:6] == [
        ("heavy", 1_000),
        ("large", 900),
        ("small", 1_000),
        ("heavy", 1_000),
        ("large", 900),
        ("small", 500),
    ]
    assert [name for name, _ in log].index("large") < 3
    assert log.count(("heavy", 1_000)) == 100


def test_what_a_flow_does_not_use_counts_in_its_next_round() -> None:
    log: list[tuple[str, int]] = []
    large = Sender("large", [1_500, 1_500, 1_000], log)
    rounds(1_000, large, Sender("small", [500] * 8, log))
    # In four rounds both have had four quanta, although no large request fits into one.
    assert [served for name, served in log if name == "large"] == [0, 1_500, 1_500, 1_000]
    assert [served for name, served in log if name == "small"] == [1_000] * 4
    assert large.deficit == 0, "a flow with nothing left to serve loses its deficit"


def test_a_flow_that_fails_is_aborted_and_loses_its_place() -> None:
    log: list[tuple[str, int]] = []
    broken = Sender("broken", [100], log)
    broken.is_broken = True
    rounds(100, broken, Sender("other", [100], log))
    assert log == [("broken", -1), ("other", 100)]


class Wire(asyncio.Transport):
    """A transport whose peer has `left` bytes to send and reads everything at once."""

    def __init__(self, left: int) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.left = left
        self.is_read = True
        self.decoder = FrameDecoder()
        self.answers = 0

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.answers += len(self.decoder.feed(bytes(data)))


@pytest.mark.parametrize("is_shared", [False, True], ids=["heavy alone", "beside a light client"])
async def test_what_is_read_ahead_of_its_turn_is_bounded_and_counted_however_fast_it_comes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, is_shared: bool
) -> None:
    monkeypatch.setattr(scheduler, "LIGHT_SECONDS", math.inf)
    frame = encode_request(ECHO, 1, {"name": "x"}, b"b" * 4_000)
    chunk = frame * (READ_BYTES // len(frame))
    each = 4 * len(chunk)
    budget = MemoryBudget()
    served = scheduler.Scheduler(budget=budget)
    connections = []
    for _ in range(64):
        connection = Connection(served, desk.rows())
        wire = Wire(each)
        connection.connection_made(wire)
        connections.append((connection, wire))
    light, light_wire = Connection(served, desk.rows()), Wire(0)
    light.connection_made(light_wire)
    most = counted = asked = 0
    while any(wire.left for _, wire in connections):
        for connection, wire in connections:  # as a loop reads all sockets that have something
            if wire.left and wire.is_read:
                wire.left -= len(chunk)
                connection.data_received(chunk)
        if is_shared and light_wire.answers == asked:
            asked += 1
            light.data_received(encode_request(ECHO, 1, {"name": "light"}))
        ahead = [connection.ingress.ahead() for connection, _ in connections]
        most = max(most, *ahead)
        paused = [
            size for size, (_, wire) in zip(ahead, connections, strict=True) if not wire.is_read
        ]
        assert budget.bytes >= sum(paused)
        counted = max(counted, budget.bytes)
        await asyncio.sleep(0)  # one tick
    assert most <= AHEAD_BYTES_MAX + len(chunk)
    assert counted > 64 * AHEAD_BYTES_MAX
    wanted = each // len(frame)
    await until(lambda: all(wire.answers == wanted for _, wire in connections))
    await until(lambda: light_wire.answers == asked)
    assert not is_shared or asked > 64  # it is not behind all of theirs
    assert budget.bytes == 0
