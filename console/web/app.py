"""The HTTP server of the console: every page as HTML and, under /api, as JSON. It only reads.

Every route is GET. Requests for another Host are refused, every response has the policy headers,
and a broker that fails costs a page its part about that broker.
"""

import asyncio
import errno
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from ...client.errors import AerobeeError
from ..clusters.clusters import Clusters
from ..messages.search import Progress
from ..messages.tail import tail as follow
from . import pages_cluster, pages_messages, pages_topics
from .look import BadQuery, Look, NotFound, as_of
from .policy import HostList, headers, is_loopback
from .rendering import STATIC, environment, linker, to_json
from .visible import visible

PORT = 8082
REQUESTS_AT_ONCE = 32  # pages in the making; more wait
TAILS_MAX = 20
HEADER_BYTES_MAX = 16 << 10
STATIC_SECONDS = 86_400
FIRST_SAMPLE_SECONDS = 1.0  # how long a first visit waits for names

View = Callable[[Look], Awaitable[dict[str, Any]]]

log = logging.getLogger(__name__)
_nonce: ContextVar[str] = ContextVar("nonce")  # of the scripts of the present response


class Page(NamedTuple):
    """A page: its path and template, its title, what it shows, and whether the menu has it."""

    path: str
    title: str
    view: View
    in_menu: bool = True


PAGES = (
    Page("overview", "Overview", pages_cluster.overview),
    Page("topics", "Topics", pages_topics.topics),
    Page("topic", "Topic", pages_topics.topic, False),
    Page("groups", "Groups", pages_topics.groups),
    Page("group", "Group", pages_topics.group, False),
    Page("member", "Member", pages_topics.member, False),
    Page("producers", "Producers", pages_cluster.producers),
    Page("messages", "Messages", pages_messages.messages),
    Page("message", "Message", pages_messages.message, False),
    Page("tail", "Live tail", pages_messages.tail, False),
    Page("dead_letters", "Dead letters", pages_topics.dead_letters),
    Page("scheduled", "Scheduled", pages_messages.scheduled),
    Page("transactions", "Transactions", pages_messages.transactions),
    Page("brokers", "Brokers", pages_cluster.brokers),
    Page("broker", "Broker", pages_cluster.broker, False),
    Page("access", "Access", pages_cluster.access),
    Page("findings", "Findings", pages_cluster.findings),
)
# For programs only.
DATA = {"history": pages_topics.history, "search": pages_messages.found_all}


class Console:
    """The server. `base` is the path before all others, such as /console; `hosts` are names that
    it answers to besides the loopback's. ValueError for an address beyond the loopback."""

    def __init__(
        self,
        clusters: Clusters,
        *,
        address: str = "127.0.0.1",
        port: int = PORT,
        base: str = "",
        hosts: Iterable[str] = (),
    ) -> None:
        if not is_loopback(address):
            raise ValueError(
                f"the console can't listen on {address}: it has no login yet, so it listens on the "
                "loopback only; use 127.0.0.1 and reach it through an SSH tunnel"
            )
        self.address = address
        self.port = port
        self.base = base.rstrip("/")
        self.clusters = clusters
        self._hosts = HostList(hosts)
        self._templates = environment()
        self._room = asyncio.Semaphore(REQUESTS_AT_ONCE)
        self._tails = 0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """The address for a browser on this machine."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{host}:{self.port}{self.base}/"

    async def start(self) -> None:
        """Begin to sample and listen; OSError with the cure when the port is taken."""
        await self.clusters.start()
        app = web.Application(middlewares=[self._guarded])
        add = app.router.add_get
        for page in PAGES:
            add(f"{self.base}/{page.path}", self._html(page))
            add(f"{self.base}/api/{page.path}", self._json(page.view))
        for name, view in DATA.items():
            add(f"{self.base}/api/{name}", self._json(view))
        add(f"{self.base}/", self._home)
        add(f"{self.base}/search", self._search)
        add(f"{self.base}/tail/events", self._tail_events)
        add(f"{self.base}/static/{{name}}", self._static)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
            shutdown_timeout=1.0,
        )
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self.address, self.port).start()
        except OSError as wrong:
            await self.stop()
            reason = wrong.strerror or str(wrong)
            if wrong.errno == errno.EADDRINUSE:
                reason = "another program listens there; stop it or give another --port"
            where = f"{self.address}:{self.port}"
            raise OSError(wrong.errno, f"can't serve HTTP on {where}: {reason}") from None
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening and sampling."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        await self.clusters.stop()

    # --- every request --------------------------------------------------------------------------

    @web.middleware
    async def _guarded(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        nonce = secrets.token_urlsafe(16)
        _nonce.set(nonce)
        try:
            self._hosts.check(request)
            answer = await handler(request)
        except (web.HTTPException, BadQuery, NotFound, AerobeeError) as wrong:
            answer = self._failed(request, wrong)
        except ConnectionError:  # the visitor has left
            return web.Response(status=499)
        except Exception:
            log.exception("%s failed", request.path)
            answer = self._failed(request, None)
        if not answer.prepared:
            for name, value in headers(nonce).items():
                answer.headers.setdefault(name, value)
        return answer

    def _failed(self, request: web.Request, wrong: Exception | None) -> web.Response:
        """A page, or JSON for programs, that says what is wrong."""
        status, text = 500, "the console has a fault; its log says more"
        if isinstance(wrong, web.HTTPException):
            status = wrong.status
            text = wrong.text or wrong.reason
            if isinstance(wrong, web.HTTPRedirection):
                return web.Response(status=status, headers={"Location": wrong.headers["Location"]})
        elif isinstance(wrong, BadQuery):
            status, text = 400, str(wrong)
        elif isinstance(wrong, NotFound):
            status, text = 404, str(wrong)
        elif wrong is not None:
            status, text = 502, str(wrong)
        if status == 421 or request.path.startswith(f"{self.base}/api/"):
            if status == 421:
                return web.Response(status=status, text=visible(text))
            return _json(to_json({"error": text}), status)
        try:
            look = self._look(request)
        except BadQuery:
            look = Look(self.clusters, next(iter(self.clusters.by_name.values())), {})
        return self._page(request, look, "error", "Not shown", {"error": text}, status)

    def _look(self, request: web.Request) -> Look:
        """The visit; BadQuery for a cluster that is not watched."""
        name = request.query.get("cluster", next(iter(self.clusters.by_name)))
        watched = self.clusters.by_name.get(name)
        if watched is None:
            known = ", ".join(self.clusters.by_name)
            raise BadQuery(f"cluster is {name[:80]!r}; this console watches {known}")
        return Look(self.clusters, watched, request.query)

    async def _seen(self, view: View, look: Look) -> dict[str, Any]:
        sampled = look.watched.collector.sampled
        if not sampled.is_set():
            try:
                async with asyncio.timeout(FIRST_SAMPLE_SECONDS):
                    await sampled.wait()
            except TimeoutError:
                pass  # the page says what is not known yet
        async with self._room:
            return await view(look)

    # --- pages ----------------------------------------------------------------------------------

    async def _home(self, request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound(f"{self.base}/overview")

    def _html(self, page: Page) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            look = self._look(request)
            data = await self._seen(page.view, look)
            return self._page(request, look, page.path, page.title, data)

        return answer

    def _json(self, view: View) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def answer(request: web.Request) -> web.StreamResponse:
            look = self._look(request)
            data = await self._seen(view, look)
            return _json(to_json({"samples": as_of(look), **data}))

        return answer

    def _context(self, request: web.Request, look: Look, path: str, title: str) -> dict[str, Any]:
        return {
            "base": self.base,
            "cluster": look.watched.name,
            "link": linker(self.base, look.watched.name),
            "look": look,
            "menu": [page for page in PAGES if page.in_menu],
            "nonce": _nonce.get(),
            "path": path,
            "samples": as_of(look),
            "self_url": str(request.rel_url),
            "title": title,
        }

    def _page(
        self,
        request: web.Request,
        look: Look,
        path: str,
        title: str,
        data: dict[str, Any],
        status: int = 200,
    ) -> web.Response:
        context = self._context(request, look, path, title)
        text = self._templates.get_template(f"{path}.html").render(context | {"data": data})
        return web.Response(text=text, content_type="text/html", status=status)

    async def _static(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name not in _STATIC:
            raise web.HTTPNotFound(text="there is no such file")
        keep = {"Cache-Control": f"public, max-age={STATIC_SECONDS}"}
        kind = _KINDS[Path(name).suffix]
        body = _STATIC[name].read_bytes()
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=keep)

    # --- streams --------------------------------------------------------------------------------

    async def _search(self, request: web.Request) -> web.StreamResponse:
        """The page of a search: rows and progress are written as they come."""
        look = self._look(request)
        # The first step comes before the head, so that a fault of the query is a page of its own.
        steps = pages_messages.found_in(look)
        first = await anext(steps, None)
        answer = web.StreamResponse(headers=headers(_nonce.get()))
        answer.content_type, answer.charset = "text/html", "utf-8"
        await answer.prepare(request)
        context = self._context(request, look, "messages", "Search")
        module: Any = self._templates.get_template("search.html").make_module(context)
        await answer.write(str(module.head()).encode())
        last, step = Progress(), first
        while step is not None:
            if isinstance(step, Progress):
                last = step
                await answer.write(str(module.progress(step)).encode())
            else:
                await answer.write(str(module.row(step)).encode())
            step = await anext(steps, None)
        await answer.write(str(module.foot(last)).encode())
        await answer.write_eof()
        return answer

    async def _tail_events(self, request: web.Request) -> web.StreamResponse:
        """Rows of a live view as server-sent events."""
        look = self._look(request)
        if self._tails >= TAILS_MAX:
            raise web.HTTPTooManyRequests(
                text=f"{self._tails} live views are open, the limit is {TAILS_MAX}; close one"
            )
        matches, topic = pages_messages.condition(look), look.required("topic")
        names = {one.address: one.name for one in look.watched.collector.brokers.values()}
        module: Any = self._templates.get_template("tail_rows.html").make_module(
            self._context(request, look, "tail", "Live tail")
        )
        self._tails += 1
        try:
            answer = web.StreamResponse(headers=headers(_nonce.get()))
            answer.content_type, answer.charset = "text/event-stream", "utf-8"
            await answer.prepare(request)
            await answer.write(b": open\n\n")
            idle = 0
            async for step in follow(look.watched.reader, topic, matches):
                idle = 0 if step.seen or step.wrong else idle + 1
                if step.seen or step.wrong:
                    rows = [
                        pages_messages.row_of(one, _broker(one.store_host, names))
                        for one in step.records
                    ]
                    await answer.write(_event(str(module.rows(rows, step.seen, step.wrong))))
                elif idle % 50 == 0:
                    await answer.write(b": idle\n\n")
            return answer
        finally:
            self._tails -= 1


def _broker(host: bytes, names: dict[str, str]) -> str:
    return names.get(pages_messages.address_of(host), "")


def _event(text: str) -> bytes:
    return "".join(f"data: {line}\n" for line in text.splitlines() if line.strip()).encode() + b"\n"


def _json(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


_KINDS = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".md": "text/plain",
}
_STATIC = {path.name: path for path in STATIC.iterdir() if path.suffix in _KINDS}
