"""Logins by a file of users, and what limited visitors see."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aerobee.console.access.access import Refused
from aerobee.console.access.attempts import PER_ADDRESS, TooMany
from aerobee.console.access.link_socket import ConsoleLink, ask
from aerobee.console.access.passwords import hash_password
from aerobee.console.access.rights import Bodies, Right
from aerobee.console.access.user_file import User
from aerobee.console.clusters.metrics import metrics_text

from ...scripts.command import refused
from ..fake_cluster import Shop
from .site import Parsed, Site

PASSWORD = "correct horse"
KEPT = hash_password(PASSWORD)
USERS = (
    User("ann", Right.ADMINISTER, password=KEPT),
    User("bob", Right.VIEW, ("orders",), ("other",), Bodies.HIDDEN, KEPT),
    User("cat", Right.VIEW, ("other",), ("orders",), Bodies.MASKED, KEPT),
    User("dan", Right.VIEW, bodies=Bodies.MASKED, password=KEPT),
    User("eve", Right.ADMINISTER),
)
PLACE = {"topic": "orders", "broker": "orders", "queue": "0", "offset": "3"}


def basic(name: str, password: str) -> str:
    """The header Authorization of a program."""
    return "Basic " + b64encode(f"{name}:{password}".encode()).decode()


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    shop = Shop("orders", body=b'{"card": "visa-4711", "paid": true, "n": [1, null]}')
    shop.topics["other"] = 1
    await shop.start()
    yield shop
    await shop.stop()


@pytest.fixture
async def site(shop: Shop) -> AsyncIterator[Site]:
    async with Site({"main": shop.address}, users=USERS) as site:
        yield site


async def test_a_user_logs_in_and_goes_on_where_the_visit_began(site: Site) -> None:
    status, _, headers = await site.get("topic", name="orders")
    assert status == 303
    async with site.session.get(site.console.url.rstrip("/") + headers["Location"]) as answer:
        text = await answer.text()
    (after,) = [a["value"] for t, a in Parsed(text).elements if a.get("name") == "next"]
    assert after == "/topic?name=orders"
    status, text, found = await site.log_in_as(site.session, "ann", PASSWORD, next=after or "")
    assert (status, found["Location"]) == (303, "/topic?name=orders")
    assert "ann, may administer" in await site.html("overview")
    assert PASSWORD not in text


@pytest.mark.parametrize(
    "after", ["//evil.example", "http://evil.example/", "/\\evil.example", "/a\nb", "x", ""]
)
async def test_a_login_never_leads_elsewhere(site: Site, after: str) -> None:
    status, _, headers = await site.log_in_as(site.session, "ann", PASSWORD, next=after)
    assert (status, headers["Location"]) == (303, "/overview")


async def test_a_wrong_login_never_tells_what_is_wrong(site: Site) -> None:
    texts = set()
    for name, password in (
        ("ann", "wrong password"),
        ("nobody", PASSWORD),
        ("eve", PASSWORD),  # comes by a proxy only, so has no password
        ("ann", PASSWORD + "\x00"),
        ("", ""),
        ("x" * 5_000, "x" * 5_000),
    ):
        status, text, headers = await site.log_in_as(site.session, name, password)
        assert status == 401
        assert "Set-Cookie" not in headers
        texts.add(text)
    assert len(texts) == 1
    assert "name and password do not fit" in texts.pop()


async def test_a_console_with_users_gives_no_link(site: Site) -> None:
    console = site.console
    assert await asyncio.to_thread(ask, console.port) == ConsoleLink(console.url, None)
    words = ("console", "--link", "--port", str(console.port))
    said = await asyncio.to_thread(refused, *words)
    assert f"log in at {console.url} with name and password" in said


async def test_a_login_from_another_site_is_refused(site: Site) -> None:
    headers = {"Origin": "http://evil.example"}
    status, text, found = await site.log_in_as(site.session, "ann", PASSWORD, headers)
    assert (status, "Set-Cookie" in found) == (403, False)
    assert "send forms from the console" in text


async def test_a_thousand_logins_are_cut_to_ten(site: Site) -> None:
    checks = 0
    for n in range(1_000):
        try:
            await site.access.log_in(f"name-{n % 7}", "wrong password", "127.0.0.1")
        except Refused:
            checks += 1
        except TooMany:
            pass
    assert checks == PER_ADDRESS
    status, text, headers = await site.log_in_as(site.session, "ann", PASSWORD)
    assert (status, headers["Retry-After"]) == (429, "600")
    assert "which is the limit; wait 10 minutes" in text
    site.clock += 601
    assert (await site.log_in_as(site.session, "ann", PASSWORD))[0] == 303


async def test_no_secret_is_in_the_log_or_in_a_metric(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    secret, wrong = "hush-7261", "wrong-7262"
    await site.log_in_as(site.session, "ann", wrong)
    await site.log_in_as(site.session, "ann", PASSWORD)
    token = await site.token()
    await site.post("act/user-create/preview", {"user": "x", "password": secret})
    await site.get("api/topics", headers={"Authorization": basic("ann", PASSWORD)})
    await site.get("topics", sort=token)  # a refusal
    ids = [one.value for one in site.session.cookie_jar]
    text = caplog.text + b"".join(await metrics_text(site.console.clusters)).decode()
    assert ids
    assert "aerobee_console_broker_up" in text
    for one in (secret, wrong, PASSWORD, token, *ids):
        assert one not in text


async def test_a_user_that_is_removed_or_changed_has_no_session_any_more(site: Site) -> None:
    async with site.visitor() as other:
        assert (await site.log_in_as(other, "ann", PASSWORD))[0] == 303
        assert (await site.log_in_as(site.session, "dan", PASSWORD))[0] == 303
        kept = dict(site.users.users())
        site.users.write(kept | {"ann": User("ann", Right.VIEW, password=KEPT)})
        url = site.console.url + "overview"
        async with other.get(url, allow_redirects=False) as answer:
            assert answer.status == 303
        assert (await site.get("overview"))[0] == 200
        site.users.path.chmod(0o644)
        assert (await site.get("overview"))[0] == 303


async def test_a_program_sends_name_and_password(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = site.console.url + "api/topics"
    checks: list[str] = []
    real = site.access._by_password

    async def counted(name: str, password: str, address: str) -> str:
        checks.append(name)
        return await real(name, password, address)

    monkeypatch.setattr(site.access, "_by_password", counted)
    async with aiohttp.ClientSession() as program:
        for _ in range(5):
            headers = {"Authorization": basic("ann", PASSWORD)}
            async with program.get(url, headers=headers) as answer:
                assert answer.status == 200
                assert "Set-Cookie" not in answer.headers
        for headers in (
            {"Authorization": basic("ann", "wrong password")},
            {"Authorization": "Basic !"},
            {"Authorization": "Bearer x"},
        ):
            async with program.get(url, headers=headers) as answer:
                assert answer.status == 401
                assert "do not fit" in (await answer.json())["error"]
        page = site.console.url + "overview"
        headers = {"Authorization": basic("ann", PASSWORD)}
        async with program.get(page, headers=headers, allow_redirects=False) as answer:
            assert answer.status == 303
    assert checks == ["ann", "ann"]


async def test_a_limited_visitor_sees_its_topics_and_groups_alone(site: Site) -> None:
    await site.log_in_as(site.session, "bob", PASSWORD)
    for path, query, status in (
        ("topic", {"name": "orders"}, 200),
        ("topic", {"name": "%DLQ%orders"}, 403),
        ("group", {"name": "orders"}, 403),
        ("member", {"group": "orders", "client": "orders"}, 403),
        ("messages", {"topic": "other", "key": "k"}, 403),
        ("message", {"topic": "%RETRY%orders", "id": "x"}, 403),
        ("search", {"topic": "other"}, 403),
        ("tail", {"topic": "other"}, 403),
        ("tail/events", {"topic": "other"}, 403),
        ("access", {}, 403),
        ("findings", {}, 403),
        ("api/search", {"topic": "other"}, 403),
        ("api/history", {"series": "lag", "name": "orders"}, 403),
        ("api/history", {"series": "topic", "name": "other"}, 403),
    ):
        found, text, _ = await site.get(path, **query)
        assert found == status, (path, text)
        if status == 403:
            assert "bob may not" in text
    names = [row["name"] for row in (await site.data("topics", kind="all"))["list"]["rows"]]
    assert names == ["orders"]
    assert (await site.data("groups"))["list"]["rows"] == []
    assert (await site.data("dead_letters"))["list"]["rows"] == []
    assert (await site.data("producers"))["list"]["rows"] == []
    assert (await site.data("overview"))["groups"] == 0
    assert (await site.data("topic", name="orders"))["groups"] == []
    assert all(not step["group"] for step in (await site.data("message", **PLACE))["way"])


async def test_a_group_of_a_limited_visitor_shows_no_other_topic(site: Site) -> None:
    await site.log_in_as(site.session, "cat", PASSWORD)
    found = await site.data("group", name="orders")
    assert (found["queues"], found["subscriptions"], found["group"]["topics"]) == ([], [], [])
    assert [row["name"] for row in (await site.data("dead_letters"))["list"]["rows"]] == [
        "%DLQ%orders"
    ]


async def test_an_id_never_leads_to_a_message_of_another_topic(site: Site, shop: Shop) -> None:
    await site.log_in_as(site.session, "cat", PASSWORD)
    # The broker answers a query about one topic with a message of another.
    assert (await site.data("messages", topic="other", key="k"))["found"] == []
    status, text, _ = await site.get("message", topic="other", id="k")
    assert status == 404
    assert "visa-4711" not in text


async def test_bodies_are_hidden_or_masked(site: Site) -> None:
    await site.log_in_as(site.session, "bob", PASSWORD)
    body = (await site.data("message", **PLACE))["body"]
    assert (body["kind"], body["text"]) == ("hidden", "")
    assert "bodies are hidden for you" in body["note"]
    for path in ("message", "search", "api/search"):
        status, text, _ = await site.get(path, **PLACE, begin="0")
        assert (status, "visa-4711" in text, "hidden" in text) == (200, False, True)
    async with site.visitor() as other:
        await site.log_in_as(other, "dan", PASSWORD)
        async with other.get(site.console.url + "api/message", params=PLACE) as answer:
            masked = (await answer.json())["body"]
    assert masked["kind"] == "masked"
    assert "visa-4711" not in masked["text"]
    assert '"card": "(text)"' in masked["text"]
    assert '"paid": "(true or false)"' in masked["text"]


async def test_an_expression_tells_nothing_about_hidden_bodies(site: Site) -> None:
    await site.log_in_as(site.session, "bob", PASSWORD)
    for where in (
        "body.card = 'visa-4711'",
        "BODY CONTAINS '4'",
        "tag = 'x' OR body.n IS NOT NULL",
        "/* ' */ body.n >= 2 /* ' */",
        "-- '\nbody.n > 1 -- '\n",
    ):
        for path in ("search", "tail", "tail/events", "api/search"):
            status, text, _ = await site.get(path, topic="orders", where=where)
            assert status in (400, 403), (where, text)
    found = await site.data("search", topic="orders", where="tag = 'else' OR queue = 0", begin="0")
    assert {one["brief"] for one in found["found"]} == {"[hidden]"}
