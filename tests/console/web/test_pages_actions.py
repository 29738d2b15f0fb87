"""Actions by HTTP: form, preview, confirmation, result; rights, audit, what is refused."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aerobee.client import Admin, Consumer, Message, Producer
from aerobee.console.access.rights import Bodies, Patterns, Right, Visitor
from aerobee.testing import LocalCluster

from ...waiting import LONG, until
from .site import Parsed, Site


def field(text: str, name: str) -> str:
    """The value of a field of a page's form."""
    for tag, attrs in Parsed(text).elements:
        if tag == "input" and attrs.get("name") == name:
            return attrs["value"] or ""
    raise AssertionError(f"the page has no field {name}: {Parsed(text).text[-800:]}")


async def previewed(site: Site, name: str, **fields: str) -> str:
    """The page of a preview."""
    status, text = await site.post(f"act/{name}/preview", fields)
    assert status == 200, Parsed(text).text[-800:]
    return text


async def confirmed(site: Site, name: str, text: str, typed: str = "") -> tuple[int, str]:
    """The answer to the confirmation of a preview's page."""
    fields = {"preview": field(text, "preview"), "typed": typed}
    return await site.post(f"act/{name}/confirm", fields)


@asynccontextmanager
async def acting_as(site: Site, visitor: Visitor) -> AsyncIterator[None]:
    """The site's client is another browser, in which this visitor has logged in."""
    own = site.session
    async with site.visitor() as other:
        name = site.access.sessions.open(visitor)
        other.cookie_jar.update_cookies({site.access.guard.cookie: name})
        site.session = other
        try:
            yield
        finally:
            site.session = own


def audited(site: Site) -> list[dict[str, Any]]:
    """The lines of the audit, the last one first."""
    return site.audit.last(100)


TOPIC = {"write": "2", "read": "2", "perm": "read and write"}


async def test_a_topic_is_created_and_deleted_with_a_line_before_and_after(site: Site) -> None:
    await site.html("act/topic-create")
    text = await previewed(site, "topic-create", topic="made", **TOPIC)
    assert "not there" in Parsed(text).text
    assert audited(site) == []
    status, text = await confirmed(site, "topic-create", text)
    assert status == 200
    assert "1 done." in Parsed(text).text
    end, begin = audited(site)
    assert (begin["action"], begin["target"], begin["visitor"]) == ("topic-create", "made", "owner")
    assert begin["details"]["write"] == 2
    assert end["entry"] == begin["entry"]
    assert end["result"]["counts"] == {"done": 1}
    async with Admin(site.console.clusters.by_name["main"].admin._name_server) as admin:
        assert "made" in await admin.topics()
        text = await previewed(site, "topic-delete", topic="made")
        status, page = await confirmed(site, "topic-delete", text, typed="mad")
        assert status == 400
        assert "what was typed is not 'made'" in Parsed(page).text
        assert len(audited(site)) == 2
        # The page is the preview again, with what was typed and its fault, and can be sent.
        assert "Delete topic made with its 0 messages." in Parsed(page).text
        assert field(page, "typed") == "mad"
        status, _ = await confirmed(site, "topic-delete", page, typed="made")
        assert status == 200
        assert "made" not in await admin.topics()


async def test_a_sent_message_is_a_link_to_itself_and_its_topic(site: Site) -> None:
    text = await previewed(site, "topic-create", topic="letters", **TOPIC)
    await confirmed(site, "topic-create", text)
    text = await previewed(site, "message-send", topic="letters", body="hello", keys="k1")
    assert "body: hello" in Parsed(text).text
    _, page = await confirmed(site, "message-send", text)
    links = [attrs.get("href") or "" for tag, attrs in Parsed(page).elements if tag == "a"]
    (where,) = (one for one in links if one.startswith("/message?"))
    assert "/topic?cluster=main&name=letters" in links
    assert "hello" in Parsed(await site.html(where.removeprefix("/"))).text


async def test_a_preview_serves_once_and_not_after_another_change(
    site: Site, cluster: LocalCluster
) -> None:
    text = await previewed(site, "topic-create", topic="once", **TOPIC)
    assert (await confirmed(site, "topic-create", text))[0] == 200
    assert (await confirmed(site, "topic-create", text))[0] == 200  # the same result
    assert len(audited(site)) == 2
    text = await previewed(site, "topic-update", topic="once", **(TOPIC | {"read": "4"}))
    async with Admin(cluster.name_server) as admin:
        await admin.create_topic("once", 8)
        status, page = await confirmed(site, "topic-update", text)
        assert status == 409
        assert "nothing was done: preview it again" in Parsed(page).text
        (config,) = (await admin.topic_config("once")).values()
        assert config.read_queue_nums == 8
    assert "not done" in audited(site)[0]["result"]


async def test_another_visitor_cannot_confirm_it_and_a_form_must_be_right(site: Site) -> None:
    text = await previewed(site, "topic-create", topic="mine", **TOPIC)
    async with acting_as(site, Visitor("ann", Right.ADMINISTER)):
        status, page = await confirmed(site, "topic-create", text)
        assert status == 409
    status, page = await site.post("act/topic-create/preview", {"topic": "x", "write": "none"})
    assert status == 400
    assert "Write queues is 'none'; give a whole number" in Parsed(page).text
    status, page = await site.post("act/topic-create/confirm", {"preview": "forged"})
    assert status == 409
    status, page = await site.post(
        "act/topic-create/preview", {"topic": "x"}, headers={"Origin": "http://evil.example"}
    )
    assert status == 403


def form_of(text: str) -> dict[str, dict[str, str | None]]:
    """The attributes of the fields of a page, by their names."""
    kinds = ("input", "select", "textarea")
    found = [attrs for tag, attrs in Parsed(text).elements if tag in kinds]
    return {attrs["name"] or "": attrs for attrs in found if "name" in attrs}


async def test_a_form_comes_back_with_all_that_was_typed_and_each_fault_at_its_field(
    site: Site,
) -> None:
    given = {"group": "g", "topic": "", "kind": "offset", "queue": "many", "offset": "7"}
    status, text = await site.post("act/offsets-reset/preview", given)
    assert status == 400
    form = form_of(text)
    assert form["group"]["value"] == "g"
    assert form["queue"]["value"] == "many"
    assert form["offset"]["value"] == "7"
    wrong = {name for name, attrs in form.items() if "aria-invalid" in attrs}
    assert wrong == {"topic", "queue"}
    faults = [attrs["id"] for _, attrs in Parsed(text).elements if attrs.get("role") == "alert"]
    assert faults == ["fault-topic", "fault-queue"]
    assert form["queue"]["aria-describedby"] == "fault-queue"
    # A wrong expression is at its field, too.
    given = {"group": "g", "target": "the group only", "where": "a >> 5", "rate": "5"}
    status, text = await site.post("act/redrive/preview", given)
    assert (status, form_of(text)["where"]["value"]) == (400, "a >> 5")
    assert "aria-invalid" in form_of(text)["where"]
    assert "wrong at character 4" in Parsed(text).text
    # What RocketMQ would ignore of it might have kept letters from being sent again.
    _, text = await site.post("act/redrive/preview", given | {"where": "body.paid AND NOT x y"})
    assert "wrong at character 21" in Parsed(text).text


async def test_the_way_back_from_a_preview_leads_to_the_form_as_it_was(site: Site) -> None:
    async with Admin(site.console.clusters.by_name["main"].admin._name_server) as admin:
        await admin.create_topic("kept", 1)
    body = '{"a": "<b>"}'
    given = {"topic": "kept", "body": body, "properties": "x=1\ny=2", "queue": "0"}
    text = await previewed(site, "message-send", **given)
    back = f"/act/message-send?cluster=main&draft={field(text, 'preview')}"
    assert back in [attrs.get("href") for tag, attrs in Parsed(text).elements if tag == "a"]
    form = await site.html("act/message-send", draft=field(text, "preview"))
    assert body in Parsed(form).text
    assert "x=1\ny=2" in Parsed(form).text
    assert form_of(form)["queue"]["value"] == "0"
    # Another visitor's fills nothing.
    async with acting_as(site, Visitor("ann", Right.ADMINISTER)):
        assert body not in await site.html("act/message-send", draft=field(text, "preview"))


async def test_a_form_offers_the_names_there_are_and_preselects_nothing_dangerous(
    site: Site, cluster: LocalCluster
) -> None:
    address = cluster.name_server
    async with Admin(address) as admin:
        await admin.create_topic("offered", 1)
    async with Producer(address, group="till") as producer:
        for _ in range(3):
            await producer.send(Message("offered", b"x"))
    async with Consumer(address, group="only", topics=["offered"], start="earliest") as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        await message.ack()

    async def is_sampled() -> bool:
        text = await site.html("act/offsets-reset", group="only")
        return form_of(text)["topic"]["value"] == "offered"  # the only one of the group

    collector = site.console.clusters.by_name["main"].collector
    collector.want("only")
    await until(is_sampled, "the group's topic is known", pause=0.1)
    text = await site.html("act/offsets-reset", group="only")
    form = form_of(text)
    assert form["topic"]["list"] == "topics"
    options = [attrs.get("value") for tag, attrs in Parsed(text).elements if tag == "option"]
    assert {"offered", "only", "broker-a"} <= set(options)
    chosen = [attrs for tag, attrs in Parsed(text).elements if tag == "option"]
    assert not any("selected" in one for one in chosen)
    only = [attrs for _, attrs in Parsed(text).elements if "data-only" in attrs]
    assert [(one["data-only"], one["data-values"]) for one in only] == [
        ("kind", "time"),
        ("kind", "offset"),
        ("kind", "forward"),
    ]
    # The preview is a sentence, and the button says what it does.
    page = await previewed(site, "offsets-reset", group="only", topic="offered", kind="end")
    assert "Skip 2 messages of offered for only." in Parsed(page).text
    assert '<button class="danger">Reset a group&#39;s offsets</button>' in page


async def test_rights_decide_per_topic_and_group(site: Site) -> None:
    limited = Visitor("bob", Right.OPERATE, Patterns.of(["shop-*"]), Patterns.of(["shop-*"]))
    async with acting_as(site, limited):
        await previewed(site, "topic-create", topic="shop-1", **TOPIC)
        for action, fields in (
            ("topic-create", {"topic": "orders", **TOPIC}),
            ("offsets-clone", {"source": "shop-1", "target": "till", "topic": "shop-1"}),
            ("redrive", {"group": "till", "target": "the group only", "rate": "1"}),
            ("broker-set", {"setting": "traceOn", "value": "true"}),
            ("user-create", {"user": "eve", "password": "x"}),
        ):
            status, _ = await site.post(f"act/{action}/preview", fields)
            assert status == 403, action
        assert (await site.get("definitions"))[0] == 403
        menu = Parsed(await site.html("actions")).text
        assert "Create a topic" in menu
        assert "Create a user" not in menu
    async with acting_as(site, Visitor("eve", Right.VIEW)):
        assert "act/" not in await site.html("topics")
        for route in site.console.routes():
            if route.path.startswith("/act"):
                fields = {"topic": "x"}
                if route.method == "GET":
                    status, _, _ = await site.get(route.path[1:])
                else:
                    status, _ = await site.post(route.path[1:], fields)
                assert status == 403, route.path


async def test_read_only_hides_and_refuses_all(cluster: LocalCluster) -> None:
    async with Site({"main": cluster.name_server}, is_read_only=True) as site:
        # Even a user with every right.
        async with acting_as(site, Visitor("root", Right.ADMINISTER)):
            for page in ("topics", "groups", "access", "brokers", "overview"):
                assert "/act" not in await site.html(page), page
            for route in site.console.routes():
                if not route.path.startswith(("/act", "/redrives")):
                    continue
                if route.method == "GET":
                    status, text, _ = await site.get(route.path[1:])
                else:
                    status, text = await site.post(route.path[1:], {"topic": "x"})
                assert status == 403, route.path
                assert "--read-only" in text
        assert audited(site) == []


async def test_without_an_audit_nothing_is_done(site: Site, cluster: LocalCluster) -> None:
    text = await previewed(site, "topic-create", topic="unwritten", **TOPIC)
    site.audit.path.mkdir()
    status, page = await confirmed(site, "topic-create", text)
    assert status == 503
    assert "without an audit there is no action" in Parsed(page).text
    async with Admin(cluster.name_server) as admin:
        assert "unwritten" not in await admin.topics()


async def test_no_secret_reaches_a_page_or_the_audit(site: Site) -> None:
    secret = "hush-7261"
    status, text = await site.post("act/user-create/preview", {"user": "a", "password": secret})
    assert secret not in text
    status, text = await site.post("act/user-create/preview", {"user": "", "password": secret})
    assert status == 400
    assert secret not in text
    assert secret not in json.dumps(audited(site))


async def test_dead_letters_are_sent_again_and_their_run_is_shown(
    site: Site, cluster: LocalCluster
) -> None:
    address = cluster.name_server
    async with Admin(address) as admin:
        await admin.create_topic("work", 1)
    async with Producer(address) as producer:
        for n in range(3):
            await producer.send(Message("work", b"%d" % n))
    async with Consumer(address, group="workers", topics=["work"], start="earliest") as consumer:
        for _ in range(3):
            message = await consumer.receive(LONG)
            assert message is not None
            await message.nack(delay_level=-1)
    form = {"group": "workers", "target": "the group only", "rate": "1000"}
    text = await previewed(site, "redrive", **form)
    assert "3 dead letters of work" in Parsed(text).text
    status, _ = await confirmed(site, "redrive", text, typed="workers")
    assert status == 303
    (run,) = site.console.site.registry.redrives.runs("main")
    await run.finished.wait()
    assert (run.counts.sent, run.phase) == (3, "ended")
    shown = await site.html("redrives/run", run=run.ident)
    assert "ended" in Parsed(shown).text
    assert "workers" in Parsed(await site.html("redrives")).text
    status, lines, headers = await site.get("redrives/file", run=run.ident)
    rows = [json.loads(line) for line in lines.splitlines()]
    assert [row["state"] for row in rows[1:]] == ["sending", "sent"] * 3
    assert headers["Content-Disposition"].startswith("attachment")
    async with Consumer(address, group="workers", topics=["work"]) as consumer:
        bodies = set()
        for _ in range(3):
            message = await consumer.receive(LONG)
            assert message is not None
            assert re.search("redriven:[0-9A-F]{32}", " ".join(message.keys))
            bodies.add(message.body)
            await message.ack()
    assert bodies == {b"0", b"1", b"2"}
    text = await previewed(site, "redrive", **form)
    assert "3 were sent before and are skipped" in Parsed(text).text
    assert "no dead letter is to be sent" in Parsed(text).text
    assert any(line.get("result", {}) and line["result"].get("sent") == 3 for line in audited(site))
    assert (await site.get("redrives/run", run="none"))[0] == 404


async def test_a_visitor_who_sees_no_bodies_cannot_ask_about_them(site: Site) -> None:
    async with acting_as(site, Visitor("ann", Right.OPERATE, bodies=Bodies.HIDDEN)):
        form = {"group": "g", "target": "the group only", "rate": "1", "where": "body.n > 1"}
        status, page = await site.post("act/redrive/preview", form)
        assert status == 403
        assert "bodies are hidden for ann" in Parsed(page).text


async def test_hostile_text_is_shown_and_inert(site: Site) -> None:
    hostile = "<img src=x onerror=alert(1)>{{ 7*7 }}"
    for path in ("act/topic-create", "act/message-cancel", "act/redrive"):
        text = await site.html(path, topic=hostile, id=hostile, group=hostile)
        found = Parsed(text)
        assert not any(tag == "img" for tag, _ in found.elements)
        assert any(attrs.get("value") == hostile for _, attrs in found.elements)
    status, text = await site.post("act/topic-delete/preview", {"topic": hostile})
    assert status == 400
    assert hostile in Parsed(text).text
    assert not any(tag == "img" for tag, _ in Parsed(text).elements)


async def test_definitions_are_exported_as_a_file(site: Site) -> None:
    status, text, headers = await site.get("definitions")
    assert status == 200
    assert json.loads(text)["format"] == "aerobee definitions 1"
    assert 'filename="definitions-main.json"' in headers["Content-Disposition"]
    assert headers["X-Content-Type-Options"] == "nosniff"
