"""Topics, groups and rules as a text: what is exported is imported elsewhere, and no more."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from aerobee.console.actions.action import Unfit
from aerobee.console.actions.definitions import export, parse
from aerobee.testing import LocalCluster

from .runner import ActionRunner


@pytest.fixture
def other() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster


async def test_an_export_is_imported_into_another_cluster_and_then_nothing_differs(
    runner: ActionRunner, other: LocalCluster, tmp_path: Path
) -> None:
    await runner.do("topic-create", topic="orders", type="FIFO", write="3", read="5")
    await runner.do("topic-create", topic="one-sided", brokers="broker-b")
    await runner.do("group-create", group="shop", tries="2")
    text, faults = await export(runner.watched)
    assert [one for one in faults if not one.startswith("rules are not in it")] == []
    found = json.loads(text)
    topics = {one["name"]: one for one in found["topics"]}
    assert set(topics) == {"orders", "one-sided"}
    assert topics["orders"]["brokers"] == ["broker-a", "broker-b"]
    assert topics["one-sided"]["brokers"] == ["broker-b"]
    assert {one["name"]: one["retry_max_times"] for one in found["groups"]} == {"shop": 2}
    async with ActionRunner(other.name_server, tmp_path / "other") as there:
        plan = await there.plan("definitions-import", text=text)
        places = {one.place for one in plan.changes}
        assert places == {
            "broker broker-a, topic orders",
            "broker broker-a, topic one-sided",
            "broker broker-a, group shop",
        }
        await there.do("definitions-import", text=text)
        (config,) = (await there.admin.topic_config("orders")).values()
        assert (config.write_queue_nums, config.read_queue_nums) == (3, 5)
        assert config.attributes["message.type"] == "FIFO"
        (group,) = (await there.admin.group_config("shop")).values()
        assert group.retry_max_times == 2
        again = await there.plan("definitions-import", text=text)
        assert again.refusals == ["there is no difference: the cluster has all of this"]
        topics["orders"]["write_queues"] = 4
        found["groups"][0]["consume_enable"] = False
        diff = await there.plan("definitions-import", text=json.dumps(found))
        assert {one.place for one in diff.changes} == {
            "broker broker-a, topic orders",
            "broker broker-a, group shop",
        }
        await there.do("definitions-import", text=json.dumps(found))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "can't be read"),
        ("[" * 20_000, "can't be read"),
        ("{}", "format"),
        ('{"format": "other"}', "other"),
        ('{"format": "aerobee definitions 1", "users": []}', "users"),
        (
            '{"format": "aerobee definitions 1", "topics": '
            '[{"name": "a b", "write_queues": 1, "read_queues": 1}]}',
            "a b",
        ),
        (
            '{"format": "aerobee definitions 1", "topics": '
            '[{"name": "a", "write_queues": 0, "read_queues": 1}]}',
            ">= 1",
        ),
    ],
)
def test_a_text_that_is_none_is_refused(text: str, what: str) -> None:
    with pytest.raises(Unfit, match=what):
        parse(text)
