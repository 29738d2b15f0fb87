"""Connections in memory between machines: they delay, stall, break, heal and stay half open.

A `Network` gives a loop `create_server` and `create_connection`. Bytes arrive in order, in drawn
pieces, after a drawn delay. What is sent over a stalled direction waits until it heals, as TCP
sends it again. A machine whose process ends resets its connections; one without power says nothing,
and its peers find out when it is back, or by their own timeouts.
"""

import asyncio
import errno
import hashlib
import os
from collections import deque
from collections.abc import Callable
from typing import Any

from .loop import Loop, World

DELAY_SECONDS = 0.002  # one way, at most
KERNEL_BYTES = 64 << 10  # sent and not read, before a transport keeps bytes itself
HIGH_BYTES = 64 << 10
FIRST_PORT = 40_000  # of the ends that connect

Pair = tuple[str, str]


class Host:
    """A machine as the network sees it. `loop` is None while its process doesn't run."""

    def __init__(self, ip: str) -> None:
        self.ip = ip
        self.loop: Loop | None = None
        self.has_power = True
        self.listeners: dict[int, Listener] = {}
        self.ends: dict[End, None] = {}


class Network:
    """All machines and the connections between them, by ip."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.hosts: dict[str, Host] = {}
        self._stalled: dict[Pair, int] = {}  # how often; they may overlap
        self._waiting: dict[Pair, list[Callable[[], None]]] = {}
        self._port = FIRST_PORT
        self.digest = hashlib.blake2b()  # of every byte that was written, and when

    def host(self, ip: str) -> Host:
        """The machine with this ip."""
        if ip not in self.hosts:
            self.hosts[ip] = Host(ip)
        return self.hosts[ip]

    # ---- faults

    def stall(self, source: str, target: str) -> None:
        """Let nothing go from one machine to the other until `heal`."""
        self._stalled[source, target] = self._stalled.get((source, target), 0) + 1

    def heal(self, source: str, target: str) -> None:
        """End one `stall`; what was sent meanwhile arrives."""
        pair = source, target
        left = self._stalled[pair] - 1
        if left:
            self._stalled[pair] = left
            return
        del self._stalled[pair]
        for act in self._waiting.pop(pair, []):
            self.send(source, target, act)

    def is_stalled(self, source: str, target: str) -> bool:
        """True if nothing goes in this direction now."""
        return (source, target) in self._stalled

    def cut(self, one: str, other: str) -> None:
        """Reset every connection between two machines."""
        for end in list(self.hosts[one].ends):
            if end.peer_host.ip == other:
                end.fail()
                end.peer.fail()

    def died(self, host: Host, *, power: bool) -> None:
        """The process of a machine is gone; with `power` its kernel as well."""
        ends, host.ends = list(host.ends), {}
        host.listeners.clear()
        host.loop = None
        host.has_power = not power
        for end in ends:
            end.vanish()
            if not power:
                end.reset_peer()

    # ---- what loops call

    def send(self, source: str, target: str, act: Callable[[], None]) -> None:
        """Have `act` happen in the target's loop when a packet gets there."""
        loop = self.hosts[target].loop
        if loop is not None:
            delay = DELAY_SECONDS * self.world.draw.random() ** 2
            loop.call_later(delay, self._arrive, source, target, act)

    def _arrive(self, source: str, target: str, act: Callable[[], None]) -> None:
        if self.is_stalled(source, target):
            self._waiting.setdefault((source, target), []).append(act)
        else:
            act()

    def port(self) -> int:
        """A port that no end has had."""
        self._port += 1
        return self._port

    async def connect(
        self, host: Host, factory: Callable[[], asyncio.BaseProtocol], ip: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect as `loop.create_connection` does. ConnectionRefusedError; waits for ever for a
        stalled one."""
        loop = host.loop
        assert loop is not None
        target = self.host(ip)
        done: asyncio.Future[End | None] = loop.create_future()

        def answer(end: "End | None") -> None:
            if not done.done():
                done.set_result(end)
            elif end is not None:
                end.abort()  # no waiter is left

        def arrive() -> None:
            listener = target.listeners.get(port)
            if listener is None or not listener.is_serving() or host.loop is not loop:
                self.send(ip, host.ip, lambda: answer(None))
                return
            ours = End(self, host, target, loop, self.port(), port)
            listener.accept(ours)
            self.send(ip, host.ip, lambda: answer(ours))

        def knock() -> None:
            if target.loop is not None:
                self.send(host.ip, ip, arrive)
            elif target.has_power:  # its kernel answers
                loop.call_later(DELAY_SECONDS, answer, None)

        knock()
        end = await done
        if end is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        protocol = factory()
        end.begin(protocol)
        return end, protocol


class MachineLoop(Loop):
    """A loop whose connections go through a network."""

    network: Network
    host: Host

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str = "",
        port: int = 0,
        *,
        sock: "BoundPort | None" = None,
        backlog: int = 100,
        start_serving: bool = True,
    ) -> "Listener":
        """Listen as asyncio's loop does; every machine has its own ports."""
        if sock is not None:
            port = sock.port
        if port in self.host.listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        made = Listener(self.network, self.host, protocol_factory, port or self.network.port())
        self.host.listeners[made.port] = made
        if start_serving:
            await made.start_serving()
        return made

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        ssl: None = None,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        return await self.network.connect(self.host, protocol_factory, host, port)


class BoundPort:
    """A machine's stand-in for a socket that is bound and does not listen."""

    def __init__(self, host: Host, port: int) -> None:
        self.port = port
        self._host = host

    def dup(self) -> "BoundPort":
        return self

    def getsockname(self) -> tuple[str, int]:
        return self._host.ip, self.port


class Listener:
    """The result of `create_server`."""

    def __init__(
        self,
        network: Network,
        host: Host,
        factory: Callable[[], asyncio.BaseProtocol],
        port: int,
    ) -> None:
        self.port = port
        self._network = network
        self._host = host
        self._factory = factory
        self._is_serving = False

    @property
    def sockets(self) -> "tuple[Listener, ...]":
        return (self,)

    def getsockname(self) -> tuple[str, int]:
        return self._host.ip, self.port

    async def start_serving(self) -> None:
        self._is_serving = True

    def is_serving(self) -> bool:
        return self._is_serving

    def close(self) -> None:
        self._is_serving = False
        if self._host.listeners.get(self.port) is self:
            del self._host.listeners[self.port]

    async def wait_closed(self) -> None:
        pass

    def accept(self, other: "End") -> "End":
        """Make this end of a connection."""
        loop = self._host.loop
        assert loop is not None
        end = End(self._network, self._host, other.host, loop, self.port, other.port)
        end.peer, other.peer = other, end
        end.begin(self._factory())
        return end


class End(asyncio.Transport):
    """One end of a connection."""

    peer: "End"

    def __init__(
        self, network: Network, host: Host, peer_host: Host, loop: Loop, port: int, peer_port: int
    ) -> None:
        super().__init__({"peername": (peer_host.ip, peer_port), "sockname": (host.ip, port)})
        self.network = network
        self.host = host
        self.peer_host = peer_host
        self.port = port
        self.unread = 0  # bytes that were sent and that the peer has not read
        self._loop = loop
        self._wire: deque[Callable[[], None]] = deque()  # what is on its way, in order
        self._protocol: Any = None
        self._inbox: deque[bytes] = deque()
        self._has_ended = False  # the peer sends nothing any more
        self._is_reading = True
        self._is_closing = False
        self._is_lost = False
        self._wrong: Exception | None = None  # what it was lost by
        self._high, self._low = HIGH_BYTES, HIGH_BYTES // 4
        self._is_paused = False  # its protocol was told to write no more

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """The connection is made."""
        self._protocol = protocol
        protocol.connection_made(self)
        if self._is_lost:  # the peer has reset it at once
            self._loop.call_soon(protocol.connection_lost, self._wrong)
            return
        self.host.ends[self] = None
        if self._inbox or self._has_ended:
            self._loop.call_soon(self._read)

    # ---- asyncio's names

    def write(self, data: Any) -> None:
        if self._is_closing or not data:
            return
        data = bytes(data)
        self.unread += len(data)
        self.network.digest.update(f"{self.network.world.now} {self.port} ".encode() + data)
        draw = self.network.world.draw
        cut = draw.randrange(1, len(data)) if len(data) > 1 and draw.random() < 0.1 else len(data)
        for piece in (data[:cut], data[cut:]):
            if piece:
                self._send(lambda piece=piece: self.peer.arrived(piece))  # type: ignore[misc]
        if not self._is_paused and self.get_write_buffer_size() > self._high:
            self._is_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._send(lambda: self.peer.ended())
            self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        if not self._is_lost:
            self._is_closing = True
            self.reset_peer()
            self._loop.call_soon(self._lose, None)

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._loop.call_soon(self._read)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        found: asyncio.BaseProtocol = self._protocol
        return found

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return max(0, self.unread - KERNEL_BYTES)

    # ---- what the other end and the network do

    def arrived(self, data: bytes) -> None:
        """Bytes of the peer are here."""
        if self._is_lost or self._has_ended:
            return
        self._inbox.append(data)
        if self._protocol is not None:
            self._read()

    def ended(self) -> None:
        """The peer has closed its end."""
        self._has_ended = True
        if self._protocol is not None:
            self._read()

    @property
    def is_known(self) -> bool:
        """True if the process of this end still runs."""
        return self._loop is self.host.loop

    def fail(self) -> None:
        """The connection is broken."""
        self._is_closing = True
        wrong = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        self._loop.call_soon(self._lose, wrong)

    def vanish(self) -> None:
        """The machine of this end has died."""
        self._is_closing = self._is_lost = True

    def reset_peer(self) -> None:
        """Tell the peer that this end is gone."""
        self._send(lambda: self.peer.fail())

    def read_by_peer(self, size: int) -> None:
        """Note that this many bytes left the buffers."""
        self.unread -= size
        if self._is_paused and not self._is_lost and self.get_write_buffer_size() <= self._low:
            self._is_paused = False
            self._protocol.resume_writing()

    # ---- inside

    def _send(self, act: Callable[[], None]) -> None:
        network, source, target = self.network, self.host.ip, self.peer_host.ip
        if self.peer.is_known:
            self._wire.append(act)
            network.send(source, target, self._deliver)
        elif (
            self.is_known
            and self.peer_host.has_power
            and not network.is_stalled(source, target)
            and not network.is_stalled(target, source)
        ):
            self._loop.call_later(DELAY_SECONDS, self.fail)  # a machine that knows nothing of it

    def _deliver(self) -> None:
        act = self._wire.popleft()
        if self.peer.is_known:
            act()

    def _read(self) -> None:
        while self._inbox and self._is_reading and not self._is_closing:
            data = self._inbox.popleft()
            self._send_read(len(data))
            self._protocol.data_received(data)
        if self._has_ended and not self._inbox and not self._is_closing:
            self._protocol.eof_received()
            self.close()

    def _send_read(self, size: int) -> None:
        peer = self.peer
        if peer.is_known:
            peer._loop.call_soon(peer.read_by_peer, size)

    def _lose(self, wrong: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._wrong = wrong
        self.host.ends.pop(self, None)
        if self._protocol is not None:
            self._protocol.connection_lost(wrong)
