"""Every page in a real browser: no policy violation, no script error, no request to another host,
and a live view that shows what comes. Needs Debian's chromium and Playwright."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from aerobee.client import Admin, Message, Producer
from aerobee.console.access.passwords import keep
from aerobee.console.access.rights import Right
from aerobee.console.access.user_file import User
from aerobee.console.web.routes import PAGES
from aerobee.testing import LocalCluster

from ..fake_cluster import Shop
from .site import PATHS, Site
from .test_hostile import HOSTILE, queries

playwright = pytest.importorskip("playwright.async_api", reason="Playwright is not installed")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
TIMEOUT_MS = 25_000


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
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.type}: {message.text}")

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


@pytest.fixture
async def browser() -> AsyncIterator[Any]:
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        await browser.close()


@pytest.mark.parametrize(("is_dark", "language"), [(False, "en"), (True, "en"), (False, "zh-CN")])
async def test_every_page_keeps_the_policy_and_none_scrolls_sideways(
    browser: Any, is_dark: bool, language: str
) -> None:
    shop = Shop("orders")
    await shop.start()
    async with Site({"main": shop.address}) as site:
        context = await browser.new_context(
            color_scheme="dark" if is_dark else "light",
            viewport={"width": 400, "height": 800},
            locale=language,
        )
        visitor = Visitor(await context.new_page(), site)
        await visitor.log_in()
        for path in [*(page.path for page in PAGES), "search"]:
            given = queries("orders").get(path) or PATHS.get(path, {})
            if path == "access":
                given = {}
            await visitor.visit(path, **given)
            assert not visitor.faults, path
            width = await visitor.page.evaluate("document.documentElement.scrollWidth")
            assert width <= 400, path
            assert await visitor.page.evaluate("document.documentElement.lang") == language, path
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
    browser: Any, aerobee_cluster: LocalCluster
) -> None:
    address = aerobee_cluster.name_server
    async with Admin(address) as admin:
        await admin.create_topic("orders", queues=1)
    async with Site({"main": address}) as site, Producer(address, group="till") as producer:
        visitor = Visitor(await browser.new_page(), site)
        await visitor.log_in()
        await visitor.visit("overview")
        async with visitor.page.expect_response("**/overview*", timeout=TIMEOUT_MS):
            pass  # the page asks for itself again
        await visitor.visit("tail", topic="orders")

        async def send() -> None:
            while True:
                await producer.send(Message("orders", b"<i>live</i>", keys=["k-live"]))
                await asyncio.sleep(0.05)

        sending = asyncio.create_task(send())
        await visitor.page.locator("#tail tr", has_text="k-live").first.wait_for()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        assert await visitor.page.locator("#tail i").count() == 0
        assert await visitor.page.locator("#tail td.body").first.inner_text() == "<i>live</i>"
        assert not visitor.faults


async def test_a_visitor_logs_in_and_the_session_ends_under_an_open_page(browser: Any) -> None:
    shop = Shop("orders")
    await shop.start()
    users = (User("ann", Right.OPERATE, password=keep("correct horse")),)
    async with Site({"main": shop.address}, users=users) as site:
        visitor = Visitor(await browser.new_page(), site)
        page = visitor.page
        await visitor.visit("topic", name="orders")
        assert urlsplit(page.url).path == "/login"
        for password, path in (("wrong password", "/login"), ("correct horse", "/topic")):
            await page.get_by_label("Name").fill("ann")
            await page.get_by_label("Password").fill(password)
            async with page.expect_navigation():
                await page.get_by_role("button", name="Log in").click()
            assert urlsplit(page.url).path == path
        assert await page.locator(".visitor").inner_text() == "ann, may operate\nLog out"
        assert not await page.evaluate("document.cookie")
        # The page refreshes itself; when the session is over it leads to the login.
        site.clock += 31 * 60
        await page.wait_for_url("**/login*", timeout=TIMEOUT_MS)
        await page.get_by_label("Name").fill("ann")
        await page.get_by_label("Password").fill("correct horse")
        await page.get_by_role("button", name="Log in").click()
        await page.wait_for_url("**/overview")
        await page.get_by_role("button", name="Log out").click()
        await page.wait_for_url("**/login")
        assert len(site.access.sessions) == 0
        # The wrong password and the end of the session are in the browser's log, nothing else.
        assert [one for one in visitor.faults if "401 (Unauthorized)" not in one] == []
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
