"""Redrives on a cluster: what is counted, refused, sent where, and found again."""

import pytest
from aerobee.client import Admin, Consumer, Message, Producer
from aerobee.console.actions.action import Unfit
from aerobee.console.actions.redrive import Phase, Run
from aerobee.testing import LocalCluster

from ...client.fakes import until
from ...waiting import LONG
from .runner import ActionRunner, rows


async def given_up(cluster: LocalCluster, topic: str, group: str, count: int) -> None:
    """Dead letters of a group."""
    address = cluster.name_server
    async with Admin(address) as admin:
        await admin.create_topic(topic, 1, broker="broker-a")
    async with Producer(address) as producer:
        for n in range(count):
            await producer.send(Message(topic, b'{"n": %d}' % n, tags="t", keys=[f"k{n}"]))
    async with Consumer(address, group=group, topics=[topic], start="earliest") as consumer:
        for _ in range(count):
            message = await consumer.receive(LONG)
            assert message is not None
            await message.nack(delay_level=-1)


async def started(runner: ActionRunner, **form: str) -> Run:
    """A run of what a rehearsal showed."""
    action = runner.actions["redrive"]
    values = action.read(runner.whole("redrive", {"rate": "1000", **form}))
    plan = await action.plan(runner.watched, values, {})
    assert plan.refusals == []
    assert action.start is not None
    run: Run = action.start(runner.watched, values, plan)
    return run


async def test_some_go_to_a_topic_and_each_goes_once(
    runner: ActionRunner, cluster: LocalCluster
) -> None:
    await given_up(cluster, "work", "some", 4)
    await runner.do("topic-create", topic="hospital", write="1", read="1", brokers="broker-b")
    form = {"group": "some", "target": "a topic", "topic": "hospital", "where": "body.n > 1"}
    plan = await runner.plan("redrive", **form)
    assert rows(plan) == [("hospital", "2 dead letters of work", "2 sent")]
    assert plan.topics == {"hospital"}
    run = await started(runner, **form)
    await run.finished.wait()
    assert (run.phase, run.counts.sent, run.counts.refused) == (Phase.ENDED, 2, 0)
    (found,) = await runner.admin.query("hospital", "k3")
    pairs = found.properties
    assert (found.body, pairs["TAGS"]) == (b'{"n": 3}', "t")
    assert not {"RETRY_TOPIC", "DELAY", "REAL_TOPIC", "DLQ_ORIGIN_TOPIC"} & pairs.keys()
    # All of them, now: the two that went are skipped, by the file and without it.
    more = form | {"where": ""}
    runner.redrives.ledger(
        runner.watched, runner.actions["redrive"].read(runner.whole("redrive", more))
    ).path.unlink()
    run = await started(runner, **more)
    await run.finished.wait()
    assert (run.counts.sent, run.counts.skipped) == (2, 2)
    table = (await runner.admin.topic_stats("hospital")).offset_table
    assert sum(one.max_offset for one in table.values()) == 4


async def test_a_run_stops_and_goes_on_where_it_was(
    runner: ActionRunner, cluster: LocalCluster
) -> None:
    await given_up(cluster, "slow", "slow", 3)
    run = await started(runner, group="slow", rate="1")
    with pytest.raises(Unfit, match="a redrive of slow runs already"):
        await started(runner, group="slow")
    await until(lambda: run.counts.sent > 0)
    run.stop()
    await run.finished.wait()
    assert run.phase is Phase.STOPPED
    rest = await started(runner, group="slow")
    await rest.finished.wait()
    assert run.counts.sent + rest.counts.sent == 3


async def test_what_cannot_be_is_said_before(runner: ActionRunner, cluster: LocalCluster) -> None:
    await given_up(cluster, "odd", "odd", 1)
    for form, what in (
        ({"target": "a topic"}, "Topic is missing"),
        ({"topic": "x"}, "leave it empty"),
        ({"where": "a = "}, "SQL92 expression is wrong at character 4"),
        ({"rate": "0"}, "give 1 to"),
    ):
        with pytest.raises(Unfit, match=what):
            await runner.plan("redrive", group="odd", **form)
    plan = await runner.plan("redrive", group="odd", target="a topic", topic="nowhere")
    assert "topic nowhere is on no broker" in plan.refusals[0]
    plan = await runner.plan("redrive", group="odd", where="body.n = 77")
    assert plan.refusals == ["no dead letter is to be sent"]
    async with Consumer(cluster.name_server, group="odd", topics=["odd"], ordered=True):
        plan = await runner.plan("redrive", group="odd")
        assert any("odd consumes in order" in note for note in plan.notes)
        assert plan.refusals == ["no dead letter is to be sent"]
