"""The HTTP door of a daemon: is it alive, is it ready, its metrics, and a page for people.

A door asks its daemon through five functions at the time of each request and keeps nothing. It only
reads, so nothing here can change a cluster.
"""

import asyncio
import errno
import logging
import time
from collections.abc import Awaitable, Callable, Generator, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Protocol, TypeVar

from aiohttp import web

from .exposition import CONTENT_TYPE, Family, exposition
from .page import WITH_SYSTEM, Status, render

log = logging.getLogger(__name__)

Result = TypeVar("Result")

OFF = -1
# From the daemon's listen port, where nobody sets another. No second broker listens there: listen
# ports are usually 10, 20 or 100 apart, and a broker takes the ports -2, 0 and +1.
PORT_DISTANCE = 7
PORTS_TRIED = 50  # from there on, before any free one is taken
PORT_MAX = 65_535

# Metrics that took long to write are given again for so many times as long, so that whoever asks
# often takes no more than a tenth of the daemon's time.
KEPT_TIMES = 9
KEPT_SECONDS_MAX = 5.0

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}


class InSlices(Protocol):
    """Works through steps, between which the daemon serves its own requests."""

    def __call__(self, steps: Generator[object, None, Result], /) -> Awaitable[Result]:
        """The result of the steps."""


@dataclass(frozen=True)
class Answers:
    """What a daemon says about itself. Each function is called anew for each request, but for
    metrics that are asked for often. `in_slices` works through steps, between which the daemon
    serves its own requests, and gives their result.

    `fault` and `not_ready` give the reason in one sentence, or None when all is well. `note` gives
    what is worth knowing all the same, or None. `status` is told whether the topics of the system
    are wanted, too.
    """

    fault: Callable[[], str | None]
    not_ready: Callable[[], str | None]
    metrics: Callable[[], Iterable[Family]]
    in_slices: InSlices
    status: Callable[[bool], Generator[object, None, Status]]
    note: Callable[[], str | None] = lambda: None


class Endpoint:
    """One HTTP port. `port` 0 takes any free one; OFF none, and `url` is None then; None the one
    PORT_DISTANCE above `listen_port`, or where that is taken the next free one."""

    def __init__(
        self, address: str, port: int | None, answers: Answers, *, listen_port: int = 0
    ) -> None:
        self.address = address
        self.port = port or 0
        self._ports = [self.port]
        if port is None and listen_port:
            first = listen_port + PORT_DISTANCE
            self._ports = [*range(first, min(first + PORTS_TRIED, PORT_MAX + 1)), 0]
        self._answers = answers
        self._metrics_text: asyncio.Task[list[bytes]] | None = (
            None  # in the making, or kept for a while
        )
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str | None:
        """Where a browser on this host finds the page."""
        if self.port == OFF:
            return None
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.address, self.address)  # noqa: S104
        return f"http://[{host}]:{self.port}/" if ":" in host else f"http://{host}:{self.port}/"

    async def start(self) -> None:
        """Listen. OSError with a plain sentence when the port can't be had."""
        if self.port == OFF:
            return
        app = web.Application()
        app.router.add_get("/", self._page)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
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
        if self._metrics_text is not None:
            self._metrics_text.cancel()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return _verdict(self._answers.fault(), self._answers.note())

    async def _readyz(self, _: web.Request) -> web.Response:
        fault = self._answers.fault() or self._answers.not_ready()
        return _verdict(fault, self._answers.note())

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        if self._metrics_text is None:
            self._metrics_text = asyncio.create_task(self._write_metrics())
        # Who goes away while it is in the making takes nobody else's answer along.
        pieces = await asyncio.shield(self._metrics_text)
        answer = web.StreamResponse(headers=HEADERS | {"Content-Type": CONTENT_TYPE})
        answer.content_length = sum(map(len, pieces))
        await answer.prepare(request)
        for piece in pieces:
            await answer.write(piece)
            await asyncio.sleep(0)  # the daemon's own requests come in between
        await answer.write_eof()
        return answer

    async def _write_metrics(self) -> list[bytes]:
        began = time.monotonic()
        kept_s = 0.0
        try:
            pieces = await self._answers.in_slices(exposition(self._answers.metrics()))
            kept_s = min(KEPT_TIMES * (time.monotonic() - began), KEPT_SECONDS_MAX)
        finally:
            asyncio.get_running_loop().call_later(kept_s, self._forget_metrics)
        return pieces

    def _forget_metrics(self) -> None:
        self._metrics_text = None

    async def _page(self, request: web.Request) -> web.Response:
        answers, with_system = self._answers, WITH_SYSTEM in request.query
        text = render(
            await answers.in_slices(answers.status(with_system)),
            answers.fault() or answers.not_ready(),
            answers.note(),
            version=f"aerobee {_version()}",
            with_system=with_system,
        )
        return web.Response(text=text, content_type="text/html", headers=HEADERS)


@cache
def _version() -> str:
    """Read when it is first wanted: that takes a while, and a daemon is to start at once."""
    return version("aerobee")


def _verdict(fault: str | None, note: str | None) -> web.Response:
    text = fault or (f"ok; {note}" if note else "ok")
    return web.Response(text=text + "\n", status=503 if fault else 200, headers=HEADERS)
