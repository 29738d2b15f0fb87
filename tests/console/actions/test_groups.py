"""Groups are created, changed and deleted on each broker, as the preview showed."""

import pytest
from aerobee.client import Consumer
from aerobee.console.actions.action import Unfit
from aerobee.testing import LocalCluster

from .runner import ActionRunner, rows


async def test_a_group_is_created_and_changed_and_keeps_its_other_settings(
    runner: ActionRunner,
) -> None:
    await runner.do("group-create", group="made", tries="3", ordered="1")
    for config in (await runner.admin.group_config("made")).values():
        assert (config.retry_max_times, config.consume_message_orderly) == (3, True)
        config.which_broker_when_consume_slowly = 7
        await runner.admin.update_group(config)
    given = await runner.actions["group-update"].prefill(runner.watched, {"group": "made"})  # type: ignore[misc]
    assert given["tries"] == "3"
    form = given | {"enabled": "", "brokers": "broker-a"}
    plan = await runner.plan("group-update", group="made", **form)
    assert [place for place, _, _ in rows(plan)] == ["broker broker-a"]
    assert plan.changes[0].after.startswith("may not consume")
    await runner.do("group-update", group="made", **form)
    found = await runner.admin.group_config("made")
    assert (found["broker-a"].consume_enable, found["broker-b"].consume_enable) == (False, True)
    assert found["broker-a"].which_broker_when_consume_slowly == 7
    again = await runner.plan("group-create", group="made")
    assert "is on broker broker-a already" in again.refusals[0]


async def test_a_group_is_deleted_with_its_retry_topic_but_not_while_it_has_members(
    runner: ActionRunner, cluster: LocalCluster
) -> None:
    address = cluster.name_server
    await runner.do("topic-create", topic="read", write="1", read="1")
    async with Consumer(address, group="leaving", topics=["read"]):
        plan = await runner.plan("group-delete", group="leaving")
        assert "group leaving has 1 members at broker broker-a; stop them" in plan.refusals[0]
    plan = await runner.plan("group-delete", group="leaving")
    assert {one.phase for one in plan.changes} == {0, 1, 2}
    await runner.do("group-delete", group="leaving")
    assert not any("leaving" in one for one in await runner.admin.topics())
    for wrapper in (await runner.admin.groups()).values():
        assert "leaving" not in wrapper.subscription_group_table
    plan = await runner.plan("group-delete", group="leaving")
    assert plan.refusals == ["group leaving is on no broker; see the list of groups"]


async def test_a_system_group_stays(runner: ActionRunner) -> None:
    with pytest.raises(Unfit, match="the system's own"):
        await runner.plan("group-delete", group="TOOLS_CONSUMER")
    with pytest.raises(Unfit, match="group"):
        await runner.plan("group-create", group="a b")
