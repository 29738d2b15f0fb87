"""Users and rules of a broker with access control."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aerobee.client import Security
from aerobee.console.actions.action import Unfit
from aerobee.testing import LocalCluster

from .runner import ActionRunner, rows

ROOT = Security("root", "root-secret")


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[ActionRunner]:
    settings: dict[str, Any] = {
        "authenticationEnabled": True,
        "authorizationEnabled": True,
        "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
    }
    with LocalCluster(**settings) as cluster:
        async with ActionRunner(
            cluster.name_server, tmp_path / "redrives", security=ROOT
        ) as runner:
            yield runner


async def test_users_are_created_changed_and_deleted(guarded: ActionRunner) -> None:
    runner = guarded
    form = {"user": "ann", "password": "hush"}
    plan = await runner.plan("user-create", **form)
    assert rows(plan) == [("broker broker-a", "none", "Normal, enable")]
    assert "hush" not in repr(plan)
    await runner.do("user-create", **form)
    (user,) = (await runner.admin.users("ann"))["broker-a"]
    assert (user.user_type, user.password) == ("Normal", "hush")
    assert (
        "user ann is there already; change it instead"
        in (await runner.plan("user-create", **form)).refusals
    )
    await runner.do("user-update", user="ann", status="disabled", type="Super")
    (user,) = (await runner.admin.users("ann"))["broker-a"]
    assert (user.user_type, user.user_status, user.password) == ("Super", "disable", "hush")
    assert "nothing would change" in (await runner.plan("user-update", user="ann")).refusals
    await runner.do("user-delete", user="ann")
    assert (await runner.admin.users("ann"))["broker-a"] == []
    for name in ("user-update", "user-delete"):
        plan = await runner.plan(name, user="ann", status="enabled")
        assert "user ann is not known to broker-a" in plan.refusals


async def test_rules_are_created_changed_and_deleted(guarded: ActionRunner) -> None:
    runner = guarded
    await runner.do("user-create", user="bob", password="hush")
    form = {"user": "bob", "resource": "Topic:orders*", "actions": "Pub, Get"}
    plan = await runner.plan("rule-create", **form)
    assert rows(plan) == [("broker broker-a", "none", "Allow Get, Pub from anywhere")]
    await runner.do("rule-create", **form)
    assert (
        "there is a rule"
        in (await runner.plan("rule-create", **form | {"actions": "Sub"})).refusals[0]
    )
    await runner.do("rule-update", **form | {"sources": "10.0.0.0/8", "decision": "Deny"})
    (rule,) = (await runner.plan("rule-delete", user="bob", resource="Topic:orders*")).changes
    assert rule.before == "Deny Get, Pub from 10.0.0.0/8"
    await runner.do("rule-delete", user="bob", resource="Topic:orders*")
    assert "no rule" in (await runner.plan("rule-update", **form)).refusals[0]
    for bad in ({"resource": "orders"}, {"actions": "Fly"}):
        with pytest.raises(Unfit):
            await runner.plan("rule-create", **form | bad)
