"""Groups are created, changed and deleted on each broker, as the preview showed."""

import pytest
from aerobee.client import Consumer
from aerobee.console.actions.action import Unfit
from aerobee.testing import LocalCluster

from .desk import Desk, rows


async def test_a_group_is_created_and_changed_and_keeps_its_other_settings(desk: Desk) -> None:
    await desk.do("group-create", group="made", tries="3", ordered="1")
    for config in (await desk.admin.group_config("made")).values():
        assert (config.retry_max_times, config.consume_message_orderly) == (3, True)
        config.which_broker_when_consume_slowly = 7
        await desk.admin.update_group(config)
    given = await desk.actions["group-update"].prefill(desk.watched, {"group": "made"})  # type: ignore[misc]
    assert given["tries"] == "3"
    form = given | {"enabled": "", "brokers": "broker-a"}
    plan = await desk.plan("group-update", group="made", **form)
    assert [place for place, _, _ in rows(plan)] == ["broker broker-a"]
    assert plan.changes[0].after.startswith("may not consume")
    await desk.do("group-update", group="made", **form)
    found = await desk.admin.group_config("made")
    assert (found["broker-a"].consume_enable, found["broker-b"].consume_enable) == (False, True)
    assert found["broker-a"].which_broker_when_consume_slowly == 7
    again = await desk.plan("group-create", group="made")
    assert "is on broker broker-a already" in again.refusals[0]


async def test_a_group_is_deleted_with_its_retry_topic_but_not_while_it_has_members(
    desk: Desk, cluster: LocalCluster
) -> None:
    address = cluster.name_server
    await desk.do("topic-create", topic="read", write="1", read="1")
    async with Consumer(address, group="leaving", topics=["read"]):
        plan = await desk.plan("group-delete", group="leaving")
        assert "group leaving has 1 members at broker broker-a; stop them" in plan.refusals[0]
    plan = await desk.plan("group-delete", group="leaving")
    assert {one.phase for one in plan.changes} == {0, 1, 2}
    await desk.do("group-delete", group="leaving")
    assert not any("leaving" in one for one in await desk.admin.topics())
    for wrapper in (await desk.admin.groups()).values():
        assert "leaving" not in wrapper.subscription_group_table
    plan = await desk.plan("group-delete", group="leaving")
    assert plan.refusals == ["group leaving is on no broker; see the list of groups"]


async def test_a_system_group_stays(desk: Desk) -> None:
    with pytest.raises(Unfit, match="the system's own"):
        await desk.plan("group-delete", group="TOOLS_CONSUMER")
    with pytest.raises(Unfit, match="group"):
        await desk.plan("group-create", group="a b")
