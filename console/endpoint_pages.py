"""The pages of a daemon's HTTP endpoint.

`endpoint.py` imports this module for the first visitor, since importing aiohttp takes an eighth of
the time in which a daemon starts.
"""

from collections.abc import Generator, Iterable
from functools import cache
from html import escape
from importlib.metadata import version
from socket import socket

import msgspec
from aiohttp import web

from .bearer import Bearer
from .endpoint import STOP_SECONDS, DaemonView
from .exposition import exposition
from .metrics_text import MetricsText

PAGES = ("status", "metrics", "healthz", "readyz")
WITH_SYSTEM = "system"  # the query parameter that shows the system's topics
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


class EndpointPages:
    """Serves the pages of one daemon. With a `token` those that say something of it ask for it."""

    def __init__(self, view: DaemonView, token: bytes) -> None:
        self._view = view
        self._bearer = Bearer(token)
        self._metrics = MetricsText(self._write_metrics, HEADERS)
        app = web.Application()
        app.router.add_get("/", self._pointer)
        app.router.add_get("/status", self._status)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._scrape)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=STOP_SECONDS
        )

    async def start(self, sockets: Iterable[socket]) -> None:
        """Serve the connections of these sockets, which are closed by `stop`."""
        await self._runner.setup()
        for listening in sockets:
            await web.SockSite(self._runner, listening).start()

    async def stop(self) -> None:
        """Close the sockets and their connections."""
        self._metrics.stop()
        await self._runner.cleanup()

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

    async def _pointer(self, request: web.Request) -> web.Response:
        self._bearer.check(request)
        if "text/html" in request.headers.get("Accept", ""):
            return web.Response(
                text=_linked(self._view.console), content_type="text/html", headers=HEADERS
            )
        text = "aerobee; see /status, /metrics, /healthz and /readyz\n"
        if self._view.console:
            text += f"console: {self._view.console}\n"
        return web.Response(text=text, headers=HEADERS)

    async def _status(self, request: web.Request) -> web.Response:
        self._bearer.check(request)
        body = await self._view.in_slices(
            self._write_status(with_system=WITH_SYSTEM in request.query)
        )
        return web.Response(body=body, content_type="application/json", headers=HEADERS)

    def _write_status(self, *, with_system: bool) -> Generator[object, None, bytes]:
        """The steps of writing the status as JSON: its lists may be long."""
        view, encode = self._view, msgspec.json.encode
        status = yield from view.status(with_system)
        status = {
            "version": _version(),
            "fault": view.fault() or view.not_ready(),
            "note": view.note(),
            "console": view.console or None,
            **status,
        }
        members = []
        for name, value in status.items():
            if isinstance(value, list):
                items = []
                for item in value:
                    items.append(encode(item))
                    yield None
                text = b"[" + b",".join(items) + b"]"
            else:
                text = encode(value)
            members.append(encode(name) + b":" + text)
        return b"{" + b",".join(members) + b"}"


@cache
def _version() -> str:
    """Read on first use: reading it is slow, and a daemon must start at once."""
    return version("aerobee")


def _linked(console: str) -> str:
    """The page for a browser, with links to the console and to the other pages."""
    known = (
        f'<a href="{escape(console)}">Console of this cluster</a>'
        if console
        else "No console is known here: start one with <code>aerobee console -n NAMESRV</code>, "
        "and name it in the setting <code>consoleUrl</code>."
    )
    pages = ", ".join(f'<a href="/{name}">{name}</a>' for name in PAGES)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>aerobee</title>'
        f"<h1>aerobee {escape(_version())}</h1><p>{known}</p><p>{pages}</p></html>"
    )


def _verdict(fault: str | None, note: str | None) -> web.Response:
    text = fault or (f"ok; {note}" if note else "ok")
    return web.Response(text=text + "\n", status=503 if fault else 200, headers=HEADERS)
