"""A Chinese page has no English sentence, whatever a visitor gives and whatever goes wrong. What
stays are names, values, code, and quotations of what other programs say."""

import re
from collections.abc import AsyncIterator, Iterator

import pytest
from aerobee.console.access.passwords import hash_password
from aerobee.console.access.rights import Bodies, Right
from aerobee.console.access.user_file import User
from aerobee.console.actions.action import Action, Field
from aerobee.console.clusters.lakes import Lakes
from aerobee.console.web.request_context import TEXT_CHARS_MAX
from aerobee.console.web.routes import PAGES
from aerobee.harness.java_side import free_ports
from aerobee.protocol import codes
from aerobee.protocol.command import Response

from ..fake_cluster import Shop
from .site import Parsed, Site
from .test_hostile import queries

HEADERS = {"Accept-Language": "zh-CN"}
# Two words of English behind each other, or a little one.
LITTLE = "of|on|in|at|by|to|for|from|with|the|is|are|was|no|not|it|its|and|or|has|have|can|must"
ENGLISH = re.compile(
    rf"(?<![\w.-])(?:{LITTLE})(?![\w.-])|(?<![\w.-])[A-Za-z][a-z']+(?: [A-Za-z]?[a-z']+(?![\w.-]))+"
)
# What another program says, a command, a value as the visitor gave it, and names.
QUOTED = re.compile(r"「[^」]*」|`[^`]*`|'[^']*'|(?:--|aerobee )[a-z-]+(?: [a-z]+)?")
# Names that are no English words.
SHOP, GONE = "o1", "x9"
PASSWORD = "correct horse"
SPOKEN = ("aria-label", "title", "placeholder", "alt", "data-label", "data-here", "data-stale")
CODE = {"code", "pre", "script", "style", "textarea"}


class Sentences(Parsed):
    """What a visitor reads of a page, without code."""

    def __init__(self, text: str) -> None:
        self.said: list[str] = []
        self._open: list[str] = []
        super().__init__(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, attrs)
        self.said += [value or "" for name, value in attrs if name in SPOKEN]
        if tag in CODE:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        super().handle_data(data)
        if not self._open:
            self.said.append(data)


def english_of(page: str) -> set[str]:
    """The English that is left on a Chinese page."""
    assert '<html lang="zh-CN"' in page, page[:300]
    found: set[str] = set()
    for text in Sentences(page).said:
        found.update(ENGLISH.findall(QUOTED.sub(" ", text)))
    return found


class Reader:
    """A visitor who reads Chinese. `left` is the English that was found, with the page that has
    it."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.left: dict[str, object] = {}
        self._token = ""

    async def page(self, path: str, **query: str) -> None:
        """Read a page."""
        _, text, headers = await self.site.get(path, headers=HEADERS, **query)
        if "Location" not in headers:
            self._read(text, (path, query))

    async def form(self, path: str, fields: dict[str, str]) -> str:
        """Send a form, and read the answer."""
        self._token = self._token or await self.site.token()
        url, data = self.site.console.url + path, {"token": self._token, **fields}
        headers = {**HEADERS, "Origin": self.site.origin}
        async with self.site.session.post(url, data=data, headers=headers) as answer:
            text = await answer.text()
        self._read(text, (path, fields))
        return text

    def _read(self, text: str, where: object) -> None:
        for one in english_of(text):
            self.left.setdefault(one, where)

    async def pages(self) -> None:
        """Read each page, with what shows something on it."""
        given = queries(SHOP)
        for page in PAGES:
            await self.page(page.path, **given.get(page.path, {}))
        await self.page("search", topic=SHOP, where="tag = 'x'")
        await self.page("access", user="ann", action="Pub", resource=f"Topic:{SHOP}")

    async def forms(self) -> None:
        """Read each form as it comes, and its preview."""
        for action in self.site.console.site.registry.actions.values():
            await self.page(f"act/{action.name}")
            await self.form(f"act/{action.name}/preview", filled(action))

    async def faults_of_forms(self) -> None:
        """Read the answer of each form for what may stand in each field."""
        for action in self.site.console.site.registry.actions.values():
            for field in action.fields:
                for value in values_of(field):
                    given = {**filled(action), field.name: value}
                    await self.form(f"act/{action.name}/preview", given)
            await self.form(f"act/{action.name}/confirm", {"preview": GONE})


BAD_QUERIES = [
    (GONE, {}),
    ("topics", {"sort": "<b>"}),
    ("topics", {"page": "x"}),
    ("topics", {"page": "-1"}),
    ("topics", {"q": "x" * (TEXT_CHARS_MAX + 1)}),
    ("topics", {"cluster": GONE}),
    ("topic", {}),
    ("topic", {"name": GONE}),
    ("topic", {"name": SHOP, "minutes": "0"}),
    ("topic", {"name": SHOP, "queues.sort": "x"}),
    ("group", {"name": GONE}),
    ("member", {"group": SHOP, "client": GONE}),
    ("member", {"group": GONE, "client": GONE}),
    ("broker", {"name": GONE}),
    ("broker", {"name": SHOP, "id": "9"}),
    ("messages", {"topic": GONE}),
    ("messages", {"topic": f"{GONE} {GONE}"}),
    ("messages", {"topic": SHOP, "cursor": "x"}),
    ("messages", {"topic": GONE, "q": "k"}),
    ("message", {"topic": SHOP, "broker": SHOP, "queue": "0", "offset": "9"}),
    ("message", {"topic": SHOP, "broker": SHOP, "queue": "7", "offset": "9"}),
    ("message", {"topic": GONE, "broker": SHOP, "queue": "0", "offset": "9"}),
    ("message", {"topic": GONE, "id": "k"}),
    ("message", {"topic": SHOP, "broker": "b", "queue": "x", "offset": "9"}),
    ("tail", {"topic": GONE}),
    ("tail", {"topic": SHOP, "where": "a ="}),
    ("search", {"topic": SHOP, "begin": "tomorrow at noon"}),
    ("search", {"topic": SHOP, "begin": "2", "end": "1"}),
    ("search", {"topic": SHOP, "begin": "1", "cursor": "x"}),
    ("search", {"topic": GONE, "begin": "1"}),
    ("search", {"topic": SHOP, "begin": "1", "limit": "0"}),
    ("search/export", {"topic": SHOP, "begin": "1", "format": "xml"}),
    ("search/export", {"topic": GONE, "begin": "1"}),
    ("search/export", {"topic": SHOP, "where": "a ="}),
    ("audit", {"result": "fine"}),
    ("access", {"user": "ann", "action": "Pub"}),
    ("access", {"user": "ann", "action": "Pub", "resource": f"{GONE} {GONE}"}),
    ("redrives/run", {"run": GONE}),
    ("redrives/file", {"run": GONE}),
    ("act/nothing", {}),
    ("act/topic-update", {"topic": GONE}),
    ("act/group-update", {"group": GONE}),
    ("act/message-send/preview", {}),
]
# An expression for each fault.
EXPRESSIONS = (
    "a = ",
    "a = #",
    "a = 1 AND =",
    "a = NULL",
    "TRUE = 1",
    "a BETWEEN NULL AND 2",
    "a BETWEEN 3 AND 2",
    "a = 99999999999999999999",
    "a > 0.0",
    "1 + 1 AND a",
    "'x' > a",
    "1 IN ('a')",
    "5",
    "NOT " * 70 + "a",
    "a=1 " * 1_000,
    "(" * 4_000,
)


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    shop = Shop(SHOP)
    await shop.start()
    yield shop
    await shop.stop()


def values_of(field: Field) -> Iterator[str]:
    """What a visitor may give for a field: what fits, what is not there, and what is wrong."""
    yield from ("", SHOP, GONE, f"{GONE} {GONE}", "x" * (field.chars_max + 1))
    if field.kind == "number":
        yield from ("1", "x", "-5", str(field.most + 1))
    if field.kind == "time":
        yield from ("2026-11-23T15:04:05", "noon or so", "5")
    yield from field.choices[:6]


def filled(action: Action) -> dict[str, str]:
    """A form with what its fields take."""
    return {one.name: fitting(one) for one in action.fields}


def fitting(field: Field) -> str:
    """A value that the field takes."""
    if field.kind == "number":
        return str(max(field.least, 1))
    if field.kind == "time":
        return "5"
    if field.kind == "flag":
        return ""
    return field.choices[0] if field.choices else SHOP


async def test_every_page_is_chinese_also_where_its_address_is_refused(shop: Shop) -> None:
    async with Site({"main": shop.address}) as site:
        reader = Reader(site)
        await reader.pages()
        for path, query in BAD_QUERIES:
            await reader.page(path, **query)
        for where in EXPRESSIONS:
            await reader.page("search", topic=SHOP, where=where)
            await reader.page("tail", topic=SHOP, where=where)
    assert reader.left == {}


async def test_the_answers_to_forms_are_chinese(shop: Shop) -> None:
    async with Site({"main": shop.address}) as site:
        reader = Reader(site)
        await reader.forms()
        await reader.faults_of_forms()
    assert reader.left == {}


def refuse(shop: Shop, *kept: int) -> None:
    """Have the broker refuse all requests but these."""
    remark = "no luck for you today"
    for code in shop.broker.answers.keys() - set(kept):
        shop.broker.answers[code] = lambda *_: Response(codes.SYSTEM_ERROR, remark=remark)


async def test_what_a_broker_refuses_is_a_quotation(shop: Shop) -> None:
    async with Site({"main": shop.address}) as site:
        refuse(shop)
        reader = Reader(site)
        await reader.pages()
        await reader.forms()
        _, text, _ = await site.get("topic", headers=HEADERS, name=SHOP)
    assert reader.left == {}
    assert f"{shop.broker.address} 返回 SYSTEM_ERROR" in text
    assert "「no luck for you today」" in text


async def test_a_broker_that_refuses_from_the_start_is_told_in_chinese(shop: Shop) -> None:
    refuse(shop)
    async with Site({"main": shop.address}) as site:
        reader = Reader(site)
        await reader.pages()
    assert reader.left == {}


@pytest.mark.parametrize("is_sampled", [False, True])
async def test_a_broker_that_is_away_is_told_in_chinese(shop: Shop, is_sampled: bool) -> None:
    if not is_sampled:
        await shop.broker.stop()
    async with Site({"main": shop.address}) as site:
        if is_sampled:
            await shop.broker.stop()
        reader = Reader(site)
        await reader.pages()
        await reader.forms()
    assert reader.left == {}


async def test_a_name_server_that_is_away_is_told_in_chinese(shop: Shop) -> None:
    async with Site({"main": shop.address}) as site:
        await shop.stop()
        reader = Reader(site)
        await reader.pages()
        await reader.forms()
    assert reader.left == {}


@pytest.mark.parametrize("body", [b"nonsense", b"\xff\xfe", b"[]"])
async def test_an_answer_that_is_nonsense_is_told_in_chinese(shop: Shop, body: bytes) -> None:
    for code in shop.broker.answers:
        shop.broker.answers[code] = lambda *_: Response(body=body)
    async with Site({"main": shop.address}) as site:
        reader = Reader(site)
        await reader.pages()
        await reader.forms()
    assert reader.left == {}


@pytest.mark.parametrize("right", [Right.VIEW, Right.OPERATE])
async def test_a_visitor_with_few_rights_is_refused_in_chinese(shop: Shop, right: Right) -> None:
    ann = User("ann", right, ("none",), ("none",), Bodies.HIDDEN, hash_password(PASSWORD))
    async with Site({"main": shop.address}, users=[ann]) as site:
        status, text, _ = await site.log_in_as(site.session, "ann", "wrong", HEADERS)
        assert (status, english_of(text)) == (401, set())
        await site.log_in_as(site.session, "ann", PASSWORD)
        reader = Reader(site)
        await reader.pages()
        await reader.page("search", topic=SHOP, where="body = 'x'")
        await reader.page("definitions")
        await reader.forms()
        await reader.form("language", {"language": GONE})
        await reader.form("logout", {"token": GONE})
    assert reader.left == {}


async def test_a_console_that_only_reads_says_so_in_chinese(shop: Shop) -> None:
    async with Site({"main": shop.address}, is_read_only=True) as site:
        reader = Reader(site)
        for path in ("actions", "redrives", "act/topic-create"):
            await reader.page(path)
        await reader.form("act/topic-create/preview", {})
        for _ in range(2):
            await reader.form("login/link", {})
    assert reader.left == {}


async def test_a_lake_that_does_not_answer_is_told_in_chinese(shop: Shop) -> None:
    away = f"http://127.0.0.1:{free_ports(1)[0]}"
    broker = f"http://{shop.address}"  # speaks no HTTP
    async with Site({"main": shop.address}, lakes={"main": Lakes((away, broker))}) as site:
        reader = Reader(site)
        await reader.page("lake")
    assert reader.left == {}


async def test_what_was_not_done_is_told_in_chinese(shop: Shop) -> None:
    refused = Response(codes.NO_PERMISSION, remark="not on my watch")
    shop.broker.answers[codes.UPDATE_AND_CREATE_TOPIC] = lambda *_: refused
    async with Site({"main": shop.address}) as site:
        reader = Reader(site)
        fields = {"topic": SHOP, "write": "1", "read": "1", "perm": "read"}
        page = Parsed(await reader.form("act/topic-update/preview", fields))
        fields = {
            name: attrs["value"] or ""
            for _, attrs in page.elements
            if (name := attrs.get("name")) in ("preview", "cluster")
        }
        await reader.form("act/topic-update/confirm", {**fields, "typed": GONE})
        result = await reader.form("act/topic-update/confirm", fields)
        await reader.form("act/topic-update/confirm", fields)
        await reader.page("audit")
    assert reader.left == {}
    assert "「not on my watch」" in Parsed(result).text
