"""Many connections that each send little, read together: compiled code reads their sockets.

What a transport of the event loop does for a small message takes longer than the kernel's read of
it. So where many connections are served in a tick, those whose chunks are in the batch
(`chunks.py`) have their transports paused. An epoll of their own watches their sockets, and the
event loop watches that epoll. A connection goes back to its transport, which finds all that is to
be found in the socket, when it sends much, ends or fails, or when something of it has to be served
by itself.
"""

import asyncio
import select
from contextlib import suppress
from itertools import accumulate
from time import perf_counter

import numpy as np

from .chunks import ChunkBatch, Chunks
from .compiled_io import NOT_READ, read_all
from .connection import Connection
from .scheduler import TICK_BYTES_MAX, Scheduler

READY_MAX = 1_024  # connections that are read in one tick
READ_BYTES = 8 << 10  # of each of them


class EpollReader:
    """Reads the sockets of its connections into the `batch` of the scheduler.

    Make it inside a running loop, where there is epoll (`can_be`).
    """

    can_be = hasattr(select, "epoll")

    def __init__(self, scheduler: Scheduler, batch: ChunkBatch[Connection]) -> None:
        self._scheduler = scheduler
        self._batch = batch
        self._loop = asyncio.get_running_loop()
        self._connections: dict[int, Connection] = {}
        self._room = np.empty(TICK_BYTES_MAX, np.uint8)
        self._found = np.empty(READY_MAX, np.int64)
        self._epoll = select.epoll()
        self._loop.add_reader(self._epoll.fileno(), self._read)

    def __len__(self) -> int:
        return len(self._connections)

    def close(self) -> None:
        """All connections go back to their transports."""
        for connection in list(self._connections.values()):
            connection.transport.leave_reader()
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def add(self, connection: Connection, fd: int) -> bool:
        """Watch the socket of this connection; False when the system can't."""
        try:
            self._epoll.register(fd, select.EPOLLIN)
        except OSError:
            return False
        self._connections[fd] = connection
        return True

    def remove(self, connection: Connection, fd: int) -> None:
        """Stop watching it. It may be closed already, and another may have its number."""
        if self._connections.get(fd) is connection:
            del self._connections[fd]
            with suppress(OSError):
                self._epoll.unregister(fd)
        chunk = self._batch.remove(connection)
        if chunk is not None:  # as if its transport had read it
            connection.data_received(chunk)

    def _read(self) -> None:
        known, room, scheduler = self._connections, self._room, self._scheduler
        fds = [fd for fd, _ in self._epoll.poll(0, READY_MAX) if fd in known]
        if not fds or self._batch.senders:  # the last tick's chunks come first
            return
        if scheduler.latency is not None and not scheduler.latency.began:
            scheduler.latency.began = perf_counter()
        found = self._found[: len(fds)]
        done = read_all(np.array(fds, np.int64), room.ctypes.data, len(room), READ_BYTES, found)
        connections = [known[fd] for fd in fds]
        sizes = found.tolist()
        senders = connections
        if min(sizes) <= 0:
            senders = [each for each, size in zip(connections, sizes, strict=True) if size > 0]
        for connection in senders:
            connection.idle_rounds = 0
        if senders:
            ends = list(accumulate(size for size in sizes if size > 0))
            self._batch.add_together(Chunks(senders, room[:done].tobytes(), ends))
            scheduler.plan_tick()
        if min(sizes) <= 0 or max(sizes) == READ_BYTES:
            for connection, size in zip(connections, sizes, strict=True):
                # It has ended, failed or sent much; where there was no room it is read again.
                if size == READ_BYTES or (size <= 0 and size != NOT_READ):
                    connection.transport.leave_reader()
