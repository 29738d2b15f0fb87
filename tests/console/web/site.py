"""A console for tests: on a free port, with a client for its pages."""

from html.parser import HTMLParser
from types import TracebackType
from typing import Any, Self

import aiohttp
from aerobee.console.clusters.clusters import Clusters
from aerobee.console.web.app import PAGES, Console
from aerobee.protocol.names import DLQ_PREFIX

# Every page with parameters that show something in a cluster of the tests.
PATHS = {
    "topic": {"name": "orders"},
    "group": {"name": "shop"},
    "tail": {"topic": "orders"},
    "broker": {"name": "broker-a"},
    "messages": {"topic": "orders"},
}
LISTED = [page.path for page in PAGES if page.in_menu]


class Site:
    """`async with Site({"main": address}) as site`, then `site.html("topics", q="o")`."""

    def __init__(self, servers: dict[str, str | None], **more: Any) -> None:
        self.console = Console(Clusters(servers), port=0, **more)

    async def __aenter__(self) -> Self:
        await self.console.start()
        self.session = aiohttp.ClientSession()
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
