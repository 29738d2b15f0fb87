"""A console in which every page has something to show: one set of data for pictures and measures.

A shop's cluster with two brokers, filled by clients and by the console's own forms. The histories
are written into the console's memory, as a real one needs hours.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from aerobee.client import (
    Admin,
    Consumer,
    Message,
    Producer,
    ReceivedMessage,
    SendReceipt,
    TransactionProducer,
    TransactionState,
)
from aerobee.client.base.identity import now_ms
from aerobee.console.access.passwords import hash_password
from aerobee.console.access.rights import Right, Visitor
from aerobee.console.access.user_file import User
from aerobee.console.clusters.history import STEP_MS, History
from aerobee.console.clusters.lakes import Lakes
from aerobee.protocol.bodies.group import SubscriptionGroupConfig
from aerobee.protocol.names import GROUP_CHARS_MAX, TOPIC_CHARS_MAX
from aerobee.testing import LocalCluster

from ...waiting import LONG, until
from .site import Site, dead_letters_of
from .test_pages_actions import confirmed, previewed
from .test_pages_lake import running, table

NAME, PASSWORD = "ann", "correct horse"
TYPES = {
    "orders": "NORMAL",
    "payments": "FIFO",
    "reminders": "DELAY",
    "settlements": "TRANSACTION",
}
LONG_NAME = ("events_of_the_warehouse_in_" + "a_region_with_a_long_name_" * 5)[:TOPIC_CHARS_MAX]
PERCENT_NAME = "shop%eu|returns"
PLAIN = ("shipments", "invoices", "clicks", LONG_NAME, PERCENT_NAME)
# Together they make a second page of the list.
TEAMS = (
    *("cart", "stock", "price", "search", "mail", "loyalty", "fraud", "supplier", "support"),
    *("catalog", "coupon", "review"),
)
EVENTS = ("created", "changed", "deleted", "checked", "archived", "exported", "failed", "audited")
ORDERS = 120
CONSUMED = "billing"  # a group that consumed all, with a member online
BEHIND = "analytics"
DEAD = "shipping"  # a group with dead letters
LONG_GROUP = ("members_of_the_warehouse_" * 5)[:GROUP_CHARS_MAX]  # with a dead letter, too
EMPTY = "nightly-reports"  # a group without members
LETTERS = 6
MEMBER = "10.4.7.21@billing-6f9c7d5b8-x2k4q"
# Users and rules are kept, and asked for nothing.
ACCESS = {
    f"auth{kind}_metadata_provider": f"org.apache.rocketmq.auth.auth{kind}.provider.{cls}"
    for kind, cls in (
        ("entication", "LocalAuthenticationMetadataProvider"),
        ("orization", "LocalAuthorizationMetadataProvider"),
    )
}
HISTORY_MS = 6 * 3_600_000


@dataclass(frozen=True, slots=True)
class Shown:
    """A page: its path and query. `presses` is the number of forms that are sent from there, each
    after `typed` is typed where it asks for that. `opens_menu`: the menu is opened where it is
    folded. `is_outside`: without a session."""

    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    presses: int = 0
    typed: str = ""
    opens_menu: bool = False
    is_outside: bool = False


@dataclass(slots=True)
class Showroom:
    """The console, and its pages by the names of their pictures."""

    site: Site
    pages: dict[str, Shown]
    producer: Producer

    async def admit(self, context: Any) -> None:
        """Log in the browser's context."""
        name = self.site.access.sessions.open(Visitor(NAME, Right.ADMINISTER))
        cookie = self.site.access.guard.cookie
        await context.add_cookies([{"name": cookie, "value": name, "url": self.site.origin}])

    async def go(self, page: Any, shown: Shown) -> None:
        """Show a page in the browser, whose forms are sent."""
        if shown.is_outside:
            await page.context.clear_cookies()
        where = f"{self.site.console.url}{shown.path}?{urlencode(shown.query)}"
        await page.goto(where, wait_until="load")
        for _ in range(shown.presses):
            if await page.locator("main input[name=typed]").count():
                await page.locator("main input[name=typed]").fill(shown.typed)
            async with page.expect_navigation(wait_until="load"):
                await page.locator("main form[method=post] button").first.click()
        if shown.is_outside:
            await self.admit(page.context)

    async def open(self, page: Any, shown: Shown) -> None:
        """Show a page whole: its charts are drawn, and what comes by itself has come."""
        await self.go(page, shown)
        await until(
            lambda: page.evaluate(ARE_DRAWN), f"the charts of {page.url} are drawn", pause=0.01
        )
        button = page.locator("[popovertarget=menu]")
        if shown.opens_menu and await button.first.is_visible():
            await button.first.click()
        if shown.path == "tail":
            await until(lambda: self._is_live(page), "the live view shows a message", pause=0.05)

    async def _is_live(self, page: Any) -> bool:
        await self.producer.send(Message("clicks", body_of(1), tags="web", keys=["c-1"]))
        return bool(await page.locator("#tail tr").count())


# A chart that can be seen is drawn, or has no two points to draw.
ARE_DRAWN = """async () => {
  for (const one of document.querySelectorAll("[data-chart]")) {
    if (one.querySelector(".uplot") || !one.checkVisibility()) continue;
    const answer = await fetch(one.dataset.chart);
    if (answer.ok && (await answer.json()).values.length > 1) return false;
  }
  return true;
}"""


@asynccontextmanager
async def showroom() -> AsyncIterator[Showroom]:
    """The console of a filled cluster, while it runs."""
    with LocalCluster(brokers=2, **ACCESS) as cluster:
        async with AsyncExitStack() as stack:
            address = cluster.name_server
            await _make_names(address)
            await _make_differ(cluster)
            producer = await stack.enter_async_context(Producer(address, group="web-shop"))
            tills = TransactionProducer(address, group="till", check=_unknown)
            await stack.enter_async_context(tills)
            sent = await _send(producer, tills)
            dead, long_letter = await _consume(address, stack)
            lake = await stack.enter_async_context(_lake())
            site = Site(
                {"main": address, "archive": address},
                users=(User(NAME, Right.ADMINISTER, password=hash_password(PASSWORD)),),
                lakes={"main": Lakes([lake])},
            )
            for one in site.console.clusters.by_name.values():
                fill_history(one.collector.history)
            await stack.enter_async_context(site)
            await site.log_in_as(site.session, NAME, PASSWORD)
            run = await _act(site, dead)
            yield Showroom(site, _pages(sent[0], dead, long_letter, run), producer)


def body_of(number: int) -> bytes:
    """The JSON of an order."""
    return json.dumps(
        {
            "order": {"number": number, "total": 19.9 + number, "currency": "EUR"},
            "customer": {"name": "Ada Lovelace", "city": "Köln", "address": "Hohe Straße 12"},
            "items": [{"sku": f"A-{number:05}", "count": 2}, {"sku": "B-00417", "count": 1}],
            "paid": number % 3 == 0,
        },
        ensure_ascii=False,
    ).encode()


def fill_history(history: History) -> None:
    """Some hours of figures, above 10,000 and above a million, in the form of two waves."""
    end = now_ms() - 2 * STEP_MS
    series: dict[tuple[str | int, ...], int] = {
        ("topic", "orders"): 38_000,
        ("topic", LONG_NAME): 950,
        ("lag", CONSUMED): 40,
        ("lag", BEHIND): 12_400_000,
        ("lag", DEAD): 84_000,
    }
    for broker in ("broker-a", "broker-b"):
        series |= {("in", broker, 0): 52_000, ("out", broker, 0): 148_000}
    for key, most in series.items():
        for number, at_ms in enumerate(range(end - HISTORY_MS, end, STEP_MS)):
            wave = 0.6 + 0.3 * math.sin(number / 190) + 0.1 * math.sin(number / 23)
            history.add(key, at_ms, round(most * wave))


async def _make_names(address: str) -> None:
    others = [f"{team}-{event}" for team in TEAMS for event in EVENTS]
    async with Admin(address) as admin:
        for name, kind in TYPES.items():
            await admin.create_topic(name, 4, attributes={"message.type": kind})
        await asyncio.gather(*(admin.create_topic(name, 2) for name in (*PLAIN, *others)))
        for group in (CONSUMED, BEHIND, DEAD, EMPTY):
            await admin.update_group(SubscriptionGroupConfig(group))
        for user in ("shop-app", "reports"):
            await admin.create_user(user, PASSWORD)
        await admin.allow("shop-app", ["Topic:orders", "Topic:payments"], ["Pub", "Sub"])
        await admin.allow("reports", "Group:nightly*", "Sub", source_ips=["10.4.0.0/16"])


async def _make_differ(cluster: LocalCluster) -> None:
    """Change settings of one broker."""
    changes: dict[str, str | int | bool] = {
        "fileReservedTime": 168,
        "deleteWhen": "02;14",
        "traceOn": False,
    }
    async with Admin(cluster.name_server) as admin:
        await admin.update_broker_config(f"127.0.0.1:{cluster.brokers[1].port}", changes)


async def _send(producer: Producer, tills: TransactionProducer) -> list[SendReceipt]:
    """Send the messages of all topics; the receipts of the orders."""
    sent: list[SendReceipt] = []
    for number in range(ORDERS):
        tag = ("created", "paid", "cancelled")[number % 3]
        properties = {"channel": "web", "region": "eu-central-1"}
        keys = [f"order-{number}", f"customer-{number % 7}"]
        order = Message("orders", body_of(number), tags=tag, keys=keys, properties=properties)
        sent.append(await producer.send(order))
    for name in ("payments", *PLAIN):
        for number in range(5):
            await producer.send(Message(name, body_of(number), keys=[f"{name[:20]}-{number}"]))
    await producer.send(Message("reminders", b"pay!", delay=timedelta(hours=20), keys=["r-1"]))
    await producer.send(Message("reminders", b"read!", delay_level=18, keys=["r-2"]))
    await tills.begin(Message("settlements", body_of(7), keys=["settlement-7"]))
    async with tills.transaction(Message("settlements", body_of(8), keys=["settlement-8"])):
        pass
    return sent


async def _consume(address: str, stack: AsyncExitStack) -> tuple[ReceivedMessage, ReceivedMessage]:
    """Let groups consume, with one member that stays until the stack ends; a dead message of DEAD
    and one of LONG_GROUP."""
    async with _member(address, DEAD) as shipping:
        letters = [await _next(shipping) for _ in range(LETTERS)]
        for letter in letters:
            await letter.nack(delay_level=-1)
        for _ in range(10):
            await (await _next(shipping)).ack()
        await (await _next(shipping)).nack()
    async with _member(address, LONG_GROUP) as members:
        last = await _next(members)
        await last.nack(delay_level=-1)
    async with _member(address, BEHIND) as analytics:
        for _ in range(3):
            await (await _next(analytics)).ack()
    billing = await stack.enter_async_context(_member(address, CONSUMED, client_id=MEMBER))
    for _ in range(ORDERS):
        await (await _next(billing)).ack()
    return letters[0], last


def _member(address: str, group: str, **more: Any) -> Consumer:
    return Consumer(address, group=group, topics=["orders"], start="earliest", **more)


async def _next(consumer: Consumer) -> ReceivedMessage:
    message = await consumer.receive(LONG)
    assert message is not None
    return message


def _unknown(_: object) -> TransactionState:
    return TransactionState.UNKNOWN


def _lake() -> AbstractAsyncContextManager[str]:
    """A lake with a table that is copied, and one that fails."""
    failure = "the catalog at http://catalog:8181 refuses the commit: the table was dropped"
    return running(
        table("orders", lag_messages=18_412),
        table("payments"),
        table("clicks", failure=failure, last_failure=failure, last_failure_ms=1_790_000_000_000),
    )


async def _act(site: Site, letter: ReceivedMessage) -> str:
    """Create a topic and send a dead letter again by the console's forms; the run."""
    made = {"topic": "vouchers", "write": "8", "read": "8", "perm": "read and write"}
    status, text = await confirmed(
        site, "topic-create", await previewed(site, "topic-create", **made)
    )
    assert status == 200, text
    again = {"group": DEAD, "target": "the group only", "rate": "1000"}
    again["where"] = f"body.order.number = {json.loads(letter.body)['order']['number']}"
    status, text = await confirmed(
        site, "redrive", await previewed(site, "redrive", **again), typed=DEAD
    )
    assert status == 303, text
    (run,) = site.console.site.registry.redrives.runs("main")
    async with asyncio.timeout(LONG):
        await run.finished.wait()
    return run.ident


def _pages(
    first: SendReceipt, letter: ReceivedMessage, long_letter: ReceivedMessage, run: str
) -> dict[str, Shown]:
    place = {
        "topic": "orders",
        "broker": first.queue.broker_name,
        "queue": str(first.queue.queue_id),
        "offset": str(first.queue_offset),
    }
    orders, dead = {"topic": "orders"}, {"group": DEAD}
    return {
        "overview": Shown("overview"),
        "menu": Shown("overview", opens_menu=True),
        "topics": Shown("topics"),
        "topics-second": Shown("topics", {"page": "2", "sort": "-messages"}),
        "topics-all": Shown("topics", {"kind": "all"}),
        "topics-none": Shown("topics", {"q": "no topic has this name"}),
        "topic": Shown("topic", {"name": "orders"}),
        "topic-long": Shown("topic", {"name": LONG_NAME}),
        "topic-percent": Shown("topic", {"name": PERCENT_NAME}),
        "topic-unknown": Shown("topic", {"name": "nowhere"}),
        "groups": Shown("groups"),
        "group-consumed": Shown("group", {"name": CONSUMED}),
        "group-behind": Shown("group", {"name": BEHIND}),
        "group-dead": Shown("group", {"name": DEAD}),
        "group-empty": Shown("group", {"name": EMPTY}),
        "member": Shown("member", {"group": CONSUMED, "client": MEMBER}),
        "producers": Shown("producers"),
        "messages": Shown("messages"),
        "messages-newest": Shown("messages", orders),
        "messages-wrong": Shown("messages", orders | {"q": "body.order.number >> 5"}),
        "messages-found": Shown("messages", orders | {"key": "customer-3"}),
        "message": Shown("message", place),
        "message-way": Shown("message", orders | {"id": letter.msg_id}),
        "messages-dead": Shown("messages", {"topic": dead_letters_of(DEAD), "key": letter.keys[0]}),
        "search": Shown("search", orders),
        "search-where": Shown("search", orders | {"where": "body.order.number > 100"}),
        "tail": Shown("tail", {"topic": "clicks"}),
        "dead_letters": Shown("dead_letters"),
        "dead_letters-group": Shown("dead_letters", dead),
        "message-dead": Shown(
            "message", {"topic": dead_letters_of(LONG_GROUP), "id": long_letter.msg_id}
        ),
        "scheduled": Shown("scheduled"),
        "transactions": Shown("transactions"),
        "lake": Shown("lake"),
        "brokers": Shown("brokers"),
        "brokers-found": Shown("brokers", {"q": "broker"}),
        "broker": Shown("broker", {"name": "broker-b"}),
        "broker-found": Shown("broker", {"name": "broker-b", "settings.q": "e", "report.q": "e"}),
        "access": Shown(
            "access", {"user": "shop-app", "action": "Pub", "resource": "Topic:orders"}
        ),
        "findings": Shown("findings"),
        "audit": Shown("audit"),
        "actions": Shown("actions"),
        "redrives": Shown("redrives"),
        "redrive": Shown("redrives/run", {"run": run}),
        "act-topic-create": Shown("act/topic-create"),
        "act-faults": Shown("act/topic-create", {"write": "many"}, presses=1),
        "act-message-send": Shown("act/message-send", orders),
        "act-redrive": Shown("act/redrive", dead),
        "act-redrive-letters": Shown(
            "act/redrive", dead | {"letters": letter.msg_id, "target": "a topic", "topic": "orders"}
        ),
        "act-redrive-wrong": Shown("act/redrive", dead | {"letters": "order-1"}, presses=1),
        "act-offsets-reset": Shown("act/offsets-reset", dead | orders),
        "act-preview": Shown(
            "act/offsets-reset", {"group": LONG_GROUP, "kind": "begin"} | orders, presses=1
        ),
        "act-preview-refused": Shown(
            "act/offsets-reset", {"group": CONSUMED, "kind": "begin"} | orders, presses=1
        ),
        "act-result": Shown("act/message-send", {"topic": "clicks", "body": "{}"}, presses=2),
        "login": Shown("login", is_outside=True),
    }
