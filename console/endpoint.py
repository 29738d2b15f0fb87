"""The HTTP endpoint of a daemon: liveness, readiness, metrics and the daemon's status.

It calls functions of the daemon (`DaemonView`) for each request, and keeps only the text of slow
metrics for some seconds. It is read-only: no request can change a cluster. The port is open from
the start; the first visitor waits until the pages (`endpoint_pages.py`) are imported.
"""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, TypeVar

from .exposition import Family

log = logging.getLogger(__name__)

Result = TypeVar("Result")

OFF = -1
# Default distance from the daemon's listen port. It keeps clear of other brokers: listen ports are
# usually 10, 20 or 100 apart, and a broker takes the ports -2, 0 and +1.
PORT_DISTANCE = 7
PORTS_TRIED = 50  # from there on, before any free one is taken
PORT_MAX = 65_535

BACKLOG = 128  # connections that wait to be accepted
# What a stop grants requests under way. aiohttp (3.14) waits that long, 60 s by default, also for a
# connection that came just before the stop and has asked nothing yet.
STOP_SECONDS = 1.0


class InSlices(Protocol):
    """Runs a generator step by step; between steps the daemon serves its own requests."""

    def __call__(self, steps: Generator[object, None, Result], /) -> Awaitable[Result]:
        """The return value of the generator."""


@dataclass(frozen=True)
class DaemonView:
    """The functions through which an endpoint reads its daemon, called for each request.

    `fault` and `not_ready` return the reason in one sentence, or None when all is well; `note`
    returns a remark about a healthy daemon, or None. `status(with_system)` includes the system's
    topics where `with_system` is true. `in_slices` runs the generators of `metrics` and `status`.
    `more_metrics` gives further metrics, as text. `console` is the address of a console that shows
    this daemon's cluster.
    """

    fault: Callable[[], str | None]
    not_ready: Callable[[], str | None]
    metrics: Callable[[], Iterable[Family]]
    in_slices: InSlices
    status: Callable[[bool], Generator[object, None, Mapping[str, object]]]
    note: Callable[[], str | None] = lambda: None
    more_metrics: Callable[[], Awaitable[bytes]] | None = None
    console: str = ""


class _Pages(Protocol):
    """The pages behind the port; `endpoint_pages` has them."""

    async def start(self, sockets: Iterable[socket.socket]) -> None:
        """Serve the connections of these sockets."""

    async def stop(self) -> None:
        """Close the sockets and their connections."""


class Endpoint:
    """One HTTP port.

    `port` 0 takes any free port. OFF opens none; `url` is then None. None takes the port
    PORT_DISTANCE above `listen_port`, or if that is taken the next free one. With a `token` the
    metrics and the status ask for it; liveness and readiness never do.
    """

    def __init__(
        self,
        address: str,
        port: int | None,
        view: DaemonView,
        *,
        listen_port: int = 0,
        token: bytes = b"",
    ) -> None:
        self.address = address
        self.port = port or 0
        self._ports = [self.port]
        if port is None and listen_port:
            first = listen_port + PORT_DISTANCE
            self._ports = [*range(first, min(first + PORTS_TRIED, PORT_MAX + 1)), 0]
        self._view = view
        self._token = token
        self._sockets: list[socket.socket] = []
        self._pages: _Pages | None = None
        self._loading: asyncio.Task[None] | None = None

    @property
    def url(self) -> str | None:
        """The address of the endpoint for a client on this host, with a slash at its end."""
        if self.port == OFF:
            return None
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.address, self.address)  # noqa: S104
        return f"http://[{host}]:{self.port}/" if ":" in host else f"http://{host}:{self.port}/"

    async def start(self) -> None:
        """Listen. OSError with the reason and the cure when the port is not available."""
        if self.port == OFF:
            return
        loop = asyncio.get_running_loop()
        for port in self._ports:
            try:
                self._sockets = await _listening(self.address, port)
            except OSError as wrong:
                if wrong.errno == errno.EADDRINUSE and port != self._ports[-1]:
                    continue
                raise self._refused(wrong) from None
            break
        for listening in self._sockets:
            loop.add_reader(listening, self._load)
        self.port = self._sockets[0].getsockname()[1]
        if self._ports[0] not in (0, self.port):
            log.info(
                "port %d is taken, so HTTP is on port %d; httpPort sets another",
                self._ports[0],
                self.port,
            )

    def _refused(self, wrong: OSError) -> OSError:
        reason = wrong.strerror or str(wrong)
        if wrong.errno == errno.EADDRINUSE:
            reason = "another program listens there; stop it or set httpPort (-1 for none)"
        elif wrong.errno == errno.EADDRNOTAVAIL:
            reason = "the address is not one of this machine's; correct httpBindAddress"
        where = f"{self.address}:{self._ports[0]}"
        return OSError(wrong.errno, f"can't serve HTTP on {where}: {reason}")

    async def stop(self) -> None:
        """Close the port and its connections."""
        if self._loading is None:
            self._leave_visitors()
        else:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
            self._loading = None
        pages, self._pages = self._pages, None
        if pages is not None:
            await pages.stop()
        sockets, self._sockets = self._sockets, []
        for listening in sockets:
            listening.close()

    def _leave_visitors(self) -> None:
        for listening in self._sockets:
            asyncio.get_running_loop().remove_reader(listening)

    def _load(self) -> None:
        """The first visitor is here."""
        self._leave_visitors()
        self._loading = asyncio.create_task(self._serve(), name="http-endpoint")

    async def _serve(self) -> None:
        try:
            # In another thread, so that the daemon goes on with its own requests.
            module = await asyncio.to_thread(import_module, ".endpoint_pages", __package__)
            pages: _Pages = module.EndpointPages(self._view, self._token)
            self._pages = pages
            await pages.start(self._sockets)
        except Exception:
            log.exception("the HTTP endpoint on port %d can't serve its visitors", self.port)


async def _listening(address: str, port: int) -> list[socket.socket]:
    """Sockets that listen there, one for each address that a host name has."""
    found = await asyncio.get_running_loop().getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, name in dict.fromkeys(found):
            sockets.append(listening := socket.socket(family, kind, protocol))
            listening.setblocking(False)
            if os.name == "posix":
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(name)
            listening.listen(BACKLOG)
    except OSError:
        for listening in sockets:
            listening.close()
        raise
    return sockets
