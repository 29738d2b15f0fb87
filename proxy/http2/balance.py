"""Connections between the workers of one proxy: each goes to a worker with the fewest.

The system gives a connection to a worker by a hash of its addresses (SO_REUSEPORT), so a few of
them may all come to one worker. The worker that accepts one passes it on before it reads a byte:
its descriptor goes in a datagram to the Unix socket of the other (SCM_RIGHTS). A datagram without a
descriptor tells how many connections its sender has.
"""

import asyncio
import logging
import os
import socket
from array import array
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

log = logging.getLogger(__name__)

ACCEPTED_MAX = 100  # connections of one loop iteration
FAILED_SECONDS = 1.0  # after an accept that failed, for example without a free descriptor
_COUNT = Struct(">BI")  # the number of the sender, and its connections
_PASSED = 1 << 31  # in place of a count: the datagram brings a connection


@dataclass(frozen=True, slots=True)
class Worker:
    """One of several workers: their folder, its number from 0, and how many there are."""

    folder: Path
    number: int
    count: int


def shared_port(host: str, port: int) -> socket.socket:
    """A socket that is bound beside others of this user (SO_REUSEPORT), and does not listen.

    OSError with a readable sentence if the port can't be had.
    """
    if not hasattr(socket, "SO_REUSEPORT"):
        raise OSError("grpcWorkers needs SO_REUSEPORT, which this system lacks; set it to 1")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.setblocking(False)
        found.bind((host, port))
    except OSError as wrong:
        found.close()
        raise OSError(wrong.errno, f"can't listen on {host}:{port}: {wrong.strerror}") from None
    return found


class Balance:
    """One worker's end.

    `connections()` are the open ones here, and `serve` takes one that is to be served here. Make
    and start it inside a running loop.
    """

    def __init__(
        self,
        worker: Worker,
        connections: Callable[[], int],
        serve: Callable[[socket.socket], None],
    ) -> None:
        self._paths = [str(worker.folder / f"{each}.connections") for each in range(worker.count)]
        self._number = worker.number
        self._connections = connections
        self._serve = serve
        self._loop = asyncio.get_running_loop()
        self._known: dict[int, int] = {}  # connections of the others that are there
        self._socket: socket.socket | None = None
        self._listening: socket.socket | None = None
        self._resume: asyncio.TimerHandle | None = None
        self._tells = False  # the others will be told in this loop iteration

    def start(self, listening: socket.socket) -> None:
        """Accept from this socket, which listens and does not block."""
        path = self._paths[self._number]
        Path(path).unlink(missing_ok=True)  # of a worker that died
        own = self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        own.setblocking(False)
        own.bind(path)
        self._loop.add_reader(own, self._read)
        self._listening = listening
        self._loop.add_reader(listening, self._accept)
        self.changed()

    def stop(self) -> None:
        """Accept no more. Connections on their way here are closed by the system."""
        if self._socket is None or self._listening is None:
            return
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._listening)
        self._loop.remove_reader(self._socket)
        Path(self._paths[self._number]).unlink(missing_ok=True)
        self._listening.close()
        self._socket.close()
        self._socket = self._listening = None

    def changed(self) -> None:
        """Tell the other workers that this worker's number of connections has changed."""
        if not self._tells:
            self._tells = True
            self._loop.call_soon(self._tell)

    def _tell(self) -> None:
        self._tells = False
        if self._socket is None:
            return
        data = _COUNT.pack(self._number, self._connections())
        for number, path in enumerate(self._paths):
            if number != self._number:
                with suppress(OSError):  # it is not there, or doesn't read
                    self._socket.sendto(data, path)

    def _accept(self) -> None:
        assert self._listening is not None
        for _ in range(ACCEPTED_MAX):
            try:
                connection, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as wrong:
                log.error(
                    "a connection can't be accepted: %s; the next attempt is in %g s",
                    wrong.strerror or wrong,
                    FAILED_SECONDS,
                )
                self._loop.remove_reader(self._listening)
                self._resume = self._loop.call_later(FAILED_SECONDS, self._accept_again)
                return
            if not self._pass_on(connection):
                connection.setblocking(False)
                self._serve(connection)

    def _accept_again(self) -> None:
        if self._listening is not None:
            self._loop.add_reader(self._listening, self._accept)

    def _pass_on(self, connection: socket.socket) -> bool:
        """Pass a connection to the worker with the fewest; False if that is this worker."""
        assert self._socket is not None
        # Not `socket.send_fds`, which ignores the address in Python 3.11.
        descriptor = array("i", [connection.fileno()])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptor)]
        while self._known:
            number = min(self._known, key=self._known.__getitem__)
            if self._known[number] >= self._connections():
                return False
            data = _COUNT.pack(self._number, _PASSED)
            try:
                self._socket.sendmsg([data], rights, 0, self._paths[number])
            except OSError:  # it has ended, or doesn't read: it tells when it is there again
                del self._known[number]
                continue
            self._known[number] += 1
            connection.close()
            return True
        return False

    def _read(self) -> None:
        assert self._socket is not None
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._socket, _COUNT.size, 1)
            except (BlockingIOError, InterruptedError):
                return
            number, count = _COUNT.unpack(data)
            if count != _PASSED:
                if number not in self._known:
                    self.changed()  # a worker that has just come knows nothing yet
                self._known[number] = count
            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
                connection = socket.socket(fileno=descriptor)
                connection.setblocking(False)
                self._serve(connection)
