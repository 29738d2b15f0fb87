"""The transport of frames: what it writes when, what it counts, and who reads its socket."""

import asyncio
import socket
from collections.abc import Iterator

import pytest
from aerobee.protocol.aio.frame_transport import WRITE_BYTES_MAX, FrameTransport, Link, Reading
from aerobee.protocol.aio.memory_budget import COUNTED_BYTES_MIN
from aerobee.protocol.aio.scheduler import Scheduler

from ...waiting import LONG


class Wire(asyncio.Transport):
    """asyncio's transport, to a peer that reads all or nothing."""

    def __init__(self, sock: socket.socket | None = None) -> None:
        super().__init__({"socket": sock})
        self.written: list[bytes] = []
        self.calls: list[str] = []
        self.ended = ""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.written))

    def is_closing(self) -> bool:
        return bool(self.ended)

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")


class Owner:
    """The connection of a transport."""

    deficit = 0
    in_run_queue = has_more = False

    def __init__(self, scheduler: Scheduler) -> None:
        self.transport = FrameTransport(scheduler, self)
        self.could_go_on: list[bool] = []

    def flush(self) -> None:
        self.could_go_on.append(self.transport.flush())

    def serve(self, allowed: int) -> int:
        return 0

    def abort(self) -> None:
        self.transport.abort()

    def limit_ahead(self) -> None: ...

    def unserved_codes(self) -> list[int]:
        return []


class Reader:
    """Reads many sockets; has `transport` paused while it gives this one back, if that is given."""

    def __init__(self) -> None:
        self.transport: FrameTransport | None = None
        self.watched: list[int] = []

    def add(self, connection: object, fd: int) -> bool:
        self.watched.append(fd)
        return True

    def remove(self, connection: object, fd: int) -> None:
        self.watched.remove(fd)
        if self.transport is not None:
            self.transport.pause_reading()

    def close(self) -> None: ...


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    listener = socket.create_server(("127.0.0.1", 0))
    own = socket.create_connection(listener.getsockname())
    other, _ = listener.accept()
    own.setblocking(False)
    other.setblocking(False)
    yield own, other
    for sock in (own, other, listener):
        sock.close()


@pytest.fixture
async def scheduler() -> Scheduler:
    return Scheduler()


@pytest.fixture
def owner(scheduler: Scheduler) -> Owner:
    return Owner(scheduler)


@pytest.fixture
def wire(owner: Owner) -> Wire:
    """asyncio's transport, without a socket that could be written to."""
    wire = Wire()
    owner.transport.open(wire)
    return wire


async def tick() -> None:
    await asyncio.sleep(0)


async def test_the_frames_of_a_tick_leave_in_one_write(owner: Owner, wire: Wire) -> None:
    for frame in (b"a", memoryview(b"b"), b"c"):
        owner.transport.write_later(frame)
    assert wire.written == []
    await tick()
    assert wire.written == [b"abc"]
    assert owner.could_go_on == [False]  # nothing had to wait


async def test_large_responses_leave_in_parts_and_the_peer_is_served_once_all_have_left(
    owner: Owner, wire: Wire, scheduler: Scheduler
) -> None:
    size = 2 * WRITE_BYTES_MAX + 1
    owner.transport.add_unsent(size)
    owner.transport.write_later(bytes(size))
    assert scheduler.budget.bytes == scheduler.response_bytes == size
    for _ in range(3):
        await tick()
    assert [len(part) for part in wire.written] == [WRITE_BYTES_MAX, WRITE_BYTES_MAX, 1]
    assert owner.could_go_on == [False, False, True]
    assert owner.transport.unsent == scheduler.budget.bytes == 0


async def test_what_a_peer_does_not_read_stays_counted_until_it_does(
    owner: Owner, wire: Wire, scheduler: Scheduler
) -> None:
    transport = owner.transport
    transport.pause_writing()
    transport.add_unsent(1_000)
    assert scheduler.budget.bytes == 0  # so few may still be written
    transport.write_later(bytes(1_000))
    await tick()
    assert owner.could_go_on == [False]
    assert transport.unsent == scheduler.budget.bytes == 1_000
    assert transport.is_full
    assert transport.over_unsent_limit
    waiting = asyncio.ensure_future(transport.drained())
    await tick()
    assert not waiting.done()
    transport.resume_writing()
    await asyncio.wait_for(waiting, LONG)
    assert not transport.over_unsent_limit
    assert transport.unsent == scheduler.budget.bytes == 0


async def test_a_connection_that_is_lost_leaves_nothing_behind(
    owner: Owner, wire: Wire, scheduler: Scheduler
) -> None:
    transport = owner.transport
    transport.add_unsent(COUNTED_BYTES_MIN + 1)
    transport.pause_writing()
    waiting = asyncio.ensure_future(transport.drained())
    await tick()
    transport.lose()
    await asyncio.wait_for(waiting, LONG)
    assert transport.is_closing
    assert scheduler.budget.bytes == 0
    transport.close()
    assert transport.state is Link.LOST
    transport.plan_flush()
    assert not transport.needs_flush


async def test_it_closes_once_what_is_written_has_gone_out(owner: Owner, wire: Wire) -> None:
    owner.transport.write_later(b"last")
    owner.transport.close()
    assert not wire.ended
    await tick()
    assert (wire.written, wire.ended) == ([b"last"], "closed")


async def test_an_abort_drops_what_is_not_written(owner: Owner, wire: Wire) -> None:
    owner.transport.write_later(b"dropped")
    owner.transport.abort()
    await tick()
    assert (wire.written, wire.ended) == ([], "aborted")
    assert owner.transport.state is Link.CLOSING


async def test_a_socket_is_written_to_until_it_is_full_and_the_rest_goes_through_asyncio(
    owner: Owner, sockets: tuple[socket.socket, socket.socket]
) -> None:
    own, other = sockets
    wire = Wire(own)
    owner.transport.open(wire)
    owner.transport.write_later(b"first")
    await tick()
    assert (wire.written, other.recv(100)) == ([], b"first")
    own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 10)
    size = 64 << 20  # more than both ends of a socket hold
    owner.transport.write_later(bytes(size))
    owner.transport.write_later(b"behind it")
    await tick()
    (rest,) = wire.written
    assert 0 < len(rest) < size
    assert rest.endswith(b"behind it")
    owner.transport.write_later(b"order is kept")
    await tick()
    assert wire.written == [rest, b"order is kept"]


async def test_a_transport_before_the_first_one_gets_all_bytes(
    owner: Owner, sockets: tuple[socket.socket, socket.socket]
) -> None:
    first, before = Wire(sockets[0]), Wire()
    owner.transport.open(first)
    owner.transport.set_transport(before)
    owner.transport.write_later(b"secret")
    await tick()
    assert (first.written, before.written) == ([], [b"secret"])
    with pytest.raises(BlockingIOError):
        sockets[1].recv(1)


async def test_a_reader_reads_in_place_of_asyncio_until_it_is_left(
    owner: Owner, sockets: tuple[socket.socket, socket.socket]
) -> None:
    transport, reader, wire = owner.transport, Reader(), Wire(sockets[0])
    transport.join_reader(reader)
    assert reader.watched == []  # there is no socket yet
    transport.open(wire)
    transport.join_reader(reader)
    assert (transport.reading, wire.calls) == (Reading.READER, ["pause"])
    assert reader.watched == [sockets[0].fileno()]
    transport.leave_reader()
    transport.leave_reader()
    assert (transport.reading, wire.calls) == (Reading.TRANSPORT, ["pause", "resume"])
    assert reader.watched == []


async def test_who_pauses_while_the_reader_is_left_keeps_asyncio_from_reading(
    owner: Owner, sockets: tuple[socket.socket, socket.socket]
) -> None:
    transport, reader, wire = owner.transport, Reader(), Wire(sockets[0])
    transport.open(wire)
    transport.join_reader(reader)
    reader.transport = transport  # as bytes that were too many do
    transport.leave_reader()
    assert transport.reading is Reading.NOBODY
    assert wire.calls[-1] == "pause"
    transport.resume_reading()
    assert (transport.reading, wire.calls[-1]) == (Reading.TRANSPORT, "resume")


async def test_nobody_reads_a_socket_that_pauses_with_its_reader(
    owner: Owner, sockets: tuple[socket.socket, socket.socket]
) -> None:
    transport, reader, wire = owner.transport, Reader(), Wire(sockets[0])
    transport.open(wire)
    transport.join_reader(reader)
    transport.pause_reading()
    assert (transport.reading, reader.watched) == (Reading.NOBODY, [])
    assert wire.calls == ["pause"]
    transport.join_reader(reader)
    assert reader.watched == []
