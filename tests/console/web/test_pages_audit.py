"""The page of the audit: newest first, filtered, cut with a word about it, for administrators."""

from collections.abc import AsyncIterator

import pytest
from aerobee.console.access.audit import READ_BYTES_MAX
from aerobee.console.access.passwords import hash_password
from aerobee.console.access.rights import Right, Visitor
from aerobee.console.access.user_file import User

from ..fake_cluster import Shop
from .site import Parsed, Site
from .test_hostile import HOSTILE, check_inert

PASSWORD = "correct horse"
KEPT = hash_password(PASSWORD)
ANN = Visitor("ann", Right.ADMINISTER, address="127.0.0.1")
BOB = Visitor("bob", Right.OPERATE, address="127.0.0.2")


@pytest.fixture
async def site(shop: Shop) -> AsyncIterator[Site]:
    async with Site({"main": shop.address}) as site:
        yield site


async def act(
    site: Site,
    visitor: Visitor,
    action: str,
    target: str,
    result: object = None,
    cluster: str = "main",
) -> None:
    """Write an action into the audit; with a result its second line, too."""
    entry = await site.audit.begin(visitor, cluster, action, target, {"topic": target})
    if result is not None:
        await site.audit.end(entry, result)


async def test_the_newest_action_comes_first_and_has_its_result_and_its_links(site: Site) -> None:
    await act(site, ANN, "topic-create", "orders", {"counts": {"done": 2}})
    await act(site, BOB, "topic-delete", "orders")
    await act(site, BOB, "topic-delete", "gone", "done", cluster="unwatched")
    found = await site.data("audit")
    rows = [one["act"] for one in found["list"]["rows"]]
    assert [(one["visitor"], one["ending"]) for one in rows] == [
        ("bob", "done"),
        ("bob", "open"),
        ("ann", "done"),
    ]
    assert rows[1]["ended_ms"] is None
    assert rows[2]["result"] == {"counts": {"done": 2}}
    assert found["cut"] is None
    parsed = Parsed(await site.html("audit"))
    links = [a.get("href") for tag, a in parsed.elements if tag == "a"]
    assert links.count("/topic?cluster=main&name=orders") == 2
    assert not any("name=gone" in (one or "") for one in links)
    assert "/audit?cluster=main&user=bob" in links
    topic = Parsed(await site.html("topic", name="orders"))
    assert any(a.get("href") == "/audit?cluster=main&q=orders" for _, a in topic.elements)


async def test_details_without_a_value_are_left_out(site: Site) -> None:
    details = {"where": "a = 1", "begin": "", "queue": 0, "format": ""}
    await site.audit.begin(ANN, "main", "search-export", "orders", details)
    text = Parsed(await site.html("audit")).text
    assert "where: a = 1; queue: 0" in text
    assert "begin:" not in text


async def test_actions_are_filtered_by_user_action_result_and_target(site: Site) -> None:
    await act(site, ANN, "topic-create", "orders", "done")
    await act(site, BOB, "topic-create", "other", {"not done": "it has changed"})
    await act(site, BOB, "topic-delete", "orders")
    for query, wanted in (
        ({"user": "bob"}, 2),
        ({"user": "bob", "action": "topic-create"}, 1),
        ({"result": "open"}, 1),
        ({"result": "not done"}, 1),
        ({"q": "ORD"}, 2),
        ({"user": "nobody"}, 0),
    ):
        found = await site.data("audit", **query)
        assert found["list"]["matched"] == len(found["list"]["rows"]) == wanted, query
        assert found["list"]["total"] == 3
    assert "2 of 3 actions" in Parsed(await site.html("audit", user="bob")).text
    status, text, _ = await site.get("audit", result="fine")
    assert status == 400
    assert "give one of 'done', 'partly done'" in Parsed(text).text


async def test_a_file_that_is_read_in_part_is_said_to_be_cut(site: Site) -> None:
    await act(site, ANN, "topic-create", "first", "done")
    with site.audit.path.open("a") as file:
        file.write("x" * READ_BYTES_MAX + "\n")
    await act(site, ANN, "topic-create", "last", "done")
    found = await site.data("audit")
    assert [one["act"]["target"] for one in found["list"]["rows"]] == ["last"]
    assert found["cut"] == "only the last 1,024 KiB of the file were read"
    assert "Cut: only the last" in Parsed(await site.html("audit")).text


async def test_only_visitors_that_may_administer_everything_see_the_audit(shop: Shop) -> None:
    users = (
        User("ann", Right.ADMINISTER, password=KEPT),
        User("bob", Right.OPERATE, password=KEPT),
        User("cat", Right.ADMINISTER, ("orders",), ("*",), password=KEPT),
    )
    async with Site({"main": shop.address}, users=users) as site:
        for name, status in (("ann", 200), ("bob", 403), ("cat", 403)):
            async with site.visitor() as other:
                site.session, own = other, site.session
                await site.log_in_as(other, name, PASSWORD)
                for path in ("audit", "api/audit"):
                    assert (await site.get(path))[0] == status, (name, path)
                shows = "/audit?" in await site.html("topic", name="orders")
                assert shows == (status == 200), name
                site.session = own


async def test_an_audit_that_can_not_be_read_is_said(site: Site) -> None:
    site.audit.path.mkdir(parents=True)
    status, text, _ = await site.get("audit")
    assert status == 503
    assert "can't be used" in Parsed(text).text


async def test_hostile_text_in_the_audit_is_inert(site: Site) -> None:
    details = {"topic": HOSTILE, HOSTILE: [HOSTILE, True]}
    entry = await site.audit.begin(
        Visitor(HOSTILE, Right.OPERATE, address=HOSTILE), "main", HOSTILE, HOSTILE, details
    )
    await site.audit.end(entry, {"counts": {HOSTILE: 1}, "places": [[HOSTILE, "done", HOSTILE]]})
    status, text, headers = await site.get("audit", user=HOSTILE)
    assert status == 200
    check_inert(text, headers)
    assert "1 of 1 actions" in Parsed(text).text
