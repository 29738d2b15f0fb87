"""The console on an embedded cluster, by HTTP: figures, policy, refusals, brokers that are
away."""

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Hashable, Iterator
from pathlib import Path

import pytest
from aerobee.client import Admin, Consumer, Message, Producer
from aerobee.client.base.identity import now_ms
from aerobee.console.access.access import Access
from aerobee.console.access.audit import Audit
from aerobee.console.access.reverse_proxy import ReverseProxy
from aerobee.console.access.user_file import UserFile
from aerobee.console.actions.registry import ActionRegistry
from aerobee.console.clusters import collector as collectors
from aerobee.console.clusters.clusters import Clusters
from aerobee.console.web import site as web_site
from aerobee.console.web.app import Console
from aerobee.console.web.languages import LANGUAGES
from aerobee.console.web.rendering import environment
from aerobee.console.web.routes import PAGES
from aerobee.protocol import codes
from aerobee.protocol.bodies.summaries import GroupSummaries, GroupSummary
from aerobee.protocol.command import Response
from aerobee.testing import LocalCluster

from ...client.fakes import until
from ...waiting import LONG
from ..fake_cluster import Shop
from .site import LISTED, PATHS, Parsed, Site


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture
async def sent(cluster: LocalCluster) -> list[bytes]:
    """The ledger: 40 messages of topic orders; group shop has consumed them, 5 came behind it."""
    address = cluster.name_server
    bodies = [json.dumps({"order": {"total": n}, "n": n}).encode() for n in range(45)]
    async with Admin(address) as admin:
        await admin.create_topic("orders", queues=2)
    async with Producer(address, group="till") as producer:
        for n, body in enumerate(bodies[:40]):
            tag = "paid" if n % 2 else "open"
            await producer.send(Message("orders", body, tags=tag, keys=[f"k{n}"]))
        async with Consumer(address, group="shop", topics=["orders"], start="earliest") as consumer:
            async with asyncio.timeout(LONG):
                for _ in range(40):
                    message = await consumer.receive()
                    assert message is not None
                    async with message.process():
                        pass
        for body in bodies[40:]:
            await producer.send(Message("orders", body))
    return bodies


@pytest.fixture
async def site(cluster: LocalCluster, sent: list[bytes]) -> AsyncIterator[Site]:
    async with Site({"main": cluster.name_server}) as site:
        yield site


async def test_every_page_is_shown_as_html_and_as_json_under_the_policy(site: Site) -> None:
    key = await site.data("messages", topic="orders", key="k3")
    ident = key["found"][0]["id"]
    for page in PAGES:
        query = PATHS.get(page.path, {})
        if page.path == "member":
            continue
        if page.path == "message":
            query = {"topic": "orders", "id": ident}
        status, text, headers = await site.get(page.path, **query)
        assert status == 200, (page.path, text)
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        found = Parsed(text)
        nonce = policy.split("'nonce-")[1].split("'")[0]
        for tag, attrs in found.elements:
            assert "style" not in attrs
            assert not any(name.startswith("on") for name in attrs)
            if tag == "script":
                assert attrs["nonce"] == nonce
                assert (attrs["src"] or "").startswith("/static/")
            if any(name.startswith("hx-") for name in attrs):
                assert attrs["hx-nonce"] == nonce
        data = await site.data(page.path, **query)
        assert data["samples"]["marks"] == []


async def test_figures_equal_what_was_sent(site: Site) -> None:
    topics = await site.data("topics")
    (row,) = [one for one in topics["list"]["rows"] if one["name"] == "orders"]
    assert (row["messages"], row["puts"], row["groups"]) == (45, 45, 1)
    assert row["brokers"] == ["broker-a", "broker-b"]
    one = await site.data("topic", name="orders")
    assert one["messages"] == sum(queue["messages"] for queue in one["queues"]) == 45
    assert len(one["queues"]) == 4
    group = await site.data("group", name="shop")
    assert group["group"]["lag"] == 5
    assert group["group"]["lag_ms"] > 0
    assert group["group"]["members"] == 0
    assert sum(queue["lag"] for queue in group["queues"]) == 5
    overview = await site.data("overview")
    assert (overview["messages"], overview["topics"], overview["groups"]) == (45, 1, 1)
    assert [one["name"] for one in overview["behind"]] == ["shop"]
    assert "45" in Parsed(await site.html("topics")).text


async def test_the_overview_says_what_is_wrong_and_leads_to_its_cure(site: Site) -> None:
    (found,) = (await site.data("overview"))["findings"]
    assert found["what"] == "it has no member online, and at most 5 messages wait for it"
    assert found["severity"] == "warning"
    page = Parsed(await site.html("overview"))
    links = [attrs["href"] or "" for tag, attrs in page.elements if tag == "a"]
    assert "/group?cluster=main&name=shop" in links
    assert "/findings?cluster=main" in links
    assert "Warnings: 1" in page.text


async def test_of_many_findings_the_ones_with_the_most_messages_are_told() -> None:
    shop = Shop("orders")
    groups = [GroupSummary(f"group-{one}", True, 1, dead_letters=1 + one) for one in range(150)]
    shop.broker.answers[codes.GET_GROUP_SUMMARIES] = lambda *_: Response(
        body=GroupSummaries(groups).encode()
    )
    await shop.start()
    async with Site({"main": shop.address}) as site:
        overview = await site.data("overview")
        assert (len(overview["findings"]), overview["more"]) == (100, 50)
        assert {one["where"] for one in overview["findings"]} == {
            f"group group-{one}" for one in range(50, 150)
        }
        assert "Warnings: 150" in Parsed(await site.html("overview")).text
    await shop.stop()


async def test_a_chart_goes_back_as_far_as_it_is_asked(site: Site) -> None:
    history = site.console.clusters.by_name["main"].collector.history
    keys: set[Hashable] = {("in", broker, 0) for broker in ("broker-a", "broker-b")}
    history.forget(keys)
    begin_ms = now_ms() - 3_600_000
    for step in range(360):
        for key in keys:
            history.add(key, begin_ms + 10_000 * step, 2.0)
    whole = await site.data("history", series="in", name="")
    assert set(whole["values"][:300]) == {4.0}
    short = await site.data("history", series="in", name="", minutes="15")
    assert len(short["values"]) == 90
    one = await site.data("history", series="in", name="broker-a", minutes="15")
    assert one["values"][0] == 2.0
    drawn = (await site.data("overview", minutes="1440"))["histories"]["in"]
    assert drawn[0] == 4.0
    assert 100 < len(drawn) <= 121
    status, text, _ = await site.get("api/history", series="in", minutes="0")
    assert (status, "give 1 to 1440" in text) == (400, True)


async def test_each_table_of_a_page_is_sorted_filtered_and_paged_by_itself(site: Site) -> None:
    def names(text: str) -> list[str]:
        settings = text.split("<h2>Settings</h2>")[1].split("<h2>")[0]
        return re.findall(r'data-label="Name"><span class="name[^"]*">([^<]+)', settings)

    only = names(await site.html("broker", name="broker-a", **{"settings.q": "flushDisk"}))
    assert only == ["flushDiskType"]
    whole = names(await site.html("broker", name="broker-a", **{"settings.sort": "name"}))
    sort = {"settings.sort": "-name", "report.sort": "name"}
    text = await site.html("broker", name="broker-a", **sort)
    assert names(text)[0] > whole[-1] > whole[0]
    assert len(names(text)) == len(whole) == 50
    # A table's links keep the other's order.
    assert re.search(r"settings\.sort=name&(amp;)?report\.sort=name\b", text)
    assert re.search(r"settings\.sort=-name&(amp;)?report\.sort=-name\b", text)
    # Figures begin with the largest, texts with the first.
    text = await site.html("topics")
    assert "sort=-messages#list" in text
    assert "sort=type#list" in text
    text = await site.html("topics", sort="-messages")
    assert "sort=messages#list" in text


@pytest.mark.parametrize(
    ("page", "given", "name"),
    [
        ("topic", {"name": "orders", "queues.sort": "<b>"}, "queues.sort"),
        ("topic", {"name": "orders", "queues.page": "<b>"}, "queues.page"),
        ("topics", {"sort": "<b>"}, "sort"),
        ("topics", {"page": "0"}, "page"),
        ("topics", {"q": "x" * 5_000}, "q"),
    ],
)
async def test_a_list_that_can_not_be_shown_as_asked_is_shown_by_its_default(
    site: Site, page: str, given: dict[str, str], name: str
) -> None:
    whole = {key: value for key, value in given.items() if key == "name"}
    rows = (await site.html(page, **whole)).count("<tr>")
    status, text, _ = await site.get(page, **given)
    assert status == 400
    assert text.count("<tr>") == rows
    (mark,) = re.findall(r'<p class="mark" role="alert">([^<]+)', text)
    assert mark.startswith((f"{name} is ", f"{name} has "))
    assert "<b>" not in text
    status, text, _ = await site.get(f"api/{page}", **given)
    assert (status, f'"{name} ' in text) == ((400, True) if page == "topics" else (200, False))


async def test_an_address_that_is_too_long_is_a_page_that_says_so(site: Site) -> None:
    for path in ("messages", "api/messages"):
        status, text, _ = await site.get(path, topic="orders", q="x" * (17 << 10))
        assert (status, len(text) < 8_000) == (414, True)
        assert "the limit is 16,384; shorten it" in text
    async with site.visitor() as other:
        url = f"{site.console.url}topics?q={'x' * (17 << 10)}"
        async with other.get(url, headers={"Accept-Language": "zh-CN"}) as answer:
            assert (answer.status, "地址有" in await answer.text()) == (414, True)


async def test_older_messages_lead_back_to_the_newest(site: Site) -> None:
    given = {"topic": "orders", "where": "body.n > 0"}
    page = await site.data("search", limit="5", **given)
    newest = ">Newest</a>"
    for path, more in (("search", given), ("messages", {"topic": "orders"})):
        assert newest not in await site.html(path, **more)
        assert newest in await site.html(path, cursor=page["progress"]["cursor"], **more)


async def test_a_search_finds_by_fields_of_the_body_and_goes_on_where_it_ended(
    site: Site, sent: list[bytes]
) -> None:
    where = "body.order.total > 5 AND tag = 'paid'"
    found = await site.data("search", topic="orders", where=where)
    wanted = {n for n in range(40) if n > 5 and n % 2}
    assert {json.loads(one["brief"])["n"] for one in found["found"]} == wanted
    assert found["progress"]["scanned"] == 45
    assert found["progress"]["left"] == 0
    seen: list[int] = []
    cursor = ""
    while True:
        page = await site.data("search", topic="orders", where=where, limit="4", cursor=cursor)
        seen += [json.loads(one["brief"])["n"] for one in page["found"]]
        cursor = page["progress"]["cursor"]
        if cursor is None:
            break
        assert len(page["found"]) == 4
    assert sorted(seen) == sorted(wanted)
    text = Parsed(await site.html("search", topic="orders", where=where)).text
    assert f"45 messages were looked at, {len(wanted)} found, 0 are left" in " ".join(text.split())


async def test_the_newest_messages_of_a_topic_are_shown_at_once_and_older_ones_follow(
    site: Site,
) -> None:
    newest = await site.data("messages", topic="orders")
    times = [one["stored_ms"] for one in newest["found"]]
    assert len(times) == 45
    assert times == sorted(times, reverse=True)
    assert newest["progress"]["cursor"] is None
    text = await site.html("messages", topic="orders")
    assert text.count('data-label="Id"') == 45
    assert "Choose a topic" not in text
    choice = await site.html("messages")
    assert "Choose a topic" in choice
    assert "messages?cluster=main&amp;topic=orders" in choice


async def test_columns_are_chosen(site: Site) -> None:
    text = await site.html("messages", topic="orders", columns="keys,id")
    assert 'data-label="Keys"' in text
    assert 'data-label="Body"' not in text
    nonsense = await site.html("messages", topic="orders", columns="<b>")
    assert 'data-label="Body"' in nonsense
    assert "<b>" not in nonsense


async def test_a_long_key_or_tag_is_folded_and_the_message_has_its_numbers_as_sent(
    site: Site, cluster: LocalCluster
) -> None:
    key, tag, body = "k" * 3_000, "t" * 300, b'{"a": 1e999, "a": 0.10000000000000000001}'
    async with Producer(cluster.name_server) as producer:
        await producer.send(Message("orders", body, tags=tag, keys=[key]))
    text = await site.html("messages", topic="orders")
    for whole in (key, tag):
        folded = f'<details class="folded"><summary>{whole[:80]}…</summary>{whole}</details>'
        assert folded in text
    text = await site.html("message", topic="orders", id=key)
    tree, plain = text.split('<pre class="body">')
    for one in ("1e999", "0.10000000000000000001"):
        assert one in tree
        assert one in plain


@pytest.mark.parametrize(
    ("q", "path", "found"),
    [
        ("k3", "messages", 1),
        ("nothing-of-this-name", "messages", 0),
        ("body.n = 3 AND tag = 'paid'", "search", 1),
        ("tag='paid'", "search", 20),
    ],
)
async def test_the_search_bar_tells_a_key_from_an_expression(
    site: Site, q: str, path: str, found: int
) -> None:
    for begun in ("messages", "search"):
        async with site.session.get(
            site.console.url + begun, params={"topic": "orders", "q": q}
        ) as answer:
            text = await answer.text()
            assert (answer.status, answer.url.path) == (200, f"/{path}")
        assert text.count('data-label="Id"') == found
        fields = [attrs for tag, attrs in Parsed(text).elements if tag == "input"]
        assert [one["value"] for one in fields if one.get("name") == "q"] == [q]


async def test_the_time_holds_for_a_key_as_well(site: Site) -> None:
    given = {"topic": "orders", "key": "k3"}
    assert len((await site.data("messages", **given))["found"]) == 1
    assert (await site.data("messages", begin="2100-01-01T00:00:00", **given))["found"] == []
    assert (await site.data("messages", end="2001-01-01T00:00:00", **given))["found"] == []


async def test_a_wrong_expression_is_kept_and_shown_at_its_character(site: Site) -> None:
    where = "body.n >> <5>"
    async with site.session.get(
        f"{site.console.url}messages", params={"topic": "orders", "q": where}
    ) as answer:
        text = await answer.text()
    assert answer.status == 400
    assert "<code>body.n &gt;<mark>&gt;</mark> &lt;5&gt;</code>" in text
    assert "wrong at character 9" in text
    page = Parsed(text)
    fields = {attrs.get("name"): attrs for tag, attrs in page.elements if tag == "input"}
    assert fields["q"]["value"] == where
    assert fields["q"]["aria-invalid"] == "true"
    assert fields["topic"]["value"] == "orders"


async def test_an_expression_whose_rest_rocketmq_ignores_is_a_fault_at_its_character(
    site: Site,
) -> None:
    for path in ("messages", "tail", "tail/events", "search/export", "api/search"):
        given = {"topic": "orders", ("q" if path == "messages" else "where"): "k3 k4"}
        async with site.session.get(site.console.url + path, params=given) as answer:
            assert answer.status == 400
            text = await answer.text()
        assert "wrong at character 4: RocketMQ reads no further than to" in text
        if path in ("messages", "tail"):
            assert "<code>k3 <mark>k</mark>4</code>" in text
            fields = [attrs for tag, attrs in Parsed(text).elements if tag == "input"]
            assert "k3 k4" in [one.get("value") for one in fields]
            assert "sse:connect" not in text


async def test_a_text_is_read_as_what_it_is_said_to_be(site: Site) -> None:
    async def read(q: str, said: str) -> tuple[str, str, str | None]:
        given = {"topic": " orders ", "q": q, "as": said}
        async with site.session.get(site.console.url + "messages", params=given) as answer:
            assert answer.url.query["topic"] == "orders"
            page, text = Parsed(await answer.text()), await answer.text()
        (kind,) = [a["value"] for t, a in page.elements if t == "option" and "selected" in a] or [
            ""
        ]
        return answer.url.path, page.text, kind if "No message" not in text else f"{kind}, none"

    path, text, kind = await read("a'b <c>", "key")
    assert (path, kind) == ("/messages", "key, none")
    assert "No message of orders has the id or the key a'b <c>." in text
    assert (await read("tag", "expression"))[::2] == ("/search", "expression")
    assert (await read("k3", ""))[::2] == ("/messages", "")
    # What an address says by itself is so when the form is sent again.
    text = await site.html("messages", topic="orders", key="a b")
    assert '<option value="key" selected>' in text


async def test_a_word_that_is_no_key_leads_to_the_search_of_a_tag(site: Site) -> None:
    text = await site.html("messages", topic="orders", q="paid")
    (link,) = [
        attrs["href"] or ""
        for tag, attrs in Parsed(text).elements
        if tag == "a" and "where=tag" in (attrs.get("href") or "")
    ]
    async with site.session.get(site.origin + link) as answer:
        assert (await answer.text()).count('data-label="Id"') == 20
    text = await site.html("messages", topic="orders", q="it's", **{"as": "key"})
    assert "where=tag+%3D+%27it%27%27s%27" in text


async def test_a_trace_id_leads_to_its_message(site: Site, cluster: LocalCluster) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    context = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    async with Producer(cluster.name_server, group="till") as producer:
        await producer.send(Message("orders", b"traced", properties=context))
    where = f"traceparent STARTSWITH '00-{trace}'"
    found = await site.data("search", topic="orders", where=where)
    assert [one["brief"] for one in found["found"]] == ["traced"]


async def test_a_message_is_found_by_key_and_by_both_ids_and_shows_its_way(site: Site) -> None:
    by_key = await site.data("messages", topic="orders", key="k7")
    ident = by_key["found"][0]["id"]
    one = await site.data("message", topic="orders", id=ident)
    assert json.loads(one["body"]["text"]) == {"order": {"total": 7}, "n": 7}
    assert one["body"]["kind"] == "JSON"
    again = await site.data("message", topic="orders", id=one["offset_id"])
    assert again["row"]["id"] == ident
    steps = [(step["group"], step["what"]) for step in one["way"]]
    assert ("shop", "passed by the group") in steps
    assert steps[1][1].startswith("stored in orders")
    last = await site.data("search", topic="orders", where="body.n = 44")
    row = last["found"][0]
    place = {"broker": row["broker"], "queue": str(row["queue"]), "offset": str(row["offset"])}
    waits = await site.data("message", topic="orders", **place)
    assert ("shop", "waits for the group") in [(s["group"], s["what"]) for s in waits["way"]]


async def test_a_live_view_shows_what_comes(site: Site, cluster: LocalCluster) -> None:
    url = f"{site.console.url}tail/events"
    query = {"topic": "orders", "where": "tag = 'live'"}
    async with site.session.get(url, params=query) as answer, asyncio.timeout(LONG):
        assert answer.content_type == "text/event-stream"
        await answer.content.readline()  # from now on messages are shown
        async with Producer(cluster.name_server, group="till") as producer:
            await producer.send(Message("orders", b"{}", tags="live", keys=["k-live"]))
            text = ""
            while "k-live" not in text:
                text = (await answer.content.readline()).decode()
    assert text.startswith("data: ")


async def test_delayed_messages_and_open_transactions_are_listed(
    site: Site, cluster: LocalCluster
) -> None:
    async with Producer(cluster.name_server, group="till") as producer:
        await producer.send(Message("orders", b"level", delay_level=18))
        await producer.send(Message("orders", b"time", delay=3_600.0))
    found = await site.data("scheduled")
    assert sorted(one["how"] for one in found["rows"]) == ["level 18", "time"]
    for one in found["rows"]:
        assert one["topic"] == "orders"
        assert one["due_ms"] > found["now_ms"] + 3_000_000
    assert "2 messages wait." in Parsed(await site.html("scheduled")).text
    assert (await site.data("transactions"))["rows"] == []
    text = Parsed(await site.html("transactions")).text
    assert "No transaction is open." in text
    assert " open." not in text.replace("No transaction is open.", "")


async def test_another_host_is_refused(site: Site) -> None:
    hosts = ("evil.example", "evil.example:8082", "127.0.0.1.evil.example", "", "localhost:x")
    for host in hosts:
        for path in ("overview", "api/topics", "static/console.js"):
            status, text, headers = await site.get(path, headers={"Host": host})
            assert status in (400, 421), (host, path)
            if status == 421:
                assert "add yours with --host" in text
                assert "Content-Security-Policy" in headers


async def test_a_host_that_was_given_is_answered_under_the_base_path(cluster: LocalCluster) -> None:
    servers: dict[str, str | None] = {"main": cluster.name_server}
    async with Site(servers, hosts=["mq.example"], base="/x/y/") as site:
        assert site.console.url.endswith("/x/y/")
        status, text, _ = await site.get("overview", headers={"Host": "MQ.example:80"})
        assert status == 200
        links = [attrs.get("href") or "" for tag, attrs in Parsed(text).elements if tag == "a"]
        assert all(link.startswith(("/x/y/", "#")) for link in links)
        status, _, headers = await site.get("")
        assert (status, headers["Location"]) == (302, "/x/y/overview")


async def test_nothing_can_be_changed(site: Site) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        for page in LISTED:
            status, _, _ = await site.get(page, method=method)
            assert status == 405


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "mq.example"])
def test_an_address_beyond_the_loopback_needs_users_and_tls(address: str, tmp_path: Path) -> None:
    audit, clusters = Audit(tmp_path / "audit"), Clusters({"main": "127.0.0.1:9876"})
    registry = ActionRegistry(tmp_path / "redrives")
    with pytest.raises(ValueError, match="its one-time link is for the loopback only; add one"):
        Console(clusters, Access(audit), registry, address=address)
    users = UserFile(tmp_path / "users")
    with pytest.raises(ValueError, match="without TLS, as passwords would be readable: give --tls"):
        Console(clusters, Access(audit, users=users), registry, address=address)
    reverse_proxy = ReverseProxy(["10.0.0.1"])
    access = Access(audit, users=users, reverse_proxy=reverse_proxy)
    Console(clusters, access, registry, address=address)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    Console(clusters, Access(audit, users=users), registry, address=address, tls=tls)


def test_a_console_behind_a_proxy_needs_users(tmp_path: Path) -> None:
    access = Access(Audit(tmp_path / "audit"), reverse_proxy=ReverseProxy(["127.0.0.1"]))
    with pytest.raises(ValueError, match="the console can't be behind a proxy: it has no users"):
        Console(Clusters({"main": "127.0.0.1:9876"}), access, ActionRegistry(tmp_path / "redrives"))


REFUSED: list[tuple[str, dict[str, str], int, str]] = [
    ("topics", {"sort": "x"}, 400, "give one of name"),
    ("topics", {"page": "-1"}, 400, "page is -1; give 1 to"),
    ("topics", {"page": "²"}, 400, "give a whole number"),
    ("topics", {"page": "9" * 30}, 400, "give 1 to"),
    ("dead_letters", {"group": "none"}, 404, "group none is on no broker"),
    ("topics", {"cluster": "other"}, 400, "this console watches main"),
    ("topics", {"q": "x" * 5_000}, 400, "the limit is 4096"),
    ("topic", {}, 400, "name is missing"),
    ("topic", {"name": "none"}, 404, "topic none is on no broker"),
    ("group", {"name": "none"}, 404, "group none is on no broker"),
    ("message", {"topic": "orders", "id": "none"}, 404, "no message with key or id none"),
    ("search", {"topic": "orders", "where": "a ="}, 400, "wrong at character 4"),
    ("search", {"topic": "orders", "begin": "x"}, 400, "give a time such as"),
    ("search", {"topic": "orders", "begin": "0", "cursor": "x"}, 400, "begin the search again"),
    ("messages", {"topic": "orders", "cursor": "x"}, 400, "begin the search again"),
    ("messages", {"topic": "orders", "key": "k3", "begin": "soon"}, 400, "give a time such as"),
    ("messages", {"topic": "none"}, 404, "topic none is on no broker"),
    ("message", {"topic": "none", "broker": "b", "queue": "0", "offset": "0"}, 404, "none"),
    ("message", {"topic": "no name", "id": "x"}, 404, "topic no name is on no broker"),
    ("api/message", {"topic": "none", "broker": "b", "queue": "0", "offset": "0"}, 404, "none"),
    ("search", {"topic": "none", "begin": "1"}, 404, "no name server knows topic none"),
    ("search", {"topic": "no name", "begin": "1"}, 404, "topic no name is on no broker"),
    ("api/search", {"topic": "none"}, 404, "no name server knows topic none"),
    ("member", {"group": "none", "client": "x"}, 404, "no broker has a member x of group none"),
    ("search", {"topic": "orders", "begin": "2", "end": "1"}, 400, "is empty"),
    ("tail/events", {"topic": "orders", "where": "((("}, 400, "wrong at character"),
    ("broker", {"name": "none"}, 404, "no broker none"),
    ("static/..%2Fapp.py", {}, 404, "no such file"),
]


async def test_a_query_that_can_not_be_used_is_refused_with_its_reason(site: Site) -> None:
    for path, query, status, says in REFUSED:
        found, text, headers = await site.get(path, **query)
        assert (found, says in " ".join(Parsed(text).text.split())) == (status, True), text
        kept = path.startswith("api/") or 'name="q"' in text  # the search bar says it
        assert status != 404 or kept or "<h1>Not found</h1>" in text
        assert "Content-Security-Policy" in headers


async def test_a_cluster_without_access_control_is_told_calmly(site: Site) -> None:
    page = Parsed(await site.html("access"))
    assert "Access control is off" in page.text
    assert not any(attrs.get("role") == "alert" for _, attrs in page.elements)
    links = [attrs.get("href") or "" for tag, attrs in page.elements if tag == "a"]
    assert not any("/act/" in one for one in links)
    assert (await site.data("access"))["is_off"] is True
    # Nothing is missing in an export of such a cluster.
    assert (await site.get("definitions"))[0] == 200


@pytest.mark.parametrize(
    ("path", "query", "following"),
    [
        ("topic", {"name": "none"}, "/topics?cluster=main"),
        ("group", {"name": "none"}, "/groups?cluster=main"),
        ("redrives/run", {"run": "none"}, "/redrives?cluster=main"),
        ("nowhere", {}, "/overview?cluster=main"),
        ("overview", {"cluster": "none"}, "/overview?cluster=main"),
    ],
)
async def test_a_page_that_can_not_be_shown_leads_on(
    site: Site, path: str, query: dict[str, str], following: str
) -> None:
    status, text, _ = await site.get(path, **query)
    assert status == (400 if "cluster" in query else 404)
    main = Parsed(text.split("<main", 1)[1])
    assert following in [attrs.get("href") for tag, attrs in main.elements if tag == "a"]


async def test_a_broker_that_stops_costs_a_mark_and_not_the_page(
    cluster: LocalCluster, sent: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collectors, "SAMPLE_SECONDS", 0.1)
    async with Site({"main": cluster.name_server}) as site:
        stopped = cluster.brokers[1]
        assert cluster._loop is not None
        stopping = asyncio.run_coroutine_threadsafe(stopped.stop(), cluster._loop)
        await asyncio.wrap_future(stopping)  # this loop closes its connections meanwhile
        collector = site.console.clusters.by_name["main"].collector
        await until(lambda: collector.brokers["broker-b", 0].wrong is not None)
        for path in LISTED:
            text = Parsed(await site.html(path)).text
            assert path == "messages" or "broker-b" in text, path
        text = " ".join(Parsed(await site.html("topic", name="orders")).text.split())
        assert "Broker broker-b" in text
        assert "is away since" in text
        assert (await site.data("topic", name="orders"))["messages"] is None
        overview = await site.data("overview")
        assert overview["rate_in"] is None
        assert any("does not answer" in one["what"] for one in overview["findings"])
        # What the broker has is not known: a search and a message by its id say so.
        away = "broker broker-b does not answer: its messages are not looked at"
        for query in ({"begin": "1"}, {"where": "n = 3"}):
            found = await site.data("search", topic="orders", **query)
            assert away in found["progress"]["faults"]
            assert away in Parsed(await site.html("search", topic="orders", **query)).text
        for query in ({}, {"key": "k3"}):
            assert (
                away in (await site.data("messages", topic="orders", **query))["progress"]["faults"]
            )
        _, text, _ = await site.get("search/export", topic="orders", format="jsonl")
        assert away in json.loads(text.splitlines()[-1])["end"]["faults"]
        status, text, _ = await site.get("message", topic="orders", id="none")
        assert (status, away in text) == (503, True)
        (mark,) = overview["samples"]["marks"]
        (later,) = (await site.data("overview"))["samples"]["marks"]
        assert mark["since_ms"] == later["since_ms"]


async def test_a_cluster_without_a_name_server_is_shown_as_not_known() -> None:
    async with Site({"main": "127.0.0.1:1"}) as site:
        for path in ("overview", "topics", "groups", "dead_letters", "brokers"):
            assert "The name servers do not answer" in Parsed(await site.html(path)).text
        assert "not known" in Parsed(await site.html("overview")).text


async def test_templates_are_compiled_before_a_visitor_wants_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web_site, "COMPILE_PAUSE_SECONDS", 0)
    environment.cache_clear()
    async with Site({"main": "127.0.0.1:1"}):
        found = [environment(one) for one in LANGUAGES]
        whole = [len(one.list_templates()) for one in found]
        await until(lambda: [len(one.cache or ()) for one in found] == whole)
