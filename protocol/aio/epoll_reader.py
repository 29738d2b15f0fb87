"""Many connections that each send little, read together: compiled code reads their sockets.

What a transport of the event loop does for a small message takes longer than the kernel's read of
it. So where many connections were served in a turn, the transports of those that send plain
messages are paused, and their sockets are watched by an epoll of their own, which the loop watches.
What came in goes into the lane (`turn.Lane`). A connection goes back to its transport, which finds
all that is to be found in the socket, when it sends much, ends or fails, and when something of it
is done the common way (`Connection.serve`), as when only few send at a time.
"""

import asyncio
import select
from contextlib import suppress
from itertools import accumulate
from time import perf_counter

import numpy as np

from .compiled_io import NOT_READ, read_all
from .connection import READ_BYTES, Connection
from .scheduler import LANE_BYTES_MAX, Block, Scheduler

READY_MAX = 1_024  # connections that are read in one turn


class Crowd:
    """Those connections. Make it inside a running loop, where there is epoll (`can_be`)."""

    can_be = hasattr(select, "epoll")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._loop = asyncio.get_running_loop()
        self._connections: dict[int, Connection] = {}
        self._room = np.empty(LANE_BYTES_MAX, np.uint8)
        self._found = np.empty(READY_MAX, np.int64)
        self._epoll = select.epoll()
        self._loop.add_reader(self._epoll.fileno(), self._read)

    def __len__(self) -> int:
        return len(self._connections)

    def close(self) -> None:
        """All connections go back to their transports."""
        for connection in list(self._connections.values()):
            connection.leave_crowd()
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
        """Watch it no more. It may be closed already, and another may have its number."""
        lane = self._scheduler.lane
        if lane is not None:
            lane.split()  # what it sent is to be found by its own name
        if self._connections.get(fd) is connection:
            del self._connections[fd]
            with suppress(OSError):
                self._epoll.unregister(fd)

    def _read(self) -> None:
        known, room, scheduler = self._connections, self._room, self._scheduler
        lane = scheduler.lane
        fds = [fd for fd, _ in self._epoll.poll(0, READY_MAX) if fd in known]
        if lane is None:
            return
        if lane.bytes:
            # What came by a transport in this turn is done first.
            lane.split()
            fds = [fd for fd in fds if not known[fd].laned]
        if not fds:
            return
        if scheduler.latency is not None and not scheduler.latency.began:
            scheduler.latency.began = perf_counter()
        found = self._found[: len(fds)]
        done = read_all(np.array(fds, np.int64), room.ctypes.data, len(room), READ_BYTES, found)
        senders = [known[fd] for fd in fds]
        sizes = found.tolist()
        is_left = min(sizes) <= 0 or max(sizes) == READ_BYTES
        if is_left:
            senders, sizes = self._let_go(senders, sizes)
        if not lane.bytes:
            scheduler.wake()
        for connection in senders:
            connection.idle_rounds = 0
        lane.bytes += done
        lane.block = Block(senders, room[:done].tobytes(), list(accumulate(sizes)))
        if is_left:
            lane.split()  # more may come in this turn from those that have left

    def _let_go(
        self, senders: list[Connection], sizes: list[int]
    ) -> tuple[list[Connection], list[int]]:
        """Send those back to their transports that sent nothing or much; those that sent at all,
        with how much."""
        some: list[Connection] = []
        some_sizes: list[int] = []
        for connection, size in zip(senders, sizes, strict=True):
            if size > 0:
                some.append(connection)
                some_sizes.append(size)
            if size == READ_BYTES:
                self._scheduler.asked_much(connection)
            elif size > 0 or size == NOT_READ:  # or there was no room: its turn comes
                continue
            connection.leave_crowd()
        return some, some_sizes
