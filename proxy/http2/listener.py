"""The port of gRPC: plain and TLS told apart by the first byte, idle connections closed, the end
in two steps."""

import asyncio
import logging
import socket
import time

from ...protocol.aio.server import BACKLOG, Refused, end_accepting, listen
from ...protocol.aio.tls import Greeting, Mode, Tls
from .balance import Balance, Worker, shared_port
from .connection import TICK_SECONDS, Http2Connection, Shared
from .proxy_protocol import Networks, Preamble

log = logging.getLogger(__name__)

CONNECTIONS_MAX = 50_000
SWEEP_SECONDS = 5.0
HELLO_SECONDS = 30.0  # from the connection to the first byte of HTTP/2, TLS handshake included
PING_SECONDS, ANSWER_SECONDS = 40.0, 20.0  # silence before a ping, and time for its answer
CLOSE_SECONDS = 10.0  # for the end of a connection
GOAWAY_SECONDS = 0.1  # between the two GOAWAYs: calls that are on their way still get in


class GrpcTls(Tls):
    """TLS that agrees on HTTP/2."""

    def __init__(self, mode: Mode, cert_path: str = "", key_path: str = "") -> None:
        super().__init__(mode, cert_path, key_path, ["h2"], "tlsCertPath, tlsKeyPath")


class Listener:
    """Accepts connections of gRPC. Make it inside a running loop.

    A connection without calls for `idle_seconds` is closed; at the end calls under way have
    `grace_seconds`. Connections from `balancers` begin with a header of the PROXY protocol.
    """

    def __init__(
        self,
        shared: Shared,
        tls: Tls,
        *,
        idle_seconds: float = 120.0,
        grace_seconds: float = 30.0,
        balancers: Networks = (),
    ) -> None:
        self.port = 0
        self._shared = shared
        self._tls = tls
        self._idle_seconds = idle_seconds
        self._grace_seconds = grace_seconds
        self._balancers = balancers
        self._server: asyncio.Server | None = None
        self._balance: Balance | None = None
        self._joining: set[asyncio.Task[None]] = set()  # accepted, without a transport yet
        self._sweeper: asyncio.TimerHandle | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    async def start(self, host: str, port: int, worker: Worker | None = None) -> None:
        """Listen; a `worker` shares the port and its connections with the others. OSError with a
        readable sentence if the port can't be had."""
        if worker is None:
            self._server, self.port = await listen(self._accept, host, port)
        else:
            listening = shared_port(host, port)
            listening.listen(BACKLOG)
            self.port = listening.getsockname()[1]
            self._balance = Balance(worker, self._count, self._join)
            self._balance.start(listening)
            self._shared.on_fewer = self._balance.changed
        self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        self._tick()

    async def stop(self) -> None:
        """Stop listening; let calls under way end; close all connections."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._ticker is not None:
            self._ticker.cancel()
        if self._server is not None:
            await end_accepting(self._server)
            self._server.close()
        if self._balance is not None:
            self._balance.stop()
        await asyncio.gather(*self._joining)
        for connection in list(self._shared.connections):
            connection.drain()
        if any(connection.calls for connection in self._shared.connections):
            await asyncio.sleep(GOAWAY_SECONDS)
        for connection in list(self._shared.connections):
            connection.refuse()
            connection.end_waiting()
        tasks = set(self._shared.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=self._grace_seconds)
        for task in list(self._shared.tasks):
            task.cancel()
        await asyncio.gather(*self._shared.tasks, return_exceptions=True)
        for connection in list(self._shared.connections):
            connection.close()
        for _ in range(40):
            if not self._shared.connections:
                return
            await asyncio.sleep(0.005)
        for connection in list(self._shared.connections):
            connection.abort()

    def sweep(self, now: float) -> None:
        """Close connections that don't speak HTTP/2, have no calls for too long, or are dead.

        A connection with calls is dead if it doesn't answer a ping.
        """
        for connection in list(self._shared.connections):
            silent = now - connection.heard_at
            why = self._fault(connection, silent)
            if why is not None:
                log.info("closing %s: %s", connection.address, why)
                connection.abort()
            elif connection.calls:
                if silent > PING_SECONDS:
                    connection.ping()
            elif connection.has_spoken and silent > self._idle_seconds:
                connection.drain()
                connection.refuse()

    def _fault(self, connection: Http2Connection, silent: float) -> str | None:
        if not connection.has_spoken and silent > HELLO_SECONDS:
            return f"no byte of HTTP/2 within {HELLO_SECONDS:g} s"
        if connection.is_lost and silent > CLOSE_SECONDS:
            return f"it does not read its last bytes within {CLOSE_SECONDS:g} s"
        if connection.calls and silent > PING_SECONDS + ANSWER_SECONDS:
            return f"no answer to a ping within {ANSWER_SECONDS:g} s"
        if not connection.calls and silent > self._idle_seconds + CLOSE_SECONDS:
            return f"it stays {CLOSE_SECONDS:g} s after it was asked to go"
        return None

    def _sweep(self) -> None:
        self.sweep(time.monotonic())
        self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def _tick(self) -> None:
        self._shared.ticked_at = self._loop.time()
        self._ticker = self._loop.call_later(TICK_SECONDS, self._tick)

    def _count(self) -> int:
        return len(self._shared.connections) + len(self._joining)

    def _join(self, connection: socket.socket) -> None:
        task = self._loop.create_task(self._serve(connection))
        self._joining.add(task)
        task.add_done_callback(self._joined)

    def _joined(self, task: asyncio.Task[None]) -> None:
        self._joining.discard(task)
        if self._balance is not None:
            self._balance.changed()

    async def _serve(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._accept, connection)
        except OSError as wrong:  # the client is gone
            log.info("a connection ended before it began: %s", wrong)
            connection.close()

    def _accept(self) -> asyncio.Protocol:
        connection = Http2Connection(self._shared)
        if len(self._shared.connections) >= CONNECTIONS_MAX:
            log.warning(
                "refusing a connection: %d are open, the limit is %d",
                len(self._shared.connections),
                CONNECTIONS_MAX,
            )
            return Refused()
        following: asyncio.Protocol = connection
        if self._tls.mode != "disabled":
            following = Greeting(connection, self._tls)
        if self._balancers:
            return Preamble(following, connection, self._balancers)
        return following
