"""The frames that a connection writes, and who reads its socket.

Whole frames wait in `out` until the tick ends. They leave in one write: to the socket itself, and
through asyncio's transport what the socket does not take.
"""

import asyncio
import os
import socket
from enum import Enum
from typing import Any

from .chunks import SocketReader
from .memory_budget import COUNTED_BYTES_MIN
from .scheduler import Scheduled, Scheduler

WRITE_BYTES_MAX = 256 << 10  # of large responses to one peer, in one tick


class Link(Enum):
    """The states of a connection."""

    CONNECTING = 1
    OPEN = 2
    CLOSING = 3  # this end closes it once what is to be written has gone out
    LOST = 4


class Reading(Enum):
    """The readers of a socket."""

    TRANSPORT = 1  # asyncio's
    READER = 2  # one that reads many sockets together (`epoll_reader.py`)
    NOBODY = 3


# For what is asked with each message: Python 3.11 finds a member of an enum five times as slowly.
OPEN, CLOSING, LOST = Link.OPEN, Link.CLOSING, Link.LOST
BY_READER, BY_NOBODY = Reading.READER, Reading.NOBODY


class FrameTransport:
    """The transport of `connection`, which the scheduler flushes.

    `unsent` is the bytes of large responses since the peer had read all. Those that can't be
    written now are in the memory budget, and many are as soon as they are made.
    """

    __slots__ = (
        "_budget",
        "_connection",
        "_counted",
        "_drained",
        "_reader",
        "_scheduler",
        "_transport",
        "fd",
        "has_backlog",
        "is_full",
        "needs_flush",
        "out",
        "reading",
        "state",
        "unsent",
    )

    def __init__(self, scheduler: Scheduler, connection: Scheduled) -> None:
        self._scheduler = scheduler
        self._budget = scheduler.budget
        self._connection: Scheduled | None = connection  # None once it is lost
        self._transport: asyncio.Transport | None = None  # asyncio's, while it is open
        self._reader: SocketReader[Any] | None = None
        self._drained: asyncio.Event | None = None  # somebody waits until it is not full
        self._counted = 0  # of the unsent bytes, in the budget
        self.state = Link.CONNECTING
        self.reading = Reading.TRANSPORT
        self.fd = -1  # the socket, where it can be written to: a transport takes longer
        self.has_backlog = False  # asyncio's transport may have bytes that the socket didn't take
        self.is_full = False  # it has as many as its high-water mark (see `drained`)
        self.needs_flush = False  # it is flushed when the tick ends
        self.out: list[bytes | memoryview] = []  # whole frames: some handlers add theirs here
        self.unsent = 0

    # --- life -----------------------------------------------------------------------------------

    def open(self, transport: asyncio.Transport) -> None:
        """Write through this transport, and to its socket where that is TCP without TLS."""
        self._transport = transport
        self.state = Link.OPEN
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if os.name == "posix" and transport.get_extra_info("sslcontext") is None:
                self.fd = sock.fileno()

    def set_transport(self, transport: asyncio.Transport) -> None:
        """Write through this transport from now on, which writes through the one before."""
        self._transport = transport
        self.fd = -1

    @property
    def is_closing(self) -> bool:
        """True before it is open, and once either end closes it."""
        return self._transport is None or self._transport.is_closing()

    @property
    def is_plain(self) -> bool:
        """True if it is open and has no TLS of asyncio."""
        transport = self._transport
        return transport is not None and transport.get_extra_info("sslcontext") is None

    def close(self) -> None:
        """Close once what is written has gone out."""
        self._end()
        self.leave_reader()
        if not self.needs_flush and self._transport is not None:  # else `flush` does it
            self._transport.close()

    def abort(self) -> None:
        """Close at once; what is not written yet is dropped."""
        self._end()
        self.out = []
        self.needs_flush = False
        if self._transport is not None:
            self._transport.abort()
            self.leave_reader()

    def lose(self) -> None:
        """Forget all that waits to be written: the connection is lost."""
        self.state = Link.LOST
        self._connection = self._transport = None
        self.fd = -1
        self.out = []
        self._budget.add(-self._counted)
        self._counted = 0
        self._release()

    def _end(self) -> None:
        if self.state is not Link.LOST:
            self.state = Link.CLOSING

    # --- writing --------------------------------------------------------------------------------

    def write_later(self, frame: bytes | memoryview) -> None:
        """Write this frame at the end of this tick, behind what waits already."""
        self.out.append(frame)
        if not self.needs_flush:
            self.plan_flush()

    def plan_flush(self) -> None:
        """Write `out` at the end of this tick."""
        if not self.needs_flush and self._connection is not None:
            self.needs_flush = True
            self._scheduler.add(self._connection)

    def flush(self) -> bool:
        """Write `out` in one write; of large responses a part, and the rest in the next ticks.

        Returns True when the peer can take all unsent bytes now, so that requests which wait for
        that can be served.
        """
        self.needs_flush = False
        out, self.out = self.out, []
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if out:  # what waits for the disk is answered later
            if self.unsent > WRITE_BYTES_MAX:
                out, self.out = _split(out, WRITE_BYTES_MAX)
                if self.out:  # the others' responses first
                    self.plan_flush()
            data = out[0] if len(out) == 1 else b"".join(out)
            if self.has_backlog:
                self.has_backlog = transport.get_write_buffer_size() > 0
            if self.fd < 0 or self.has_backlog:
                transport.write(data)
            else:
                try:
                    written = os.write(self.fd, data)
                except OSError:
                    written = 0  # the transport finds out what is wrong
                if written < len(data):
                    self.has_backlog = True
                    transport.write(memoryview(data)[written:])
        if self.needs_flush:
            return False
        is_sent = self.unsent > 0 and self._reset_unsent()
        if self.state is CLOSING:
            transport.close()
        return is_sent

    async def drained(self) -> None:
        """Wait until what is to be written is below the low-water mark, or the connection lost."""
        while self.is_full:
            if self._drained is None:
                self._drained = asyncio.Event()
            await self._drained.wait()

    def pause_writing(self) -> None:
        """Note that asyncio's transport has reached its high-water mark."""
        self.is_full = True

    def resume_writing(self) -> None:
        """Note that asyncio's transport is below its low-water mark."""
        self._release()
        self._reset_unsent()

    @property
    def over_unsent_limit(self) -> bool:
        """True if the peer must read before it is served further."""
        return self.is_full or self.unsent > self._budget.unsent_max

    def add_unsent(self, size: int) -> None:
        """Count `size` bytes of a large response that the peer has to read.

        Many are in the budget at once, so that connections served in the same tick have less room.
        """
        self.unsent += size
        self._scheduler.response_bytes += size
        if self.unsent > COUNTED_BYTES_MIN:
            self._count_unsent()

    def _reset_unsent(self) -> bool:
        """Forget the unsent bytes once they can be written, and count them in the budget until
        then; returns whether they can be."""
        if not self.is_full:
            self.unsent = 0
        if self.unsent != self._counted:
            self._count_unsent()
        return not self.is_full

    def _count_unsent(self) -> None:
        self._budget.add(self.unsent - self._counted)
        self._counted = self.unsent

    def _release(self) -> None:
        self.is_full = False
        if self._drained is not None:
            self._drained.set()
            self._drained = None

    # --- reading --------------------------------------------------------------------------------

    def pause_reading(self) -> None:
        """Have nobody read, while it is open."""
        transport = self._transport
        assert transport is not None
        was, self.reading = self.reading, Reading.NOBODY
        if was is Reading.READER:  # asyncio's transport does not read already
            self._remove_reader()
        else:
            transport.pause_reading()

    def resume_reading(self) -> None:
        """Have asyncio's transport read, while it is open."""
        transport = self._transport
        assert transport is not None
        self.reading = Reading.TRANSPORT
        transport.resume_reading()

    def join_reader(self, reader: SocketReader[Any]) -> None:
        """Have `reader` read in place of asyncio's transport, where that can be."""
        transport = self._transport
        if (
            transport is not None
            and not transport.is_closing()
            and self.reading is Reading.TRANSPORT
            and self.fd >= 0
            and reader.add(self._connection, self.fd)
        ):
            self._reader = reader
            self.reading = Reading.READER
            transport.pause_reading()

    def leave_reader(self) -> None:
        """Have asyncio's transport read again, if a reader does."""
        if self.reading is not Reading.READER:
            return
        self.reading = Reading.TRANSPORT
        self._remove_reader()
        # Bytes that the reader had may have been too many.
        if self.reading is Reading.TRANSPORT and not self.is_closing:
            self.resume_reading()

    def _remove_reader(self) -> None:
        reader, self._reader = self._reader, None
        assert reader is not None
        reader.remove(self._connection, self.fd)


def _split(
    out: list[bytes | memoryview], most: int
) -> tuple[list[bytes | memoryview], list[bytes | memoryview]]:
    """The first `most` bytes of these, and the others."""
    for number, piece in enumerate(out):
        if len(piece) > most:
            first, rest = out[:number], out[number:]
            view = memoryview(piece)
            return [*first, view[:most]], [view[most:], *rest[1:]]
        most -= len(piece)
    return out, []
