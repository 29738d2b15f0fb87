"""The network of the simulation: what it delivers, delays, loses and cuts."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from .machines import Machine, Machines, simulated
from .network import HIGH_BYTES, KERNEL_BYTES

PORT = 7


class Peer(asyncio.Protocol):
    """Keeps what happens to it; with `echoes` it sends back what it gets."""

    def __init__(self, *, echoes: bool = False) -> None:
        self.data = b""
        self.events: list[str] = []
        self.transport: Any = None
        self._echoes = echoes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        if self._echoes:
            self.transport.write(data)

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append(f"lost {type(exc).__name__}")


class Pair:
    """Two machines, and the ends of the connections that the second one has taken."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.one, self.other = machines.add("one"), machines.add("other")
        self.taken: list[Peer] = []
        self.one.boot()
        self.other.boot()

    def run(self, work: Callable[[], Awaitable[None]]) -> None:
        async def begin() -> None:
            await self.machines.on(self.other, self.serve())
            await work()

        self.machines.world.run(self.one.loop, begin())

    async def serve(self) -> None:
        await asyncio.get_running_loop().create_server(self.take, self.other.host.ip, PORT)

    def take(self) -> Peer:
        self.taken.append(Peer(echoes=True))
        return self.taken[-1]

    async def connect(self) -> Peer:
        loop = asyncio.get_running_loop()
        _, peer = await loop.create_connection(Peer, self.other.host.ip, PORT)
        return peer

    def stall(self, source: Machine, target: Machine) -> None:
        self.machines.network.stall(source.host.ip, target.host.ip)

    def heal(self, source: Machine, target: Machine) -> None:
        self.machines.network.heal(source.host.ip, target.host.ip)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with simulated(1) as machines:
        yield Pair(machines)


def test_bytes_arrive_in_order(pair: Pair) -> None:
    async def work() -> None:
        peer = await pair.connect()
        sent = b"".join(b"%d " % number for number in range(1_000))
        for piece in sent.split(b"7"):
            peer.transport.write(piece)
            peer.transport.write(b"7")
        await asyncio.sleep(1)
        assert peer.data == sent + b"7"

    pair.run(work)


def test_a_direction_that_stalls_delivers_when_it_heals(pair: Pair) -> None:
    async def work() -> None:
        peer = await pair.connect()
        pair.stall(pair.other, pair.one)
        peer.transport.write(b"abc")
        await asyncio.sleep(5)
        assert pair.taken[0].data == b"abc"
        assert peer.data == b""
        pair.heal(pair.other, pair.one)
        await asyncio.sleep(1)
        assert peer.data == b"abc"

    pair.run(work)


def test_no_connection_is_made_over_a_stalled_direction(pair: Pair) -> None:
    async def work() -> None:
        pair.stall(pair.one, pair.other)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await pair.connect()

    pair.run(work)


def test_a_process_that_is_killed_resets_its_connections_and_refuses_new_ones(pair: Pair) -> None:
    async def work() -> None:
        peer = await pair.connect()
        pair.other.kill(power=False)
        await asyncio.sleep(1)
        assert peer.events == ["lost ConnectionResetError"]
        with pytest.raises(ConnectionRefusedError):
            await pair.connect()

    pair.run(work)


def test_a_machine_without_power_is_silent_and_knows_nothing_when_it_is_back(pair: Pair) -> None:
    async def work() -> None:
        peer = await pair.connect()
        pair.other.kill(power=True)
        peer.transport.write(b"is anybody there")
        await asyncio.sleep(100)
        assert peer.events == []
        pair.other.boot()
        peer.transport.write(b"again")
        await asyncio.sleep(1)
        assert peer.events == ["lost ConnectionResetError"]

    pair.run(work)


def test_a_cut_resets_both_ends(pair: Pair) -> None:
    async def work() -> None:
        peer = await pair.connect()
        await asyncio.sleep(1)
        pair.machines.network.cut(pair.one.host.ip, pair.other.host.ip)
        await asyncio.sleep(1)
        assert peer.events == pair.taken[0].events == ["lost ConnectionResetError"]

    pair.run(work)


def test_an_end_that_closes_delivers_first_what_it_has_written(pair: Pair) -> None:
    async def work() -> None:
        peer = await pair.connect()
        peer.transport.write(b"x" * 1_000)
        peer.transport.close()
        await asyncio.sleep(1)
        assert pair.taken[0].data == b"x" * 1_000
        assert pair.taken[0].events == peer.events == ["lost NoneType"]

    pair.run(work)


def test_a_writer_pauses_until_its_peer_reads(pair: Pair) -> None:
    async def work() -> None:
        peer = await pair.connect()
        await asyncio.sleep(1)
        (taken,) = pair.taken
        taken.transport.pause_reading()
        peer.transport.write(b"x" * (KERNEL_BYTES + HIGH_BYTES))
        assert peer.events == []
        peer.transport.write(b"x")
        assert peer.events == ["pause"]
        taken.transport.resume_reading()
        await asyncio.sleep(1)
        assert peer.events == ["pause", "resume"]

    pair.run(work)


def test_a_port_is_taken_once_on_a_machine(pair: Pair) -> None:
    async def work() -> None:
        with pytest.raises(OSError, match="Address already in use"):
            await pair.machines.on(pair.other, pair.serve())

    pair.run(work)
