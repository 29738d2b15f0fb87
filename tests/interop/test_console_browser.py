"""The console's journeys in a real browser, on a real RocketMQ cluster: a message from sent to dead
to redriven to processed, a cancelled message, the reset of an offline group."""

import asyncio
from typing import Any

import pytest
from aerobee.client import Admin, Consumer, Message, Producer
from aerobee.scripts.harness.clusters import JavaCluster

from ..console.web.site import Site
from ..console.web.test_actions_browser import CHROMIUM, confirm, follow, page, press
from .programs import SECONDS

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
__all__ = ["page"]  # a fixture


async def preview(page: Any, url: str, /, **fields: str) -> None:
    """Fill a form and send it until it has a preview: the broker shows what is new a moment
    later."""
    async with asyncio.timeout(SECONDS):
        while True:
            await page.goto(url)
            for name, value in fields.items():
                await page.locator(f"[name={name}]").fill(value)
            await press(page, "Preview")
            button = page.get_by_role("button", name="Do it", exact=True)
            if await button.count():
                return
            await asyncio.sleep(0.2)


async def do(page: Any, typed: str = "") -> None:
    """Confirm a preview, with the name that is to be typed."""
    if typed:
        await page.locator("input[name=typed]").fill(typed)
    await press(page, "Do it")


async def shows(page: Any, where: str, *wanted: str) -> None:
    """Open a page until it has these texts."""
    async with asyncio.timeout(SECONDS):
        while True:
            await page.goto(where)
            text = await page.locator("main").inner_text()
            if all(one in text for one in wanted):
                return
            await asyncio.sleep(0.2)


async def test_from_sent_to_dead_to_redriven_to_processed(
    page: Any,
    java_cluster: JavaCluster,
) -> None:
    address = java_cluster.namesrv
    async with Admin(address) as admin:
        await admin.create_topic("Seen", 1)
    reading: dict[str, Any] = {"group": "Seer", "topics": ["Seen"], "start": "earliest"}
    async with Site({"main": address}) as site:
        url = site.console.url
        await page.goto(site.console.new_link())
        await preview(page, f"{url}act/message-send?topic=Seen", body='{"n": 7}', keys="seen7")
        await do(page)
        assert "1 done." in await page.locator("#counts").inner_text()
        async with Consumer(address, **reading) as consumer:
            message = await consumer.receive(SECONDS)
            assert message is not None
            await message.nack(delay_level=-1)  # its processing failed for good
        await preview(page, f"{url}act/redrive?group=Seer", where="body.n = 7")
        await do(page, "Seer")
        (run,) = site.console._acting.desk.redrives.runs("main")
        async with asyncio.timeout(SECONDS):
            await run.finished.wait()
        await page.reload()
        assert await page.locator("#phase").inner_text() == "ended"
        assert await page.locator("#sent").inner_text() == "1"
        async with Consumer(address, **reading) as consumer:
            message = await consumer.receive(SECONDS)
            assert message is not None
            assert message.body == b'{"n": 7}'
            await message.ack()
        await shows(page, f"{url}messages?topic=Seen&key=seen7", "seen7")
        await page.locator("main table a").first.click()
        await page.locator(".way").wait_for()
        wanted = ("given up: a dead letter", "redriven: a dead letter", "passed by the group")
        await shows(page, page.url, *wanted)


async def test_a_scheduled_message_is_cancelled(
    page: Any,
    java_cluster: JavaCluster,
) -> None:
    address = java_cluster.namesrv
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic("Cancelled", 1, attributes={"message.type": "DELAY"})
        (broker,) = (await admin.masters()).values()
        await admin.update_broker_config(broker, {"recallMessageEnable": True})
        receipt = await producer.send(Message("Cancelled", b"x", delay=3_600.0))
        async with Site({"main": address}) as site:
            await page.goto(site.console.new_link())
            where = f"{site.console.url}scheduled"
            await shows(page, where, receipt.msg_id)
            await follow(page, "Cancel")
            await confirm(page, receipt.msg_id)
            assert "1 done." in await page.locator("#counts").inner_text()
            async with asyncio.timeout(SECONDS):
                await page.goto(where)
                while receipt.msg_id in await page.locator("main").inner_text():
                    await asyncio.sleep(0.2)
                    await page.reload()


async def test_an_offline_group_is_reset(
    page: Any,
    java_cluster: JavaCluster,
) -> None:
    address = java_cluster.namesrv
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic("Again", 1)
        for _ in range(5):
            await producer.send(Message("Again", b"x"))
        async with Consumer(address, group="Reset", topics=["Again"], start="earliest") as consumer:
            for _ in range(5):
                message = await consumer.receive(SECONDS)
                assert message is not None
                await message.ack()
        async with Site({"main": address}) as site:
            await page.goto(site.console.new_link())
            await page.goto(f"{site.console.url}act/offsets-reset?group=Reset&topic=Again")
            await page.locator("select[name=kind]").select_option("begin")
            await press(page, "Preview")
            assert "5 are read again" in await page.locator("main").inner_text()
            await do(page, "Reset")
            assert "1 done." in await page.locator("#counts").inner_text()
        (one,) = (await admin.consume_stats("Reset", "Again")).offset_table.values()
        assert one.consumer_offset == 0
