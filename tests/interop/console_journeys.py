"""What a visitor does in a real browser, the same on every cluster: each action, a message from
sent to dead to redriven to processed, and a broker that is killed meanwhile."""

import asyncio
import json
import re
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode, urlsplit

from aerobee.client import (
    Admin,
    Consumer,
    Message,
    Producer,
    TransactionProducer,
    TransactionState,
)
from aerobee.client.base.security import OPEN, Security
from aerobee.client.errors import NoRouteError
from aerobee.console.actions.messages import GIVEN_UP_TOPIC
from aerobee.console.web.routes import PAGES
from aerobee.harness.clusters import BROKER_NAME, Cluster
from aerobee.protocol.bodies.group import SubscriptionGroupConfig

from ..console.web.site import Site
from ..console.web.test_actions_browser import do, follow, press
from .programs import SECONDS
from .support import until

# Pages that are about something, with what they are about.
ABOUT = {
    "topic": {"name": "Shown"},
    "group": {"name": "Shower"},
    "messages": {"topic": "Shown", "key": "shown1"},
    "tail": {"topic": "Shown"},
    "broker": {"name": BROKER_NAME},
}


async def is_routed(admin: Admin, topic: str) -> bool:
    """The name server knows a topic."""
    try:
        return bool(await admin.route(topic))
    except NoRouteError:
        return False


class Journey:
    """A browser's page that has logged in at `site`, the console of the cluster at `address`.
    `security` is what producers and consumers sign with."""

    def __init__(self, page: Any, site: Site, address: str, security: Security = OPEN) -> None:
        self.page = page
        self.site = site
        self.url = site.console.url
        self.address = address
        self.security = security
        self.done: set[str] = set()  # the names of confirmed actions

    async def preview(self, path: str, /, **fields: str) -> None:
        """Fill a form and send it until it has a preview: the broker shows what is new a moment
        later."""

        async def has_preview() -> int:
            await self.page.goto(self.url + path)
            for name, value in fields.items():
                await self.page.locator(f"[name={name}]").fill(value)
            await press(self.page, "Preview")
            found: int = await self.page.locator("form[action$=confirm]").count()
            return found

        await until(has_preview, path, pause=0.2)

    async def do(self, typed: str = "") -> None:
        """Confirm a preview, with the name that is to be typed."""
        self.done.add(urlsplit(self.page.url).path.split("/")[-2])
        if typed:
            await self.page.locator("input[name=typed]").fill(typed)
        await do(self.page)

    async def shows(self, where: str, *wanted: str) -> None:
        """Open a page until it has these texts."""
        text = ""

        async def has_all() -> bool:
            nonlocal text
            await self.page.goto(where)
            text = await self.page.locator("main").inner_text()
            return all(one in text for one in wanted)

        await until(has_all, lambda: f"{wanted} in {text}", pause=0.2)

    async def is_done(self) -> None:
        """The result says that one change was made."""
        assert "1 done." in await self.page.locator("#counts").inner_text()

    async def act(self, name: str, typed: str = "", /, **fields: str) -> None:
        """Do an action whose form a link fills."""
        await self.preview(f"act/{name}?{urlencode(fields)}")
        await self.do(typed)
        counts = await self.page.locator("#counts").inner_text()
        assert re.fullmatch(r"[1-9]\d* done\.", counts), (name, counts)

    async def every_page_and_a_live_view(self) -> None:
        """With a topic and a group that are there, a search, and messages that come meanwhile."""
        page, signed = self.page, self.security
        async with (
            Admin(self.address, security=signed) as admin,
            Producer(self.address, group="Showing", security=signed) as producer,
        ):
            await admin.create_topic("Shown", 1)
            await admin.update_group(SubscriptionGroupConfig("Shower"))
            await producer.send(Message("Shown", b'{"n": 1}', keys=["shown1"]))
            await self.shows(f"{self.url}topics", "Shown")
            await self.shows(f"{self.url}groups", "Shower")
            for one in PAGES:
                given = ABOUT.get(one.path)
                if one.parent and given is None:
                    continue
                answer = await page.goto(f"{self.url}{one.path}?{urlencode(given or {})}")
                assert answer.status == 200, one.path
                width = await page.evaluate("document.documentElement.scrollWidth")
                assert width <= page.viewport_size["width"], one.path
            await self.shows(f"{self.url}search?topic=Shown&where=body.n+%3D+1", "shown1")
            await page.goto(f"{self.url}tail?topic=Shown")

            async def send() -> None:
                while True:
                    await producer.send(Message("Shown", b"x", keys=["k-live"]))
                    await asyncio.sleep(0.1)

            sending = asyncio.create_task(send())
            await page.locator("#tail tr", has_text="k-live").first.wait_for()
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await page.goto("about:blank")  # a live view would miss the console at its end

    async def from_sent_to_dead_to_redriven_to_processed(self) -> None:
        """The way of a message whose consumer gives it up."""
        page, signed = self.page, self.security
        async with Admin(self.address, security=signed) as admin:
            await admin.create_topic("Seen", 1)
            await until(lambda: is_routed(admin, "Seen"))
        reading: dict[str, Any] = {"group": "Seer", "topics": ["Seen"], "start": "earliest"}
        await self.preview("act/message-send?topic=Seen", body='{"n": 7}', keys="seen7")
        await self.do()
        await self.is_done()
        async with Consumer(self.address, security=signed, **reading) as consumer:
            message = await consumer.receive(SECONDS)
            assert message is not None
            await message.nack(delay_level=-1)  # its processing failed for good
        await self.preview("act/redrive?group=Seer", where="body.n = 7")
        await self.do("Seer")
        (run,) = self.site.console.site.registry.redrives.runs("main")
        async with asyncio.timeout(SECONDS):
            await run.finished.wait()
        await page.reload()
        assert await page.locator("#phase").inner_text() == "ended"
        assert await page.locator("#sent").inner_text() == "1"
        async with Consumer(self.address, security=signed, **reading) as consumer:
            message = await consumer.receive(SECONDS)
            assert message is not None
            assert message.body == b'{"n": 7}'
            await message.ack()
            await self._is_consumed_again(consumer)
        await self.shows(f"{self.url}messages?topic=Seen&key=seen7", "seen7")
        await page.locator("main table a").first.click()
        await page.locator(".way").wait_for()
        wanted = ("given up: a dead letter", "redriven: a dead letter", "passed by the group")
        await self.shows(page.url, *wanted)

    async def three_dead_letters_are_ticked(self) -> None:
        """The page of a message says why it was not consumed, and its group consumes exactly the
        letters that are sent again."""
        page, signed = self.page, self.security
        reading: dict[str, Any] = {"group": "Ticker", "topics": ["Ticked"], "start": "earliest"}
        async with (
            Admin(self.address, security=signed) as admin,
            Producer(self.address, security=signed) as producer,
        ):
            await admin.create_topic("Ticked", 1)
            await until(lambda: is_routed(admin, "Ticked"))
            for n in range(5):
                await producer.send(Message("Ticked", b"%d" % n, keys=[f"ticked{n}"]))
        async with Consumer(self.address, security=signed, **reading) as consumer:
            for _ in range(5):
                message = await consumer.receive(SECONDS)
                assert message is not None
                await message.nack(delay_level=-1)
        await self.shows(f"{self.url}messages?topic=Ticked&key=ticked2", "ticked2")
        await page.locator("main table a").first.click()
        await page.locator(".way").wait_for()
        why = "Not consumed by Ticker: it was given up after 1 delivery, and is a dead letter."
        await self.shows(page.url, why)
        await follow(page, "The dead letter")
        await follow(page, "All dead letters of the group")
        boxes = page.get_by_role("checkbox", name="Dead letter")

        async def are_listed() -> bool:
            await page.goto(f"{self.url}dead_letters?group=Ticker")
            return bool(await boxes.count() == 5)

        await until(are_listed, "five dead letters", pause=0.2)
        for n in (0, 2, 4):
            await boxes.nth(n).check()
        await press(page, "Send the ticked ones again")
        await press(page, "Preview")
        told = await page.locator("main .sentence").inner_text()
        assert told == "Send 3 dead letters of Ticker again."
        await self.do()
        run, *_ = self.site.console.site.registry.redrives.runs("main")
        async with asyncio.timeout(SECONDS):
            await run.finished.wait()
        await page.reload()
        assert await page.locator("main .sentence").inner_text() == "3 of 3 dead letters sent."
        async with Consumer(self.address, security=signed, **reading) as consumer:
            bodies = set()
            for _ in range(3):
                message = await consumer.receive(SECONDS)
                assert message is not None
                bodies.add(message.body)
                await message.ack()
        assert bodies == {b"0", b"2", b"4"}

    async def a_scheduled_message_is_cancelled(self) -> None:
        """Cancelled on the page of what waits, and no longer on it."""
        page = self.page
        async with (
            Admin(self.address, security=self.security) as admin,
            Producer(self.address, security=self.security) as producer,
        ):
            await admin.create_topic("Cancelled", 1, attributes={"message.type": "DELAY"})
            (broker,) = (await admin.masters()).values()
            await admin.update_broker_config(broker, {"recallMessageEnable": True})
            await producer.send(Message("Cancelled", b"x", keys=["later-1"], delay=3_600.0))
        where = f"{self.url}scheduled"
        await self.shows(where, "later-1")
        await follow(page, "Cancel")
        await press(page, "Preview")
        await self.do()
        await self.is_done()
        async with asyncio.timeout(SECONDS):
            await page.goto(where)
            while "later-1" in await page.locator("main").inner_text():
                await asyncio.sleep(0.2)
                await page.reload()

    async def an_offline_group_is_reset(self) -> None:
        """To the first message, after it has read all."""
        page, signed = self.page, self.security
        async with (
            Admin(self.address, security=signed) as admin,
            Producer(self.address, security=signed) as producer,
        ):
            await admin.create_topic("Again", 1)
            for _ in range(5):
                await producer.send(Message("Again", b"x"))
            async with Consumer(
                self.address, group="Reset", topics=["Again"], start="earliest", security=signed
            ) as consumer:
                for _ in range(5):
                    message = await consumer.receive(SECONDS)
                    assert message is not None
                    await message.ack()
            await page.goto(f"{self.url}act/offsets-reset?group=Reset&topic=Again")
            await page.locator("select[name=kind]").select_option("begin")
            await press(page, "Preview")
            assert "5 are read again" in await page.locator("main").inner_text()
            await self.do("Reset")
            await self.is_done()
            (one,) = (await admin.consume_stats("Reset", "Again")).offset_table.values()
            assert one.consumer_offset == 0

    async def _is_consumed_again(self, consumer: Consumer) -> None:
        """The only member of Seer is given the first message of Seen once more."""
        async with Admin(self.address, security=self.security) as admin:
            (record,) = await admin.query("Seen", "seen7")
            online = await admin.consumer_connection("Seer")
        assert online is not None
        client = online.connection_set[0].client_id

        async def take() -> None:
            message = await consumer.receive(SECONDS)
            assert message is not None
            await message.ack()

        taking = asyncio.create_task(take())
        about = {"group": "Seer", "client": client, "topic": "Seen", "id": record.offset_id}
        await self.act("message-resend", "", **about)
        await taking

    async def offsets_go_forward_and_to_another_group(self) -> None:
        """Of the group that an_offline_group_is_reset has set to 0."""
        await self.act("group-create", "", group="Copy")
        about = {"topic": "Again", "kind": "forward", "steps": "2"}
        await self.act("offsets-reset", "Reset", group="Reset", **about)
        await self.act("offsets-clone", "Copy", source="Reset", target="Copy", topic="Again")
        async with Admin(self.address, security=self.security) as admin:
            for group in ("Reset", "Copy"):
                (one,) = (await admin.consume_stats(group, "Again")).offset_table.values()
                assert one.consumer_offset == 2

    async def a_topic_and_a_group_from_creation_to_deletion(self) -> None:
        """Created, changed, imported once more, and deleted."""
        await self.act("topic-create", "", topic="Made", write="1", read="1")
        async with Admin(self.address, security=self.security) as admin:
            await until(lambda: is_routed(admin, "Made"))
        await self.act("topic-update", "", topic="Made", write="2", read="2")
        await self.act("group-create", "", group="Made", tries="3")
        await self.act("group-update", "", group="Made", tries="5")
        answer = await self.page.context.request.get(f"{self.url}definitions")
        found = await answer.json()
        (topic,) = (one for one in found["topics"] if one["name"] == "Made")
        (group,) = (one for one in found["groups"] if one["name"] == "Made")
        assert (topic["write_queues"], group["retry_max_times"]) == (2, 5)
        text = json.dumps(found | {"topics": [topic | {"read_queues": 3}], "groups": []})
        await self.preview("act/definitions-import", text=text)
        await self.do()
        await self.is_done()
        async with Admin(self.address, security=self.security) as admin:
            (config,) = (await admin.topic_config("Made")).values()
        assert (config.write_queue_nums, config.read_queue_nums) == (2, 3)
        await self.act("group-delete", "Made", group="Made")
        await self.act("topic-delete", "Made", topic="Made")

    async def a_broker_is_changed(self) -> None:
        """Its setting, and its permission to be written, which it gets back."""
        setting = {"setting": "fileReservedTime", "value": "71"}
        await self.act("broker-set", setting["setting"], **setting)
        await self.act("broker-wipe", BROKER_NAME, broker=BROKER_NAME)
        await self.act("broker-write", BROKER_NAME, broker=BROKER_NAME)

    async def a_user_and_a_rule_from_creation_to_deletion(self) -> None:
        """Of a cluster with access control."""
        await self.preview("act/user-create?user=ann", password="hush-hush")
        await self.do()
        await self.is_done()
        await self.act("user-update", "", user="ann", status="disabled")
        rule = {"user": "ann", "resource": "Topic:orders"}
        await self.act("rule-create", "", **rule, actions="Pub, Get")
        await self.act("rule-update", "", **rule, actions="Pub", decision="Deny")
        await self.act("rule-delete", **rule)
        await self.act("user-delete", user="ann")

    async def a_transaction_that_was_given_up_is_checked_again(self) -> None:
        """Its producer is asked once more and commits; brokers give it up after one check."""
        states = [TransactionState.UNKNOWN]

        async def check(_: object) -> TransactionState:
            return states[-1]

        signed = self.security
        reading: dict[str, Any] = {"group": "Deals", "topics": ["Deals"], "start": "earliest"}
        async with Admin(self.address, security=signed) as admin:
            await admin.create_topic("Deals", 1, attributes={"message.type": "TRANSACTION"})
            async with (
                TransactionProducer(
                    self.address, group="dealer", check=check, security=signed
                ) as producer,
                Consumer(self.address, security=signed, **reading) as consumer,
            ):
                await producer.begin(Message("Deals", b"x", keys=["deal-1"]))
                half = await self._given_up(admin, "deal-1")
                states.append(TransactionState.COMMIT)
                about = urlencode({"topic": "Deals", "id": half})
                await self.preview(f"act/transaction-check?{about}")
                assert "half message of Deals, 1 checks" in await self.page.inner_text("main")
                await self.do()
                await self.is_done()
                message = await consumer.receive(SECONDS)
                assert message is not None
                assert (message.body, message.keys) == (b"x", ["deal-1"])
                await message.ack()

    async def _given_up(self, admin: Admin, key: str) -> str:
        """The offset id of a half message, once its broker has given it up."""
        found: list[str] = []

        async def is_given_up() -> bool:
            with suppress(NoRouteError):
                found[:] = [one.offset_id for one in await admin.query(GIVEN_UP_TOPIC, key)]
            return bool(found)

        await until(is_given_up, key)
        return found[0]

    async def a_broker_is_killed_under_an_open_page(self, cluster: Cluster) -> None:
        """The page marks it, others are shown, and the mark goes when the broker is back. The
        fixture `refreshed` makes pages refresh themselves each second."""
        page = self.page
        async with Admin(self.address, security=self.security) as admin:
            await admin.create_topic("Kept", 1)
        await self.shows(f"{self.url}topics", "Kept")
        await page.goto(f"{self.url}overview")
        marks = page.locator("main .mark[role=alert]", has_text=cluster.broker)
        await marks.first.wait_for(state="detached")
        await asyncio.to_thread(cluster.stop_broker, kill=True)
        try:
            await marks.first.wait_for(timeout=1_000 * SECONDS)
            for path in ("topics", "groups", "brokers", "messages", "actions"):
                answer = await page.goto(f"{self.url}{path}")
                assert answer.status == 200, path
            await self.shows(f"{self.url}topics", "Kept")
            await page.goto(f"{self.url}overview")
            assert await marks.count() == 1
        finally:
            await asyncio.to_thread(cluster.start_broker)
        await marks.first.wait_for(state="detached", timeout=1_000 * SECONDS)
