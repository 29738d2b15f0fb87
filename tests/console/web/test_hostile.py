"""Names, bodies and properties full of markup and control characters: shown, and inert, on every
page; and a broker that knows only Java's requests."""

from collections.abc import AsyncIterator

import pytest
from aerobee.console.web.rendering import visible
from aerobee.console.web.routes import PAGES

from ...client.fakes import until
from ..fake_cluster import Shop
from .site import Parsed, Site

HOSTILE = (
    "<img src=x onerror=alert(1)><b hx-get=/x hx-trigger=load>{{7*7}}{% raw %}'\""
    "</td></script><script>alert(2)</script>\u202egro\x1b[31m\x00=1+1 javascript:alert(3)"
)
HIDDEN = "\u202e\x1b\x00\ufeff\u2066"
ELEMENTS = {"html", "head", "meta", "title", "link", "script", "body", "header", "main", "nav"}


@pytest.fixture
async def hostile() -> AsyncIterator[Shop]:
    shop = Shop(HOSTILE, body=HOSTILE.encode() + b"\xff\xfe")
    await shop.start()
    yield shop
    await shop.stop()


def queries(name: str) -> dict[str, dict[str, str]]:
    """Parameters with which each page shows the name."""
    return {
        "topic": {"name": name},
        "group": {"name": name},
        "member": {"group": name, "client": name},
        "message": {"topic": name, "broker": name, "queue": "0", "offset": "3"},
        "messages": {"topic": name, "key": name, "where": name},
        "broker": {"name": name},
        "tail": {"topic": name, "where": "tag = 'x'"},
        "topics": {"kind": "all", "q": name[:10]},
        "groups": {"q": name[:10]},
        "search": {"topic": name, "begin": "1"},
        "access": {"resource": name},
    }


def check_inert(text: str, headers: dict[str, str]) -> None:
    """What a browser makes of the page has no element or attribute of the hostile text."""
    assert not any(one in text for one in HIDDEN)
    nonce = headers["Content-Security-Policy"].split("'nonce-")[1].split("'")[0]
    for tag, attrs in Parsed(text).elements:
        assert tag != "img"
        assert not any(name.startswith("on") for name in attrs), (tag, attrs)
        if tag == "script":
            assert attrs.get("nonce") == nonce
        if any(name.startswith("hx-") for name in attrs):
            assert attrs.get("hx-nonce") == nonce
            assert attrs.get("hx-get") != "/x"
        for name in ("href", "src", "action"):
            assert not (attrs.get(name) or "").startswith(("javascript:", "data:", "//"))


@pytest.mark.parametrize("is_broken", [False, True])
async def test_hostile_text_is_shown_and_inert_on_every_page(
    hostile: Shop, is_broken: bool
) -> None:
    async with Site({"main": hostile.address}) as site:
        if is_broken:  # the text of its error is hostile as well
            (sample,) = site.console.clusters.by_name["main"].collector.brokers.values()
            sample.wrong, sample.wrong_ms = HOSTILE, 1
        given = queries(HOSTILE)
        shown = 0
        for path in [*(page.path for page in PAGES), "search"]:
            status, text, headers = await site.get(path, **given.get(path, {}))
            assert status in (200, 400, 404, 502), (path, text)
            check_inert(text, headers)
            shown += visible(HOSTILE) in Parsed(text).text
        assert shown >= 14


async def test_error_pages_repeat_no_hostile_text_as_markup(hostile: Shop) -> None:
    async with Site({"main": hostile.address}) as site:
        for path in ("topic", "group", "broker"):
            status, text, headers = await site.get(path, name="other" + HOSTILE)
            assert status == 404
            check_inert(text, headers)
        for query in ({"cluster": HOSTILE}, {"sort": HOSTILE}, {"page": HOSTILE}):
            status, text, headers = await site.get("topics", **query)
            assert status == 400
            check_inert(text, headers)


async def test_no_secret_of_a_broker_is_shown(hostile: Shop) -> None:
    async with Site({"main": hostile.address}) as site:
        for path in ("broker", "api/broker", "brokers", "api/brokers"):
            _, text, _ = await site.get(path, name=HOSTILE)
            assert "the secret" not in text
        assert "secretKey" in await site.html("broker", name=HOSTILE)


async def test_bodies_that_are_no_text_are_bounded() -> None:
    deep = b"[" * 100_000
    for body, kind, says in (
        (
            deep,
            "text",
            "the first 65,536 of 100,000 characters are shown; a text of 100,000 characters is "
            "not read as JSON, the limit is 65,536",
        ),
        (b"\xff" * 10_000, "hex", "the first 4,096 of 10,000 bytes are shown"),
        (b'{"a": [1, 2]}', "JSON", None),
    ):
        shop = Shop("orders", body=body)
        await shop.start()
        async with Site({"main": shop.address}) as site:
            place = {"topic": "orders", "broker": "orders", "queue": "0", "offset": "3"}
            found = (await site.data("message", **place))["body"]
            assert (found["kind"], found["note"], found["bytes"]) == (kind, says, len(body))
            assert (await site.data("search", topic="orders", where="body.a = 1"))["found"] == []
        await shop.stop()


async def test_a_broker_without_our_requests_is_asked_one_by_one() -> None:
    shop = Shop("orders", is_java=True)
    await shop.start()
    async with Site({"main": shop.address}) as site:
        collector = site.console.clusters.by_name["main"].collector
        await until(lambda: collector.groups()["orders"].at_ms is not None)
        # The broker has the topic's name, so the topic counts as one of the system.
        (row,) = (await site.data("topics", kind="system"))["list"]["rows"]
        assert (row["messages"], row["rate_in"], row["last_ms"]) == (4, 2.5, 77_000)
        # What such a broker does not tell is not known, and never 0.
        assert (row["first_ms"], row["puts"]) == (None, None)
        (group,) = (await site.data("groups"))["list"]["rows"]
        assert (group["lag"], group["members"]) == (3, 1)
        assert (group["lag_ms"], group["dead_letters"], group["rate_out"]) == (None, None, None)
        assert "not known" in Parsed(await site.html("groups")).text
    await shop.stop()
