"""A console for tests: on a free port, with a client for its pages."""

import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from html.parser import HTMLParser
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import aiohttp
from aerobee.client.base.security import OPEN, Security
from aerobee.console.access.access import Access
from aerobee.console.access.audit import Audit
from aerobee.console.access.reverse_proxy import ReverseProxy
from aerobee.console.access.user_file import User, UserFile
from aerobee.console.actions.registry import ActionRegistry
from aerobee.console.clusters.clusters import Clusters
from aerobee.console.clusters.lakes import Lakes
from aerobee.console.web.app import Console
from aerobee.console.web.routes import PAGES
from aerobee.protocol.names import DLQ_PREFIX
from yarl import URL

from ..fake_cluster import Shop

# Every page with parameters that show something in a cluster of the tests.
PATHS = {
    "topic": {"name": "orders"},
    "group": {"name": "shop"},
    "tail": {"topic": "orders"},
    "broker": {"name": "broker-a"},
    "messages": {"topic": "orders"},
}
LISTED = [page.path for page in PAGES if not page.parent]


class Site:
    """`async with Site({"main": address}) as site`, then `site.html("topics", q="o")`.

    `clock` is the time in seconds of sessions and logins; a test moves it. The client has logged
    in by a one-time link, unless `logs_in` is false."""

    def __init__(
        self,
        servers: dict[str, str | None],
        *,
        hosts: Iterable[str] = (),
        is_read_only: bool = False,
        users: Iterable[User] = (),
        reverse_proxy: ReverseProxy | None = None,
        security: Security = OPEN,
        has_cluster_users: bool = False,
        proxy_port: int = 0,
        lakes: Mapping[str, Lakes] = MappingProxyType({}),
        logs_in: bool = True,
        is_sampled: bool = True,
        **more: Any,
    ) -> None:
        self.clock = 1_000.0
        self.folder = tempfile.TemporaryDirectory(prefix="aerobee-console-")
        self.audit = Audit(Path(self.folder.name, "audit.jsonl"))
        self.users = UserFile(Path(self.folder.name, "users.json"))
        given = {user.name: user for user in users}
        if given:
            self.users.write(given)
        clusters = Clusters(servers, security, proxy_port=proxy_port, lakes=lakes)
        self.access = Access(
            self.audit,
            users=self.users if given else None,
            reverse_proxy=reverse_proxy,
            clusters=clusters.by_name if has_cluster_users else None,
            is_secure=reverse_proxy is not None or "tls" in more,
            hosts=hosts,
            is_read_only=is_read_only,
            clock=lambda: self.clock,
        )
        registry = ActionRegistry(Path(self.folder.name, "redrives"))
        self.console = Console(clusters, self.access, registry, port=0, **more)
        self._is_sampled = is_sampled
        self._logs_in = logs_in and self.access.link is not None

    async def __aenter__(self) -> Self:
        await self.console.start()
        self.session = self.visitor()
        if self._logs_in:
            await self.log_in(self.session)
        if self._is_sampled:
            for one in self.console.clusters.by_name.values():
                await one.collector.sampled.wait()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        wrong: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.session.close()
        await self.console.stop()
        self.folder.cleanup()

    def visitor(self) -> aiohttp.ClientSession:
        """Another browser, which has no session yet."""
        return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))

    async def log_in(self, session: aiohttp.ClientSession) -> None:
        """Open a one-time link."""
        link = self.console.new_link()
        assert link is not None
        async with session.get(link, allow_redirects=False) as answer:
            assert answer.status == 303, await answer.text()

    async def log_in_as(
        self,
        session: aiohttp.ClientSession,
        name: str,
        password: str,
        headers: Any = None,
        **fields: str,
    ) -> tuple[int, str, Any]:
        """Send the form of the login; status, text and headers."""
        async with session.post(
            f"{self.console.url}login",
            data={"name": name, "password": password, **fields},
            headers={"Origin": self.origin, **(headers or {})},
            allow_redirects=False,
        ) as answer:
            return answer.status, await answer.text(), answer.headers

    @property
    def origin(self) -> str:
        """What a browser sends with a form of the console."""
        scheme = "https" if self.access.guard.is_secure else "http"
        return f"{scheme}://127.0.0.1:{self.console.port}"

    async def token(self) -> str:
        """The token of this session's forms."""
        for tag, attrs in Parsed(await self.html("overview")).elements:
            if tag == "input" and attrs.get("name") == "token":
                return attrs["value"] or ""
        raise AssertionError("the page has no form with a token")

    async def post(
        self, path: str, fields: dict[str, str] | None = None, headers: Any = None
    ) -> tuple[int, str]:
        """Send a form as a browser does, with the session's token; status and text: of an action
        those of the page that the answer leads to."""
        data = {"token": await self.token(), **(fields or {})}
        given = {"Origin": self.origin, **(headers or {})}
        async with self.session.post(
            self.console.url + path, data=data, headers=given, allow_redirects=False
        ) as answer:
            where = answer.headers.get("Location", "")
            if answer.status != 303 or not where.startswith(f"{self.console.site.base}/act/"):
                return answer.status, await answer.text()
        async with self.session.get(URL(self.origin + where, encoded=True)) as answer:
            return answer.status, await answer.text()

    async def get(
        self, path: str, *, method: str = "GET", headers: Any = None, **query: str
    ) -> tuple[int, str, dict[str, str]]:
        """Status, text and headers."""
        url = self.console.url + path
        async with self.session.request(
            method, url, params=query, headers=headers, allow_redirects=False
        ) as answer:
            return answer.status, await answer.text(), dict(answer.headers)

    async def html(self, path: str, **query: str) -> str:
        """A page that is shown."""
        status, text, _ = await self.get(path, **query)
        assert status == 200, text
        return text

    async def data(self, path: str, **query: str) -> Any:
        """The same as JSON."""
        url = f"{self.console.url}api/{path}"
        async with self.session.get(url, params=query) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()


class Parsed(HTMLParser):
    """What a browser makes of a page: its elements with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def dead_letters_of(group: str) -> str:
    """The dead letter topic of a group."""
    return DLQ_PREFIX + group


async def site_of_a_shop() -> AsyncIterator[Site]:
    """The steps of a fixture: the console of a cluster with the topic orders."""
    shop = Shop("orders")
    await shop.start()
    async with Site({"main": shop.address}) as site:
        yield site
    await shop.stop()
