"""Topics are created, changed and deleted on each broker, as the preview showed."""

import pytest
from aerobee.client import Message, Producer
from aerobee.client.errors import NoRouteError
from aerobee.console.actions.action import Changed, Unfit
from aerobee.testing import LocalCluster

from .runner import ActionRunner, rows


async def test_a_topic_is_created_on_each_broker(runner: ActionRunner) -> None:
    form = {"topic": "made", "write": "2", "read": "3", "type": "FIFO", "order": "1"}
    plan = await runner.plan("topic-create", **form)
    after = "2 write queues, 3 read queues, read and write, ordered, FIFO"
    assert rows(plan) == [
        ("broker broker-a", "not there", after),
        ("broker broker-b", "not there", after),
    ]
    await runner.do("topic-create", **form)
    for config in (await runner.admin.topic_config("made")).values():
        assert (config.write_queue_nums, config.read_queue_nums, config.order) == (2, 3, True)
        assert config.attributes["message.type"] == "FIFO"
    refused = await runner.plan("topic-create", **form)
    assert "topic made is on broker broker-a already" in refused.refusals[0]


async def test_a_change_is_refused_when_another_came_before_it(runner: ActionRunner) -> None:
    await runner.do("topic-create", topic="changed")
    form = {"topic": "changed", "write": "8", "read": "8", "brokers": "broker-b"}
    plan = await runner.plan("topic-update", **form)
    assert len(plan.changes) == 1
    await runner.admin.create_topic("changed", 6)
    with pytest.raises(Changed, match="has changed since the preview; nothing was done"):
        await runner.confirm("topic-update", plan, **form)
    found = await runner.admin.topic_config("changed")
    assert found["broker-b"].write_queue_nums == 6
    await runner.do("topic-update", **form)
    found = await runner.admin.topic_config("changed")
    assert (found["broker-a"].write_queue_nums, found["broker-b"].write_queue_nums) == (6, 8)
    given = await runner.actions["topic-update"].prefill(runner.watched, {"topic": "changed"})  # type: ignore[misc]
    assert given["write"] == "6"
    assert given["brokers"] == "broker-a, broker-b"
    again = await runner.plan("topic-update", **form)
    assert again.refusals == ["nothing would change"]


async def test_a_topic_is_deleted_with_its_messages(
    runner: ActionRunner, cluster: LocalCluster
) -> None:
    await runner.do("topic-create", topic="gone", brokers="broker-a", write="1", read="1")
    async with Producer(cluster.name_server) as producer:
        await producer.send(Message("gone", b"x"))
    plan = await runner.plan("topic-delete", topic="gone")
    assert rows(plan) == [
        ("broker broker-a", "1 queue, 1 message", "deleted"),
        ("name servers", "known", "deleted"),
    ]
    await runner.do("topic-delete", topic="gone")
    with pytest.raises(NoRouteError):
        await runner.admin.route("gone")


async def test_what_cannot_be_is_refused(runner: ActionRunner) -> None:
    for name, form, what in (
        ("topic-create", {"topic": "a b"}, "a b"),
        ("topic-create", {"topic": "TBW102"}, "the system's own"),
        ("topic-create", {"topic": "x", "brokers": "nobody"}, "broker nobody has no master"),
        ("topic-create", {"topic": "x", "write": "0"}, "Write queues is 0; give 1 to"),
        ("topic-create", {"topic": "x", "perm": "all"}, "Clients may is 'all'; give one of"),
        ("topic-create", {"topic": ""}, "Topic is missing"),
        ("topic-delete", {"topic": "TBW102"}, "the system's own"),
        ("topic-delete", {"topic": "never"}, "topic never is on no broker"),
    ):
        with pytest.raises(Unfit, match=what):
            await runner.plan(name, **form)
    plan = await runner.plan("topic-update", topic="never")
    assert plan.refusals == ["topic never is on none of these brokers; create it instead"]
