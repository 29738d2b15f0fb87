"""A listening server: accepts connections, serves a request table, closes the idle ones.

Several ports may share one server and differ in their table (a broker's fast port serves no pulls).
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Iterable, KeysView, Mapping
from typing import Any

from ..codec import header_json
from ..open_files import open_files_max
from .connection import Connection, Row
from .memory_budget import MemoryBudget
from .rpc_latency import RpcLatency
from .scheduler import Scheduler
from .tls import Greeting, Tls

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 50_000  # open at once
FILES_KEPT_MAX = 16_384  # open files that connections leave to the store, at most half of all
IDLE_SECONDS = 120  # without a byte from the peer; RocketMQ's serverChannelMaxIdleTimeSeconds
IDLE_ROUND_SECONDS = 10
STOP_SECONDS = 2  # for what is written to go out before connections are cut
# A large request that comes in slowly has a round more for each of these: 13 KB a second will do.
UNFINISHED_ROUND_BYTES = 128 << 10
TLS_SECONDS = 3.0  # for a handshake
BACKLOG = 1_024


def _connections_max() -> int:
    """The number of connections that a server may have: the store needs open files, too."""
    files = open_files_max()
    return max(1, min(CONNECTIONS_MAX, files - min(FILES_KEPT_MAX, files // 2)))


def table(rows: Iterable[Row]) -> dict[int, Row]:
    """Rows by code; an error when two claim the same one."""
    found: dict[int, Row] = {}
    for row in rows:
        if row.code in found:
            raise ValueError(f"request code {row.code} has two rows")
        found[row.code] = row
    return found


async def listen(
    factory: Callable[[], asyncio.Protocol],
    host: str,
    port: int,
    *,
    accept: bool = True,
    hold: bool = False,
    bound: socket.socket | None = None,
    tls: ssl.SSLContext | None = None,
    what: str = "",
) -> tuple[asyncio.Server, int]:
    """Listen on `host` and `port` (0: any free one); what listens, and the port. Errors say `what`
    the port is for, such as its setting.

    With `accept` False the port is taken, and clients are refused until `start_accepting`: another
    program that does the same may take it as well, and the first to accept gets it. With `hold`,
    or for any free port, nobody else can take it; clients may connect, and wait. With `bound` it
    listens on a duplicate of that socket, which stays open. With `tls` it speaks nothing else.
    OSError with a readable sentence if the port is taken or the address isn't this machine's.
    """
    loop = asyncio.get_running_loop()
    # A loop of a simulation knows no TLS.
    secured: dict[str, Any] = {}
    if tls is not None:
        secured = {"ssl": tls, "ssl_handshake_timeout": TLS_SECONDS}
    try:
        if bound is None:
            server = await loop.create_server(
                factory, host, port, backlog=BACKLOG, start_serving=accept, **secured
            )
        else:
            server = await loop.create_server(
                factory, sock=bound.dup(), backlog=BACKLOG, start_serving=accept, **secured
            )
        if not accept and (hold or not port) and isinstance(server, asyncio.Server):
            for one in server.sockets:  # a duplicate is the same socket to the system
                with one.dup() as duplicate:
                    duplicate.listen(BACKLOG)
    except OSError as wrong:
        raise _in_one_sentence(wrong, host, port, what) from None
    return server, server.sockets[0].getsockname()[1]


async def start_accepting(server: asyncio.Server, what: str = "") -> None:
    """Accept connections on a port that `listen` took. OSError as by `listen` when another program
    listens there by now."""
    host, port = server.sockets[0].getsockname()[:2]
    try:
        await server.start_serving()
    except OSError as wrong:
        raise _in_one_sentence(wrong, host, port, what) from None


def _in_one_sentence(wrong: OSError, host: str, port: int, what: str) -> OSError:
    reason = wrong.strerror or str(wrong)
    if wrong.errno == errno.EADDRINUSE:
        reason = "another program listens there; stop it or choose another port"
    elif wrong.errno == errno.EADDRNOTAVAIL:
        reason = "the address is not one of this machine's; choose another"
    of_what = f" ({what})" if what else ""
    return OSError(wrong.errno, f"can't listen on {host}:{port}: {reason}{of_what}")


async def end_accepting(*servers: asyncio.AbstractServer) -> None:
    """Accept no more connections, and have the accepted ones made: Python 3.11 leaves a connection
    open when its server is closed between the two. To be called before `close`."""
    loop = asyncio.get_running_loop()
    for server in servers:
        if isinstance(server, asyncio.Server):  # not that of a simulation
            for listening in server.sockets:
                loop.remove_reader(listening.fileno())
    for _ in range(2):  # the transport is made, and the connection gets it
        await asyncio.sleep(0)


class _Table:
    """The requests that a port serves: rows by code, and the headers that its decoders expect."""

    __slots__ = ("expected", "rows")

    def __init__(self, rows: Mapping[int, Row]) -> None:
        self.fill(rows)

    def fill(self, rows: Mapping[int, Row]) -> None:
        """Serve these rows to the connections from now on."""
        hot = {row.code: row.header for row in rows.values() if row.hot and row.header}
        self.rows, self.expected = rows, header_json.expected(hot)


class Server:
    """Listens on one or more ports. Make it inside a running loop."""

    def __init__(
        self,
        *,
        on_lost: Callable[[Connection], None] | None = None,
        before_write: Callable[[], None] | None = None,
        connections_max: int | None = None,
        idle_seconds: float = IDLE_SECONDS,
        budget: MemoryBudget | None = None,
        latency: RpcLatency | None = None,
        tls: Tls | None = None,
    ) -> None:
        self._connections: dict[Connection, None] = {}
        self.scheduler = Scheduler(before_write=before_write, budget=budget, latency=latency)
        self._on_lost = on_lost
        self._tls = tls if tls is not None and tls.mode != "disabled" else None
        self._connections_max = _connections_max() if connections_max is None else connections_max
        self._idle_rounds_max = max(1, round(idle_seconds / IDLE_ROUND_SECONDS))
        self._servers: dict[asyncio.Server, str] = {}  # with what its port is for
        self._tables: dict[int, _Table] = {}  # by port
        self._loop = asyncio.get_running_loop()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def connections(self) -> KeysView[Connection]:
        """The open connections, the oldest first."""
        return self._connections.keys()

    async def listen(
        self,
        host: str,
        port: int,
        rows: Mapping[int, Row] | None = None,
        *,
        hold: bool = False,
        bound: socket.socket | None = None,
        what: str = "",
    ) -> int:
        """Listen on `host` and `port` (0: any free one) and give the port.

        Without `rows` the port is taken, and connections are accepted from `accept()` on. `hold`,
        `bound` and `what` are as in `listen`. OSError with a readable sentence if the port is taken
        or the address isn't this machine's.
        """
        served = _Table(rows or {})
        server, found = await listen(
            lambda: self._accept(served),
            host,
            port,
            accept=rows is not None,
            hold=hold,
            bound=bound,
            what=what,
        )
        self._servers[server] = what
        self._tables[found] = served
        if self._idle_timer is None:
            self._idle_timer = self._loop.call_later(IDLE_ROUND_SECONDS, self._idle_round)
        return found

    async def accept(self, tables: Mapping[int, Mapping[int, Row]]) -> None:
        """Let clients in on each port that was taken without rows; these are its rows. OSError as
        by `listen`."""
        for port, rows in tables.items():
            self._tables[port].fill(rows)
        for server, what in self._servers.items():
            if not server.is_serving():
                await start_accepting(server, what)

    async def stop(self) -> None:
        """Stop listening, let what is written go out, close all connections."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        await end_accepting(*self._servers)
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.close()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._empty.wait()
        except TimeoutError:
            for connection in list(self.connections):
                connection.abort()
        self._servers.clear()

    def _accept(self, served: "_Table") -> asyncio.Protocol:
        if len(self.connections) >= self._connections_max:
            log.warning(
                "refusing a connection: %d are open, the limit is %d; close some, or raise the "
                "limit of open files (ulimit -n, LimitNOFILE of systemd) for up to %d",
                len(self.connections),
                self._connections_max,
                CONNECTIONS_MAX,
            )
            return Refused()
        connection = Connection(
            self.scheduler, served.rows, on_lost=self._lost, expected=served.expected
        )
        self._connections[connection] = None
        self._empty.clear()
        return connection if self._tls is None else Greeting(connection, self._tls)

    def _lost(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        if not self.connections:
            self._empty.set()
        if self._on_lost is not None:
            self._on_lost(connection)

    def close_idle(self) -> None:
        """One round: close connections that sent nothing for too long, or have been in one
        request for as long.

        When the memory for that is full, a request must be whole within a round.
        """
        is_full = self.scheduler.budget.is_full
        for connection in list(self.connections):
            connection.idle_rounds += 1
            late = connection.idle_rounds - self._idle_rounds_max
            if late > 1:
                connection.abort()  # what is written is never read: it would be kept forever
            elif late > 0:
                log.info(
                    "closing %s: idle for over %d rounds", connection.address, self._idle_rounds_max
                )
                connection.close()
            elif (rounds := connection.partial_rounds()) > 0:
                size = connection.ingress.partial_bytes
                most = self._idle_rounds_max + size // UNFINISHED_ROUND_BYTES
                if rounds > (0 if is_full else most):
                    log.warning(
                        "closing %s in the middle of a request: of that came only %d bytes in %d "
                        "seconds",
                        connection.address,
                        size,
                        rounds * IDLE_ROUND_SECONDS,
                    )
                    connection.abort()

    def _idle_round(self) -> None:
        self.close_idle()
        self._idle_timer = self._loop.call_later(IDLE_ROUND_SECONDS, self._idle_round)


class Refused(asyncio.Protocol):
    """Closes the connection that it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
