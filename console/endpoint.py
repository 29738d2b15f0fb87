"""The HTTP endpoint of a daemon: liveness, readiness, metrics and a status page.

It calls functions of the daemon (`DaemonView`) for each request, and keeps only the text of slow
metrics for some seconds. It is read-only: no request can change a cluster.
"""

import errno
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Protocol, TypeVar

from aiohttp import web

from .bearer import Bearer
from .exposition import Family, exposition
from .metrics_text import MetricsText
from .page import STYLE, STYLE_FILE, WITH_SYSTEM, Status, render

log = logging.getLogger(__name__)

Result = TypeVar("Result")

OFF = -1
# Default distance from the daemon's listen port. It keeps clear of other brokers: listen ports are
# usually 10, 20 or 100 apart, and a broker takes the ports -2, 0 and +1.
PORT_DISTANCE = 7
PORTS_TRIED = 50  # from there on, before any free one is taken
PORT_MAX = 65_535

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


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
    status: Callable[[bool], Generator[object, None, Status]]
    note: Callable[[], str | None] = lambda: None
    more_metrics: Callable[[], Awaitable[bytes]] | None = None
    console: str | None = None


class Endpoint:
    """One HTTP port.

    `port` 0 takes any free port. OFF opens none; `url` is then None. None takes the port
    PORT_DISTANCE above `listen_port`, or if that is taken the next free one. With a `token` the
    metrics and the status page ask for it; liveness and readiness never do.
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
        self._bearer = Bearer(token)
        self._metrics = MetricsText(self._write_metrics, HEADERS)
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str | None:
        """The address of the status page for a browser on this host."""
        if self.port == OFF:
            return None
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.address, self.address)  # noqa: S104
        return f"http://[{host}]:{self.port}/" if ":" in host else f"http://{host}:{self.port}/"

    async def start(self) -> None:
        """Listen. OSError with the reason and the cure when the port is not available."""
        if self.port == OFF:
            return
        app = web.Application()
        app.router.add_get("/", self._page)
        app.router.add_get(f"/{STYLE_FILE}", _style)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._scrape)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        for port in self._ports:
            try:
                await web.TCPSite(self._runner, self.address, port).start()
            except OSError as wrong:
                if wrong.errno == errno.EADDRINUSE and port != self._ports[-1]:
                    continue
                await self.stop()
                raise self._refused(wrong) from None
            break
        self.port = self._runner.addresses[0][1]
        if self._ports[0] not in (0, self.port):
            log.info(
                "port %d is taken, so the status page is on port %d; httpPort sets another",
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
        self._metrics.stop()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return _verdict(self._view.fault(), self._view.note())

    async def _readyz(self, _: web.Request) -> web.Response:
        fault = self._view.fault() or self._view.not_ready()
        return _verdict(fault, self._view.note())

    async def _scrape(self, request: web.Request) -> web.StreamResponse:
        self._bearer.check(request)
        return await self._metrics.answer(request)

    async def _write_metrics(self) -> list[bytes]:
        chunks = await self._view.in_slices(exposition(self._view.metrics()))
        if self._view.more_metrics is not None:
            chunks.append(await self._view.more_metrics())
        return chunks

    async def _page(self, request: web.Request) -> web.Response:
        self._bearer.check(request)
        view, with_system = self._view, WITH_SYSTEM in request.query
        text = render(
            await view.in_slices(view.status(with_system)),
            view.fault() or view.not_ready(),
            view.note(),
            version=f"aerobee {_version()}",
            with_system=with_system,
            console=view.console,
        )
        return web.Response(text=text, content_type="text/html", headers=HEADERS)


async def _style(_: web.Request) -> web.Response:
    return web.Response(text=STYLE, content_type="text/css", headers=HEADERS)


@cache
def _version() -> str:
    """Read on first use: reading it is slow, and a daemon must start at once."""
    return version("aerobee")


def _verdict(fault: str | None, note: str | None) -> web.Response:
    text = fault or (f"ok; {note}" if note else "ok")
    return web.Response(text=text + "\n", status=503 if fault else 200, headers=HEADERS)
