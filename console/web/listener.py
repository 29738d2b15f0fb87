"""The console's port: how many connections it has, and how long a first request may take to come.

aiohttp closes a connection that is idle between two requests, but waits for the first request as
long as it takes.
"""

import asyncio
import socket
import ssl
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

CONNECTIONS_MAX = 500
FIRST_SECONDS = 10.0  # for the head of the first request, and for a TLS handshake


class Listener:
    """A port whose connections are served by a runner."""

    def __init__(self, first_s: float = FIRST_SECONDS) -> None:
        self._first_s = first_s
        self._server: asyncio.Server | None = None
        self._runner: web.AppRunner | None = None
        self._silent: set[RequestHandler] = set()  # without a whole request yet

    async def start(
        self,
        runner: web.AppRunner,
        address: str,
        port: int,
        tls: ssl.SSLContext | None,
        given: socket.socket | None = None,
    ) -> int:
        """Listen, or serve a socket that listens already; the port. OSError when that is not
        possible."""
        self._runner = runner
        where: dict[str, Any] = {"host": address, "port": port}
        if given is not None:
            given.setblocking(False)
            where = {"sock": given}
        self._server = await asyncio.get_running_loop().create_server(
            self._connected,
            **where,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else self._first_s,
        )
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def stop(self) -> None:
        """Stop listening; connections stay until the runner ends them."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        self._silent.clear()

    def heard(self, request: web.Request) -> None:
        """Note that a connection has sent a whole head of a request."""
        self._silent.discard(request.protocol)

    def _connected(self) -> RequestHandler:
        assert self._runner is not None
        assert self._runner.server is not None
        handler = self._runner.server()
        loop = asyncio.get_running_loop()
        if len(self._runner.server.connections) >= CONNECTIONS_MAX:
            # Its transport comes with the next step, and for TLS with the handshake.
            loop.call_soon(loop.call_soon, _close, handler)
            loop.call_later(self._first_s, _close, handler)
        else:
            self._silent.add(handler)
            loop.call_later(self._first_s, self._cut, handler)
        return handler

    def _cut(self, handler: RequestHandler) -> None:
        if handler in self._silent:
            self._silent.discard(handler)
            _close(handler)


def _close(handler: RequestHandler) -> None:
    if handler.transport is not None:
        handler.transport.abort()
