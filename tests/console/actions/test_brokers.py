"""Settings and the write permission of brokers."""

from pathlib import Path

import pytest
from aerobee.client import Admin
from aerobee.console.actions.action import Unfit
from aerobee.testing import LocalCluster

from .runner import ActionRunner, rows


async def test_a_setting_is_changed_where_it_differs(runner: ActionRunner) -> None:
    masters = await runner.admin.masters()
    await runner.admin.update_broker_config(masters["broker-b"], {"fileReservedTime": 48})
    form = {"setting": "fileReservedTime", "value": "48"}
    plan = await runner.plan("broker-set", **form)
    assert rows(plan) == [("broker broker-a", "fileReservedTime=72", "fileReservedTime=48")]
    await runner.do("broker-set", **form)
    assert "fileReservedTime=48" in await runner.admin.broker_config(masters["broker-a"])
    assert (await runner.plan("broker-set", **form)).refusals == [
        "fileReservedTime is 48 there already"
    ]
    strange = await runner.plan("broker-set", setting="transferMsgByHeap", value="true")
    assert strange.changes or strange.refusals
    outcomes = await runner.confirm(
        "broker-set",
        plan := await runner.plan("broker-set", **form | {"value": "nonsense"}),
        **form | {"value": "nonsense"},
    )
    assert plan.changes
    assert {one.state.value for one in outcomes} == {"refused"}
    assert "nonsense" in outcomes[0].remark


async def test_only_settings_of_the_list_and_harmless_values_pass(runner: ActionRunner) -> None:
    for form, what in (
        ({"setting": "brokerConfigPath", "value": "x"}, "give one of"),
        ({"setting": "traceOn", "value": "true\nfilterServerNums=1"}, "give letters, digits"),
        ({"setting": "traceOn", "value": "$(id)"}, "give letters, digits"),
        ({"setting": "traceOn", "value": "true", "brokers": "x"}, "broker x has no master"),
    ):
        with pytest.raises(Unfit, match=what):
            await runner.plan("broker-set", **form)


async def test_the_write_permission_is_taken_and_given_back(runner: ActionRunner) -> None:
    await runner.do("topic-create", topic="written")

    async def writable() -> dict[str, int]:
        route = await runner.admin.route("written")
        return {str(one.broker_name): one.perm & 2 for one in route.queue_datas}

    assert await writable() == {"broker-a": 2, "broker-b": 2}
    (outcome,) = await runner.do("broker-wipe", broker="broker-b")
    assert "topics changed" in outcome.remark
    assert await writable() == {"broker-a": 2, "broker-b": 0}
    await runner.do("broker-write", broker="broker-b")
    assert await writable() == {"broker-a": 2, "broker-b": 2}
    with pytest.raises(Unfit):
        await runner.plan("broker-wipe", broker="nobody")


async def test_a_topic_that_was_deleted_after_the_last_sample_is_left_out(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async with Admin(cluster.name_server) as admin:
        await admin.create_topic("deleted")
        async with ActionRunner(cluster.name_server, tmp_path) as runner:
            assert "deleted" in runner.watched.collector.topics()
            await admin.delete_topic("deleted")
            plan = await runner.plan("broker-wipe", broker="broker-a")
            assert plan.changes
