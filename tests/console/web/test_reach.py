"""Every page is for every visitor: axe-core finds nothing serious, the keyboard reaches and works
what a pointer does, a refresh takes nothing away, and without script every page can be read."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aerobee.client.base.identity import now_ms

from ..fake_cluster import Shop
from .browser import needs_chromium, started
from .showroom import Shown, showroom
from .site import Site
from .test_boxes import NARROW, WIDE
from .test_browser import TIMEOUT_MS, Visitor, axe_source, is_refreshed, refreshed, serious

__all__ = ["refreshed"]

pytestmark = needs_chromium
browser = pytest.fixture(started, name="browser")
PARTS = 2  # of the pages, as axe-core takes most of a second for one


# The light pages of a phone are read in smoke.
@pytest.mark.parametrize(
    ("size", "scheme"),
    [(WIDE, "light"), (WIDE, "dark"), (NARROW, "dark")],
    ids=["wide-light", "wide-dark", "narrow-dark"],
)
@pytest.mark.parametrize("part", range(PARTS))
async def test_axe_finds_nothing_serious_on_any_page(
    browser: Any, size: dict[str, int], scheme: str, part: int
) -> None:
    axe = axe_source()
    wrong: list[str] = []
    async with showroom() as room:
        context = await browser.new_context(viewport=size, color_scheme=scheme, locale="en")
        await room.admit(context)
        page = await context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        for name, one in list(room.pages.items())[part::PARTS]:
            await room.open(page, one)
            await page.evaluate(axe)
            wrong += [f"{name}: {each}" for each in await serious(page, scheme)]
        await context.close()
    assert not wrong, "\n" + "\n".join(wrong)


# What of a page can't be seen: without script nothing may depend on that.
UNSEEN = """() => [...document.querySelectorAll(
    "main h1, main table, main figure svg, main form.act .field, main form.search label, .pager a"
  )].filter((one) => !one.checkVisibility() && !one.closest("details:not([open]) > :not(summary)"))
  .map((one) => one.outerHTML.slice(0, 100))"""


async def test_every_page_can_be_read_without_script(browser: Any) -> None:
    async with showroom() as room:
        context = await browser.new_context(java_script_enabled=False, locale="en")
        await room.admit(context)
        page = await context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        for name, one in room.pages.items():
            await room.go(page, one)
            assert await page.locator("h1").inner_text(), name
            assert await page.evaluate(UNSEEN) == [], name
            if not one.is_outside:
                await page.locator("#menu a[aria-current], a.skip").first.wait_for(state="attached")
        await room.go(page, Shown("topics"))
        for press, wanted in (("Next", "page=2"), ("Messages", "sort=-messages")):
            await page.locator("main").get_by_role("link", name=press, exact=True).first.click()
            assert wanted in page.url
        await page.get_by_label("Contains").fill("orders")
        await page.get_by_role("button", name="Filter").click()
        assert await page.locator("tbody tr").count() == 1
        await page.get_by_role("link", name="orders", exact=True).click()
        assert await page.locator("figure.chart svg").is_visible()
        await context.close()


@asynccontextmanager
async def visited(browser: Any, **options: Any) -> AsyncIterator[tuple[Visitor, Shop]]:
    """A visitor of a console of one broker, whose pages are refreshed each second."""
    shop = Shop("orders")
    await shop.start()
    try:
        async with Site({"main": shop.address}) as site:
            visitor = Visitor(await browser.new_page(locale="en", **options), site)
            await visitor.log_in()
            yield visitor, shop
            await visitor.page.close()
    finally:
        await shop.stop()


# A name of the element that has the focus, and whether a visitor sees that it has it.
FOCUSED = """() => {
  const one = document.activeElement, style = getComputedStyle(one);
  const box = one.getBoundingClientRect();
  const isSeen = one.checkVisibility() && box.right > 0 && box.bottom > 0
    && style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  return [one === document.body ? "" : one.textContent.trim() || one.name || one.tagName, isSeen];
}"""
# What a pointer can work on a page, without what is in a closed menu.
WORKED = """() => [...document.querySelectorAll(
    "a[href], button, input:not([type=hidden]), select, textarea"
  )].filter((one) => one.checkVisibility({ visibilityProperty: true })).length"""


async def tabbed(page: Any) -> list[str]:
    """What the key Tab goes through from the top of the page to its end; each is seen there."""
    found: list[str] = []
    while True:
        await page.keyboard.press("Tab")
        name, is_seen = await page.evaluate(FOCUSED)
        if not name:
            return found
        assert is_seen, f"the focus on {name} is not seen"
        found.append(name)
        assert len(found) < 500, "the focus goes round"


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
async def test_the_tab_key_reaches_all_that_a_pointer_does_and_shows_where_it_is(
    browser: Any, size: dict[str, int]
) -> None:
    async with visited(browser, viewport=size) as (visitor, _):
        for path in ("overview", "topics", "act/topic-create", "messages"):
            await visitor.visit(path)
            assert await visitor.page.evaluate("document.fonts.ready.then(() => true)")
            found = await tabbed(visitor.page)
            assert found[0] == "To the content"
            charts = await visitor.page.locator("[role=slider]").count()
            assert len(found) - charts >= await visitor.page.evaluate(WORKED), found
        await visitor.visit("topics")
        await visitor.page.keyboard.press("Tab")
        await visitor.page.keyboard.press("Enter")
        await visitor.page.keyboard.press("Tab")
        (name, _) = await visitor.page.evaluate(FOCUSED)
        assert name == "users' topics"
        assert not visitor.faults


async def test_the_menu_of_a_phone_opens_and_closes_by_keys(browser: Any) -> None:
    async with visited(browser, viewport=NARROW) as (visitor, _):
        page = visitor.page
        await visitor.visit("overview")
        button, menu = page.locator("[popovertarget=menu]"), page.locator("#menu")
        assert not await menu.is_visible()
        await button.focus()
        await page.keyboard.press("Enter")
        await menu.wait_for(state="visible")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.closest('#menu') !== null")
        await page.keyboard.press("Escape")
        await menu.wait_for(state="hidden")
        assert await button.evaluate("(one) => one === document.activeElement")
        await page.keyboard.press("Enter")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Tab")
        async with page.expect_navigation():
            await page.keyboard.press("Enter")
        assert "/topics" in page.url


async def test_arrow_keys_tell_the_values_of_a_chart(browser: Any) -> None:
    async with visited(browser, viewport=WIDE, timezone_id="Asia/Kolkata") as (visitor, _):
        page = visitor.page
        collector = visitor.site.console.clusters.by_name["main"].collector
        series = ("in", *next(iter(collector.brokers)))
        collector.history.forget({series})
        end = now_ms() - 60_000
        for step in range(60):
            collector.history.add(series, end - 10_000 * (60 - step), 1_000.0 * (step % 50))
        await visitor.visit("overview")
        chart = page.locator("figure.chart [role=slider]").first
        await chart.focus()
        assert await chart.get_attribute("aria-label") is not None
        told = []
        for key in ("End", "ArrowLeft", "Home", "ArrowRight", "ArrowRight", "PageUp"):
            await page.keyboard.press(key)
            text = await chart.get_attribute("aria-valuetext")
            assert text is not None
            assert text == await page.locator("figure.chart output").first.text_content()
            told.append(text.split()[1])
        assert told[2:5] == ["0", "1,000", "2,000"]
        label = await chart.get_attribute("aria-label")
        assert label is not None
        assert label.startswith("Messages in a second: first 0, last ")
        assert label.endswith("highest 49,000")
        assert not visitor.faults


async def test_the_axis_of_a_chart_has_times_of_utc_and_the_date_at_midnight(browser: Any) -> None:
    async with visited(browser, viewport=WIDE, timezone_id="Asia/Kolkata") as (visitor, _):
        collector = visitor.site.console.clusters.by_name["main"].collector
        series = ("in", *next(iter(collector.brokers)))
        collector.history.forget({series})
        end = now_ms() - 60_000
        for step in range(24 * 60):
            collector.history.add(series, end - 60_000 * (24 * 60 - step), 1.0)
        await visitor.visit("overview", minutes="1440")
        await visitor.page.locator("figure.chart [role=slider]").first.wait_for()
        labels = await visitor.page.evaluate(
            "document.querySelector('figure.chart').chart.axes[0]._values"
        )
        assert all(re.fullmatch(r"(\d\d-\d\d 00|\d\d):00", one) for one in labels), labels
        assert sum(" " in one for one in labels) == 1, labels


async def test_a_refresh_takes_neither_focus_nor_choice_and_repeats_no_alert(
    browser: Any, refreshed: None
) -> None:
    async with visited(browser, viewport=WIDE) as (visitor, shop):
        page = visitor.page
        await visitor.visit("topics", kind="all", q="o")
        await shop.broker.stop()
        alert = page.locator("main .mark[role=alert]")
        await alert.wait_for()
        kept = await alert.element_handle()
        await page.evaluate("document.getElementById('sort').value = '-messages'")
        for one in (
            page.get_by_role("link", name="orders", exact=True),
            page.get_by_role("button", name="Filter"),
            page.get_by_label("Contains"),
        ):
            await one.focus()
            handle = await one.element_handle()
            await is_refreshed(page)
            assert await page.evaluate("(one) => one === document.activeElement", handle)
        assert await page.evaluate("(one) => one.isConnected", kept)
        assert await page.locator("#sort").input_value() == "-messages"


async def test_a_form_with_faults_has_the_focus_at_the_first_one(browser: Any) -> None:
    async with visited(browser) as (visitor, _):
        page = visitor.page
        await visitor.visit("act/topic-create", topic="shop", write="many")
        async with page.expect_navigation(wait_until="load"):
            await page.get_by_role("button", name="Preview").click()
        focused = page.locator(":focus")
        assert await focused.get_attribute("name") == "write"
        described = await focused.get_attribute("aria-describedby")
        assert await page.locator(f"#{described}").inner_text()
