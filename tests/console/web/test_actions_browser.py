"""Actions in a real browser: a message from sent to dead to redriven to processed, the reset of an
offline group, a cancelled message."""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aerobee.client import Admin, Consumer, Message, Producer
from aerobee.console.web import site as web_site
from aerobee.testing import LocalCluster

from ...waiting import LONG, until
from ..actions.test_redrives import given_up
from .site import Site

playwright = pytest.importorskip("playwright.async_api", reason="Playwright is not installed")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


@pytest.fixture
async def page() -> AsyncIterator[Any]:
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        page = await browser.new_page(viewport={"width": 400, "height": 800})
        page.set_default_timeout(1_000 * LONG)
        faults: list[str] = []
        page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda wrong: faults.append(str(wrong)))
        yield page
        assert faults == []
        await browser.close()


async def press(page: Any, name: str) -> None:
    """Press a button, and wait for the page that it leads to."""
    async with page.expect_navigation():
        await page.get_by_role("button", name=name, exact=True).click()
    width = await page.evaluate("document.documentElement.scrollWidth")
    assert width <= 400, page.url


async def do(page: Any) -> None:
    """Press the button of a preview, which has the action's title."""
    async with page.expect_navigation():
        await page.locator("form.act button").click()
    width = await page.evaluate("document.documentElement.scrollWidth")
    assert width <= 400, page.url


async def follow(page: Any, name: str) -> None:
    """Follow a link of the content."""
    async with page.expect_navigation():
        await page.locator("main").get_by_role("link", name=name, exact=True).first.click()


async def confirm(page: Any, typed: str) -> None:
    """Preview, type the name, and do it."""
    await press(page, "Preview")
    await page.locator("input[name=typed]").fill(typed)
    await do(page)


async def test_from_sent_to_dead_to_redriven_to_processed(
    page: Any, aerobee_cluster: LocalCluster
) -> None:
    address = aerobee_cluster.name_server
    async with Admin(address) as admin:
        await admin.create_topic("orders", 1)
    async with Site({"main": address}) as site:
        await page.goto(site.console.new_link())
        await page.goto(f"{site.console.url}act/message-send?topic=orders")
        await page.locator("textarea[name=body]").fill('{"n": 7}')
        await page.locator("input[name=keys]").fill("k7")
        await press(page, "Preview")
        await do(page)
        assert "1 done." in await page.locator("#counts").inner_text()
        async with Consumer(address, group="shop", topics=["orders"], start="earliest") as consumer:
            message = await consumer.receive(LONG)
            assert message is not None
            await message.nack(delay_level=-1)  # its processing failed for good
        await page.goto(f"{site.console.url}act/redrive?group=shop")
        await page.locator("input[name=where]").fill("body.n = 7")
        await confirm(page, "shop")
        (run,) = site.console.site.registry.redrives.runs("main")
        async with asyncio.timeout(LONG):
            await run.finished.wait()
        await page.reload()
        assert await page.locator("#phase").inner_text() == "ended"
        assert await page.locator("#sent").inner_text() == "1"
        async with Consumer(address, group="shop", topics=["orders"]) as consumer:
            message = await consumer.receive(LONG)
            assert message is not None
            assert message.body == b'{"n": 7}'
            await message.ack()
        # The way of the message has all of it.
        await page.goto(f"{site.console.url}messages?topic=orders&key=k7")
        await page.locator("main table a").first.click()
        way = page.locator(".way")
        await way.wait_for()
        told = await way.inner_text()
        assert "given up: a dead letter" in told
        assert "redriven: a dead letter" in told


async def test_a_tick_outlives_a_refresh_of_the_page(
    page: Any, aerobee_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_site, "REFRESH_SECONDS", 1)
    await given_up(aerobee_cluster, "orders", "warehouse", 2)
    async with Site({"main": aerobee_cluster.name_server}) as site:
        await page.goto(site.console.new_link())
        await page.goto(f"{site.console.url}dead_letters?group=warehouse")
        boxes = page.get_by_role("checkbox", name="Dead letter")
        await boxes.nth(1).check()
        await page.evaluate("document.getElementById('live').dataset.old = '1'")

        async def is_refreshed() -> bool:
            return not await page.locator("#live[data-old]").count()

        await until(is_refreshed, "the page is refreshed")
        assert await boxes.nth(1).is_checked()
        assert not await boxes.nth(0).is_checked()
        await press(page, "Send the ticked ones again")
        (wanted,) = [
            one["offset_id"]
            for one in (await site.data("dead_letters", group="warehouse"))["newest"][1:]
        ]
        assert await page.locator("[name=letters]").input_value() == wanted


async def test_an_offline_group_is_reset(page: Any, aerobee_cluster: LocalCluster) -> None:
    address = aerobee_cluster.name_server
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic("orders", 1)
        for _ in range(5):
            await producer.send(Message("orders", b"x"))
        async with Consumer(address, group="shop", topics=["orders"], start="earliest") as consumer:
            for _ in range(5):
                message = await consumer.receive(LONG)
                assert message is not None
                await message.ack()
        async with Site({"main": address}) as site:
            await page.goto(site.console.new_link())
            await page.goto(f"{site.console.url}act/offsets-reset?group=shop&topic=orders")
            await page.locator("select[name=kind]").select_option("begin")
            await press(page, "Preview")
            assert "5 are read again" in await page.locator("main").inner_text()
            await page.locator("input[name=typed]").fill("shop")
            await do(page)
            assert "1 done." in await page.locator("#counts").inner_text()
        (one,) = (await admin.consume_stats("shop", "orders")).offset_table.values()
        assert one.consumer_offset == 0


async def test_a_scheduled_message_is_cancelled(page: Any, aerobee_cluster: LocalCluster) -> None:
    address = aerobee_cluster.name_server
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic("orders", 1)
        await producer.send(Message("orders", b"x", keys=["later-1"], delay=3_600.0))
        async with Site({"main": address}) as site:
            await page.goto(site.console.new_link())
            await page.goto(f"{site.console.url}scheduled")
            waits = page.locator("main tr", has_text="later-1")
            assert re.search(r"in (1 h|\d+ min)", await waits.inner_text())
            await follow(page, "Cancel")
            await press(page, "Preview")
            await do(page)
            assert "1 done." in await page.locator("#counts").inner_text()

            async def is_gone() -> bool:
                await page.goto(f"{site.console.url}scheduled")
                return not await waits.count()

            await until(is_gone, "the message waits no more")
