"""Previews while a broker is away count what they saw as "at least", and name the broker."""

import asyncio
from pathlib import Path

import pytest
from aerobee.client import Message, Producer
from aerobee.console.actions import places
from aerobee.console.actions.action import Changed
from aerobee.console.clusters import collector as collectors
from aerobee.protocol import codes
from aerobee.testing import LocalCluster

from ...waiting import until
from ..fake_cluster import Shop
from .runner import ActionRunner


async def test_what_a_broker_that_is_not_listed_any_more_has_is_not_counted(
    runner: ActionRunner, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collectors, "SAMPLE_SECONDS", 0.1)
    async with Producer(cluster.name_server) as producer:
        await runner.do("topic-create", topic="shared", write="1", read="1")
        await runner.do("group-create", group="reads")
        for _ in range(4):
            await producer.send(Message("shared", b"x"))
    skip = {"group": "reads", "topic": "shared", "kind": "end"}
    assert "at least" not in str((await runner.plan("offsets-reset", **skip)).sentence)
    whole = await runner.plan("topic-delete", topic="shared")
    assert whole.sentence == "Delete topic shared with its 4 messages"
    assert cluster._loop is not None
    stopping = asyncio.run_coroutine_threadsafe(cluster.brokers[1].stop(), cluster._loop)
    await asyncio.wrap_future(stopping)
    brokers = runner.watched.collector.brokers
    await until(lambda: brokers["broker-b", 0].wrong is not None)
    for name, form in (("topic-delete", {"topic": "shared"}), ("offsets-reset", skip)):
        plan = await runner.plan(name, **form)
        assert str(plan.sentence).endswith(", at least")
        assert (
            "broker broker-b does not answer: what it has is not in this preview" in plan.notes
        ), name
    # Of one broker alone all is known.
    plan = await runner.plan("offsets-reset", broker="broker-a", **skip)
    assert "at least" not in str(plan.sentence)


async def test_a_broker_that_does_not_answer_any_more_is_the_reason_and_not_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "ASK_SECONDS", 0.1)
    shop = Shop("orders")
    await shop.start()
    async with ActionRunner(shop.address, tmp_path) as runner:
        plan = await runner.plan("topic-delete", topic="orders")
        assert plan.refusals == []
        shop.broker.answers[codes.GET_TOPIC_STATS_INFO] = lambda *_: None  # it never answers
        with pytest.raises(Changed, match=r"broker orders did not answer.*; nothing was done"):
            await runner.confirm("topic-delete", plan, topic="orders")
        plan = await runner.plan("topic-delete", topic="orders")
        assert "broker orders did not answer" in plan.refusals[0]
        assert str(plan.sentence).endswith(", at least")
    await shop.stop()
