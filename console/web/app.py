"""The HTTP server of the console: every page as HTML and, under /api, as JSON.

Each route is a row of one table, which declares the right that it needs; without a row nothing is
served. Requests for another Host are refused, every response has the policy headers, and a broker
that fails costs a page its part about that broker.
"""

import asyncio
import errno
import logging
import secrets
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from ...client.errors import AerobeeError
from ...protocol.addresses import is_loopback
from ..access.access import Access
from ..access.attempts import TooMany
from ..access.guard import FORM_BYTES_MAX
from ..access.link_socket import ConsoleLink, LinkSocket
from ..access.rights import Right
from ..access.sessions import Session
from ..actions.registry import ActionRegistry
from ..clusters.clusters import Clusters
from ..endpoint import STOP_SECONDS
from ..messages.shown import Types
from ..texts import Text, TextError, refusal, status_of, text_of
from . import site
from .api_actions import ApiActions
from .listener import Listener
from .login_pages import NEXT_CHARS_MAX, LoginPages
from .pages_actions import ActionPages
from .pages_export import Exports
from .rendering import STATIC, to_json, visible
from .request_context import BadQuery, Forbidden, RequestContext, as_of
from .routes import ACTING, DATA, PAGES, PARENTS, Handler, Page, Route, View
from .site import Site, headers
from .streams import Streams

PORT = 8082
REQUESTS_AT_ONCE = 32  # pages in the making; more wait
HEADER_BYTES_MAX = 16 << 10
ADDRESS_BYTES_MAX = 16 << 10
LINE_BYTES_MAX = 128 << 10  # of a request's first line; aiohttp answers a longer one by itself
STATIC_SECONDS = 86_400

# What aiohttp says of an address that has no page.
NO_ADDRESS = {
    404: Text("no page has this address; see the menu"),
    405: Text("this address takes no such request; use the console's own pages"),
}
# The heading of a page that says what is wrong, by status.
HEADINGS = {
    401: Text("Log in"),
    403: Text("Not allowed"),
    404: Text("Not found"),
    429: Text("Too many requests"),
    502: Text("The cluster did not do it"),
    503: Text("Not available now"),
}
FAULTS = (TextError, AerobeeError, web.HTTPException)

log = logging.getLogger(__name__)


class Console:
    """The server. `base` is the path before all others, such as /console; `given` is a socket that
    listens already at the address. ValueError for an address beyond the loopback without users, or
    where passwords would be readable."""

    def __init__(
        self,
        clusters: Clusters,
        access: Access,
        registry: ActionRegistry,
        *,
        address: str = "127.0.0.1",
        port: int = PORT,
        base: str = "",
        tls: ssl.SSLContext | None = None,
        types: Types | None = None,
        given: socket.socket | None = None,
    ) -> None:
        if access.link is not None and not is_loopback(address):
            raise ValueError(
                f"the console can't listen on {address}: it has no users, and its one-time link is "
                "for the loopback only; add one (aerobee console user add NAME), or use 127.0.0.1 "
                "and an SSH tunnel"
            )
        if access.link is not None and access.reverse_proxy is not None:
            raise ValueError(
                "the console can't be behind a proxy: it has no users, and its one-time link is "
                "for the loopback only; add one (aerobee console user add NAME), or name the "
                "header in which the proxy names visitors with --user-header"
            )
        if tls is None and access.reverse_proxy is None and not is_loopback(address):
            raise ValueError(
                f"the console can't listen on {address} without TLS, as passwords would be "
                "readable: give --tls-server-cert and --tls-server-key, or --behind-proxy with the "
                "address of a proxy that speaks TLS"
            )
        self.address = address
        self.port = port
        self.site = Site(clusters, access, registry, base.rstrip("/"), types)
        self._tls = tls
        self._given = given
        self.clusters = clusters
        self.access = access
        self._action_pages = ActionPages(self.site)
        self._api_actions = ApiActions(self._action_pages, access.guard)
        self._exports = Exports(self.site)
        self._login_pages = LoginPages(self.site, self._action_pages.kept_form)
        self._room = asyncio.Semaphore(REQUESTS_AT_ONCE)
        self._streams = Streams(self.site, self._seen)
        self._listener = Listener()
        self._link_socket = LinkSocket(lambda: ConsoleLink(self.url, self.new_link()))
        self._runner: web.AppRunner | None = None
        self._compiling: asyncio.Task[None] | None = None
        self._declared: set[Handler] = set()

    @property
    def url(self) -> str:
        """The address for a browser on this machine."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{host}:{self.port}{self.site.base}/"

    def new_link(self) -> str | None:
        """A new address that logs in once; None for a console with users."""
        return self._login_pages.new_link()

    def routes(self) -> list[Route]:
        """Everything that is served, each with the right that it needs."""
        found = [
            Route("GET", "/", Right.VIEW, self._home),
            Route("GET", "/static/{name}", None, self._static),
            *self._streams.routes(),
            *self._login_pages.routes(),
            *self._action_pages.routes(),
            *self._api_actions.routes(),
            *self._exports.routes(),
        ]
        streams = {"messages": self._streams.messages, "tail": self._streams.tail}
        for page in PAGES:
            html = streams.get(page.path) or self._html(page)
            found.append(Route("GET", f"/{page.path}", page.right, html))
            found.append(Route("GET", f"/api/{page.path}", page.right, self._json(page)))
        for page in DATA:
            found.append(Route("GET", f"/api/{page.path}", page.right, self._json(page)))
        return found

    async def start(self) -> None:
        """Begin to sample and listen; OSError with the cure when the port is taken."""
        await self.clusters.start()
        app = web.Application(middlewares=[self._checked], client_max_size=FORM_BYTES_MAX)
        for route in self.routes():
            handler = self._admitting(route)
            self._declared.add(handler)
            app.router.add_route(route.method, self.site.base + route.path, handler)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
            shutdown_timeout=STOP_SECONDS,
        )
        await self._runner.setup()
        try:
            self.port = await self._listener.start(
                self._runner, self.address, self.port, self._tls, self._given
            )
        except OSError as wrong:
            await self.stop()
            reason = wrong.strerror or str(wrong)
            if wrong.errno == errno.EADDRINUSE:
                reason = (
                    "another program listens there, perhaps `aerobee up`, which has a console: "
                    "open that one, or give another --port"
                )
            where = f"{self.address}:{self.port}"
            raise OSError(wrong.errno, f"can't serve HTTP on {where}: {reason}") from None
        self.site.url = self.url
        # Cookies are for all ports of a host, so that each console's has its own name.
        self.access.guard.cookie = f"aerobee-console-{self.port}"
        self.access.guard.path = f"{self.site.base}/"
        await self._link_socket.start(self.port)
        self._compiling = asyncio.create_task(self.site.compile(), name="console-templates")

    async def stop(self) -> None:
        """Stop listening and sampling."""
        if self._compiling is not None:
            self._compiling.cancel()
        await self._link_socket.stop()
        await self._listener.stop()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        await self.site.searches.stop()
        await self._action_pages.close()
        await self.access.stop()
        await self.clusters.stop()

    # --- every request --------------------------------------------------------------------------

    @web.middleware
    async def _checked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        site.nonce.set(secrets.token_urlsafe(16))
        site.session.set(None)
        self._listener.heard(request)
        try:
            self.access.check_peer(request)
            self.access.guard.hosts.check(request)
            if len(request.path_qs) > ADDRESS_BYTES_MAX:
                raise refusal(
                    web.HTTPRequestURITooLong,
                    "the address has %(count)s characters, the limit is %(limit)s; shorten it, "
                    "such as the expression in it",
                    count=f"{len(request.path_qs):,}",
                    limit=f"{ADDRESS_BYTES_MAX:,}",
                )
            is_known = request.match_info.http_exception is None
            if not is_known:
                site.session.set(await self._session_of(request))
            if is_known and request.match_info.handler not in self._declared:
                raise web.HTTPForbidden(text="this address declares no right, so it is not served")
            answer = await handler(request)
        except FAULTS as wrong:
            answer = self._failed(request, wrong)
        except ConnectionError:  # the visitor has left
            return web.Response(status=499)
        except Exception:
            log.exception("%s failed", request.path)
            answer = self._failed(request, None)
        if not answer.prepared:
            for name, value in headers().items():
                answer.headers.setdefault(name, value)
        return answer

    def _admitting(self, route: Route) -> Handler:
        """The handler of a route, for visitors with its right."""

        async def answer(request: web.Request) -> web.StreamResponse:
            if route.right is not None:
                session = await self._session_of(request)
                if session is None:
                    return await self._to_login(request)
                site.session.set(session)
                if session.visitor.right < route.right:
                    raise Forbidden(
                        "this needs the right to %(needed)s, and %(name)s may %(right)s; log "
                        "in as another user",
                        needed=Text(route.right.name.lower()),
                        name=session.visitor.name,
                        right=Text(session.visitor.right.name.lower()),
                    )
            return await route.handler(request)

        return answer

    async def _session_of(self, request: web.Request) -> Session | None:
        if "Authorization" in request.headers and request.path.startswith(f"{self.site.base}/api/"):
            session = await self.access.by_script(request)
        else:
            session = self.access.session_of(request)
        return session if session is not None and await self.access.renew(session) else None

    async def _to_login(self, request: web.Request) -> web.Response:
        """The response to a request without a session.

        Pages redirect to the login; programs and forms get 401 with the reason, and the form of an
        action is kept.
        """
        if request.path.startswith(f"{self.site.base}/api/"):
            text = (
                f"there is no session, or it has ended; log in at {self.site.base}/login, or send "
                "name and password (Basic)"
            )
            return _json(to_json({"error": text}), 401)
        where = f"{self.site.base}/login"
        if request.method == "GET" and "HX-Request" not in request.headers:
            where += f"?{urlencode({'next': request.path_qs[:NEXT_CHARS_MAX]})}"
        if "HX-Request" in request.headers:
            return web.Response(status=401, headers={"HX-Redirect": where})
        if request.method != "GET":
            after, text = await self._action_pages.left(request)
            data = {"error": text, "next": after or self._after(request)}
            answer = self.site.page_without_session(request, "outside", HEADINGS[401], data, 401)
            if after:
                self._login_pages.keep_next(answer, after)
            return answer
        return web.Response(status=303, headers={"Location": where})

    def _failed(self, request: web.Request, wrong: Exception | None) -> web.Response:
        """A page, or JSON for programs, that says what is wrong."""
        status = 500
        text: str = Text("the console has a fault; its log says more")
        if isinstance(wrong, web.HTTPException):
            status = wrong.status
            text = wrong.text or wrong.reason
            if wrong.args and isinstance(wrong.args[0], Text):
                text = wrong.args[0]
            elif status in NO_ADDRESS:
                text = NO_ADDRESS[status]
            if isinstance(wrong, web.HTTPRedirection):
                return web.Response(status=status, headers={"Location": wrong.headers["Location"]})
        elif wrong is not None:
            status = status_of(wrong)
            text = text_of(wrong)
        if status == 421:
            return web.Response(status=status, text=visible(text))
        if request.path.startswith(f"{self.site.base}/api/"):
            answer = _json(to_json({"error": text}), status)
            if isinstance(wrong, TooMany):
                answer.headers["Retry-After"] = str(round(wrong.wait_s))
            return answer
        heading = HEADINGS.get(status, Text("Error"))
        if status == 414:  # a page would have the address in its links
            data = {"error": text, "next": f"{self.site.base}/overview"}
            return self.site.page_without_session(request, "outside", heading, data, status)
        query: Mapping[str, str] = request.query
        if query.get("cluster") not in self.clusters.by_name:
            query = {name: one for name, one in query.items() if name != "cluster"}
        try:
            context = self.site.request_context(request, query)
        except (BadQuery, Forbidden, web.HTTPUnauthorized):
            return self.site.page_without_session(
                request, "outside", heading, {"error": text, "next": self._after(request)}, status
            )
        data = {"error": text, **self._next(request)}
        return self.site.page(request, context, "error", heading, data, status)

    def _after(self, request: web.Request) -> str:
        """The page to go on with after a login."""
        query = {"cluster": request.query["cluster"]} if "cluster" in request.query else {}
        return f"{self.site.base}/{self._next(request)['next']}?{urlencode(query)}"

    def _next(self, request: web.Request) -> dict[str, str]:
        """Where to go on from a page that could not be shown: the form of an action, or the list
        that the page belongs to."""
        first, _, rest = request.path.removeprefix(f"{self.site.base}/").partition("/")
        name = rest.partition("/")[0]
        if first == "act" and name in self.site.registry.actions:
            return {"next": f"act/{name}", "next_title": ""}
        titles = {page.path: page.title for page in (*PAGES, *ACTING) if not page.parent}
        wanted = PARENTS.get(first, first if first in titles else "overview")
        return {"next": wanted, "next_title": titles[wanted]}

    async def _seen(self, view: View, context: RequestContext) -> Mapping[str, Any]:
        await context.watched.collector.first_sample()  # the page says what is not known yet
        async with self._room:
            return await view(context)

    # --- pages ----------------------------------------------------------------------------------

    async def _home(self, request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound(f"{self.site.base}/overview")

    def _html(self, page: Page) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            context = self.site.request_context(request, request.query, page)
            data = await self._seen(page.view, context)
            return self.site.page(request, context, page.path, page.title, data)

        return answer

    def _json(self, page: Page) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            context = self.site.request_context(request, request.query, page)
            data = await self._seen(page.view, context)
            if context.list_faults:
                raise next(iter(context.list_faults.values()))
            return _json(to_json({"samples": as_of(context), **data}))

        return answer

    async def _static(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name not in _STATIC:
            raise refusal(web.HTTPNotFound, "there is no such file")
        keep = {"Cache-Control": f"public, max-age={STATIC_SECONDS}"}
        kind = _KINDS[Path(name).suffix]
        body = _STATIC[name].read_bytes()
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=keep)


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
