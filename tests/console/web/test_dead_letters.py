"""The pages of dead letters: of one group, of one letter, of the message that it was, and of a
run that has sent some again."""

import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from aerobee.client import Consumer, Message, Producer
from aerobee.console.access.rights import Bodies, Patterns, Right, Visitor
from aerobee.console.actions.redrive import Phase
from aerobee.testing import LocalCluster

from ...client.fakes import until
from ...waiting import LONG
from ..actions.test_redrives import given_up
from .browser import needs_chromium, started
from .site import Parsed, Site, dead_letters_of
from .test_hostile import check_inert
from .test_pages_actions import acting_as, confirmed, form_of, previewed

HOSTILE = "<img src=x>\u202e{{7*7}}'\"&letters=1"


@pytest.fixture
async def browser() -> AsyncIterator[Any]:
    async for one in started():
        yield one


def links_of(text: str, wanted: str) -> list[dict[str, str]]:
    """The parameters of a page's links to a path."""
    found = [attrs.get("href") or "" for tag, attrs in Parsed(text).elements if tag == "a"]
    return [dict(parse_qsl(urlsplit(one).query)) for one in found if urlsplit(one).path == wanted]


def ticks(text: str) -> list[dict[str, str | None]]:
    """The boxes of letters, in the order of the page."""
    return [
        attrs
        for tag, attrs in Parsed(text).elements
        if tag == "input" and attrs.get("name") == "letters" and attrs.get("type") == "checkbox"
    ]


async def ids(site: Site, group: str) -> list[str]:
    """The offset ids of a group's newest letters."""
    found = await site.data("dead_letters", group=group)
    return [one["offset_id"] for one in found["newest"]]


async def test_a_group_has_its_letters_on_a_page_each_with_a_box(
    site: Site, cluster: LocalCluster
) -> None:
    await given_up(cluster, "many", "eu%many|x", 52)
    await given_up(cluster, "few", "few", 1)
    text = await site.html("dead_letters", group="eu%many|x")
    boxes = ticks(text)
    assert [one["value"] for one in boxes] == await ids(site, "eu%many|x")
    assert len(boxes) == 50
    assert all(one["aria-label"] == f"Dead letter {one['value']}" for one in boxes)
    forms = [attrs for tag, attrs in Parsed(text).elements if tag == "form"]
    (form,) = (one for one in forms if one.get("id") == boxes[0]["form"])
    assert (form["method"], form["action"]) == ("get", "/act/redrive")
    (older,) = (one for one in links_of(text, "/dead_letters") if "cursor" in one)
    assert len(ticks(await site.html("dead_letters", **older))) == 2

    async def is_listed() -> bool:
        rows = (await site.data("dead_letters"))["list"]["rows"]
        return {dead_letters_of("eu%many|x"), dead_letters_of("few")} <= {
            one["name"] for one in rows
        }

    await until(is_listed)
    # On the page of all groups a box belongs to the form of its letter's group.
    text = await site.html("dead_letters")
    groups = {one["form"] for one in ticks(text)}
    assert {"letters-eu%many|x", "letters-few"} >= groups
    assert {"letters-few"} <= groups
    assert "Send the ticked ones of few again" in Parsed(text).text
    assert {"group": "few", "cluster": "main"} in links_of(text, "/dead_letters")
    assert (await site.get("dead_letters", group="nobody"))[0] == 404
    async with Consumer(cluster.name_server, group="idle", topics=["few"]):

        async def is_known() -> bool:
            return (await site.get("dead_letters", group="idle"))[0] == 200

        await until(is_known)
    text = await site.html("dead_letters", group="idle")
    assert "No dead letter of idle is here." in Parsed(text).text


async def test_ticked_letters_fill_the_form_and_only_these_are_sent(
    site: Site, cluster: LocalCluster
) -> None:
    await given_up(cluster, "stock", "warehouse", 5)
    found = await ids(site, "warehouse")
    where = site.console.url + "act/redrive"
    ticked = [("group", "warehouse"), ("ticked", "1"), *(("letters", one) for one in found[1:4])]
    async with site.session.get(where, params=ticked) as answer:
        form = form_of(await answer.text())
    assert form["letters"]["value"] == ", ".join(found[1:4])
    fields = {name: attrs.get("value") or "" for name, attrs in form.items()}
    fields |= {"target": "the group only", "again": ""}
    text = await previewed(site, "redrive", **fields)
    assert "Send 3 dead letters of warehouse again." in Parsed(text).text
    for key in ("k1", "k2", "k3"):
        assert re.search(rf"dead letter \w+: keys {key}, stored \d{{4}}-", Parsed(text).text)
    assert '"n"' not in Parsed(text).text  # bodies may be hidden
    assert "typed" not in form_of(text)
    status, _ = await confirmed(site, "redrive", text)
    assert status == 303
    (run,) = site.console.site.registry.redrives.runs("main")
    await run.finished.wait()
    text = await site.html("redrives/run", run=run.ident)
    assert "3 of 3 dead letters sent." in Parsed(text).text
    shown = links_of(text, "/message")
    letters = [one for one in shown if one["topic"] == dead_letters_of("warehouse")]
    assert {one["id"] for one in letters} == set(found[1:4])
    copies = [one for one in shown if one["topic"] == "%RETRY%warehouse"]
    assert len(copies) == 3
    for one in shown:
        assert "redriven:" in await site.html("message", **one) or one in letters
    assert {"group": "warehouse", "cluster": "main"} in links_of(text, "/dead_letters")
    async with Consumer(cluster.name_server, group="warehouse", topics=["stock"]) as consumer:
        bodies = set()
        for _ in range(3):
            message = await consumer.receive(LONG)
            assert message is not None
            bodies.add(message.body)
            await message.ack()
    assert bodies == {b'{"n": 1}', b'{"n": 2}', b'{"n": 3}'}
    # Without a tick the form is none about all letters.
    status, text, _ = await site.get("act/redrive", group="warehouse", ticked="1")
    assert status == 400
    assert "no dead letter is ticked" in Parsed(text).text
    assert form_of(text)["group"]["value"] == "warehouse"
    assert "aria-invalid" in form_of(text)["letters"]
    fields = {"group": "warehouse", "target": "the group only", "rate": "5", "letters": "garbage"}
    status, text = await site.post("act/redrive/preview", fields)
    assert status == 400
    assert "warehouse has no dead letter garbage" in Parsed(text).text
    assert "aria-invalid" in form_of(text)["letters"]


@needs_chromium
async def test_the_page_of_a_run_follows_it_to_its_end(
    site: Site, cluster: LocalCluster, browser: Any
) -> None:
    await given_up(cluster, "belt", "belts", 1)
    fields = {"group": "belts", "target": "the group only", "rate": "5"}
    await confirmed(site, "redrive", await previewed(site, "redrive", **fields), "belts")
    (run,) = site.console.site.registry.redrives.runs("main")
    await run.finished.wait()
    run.phase = Phase.RUNNING
    page = await browser.new_page()
    await page.goto(site.console.new_link())
    await page.goto(f"{site.console.url}redrives/run?cluster=main&run={run.ident}")
    assert await page.inner_text("#phase") == "running"
    assert await page.get_attribute("#running", "hx-trigger") == "every 1s"
    run.phase = Phase.ENDED
    await page.wait_for_selector("#phase:text-is('ended')")
    assert await page.query_selector("[hx-trigger]") is None
    await page.close()


async def test_a_letter_leads_to_its_message_and_that_to_its_letter(
    site: Site, cluster: LocalCluster
) -> None:
    await given_up(cluster, "parcels", "post", 1)
    (ident,) = await ids(site, "post")
    text = await site.html("message", topic=dead_letters_of("post"), id=ident)
    assert "A dead letter of post: it was given up after 1 delivery." in Parsed(text).text
    again = {"group": "post", "letters": ident, "cluster": "main"}
    assert again in links_of(text, "/act/redrive")
    (first,) = (one for one in links_of(text, "/message") if one["topic"] == "parcels")
    text = await site.html("message", **first)
    said = re.sub(r"\s+", " ", Parsed(text).text)
    assert "Not consumed by post: it was given up after 1 delivery, and is a dead letter." in said
    assert again in links_of(text, "/act/redrive")
    letter = {"topic": dead_letters_of("post"), "id": ident, "cluster": "main"}
    assert letter in links_of(text, "/message")
    (way,) = (
        one["why"] for one in (await site.data("message", **first))["way"] if one["letter"] == ident
    )
    assert way == "it was given up after 1 delivery, and is a dead letter"


async def test_a_visitor_sees_what_is_allowed_only(site: Site, cluster: LocalCluster) -> None:
    await given_up(cluster, "secrets", "vault", 1)
    (ident,) = await ids(site, "vault")
    async with acting_as(site, Visitor("ann", Right.VIEW)):
        text = await site.html("dead_letters", group="vault")
        assert ticks(text) == []
        assert "ticked" not in Parsed(text).text
    limited = Visitor("bob", Right.OPERATE, groups=Patterns.of(["other*"]))
    async with acting_as(site, limited):
        assert (await site.get("dead_letters", group="vault"))[0] == 403
        status, text = await site.post("act/redrive/preview", {"group": "vault", "letters": ident})
        assert status in (400, 403)
        form = {"group": "other", "target": "the group only", "rate": "5", "letters": ident}
        status, text = await site.post("act/redrive/preview", form)
        assert f"other has no dead letter {ident}" in Parsed(text).text
        assert "vault" not in Parsed(text).text


async def test_no_field_beside_hides_a_question_about_bodies(site: Site) -> None:
    async with acting_as(site, Visitor("ann", Right.OPERATE, bodies=Bodies.HIDDEN)):
        form = {"group": "g", "target": "the group only", "rate": "1", "where": "body.n > 1"}
        for more in (
            {"key": "x"},
            {"q": "x"},
            {"q": "tag = 'x'"},
            {"where": "/* ' */ body.n > 1 /* ' */"},
        ):
            status, page = await site.post("act/redrive/preview", form | more)
            assert status == 403, more
            assert "bodies are hidden for ann" in Parsed(page).text


async def test_hostile_letters_are_shown_and_inert(site: Site, cluster: LocalCluster) -> None:
    async with Producer(cluster.name_server) as producer:
        await producer.send(Message("hostile", HOSTILE.encode(), keys=["k"], tags=HOSTILE))
    async with Consumer(
        cluster.name_server, group="hostile", topics=["hostile"], start="earliest"
    ) as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        await message.nack(delay_level=-1)
    (ident,) = await ids(site, "hostile")
    for path, query in (
        ("dead_letters", {"group": "hostile"}),
        ("dead_letters", {"group": HOSTILE}),
        ("message", {"topic": dead_letters_of("hostile"), "id": ident}),
        ("act/redrive", {"group": HOSTILE, "letters": HOSTILE, "ticked": HOSTILE}),
    ):
        status, text, headers = await site.get(path, **query)
        is_there = path != "dead_letters" or query["group"] != HOSTILE
        assert status == (200 if is_there else 404), (path, query)
        check_inert(text, headers)
    form = {"group": "hostile", "target": "the group only", "rate": "5", "letters": HOSTILE}
    status, text = await site.post("act/redrive/preview", form)
    assert status == 400
    assert not any(tag == "img" for tag, _ in Parsed(text).elements)
