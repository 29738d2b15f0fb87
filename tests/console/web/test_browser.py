"""Every page in a real browser: no policy violation, no script error, no request to another host,
no serious finding of axe-core, and a live view that shows what comes. Needs Debian's chromium and
Playwright."""

import importlib.util
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from aerobee.client import Admin, Message, Producer
from aerobee.client.base.identity import now_ms
from aerobee.console.access.passwords import hash_password
from aerobee.console.access.rights import Right
from aerobee.console.access.user_file import User
from aerobee.console.clusters import collector
from aerobee.console.web import site as web_site
from aerobee.console.web.routes import PAGES
from aerobee.protocol import codes
from aerobee.protocol.command import Command, Response
from aerobee.testing import LocalCluster

from ...client.fakes import pulled, record
from ...waiting import LONG, until
from ..fake_cluster import Shop
from .browser import needs_chromium, started
from .site import PATHS, Site
from .test_hostile import HOSTILE, queries

pytestmark = needs_chromium
browser = pytest.fixture(started, name="browser")
TIMEOUT_MS = 1_000 * LONG
# Forms of actions, each with what it is about.
FORMS: dict[str, dict[str, str]] = {
    "act/topic-create": {},
    "act/redrive": {"group": "orders"},
    "act/offsets-reset": {"group": "orders", "topic": "orders"},
}
PASSWORD = "correct horse"
PHONE, DESK = {"width": 400, "height": 800}, {"width": 1280, "height": 800}
# What axe-core says of this page: each rule with an element that breaks it.
AXE = """(rules) => axe.run({resultTypes: ["violations"], ...rules}).then((all) => all.violations
  .filter((one) => ["moderate", "serious", "critical"].includes(one.impact))
  .map((one) => `${one.id}: ${one.nodes[0].html.slice(0, 200)}`))"""
# Of the dark pages only the colours are others.
RULES: dict[str, dict[str, list[str]]] = {"light": {}, "dark": {"runOnly": ["color-contrast"]}}


class Visitor:
    """A browser's page; `faults` are what it complained about."""

    def __init__(self, page: Any, site: Site) -> None:
        self.page = page
        self.site = site
        self.faults: list[str] = []
        page.set_default_timeout(TIMEOUT_MS)
        page.on("console", self._said)
        page.on("pageerror", lambda wrong: self.faults.append(f"script error: {wrong}"))
        page.on("request", self._asked)
        page.on("dialog", lambda dialog: self.faults.append(f"dialog: {dialog.message}"))

    def _said(self, message: Any) -> None:
        if message.type == "error":  # a warning may be about the browser itself
            self.faults.append(f"{message.type}: {message.text} {message.location}")

    def _asked(self, request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme != "data" and parts.port != self.site.console.port:
            self.faults.append(f"request to {request.url}")

    async def log_in(self) -> None:
        """Open a one-time link."""
        await self.page.goto(self.site.console.new_link(), wait_until="load")

    async def visit(self, path: str, **query: str) -> None:
        """Open a page, and let its scripts run."""
        where = f"{self.site.console.url}{path}?{urlencode(query)}"
        await self.page.goto(where, wait_until="load")


def axe_source() -> str:
    """axe-core, which a package of the tests has; it is under MPL-2.0 and no part of aerobee."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or not found.submodule_search_locations:
        pytest.skip("axe-playwright-python is not installed")
    return Path(found.submodule_search_locations[0], "axe.min.js").read_text()


def users() -> tuple[User, ...]:
    """The user ann, an operator."""
    return (User("ann", Right.OPERATE, password=hash_password(PASSWORD)),)


async def serious(page: Any, scheme: str) -> list[str]:
    """What axe-core, which the page has loaded, finds in a page of this colour scheme."""
    found: list[str] = await page.evaluate(AXE, RULES[scheme])
    return found


@pytest.fixture
def refreshed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers are asked, and open pages refreshed, each second."""
    monkeypatch.setattr(collector, "SAMPLE_SECONDS", 1.0)
    monkeypatch.setattr(web_site, "REFRESH_SECONDS", 1)


@pytest.mark.parametrize("language", [pytest.param("en", marks=pytest.mark.smoke), "zh-CN"])
async def test_every_page_keeps_the_policy_is_accessible_and_never_scrolls_sideways(
    browser: Any, language: str
) -> None:
    axe = axe_source()
    shop = Shop("orders")
    await shop.start()
    async with Site({"main": shop.address}) as site:
        context = await browser.new_context(viewport=PHONE, locale=language)
        visitor = Visitor(await context.new_page(), site)
        page = visitor.page
        await visitor.log_in()
        for path in [*(one.path for one in PAGES), "search", "actions", "redrives", *FORMS]:
            given = queries("orders").get(path) or {**PATHS, **FORMS}.get(path, {})
            if path == "access":
                given = {}
            await visitor.visit(path, **given)
            for size in (PHONE, DESK):
                await page.set_viewport_size(size)
                width = await page.evaluate("document.documentElement.scrollWidth")
                assert width <= size["width"], path
            await page.set_viewport_size(PHONE)
            assert await page.evaluate("document.documentElement.lang") == language, path
            if language == "en":  # the words of a page change nothing in its structure
                await page.evaluate(axe)
                assert await serious(page, "light") == [], path
            assert not visitor.faults, path
        await context.close()
    await shop.stop()


async def test_hostile_text_does_nothing_in_a_browser(browser: Any) -> None:
    shop = Shop(HOSTILE, body=HOSTILE.encode())
    await shop.start()
    async with Site({"main": shop.address}) as site:
        visitor = Visitor(await browser.new_page(), site)
        await visitor.log_in()
        for path, given in queries(HOSTILE).items():
            if path == "access":
                continue  # its answer is a fault of the query
            await visitor.visit(path, **given)
            assert not visitor.faults, path
            assert await visitor.page.locator("img").count() == 0
    await shop.stop()


async def test_figures_are_refreshed_and_a_live_view_shows_what_comes(
    browser: Any, aerobee_cluster: LocalCluster, refreshed: None
) -> None:
    address = aerobee_cluster.name_server
    async with Admin(address) as admin:
        await admin.create_topic("orders", queues=1)
    async with Site({"main": address}) as site, Producer(address, group="till") as producer:
        history = site.console.clusters.by_name["main"].collector.history
        history.forget({("in", "broker-a", 0)})
        for step in range(90):
            history.add(("in", "broker-a", 0), now_ms() - 10_000 * (90 - step), 1_000.0 * step)
        visitor = Visitor(await browser.new_page(), site)
        await visitor.log_in()
        await visitor.visit("overview")
        chart = visitor.page.locator("figure.chart").first
        await chart.locator("canvas").wait_for()
        await visitor.page.evaluate("window.kept = document.querySelector('canvas')")
        # The page asks for itself again, and keeps its charts.
        await is_refreshed(visitor.page)
        assert await visitor.page.evaluate("window.kept === document.querySelector('canvas')")
        await chart.locator(".u-over").hover()
        assert "," in await chart.locator("output").inner_text()
        await visitor.visit("tail", topic="orders")

        async def is_shown() -> bool:
            await producer.send(Message("orders", b"<i>live</i>", keys=["k-live"]))
            return bool(await visitor.page.locator("#tail tr", has_text="k-live").count())

        await until(is_shown, "the page shows no message", pause=0.05)
        assert await visitor.page.locator("#tail i").count() == 0
        assert await visitor.page.locator("#tail td.body").first.inner_text() == "<i>live</i>"
        assert not visitor.faults


async def is_refreshed(page: Any) -> None:
    """Wait until the page has refreshed itself once more."""
    await page.evaluate(
        "() => new Promise((done) => document.addEventListener("
        "'htmx:after:swap', () => done(true), { once: true }))"
    )


async def test_a_page_that_can_not_be_refreshed_says_so_until_it_can(
    browser: Any, refreshed: None
) -> None:
    shop = Shop("orders")
    await shop.start()
    async with Site({"main": shop.address}) as site:
        visitor = Visitor(await browser.new_page(), site)
        await visitor.log_in()
        await visitor.visit("overview")
        toast = visitor.page.locator(".toast", has_text="could not be refreshed")
        await visitor.page.route("**/overview*", lambda route: route.abort())
        await toast.wait_for()
        await visitor.page.unroute("**/overview*")
        await toast.wait_for(state="detached")
        ours = [one for one in visitor.faults if "ERR_FAILED" not in one]
        assert [one for one in ours if "Failed to fetch" not in one] == []
    await shop.stop()


async def test_a_visitor_logs_in_and_the_session_ends_under_an_open_page(
    browser: Any, refreshed: None
) -> None:
    shop = Shop("orders")
    await shop.start()
    async with Site({"main": shop.address}, users=users()) as site:
        await logs_in_and_the_session_ends(Visitor(await browser.new_page(), site), "orders")
    await shop.stop()


async def logs_in_and_the_session_ends(visitor: Visitor, topic: str) -> None:
    """The user ann logs in to see a topic, is idle for too long, and logs in and out."""
    page, site = visitor.page, visitor.site
    await visitor.visit("topic", name=topic)
    assert urlsplit(page.url).path == "/login"
    for password, path in (("wrong password", "/login"), (PASSWORD, "/topic")):
        await page.get_by_label("Name").fill("ann")
        await page.get_by_label("Password").fill(password)
        async with page.expect_navigation():
            await page.get_by_role("button", name="Log in").click()
        assert urlsplit(page.url).path == path
    assert await page.locator(".visitor").text_content() == "ann, may operate"
    assert not await page.evaluate("document.cookie")
    # The page refreshes itself; when the session is over it leads to the login.
    site.clock += 31 * 60
    await page.wait_for_url("**/login*", timeout=TIMEOUT_MS)
    await page.get_by_label("Name").fill("ann")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Log in").click()
    await page.wait_for_url("**/overview")
    await page.locator("button.who").click()
    await page.get_by_role("button", name="Log out").click()
    await page.wait_for_url("**/login")
    assert len(site.access.sessions) == 0
    # The wrong password and the end of the session are in the browser's log, nothing else.
    assert [one for one in visitor.faults if "401 (Unauthorized)" not in one] == []


async def test_a_broker_that_goes_away_is_marked_on_an_open_page_until_it_is_back(
    browser: Any, refreshed: None
) -> None:
    shop = Shop("orders")
    await shop.start()
    async with Site({"main": shop.address}) as site:
        visitor = Visitor(await browser.new_page(), site)
        await visitor.log_in()
        await visitor.visit("overview")
        marks = visitor.page.locator("main .mark[role=alert]", has_text=shop.broker.address)
        assert await marks.count() == 0
        await shop.broker.stop()
        await marks.first.wait_for()
        # The broker has the topic's name, so the topic counts as one of the system.
        await visitor.visit("topics", kind="system")
        assert await visitor.page.get_by_role("link", name="orders", exact=True).count() == 1
        assert await marks.count() == 1
        await shop.broker.start()
        await marks.first.wait_for(state="detached")
        assert not visitor.faults
    await shop.stop()


async def test_a_flood_is_shown_as_a_stated_sample_on_a_page_that_stays_usable(
    browser: Any,
) -> None:
    shop = Shop("orders")
    burst = [record(number, b"x" * 100) for number in range(200)]

    def pull(command: Command, _: object) -> Response:
        fields = command.fields()
        offset = int(fields["queueOffset"])
        if fields["queueId"] != "0" or offset >= 15 * len(burst):
            return pulled([], offset, codes.PULL_NOT_FOUND)
        return pulled(burst, offset + len(burst))  # one of 15 steps

    shop.broker.answers[codes.PULL_MESSAGE] = pull
    await shop.start()
    async with Site({"main": shop.address}) as site:
        visitor = Visitor(await browser.new_page(), site)
        page = visitor.page
        await visitor.log_in()
        await visitor.visit("tail", topic="orders")
        said = page.locator("#tail tr.sample", has_text="200 came, 20 of them are shown")
        for number in range(2):  # of each step
            await said.nth(number).wait_for()
        rows = "document.getElementById('tail').rows.length"

        async def is_full() -> bool:  # the policy lets no page evaluate a text
            return bool(await page.evaluate(rows) == 200)

        # Ten such steps come to 210 rows, of which the page keeps 200.
        await until(is_full, "the table has 200 rows")
        # The page takes what a visitor types and presses.
        await page.get_by_label("Where").fill("tag = 'x'")
        async with page.expect_navigation():
            await page.get_by_role("button", name="Watch").click()
        assert "where=tag" in page.url
        assert not visitor.faults
        await page.goto("about:blank")  # a live view would miss the console at its end
    await shop.stop()


async def test_a_visitor_switches_the_language_with_the_keyboard(browser: Any) -> None:
    shop = Shop("orders")
    await shop.start()
    async with Site({"main": shop.address}) as site:
        visitor = Visitor(await browser.new_page(locale="en"), site)
        await visitor.log_in()
        await visitor.visit("topics", q="ord")
        for to, code in (("中文", "zh-CN"), ("English", "en")):
            await visitor.page.get_by_role("button", name=to).focus()
            async with visitor.page.expect_navigation(wait_until="load"):
                await visitor.page.keyboard.press("Enter")
            assert await visitor.page.evaluate("document.documentElement.lang") == code
            assert visitor.page.url.endswith("topics?q=ord")
            title = await visitor.page.locator("time[title]").first.get_attribute("title")
            assert title is not None
            assert title.endswith("here") is (code == "en")
        assert not visitor.faults
    await shop.stop()
