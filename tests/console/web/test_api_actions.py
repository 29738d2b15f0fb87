"""Actions for programs, in JSON with name and password: previewed, confirmed, refused."""

import asyncio
import json
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from aerobee.client import Admin, Consumer
from aerobee.console.access.passwords import hash_password
from aerobee.console.access.rights import Right
from aerobee.console.access.user_file import User
from aerobee.testing import LocalCluster

from ...waiting import LONG
from ..actions.test_redrives import given_up
from .site import Site

PASSWORD = "a long password"
KEPT = hash_password(PASSWORD)
USERS = (
    User("ann", Right.ADMINISTER, password=KEPT),
    User("bob", Right.OPERATE, ("shop-*",), password=KEPT),
    User("eve", Right.VIEW, password=KEPT),
)
TOPIC = {"write": 2, "read": 2}


@pytest.fixture
async def site(cluster: LocalCluster) -> AsyncIterator[Site]:
    async with Site({"main": cluster.name_server}, users=USERS) as site:
        yield site


def basic(name: str, password: str = PASSWORD) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{name}:{password}".encode()).decode()}


async def post(
    site: Site, path: str, body: Any, *, name: str = "ann", headers: Any = None
) -> tuple[int, Any]:
    """Status and answer. A body of bytes is sent as it is."""
    data = BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
    given = {"Content-Type": "application/json", **(basic(name) if name else {}), **(headers or {})}
    async with site.session.post(
        f"{site.console.url}api/{path}", data=data, headers=given
    ) as answer:
        return answer.status, await answer.json()


async def done(site: Site, action: str, fields: dict[str, Any], **confirmation: str) -> Any:
    """Preview and confirm; the answer."""
    status, plan = await post(site, f"act/{action}/preview", fields)
    assert status == 200, plan
    given = {"preview": plan["preview"], **confirmation}
    status, answer = await post(site, f"act/{action}/confirm", given)
    assert status == 200, answer
    return answer


async def test_a_program_previews_confirms_and_is_audited(site: Site) -> None:
    status, plan = await post(site, "act/topic-create/preview", {"topic": "made", **TOPIC})
    assert status == 200
    (change,) = plan["changes"]
    assert (change["now"], plan["refusals"], plan["typed"]) == ("not there", [], None)
    assert site.audit.last(9) == []
    status, answer = await post(site, "act/topic-create/confirm", {"preview": plan["preview"]})
    assert (status, answer["counts"], answer["fault"]) == (200, {"done": 1}, None)
    assert answer["outcomes"][0]["result"] == "done"
    end, begin = site.audit.last(9)
    assert (begin["action"], begin["target"], begin["visitor"]) == ("topic-create", "made", "ann")
    assert end["result"]["counts"] == {"done": 1}


async def test_what_deletes_needs_the_name_again(site: Site) -> None:
    await done(site, "topic-create", {"topic": "gone", **TOPIC})
    status, plan = await post(site, "act/topic-delete/preview", {"topic": "gone"})
    assert (status, plan["typed"]) == (200, "gone")
    ident = {"preview": plan["preview"]}
    status, answer = await post(site, "act/topic-delete/confirm", ident)
    assert (status, "what was typed is not 'gone'" in answer["error"]) == (400, True)
    status, answer = await post(site, "act/topic-delete/confirm", ident | {"typed": "gone"})
    assert (status, answer["counts"].keys()) == (200, {"done"})


async def test_a_preview_of_another_state_or_visitor_is_refused(
    site: Site, cluster: LocalCluster
) -> None:
    await done(site, "topic-create", {"topic": "shop-1", **TOPIC})
    status, plan = await post(site, "act/topic-update/preview", {"topic": "shop-1", "read": 4})
    ident = {"preview": plan["preview"]}
    status, _ = await post(site, "act/topic-update/confirm", ident, name="bob")
    assert status == 409
    async with Admin(cluster.name_server) as admin:
        await admin.create_topic("shop-1", 8)
    status, answer = await post(site, "act/topic-update/confirm", ident)
    assert (status, "nothing was done: preview it again" in answer["error"]) == (409, True)
    status, _ = await post(site, "act/topic-update/confirm", ident)
    assert status == 409  # it can be used once


async def test_fields_that_are_not_given_stay_as_they_are(
    site: Site, cluster: LocalCluster
) -> None:
    await done(site, "group-create", {"group": "kept", "tries": 3, "ordered": True})
    await done(site, "group-update", {"group": "kept", "enabled": False})
    async with Admin(cluster.name_server) as admin:
        (found,) = (await admin.groups()).values()
    kept = found.subscription_group_table["kept"]
    told = (kept.retry_max_times, kept.consume_message_orderly, kept.consume_enable)
    assert told == (3, True, False)


async def test_a_refused_plan_has_no_preview_to_confirm(site: Site) -> None:
    status, plan = await post(site, "act/group-delete/preview", {"group": "never"})
    assert (status, plan["preview"], plan["changes"]) == (200, None, [])
    assert plan["refusals"]
    status, _ = await post(site, "act/group-delete/confirm", {"preview": plan["preview"]})
    assert status == 409


async def test_nobody_acts_without_name_password_and_the_right(site: Site) -> None:
    path, body = "act/topic-create/preview", {"topic": "x", **TOPIC}
    assert (await post(site, path, body, name=""))[0] == 401
    assert (await post(site, path, body, headers=basic("ann", "wrong")))[0] == 401
    assert (await post(site, path, body, name="eve"))[0] == 403
    status, answer = await post(site, path, body, name="bob")
    assert (status, "bob may not operate topic x" in answer["error"]) == (403, True)
    assert (await post(site, path, {"topic": "shop-2", **TOPIC}, name="bob"))[0] == 200
    assert (await post(site, "act/broker-set/preview", {}, name="bob"))[0] == 403
    assert site.audit.last(9) == []


async def test_a_session_of_a_browser_does_not_act_here(site: Site) -> None:
    cookie = site.access.sessions.open(USERS[0].visitor("127.0.0.1"))
    site.session.cookie_jar.update_cookies({site.access.guard.cookie: cookie})
    assert (await site.get("api/overview"))[0] == 200
    status, answer = await post(site, "act/topic-create/preview", {"topic": "x"}, name="")
    assert (status, "name and password" in answer["error"]) == (401, True)


async def test_a_console_that_only_reads_refuses_programs_too(cluster: LocalCluster) -> None:
    servers: dict[str, str | None] = {"main": cluster.name_server}
    async with Site(servers, users=USERS, is_read_only=True) as site:
        status, _ = await post(site, "act/topic-create/preview", {"topic": "x", **TOPIC})
        assert status == 403


BAD_BODIES = (
    (b"", "the body can't be used"),
    (b"[]", "it is no object"),
    (b'{"topic": "a", "topic": "b"}', "a field is there twice"),
    (b'{"topic": ["a"]}', "'topic' is no text, whole number, true or false"),
    (b'{"read": 1.5, "topic": "a"}', "'read' is no text, whole number, true or false"),
    (b'{"topic": "\\ud800"}', "the body can't be used"),
    (b"\xff", "the body can't be used"),
    (b"[" * 100_000, "the body can't be used"),
    (b'{"topics": "a"}', "there is no field 'topics'; give some of"),
    (b'{"topic": "a", "write": "none"}', "Write queues is 'none'; give a whole number"),
    (json.dumps(dict.fromkeys(map(str, range(300)), "x")).encode(), "300 fields, the limit"),
)


async def test_a_body_that_can_t_be_used_is_refused(site: Site) -> None:
    for body, says in BAD_BODIES:
        status, answer = await post(site, "act/topic-create/preview", body)
        assert (status, says in answer["error"]) == (400, True), (body[:80], answer)


async def test_other_kinds_of_bodies_and_large_ones_are_refused(site: Site) -> None:
    path = "act/topic-create/preview"
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        status, _ = await post(site, path, {"topic": "x"}, headers={"Content-Type": kind})
        assert status == 415
    status, _ = await post(site, path, {"topic": "x" * (2 << 20)})
    assert status == 413


async def test_a_redrive_that_is_not_there_is_told_so(site: Site) -> None:
    status, answer = await post(site, "redrives/stop", {"run": "none"})
    assert (status, "there is no such run" in answer["error"]) == (404, True)
    status, text, _ = await site.get("api/redrives/run", headers=basic("ann"), run="none")
    assert (status, "there is no such run" in text) == (404, True)


async def finished(site: Site, answer: Any) -> Any:
    """The redrive that a confirmation began, as a program is told of it once it has ended."""
    ident = answer["run"]["run"]
    (run,) = (one for one in site.console.site.registry.redrives.runs("main") if one.ident == ident)
    async with asyncio.timeout(LONG):
        await run.finished.wait()
    status, text, _ = await site.get("api/redrives/run", headers=basic("ann"), run=ident)
    assert status == 200, text
    return json.loads(text)


def states(file: str) -> Counter[str]:
    """The states of a redrive's file, each with the number of its lines."""
    _, *lines = Path(file).read_text().splitlines()
    return Counter(json.loads(line)["state"] for line in lines)


async def test_a_program_redrives_dead_letters_and_a_second_run_skips_them(
    site: Site, cluster: LocalCluster
) -> None:
    await given_up(cluster, "work", "workers", 3)
    fields = {"group": "workers", "rate": 1000, "where": "body.n > 0"}
    status, plan = await post(site, "act/redrive/preview", fields)
    assert (status, plan["typed"], plan["refusals"]) == (200, "workers", [])
    assert [(one["now"], one["then"]) for one in plan["changes"]] == [
        ("2 dead letters of work", "2 sent")
    ]
    confirmation = {"preview": plan["preview"], "typed": "workers"}
    status, answer = await post(site, "act/redrive/confirm", confirmation)
    assert (status, answer["fault"]) == (200, None)
    run = await finished(site, answer)
    assert (run["phase"], run["total"], run["why"]) == ("ended", 2, None)
    assert (run["counts"]["sent"], run["counts"]["skipped"]) == (2, 0)
    # The file has what became of each letter: a line before its send, and one after it.
    assert states(run["file"]) == {"sending": 2, "sent": 2}
    again = await finished(
        site, await done(site, "redrive", fields | {"where": ""}, typed="workers")
    )
    assert (again["counts"]["sent"], again["counts"]["skipped"]) == (1, 2)
    bodies = []
    async with Consumer(cluster.name_server, group="workers", topics=["work"]) as consumer:
        for _ in range(3):
            message = await consumer.receive(LONG)
            assert message is not None
            bodies.append(message.body)
            await message.ack()
    assert sorted(bodies) == [b'{"n": 0}', b'{"n": 1}', b'{"n": 2}']


async def test_a_program_stops_a_redrive(site: Site, cluster: LocalCluster) -> None:
    await given_up(cluster, "slow", "slow", 20)
    answer = await done(site, "redrive", {"group": "slow", "rate": 1}, typed="slow")
    status, _ = await post(site, "redrives/stop", {"run": answer["run"]["run"]})
    assert status == 200
    run = await finished(site, answer)
    assert (run["phase"], run["counts"]["sent"] < 20) == ("stopped", True)
