"""Offsets of a group are reset and cloned queue by queue, with members and without."""

import asyncio

import pytest
from aerobee.client import Consumer, Message, Producer
from aerobee.console.actions.action import Changed, Unfit
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.testing import LocalCluster

from ...waiting import LONG
from .runner import ActionRunner, rows


async def prepared(runner: ActionRunner, cluster: LocalCluster, name: str) -> list[int]:
    """Topic and group of this name: two queues of ten on broker-a; the group is at 4 in each. The
    times of the messages of queue 0."""
    await runner.do("topic-create", topic=name, write="2", read="2", brokers="broker-a")
    await runner.do("group-create", group=name)
    async with Producer(cluster.name_server) as producer:
        for queue in await producer.queues(name):
            for _ in range(10):
                cluster.advance(seconds=1)
                await producer.send(Message(name, b"x"), queue=queue)
            await runner.admin.set_offset(name, queue, 4)
    found = await runner.admin.query(name, "none")
    assert found == []
    queue = MessageQueue(name, "broker-a", 0)
    times = []
    for offset in range(10):
        entries = await runner.watched.reader.pull(queue, offset, 1)
        times.append(int.from_bytes(entries.body[56:64], "big"))
    return times


async def at(runner: ActionRunner, name: str) -> list[int]:
    table = (await runner.admin.consume_stats(name, name)).offset_table
    return [one.consumer_offset for _, one in sorted(table.items())]


async def test_each_kind_of_reset_shows_what_is_skipped_or_read_again(
    runner: ActionRunner, cluster: LocalCluster
) -> None:
    times = await prepared(runner, cluster, "kinds")
    base = {"group": "kinds", "topic": "kinds"}
    for form, offsets, notes in (
        ({"kind": "end"}, [10, 10], ["6 are skipped", "6 are skipped"]),
        ({"kind": "begin"}, [0, 0], ["10 are read again", "10 are read again"]),
        ({"kind": "forward", "steps": "3"}, [3, 3], ["3 are skipped", "3 are skipped"]),
        ({"kind": "offset", "queue": "1", "offset": "7"}, [3, 7], ["4 are skipped"]),
        ({"kind": "time", "time": str(times[5])}, [5, 0], ["2 are skipped", "7 are read again"]),
        ({"kind": "begin", "queue": "0"}, [0, 0], ["5 are read again"]),
    ):
        plan = await runner.plan("offsets-reset", **base, **form)
        assert [one.note for one in plan.changes] == notes
        await runner.do("offsets-reset", **base, **form)
        assert await at(runner, "kinds") == offsets
    plan = await runner.plan("offsets-reset", **base, kind="begin")
    assert plan.refusals == ["no queue would change"]


async def test_an_end_is_that_of_the_preview_and_progress_since_then_refuses_it(
    runner: ActionRunner, cluster: LocalCluster
) -> None:
    await prepared(runner, cluster, "bound")
    form = {"group": "bound", "topic": "bound", "kind": "end"}
    plan = await runner.plan("offsets-reset", **form)
    await runner.admin.set_offset("bound", MessageQueue("bound", "broker-a", 0), 5)
    with pytest.raises(Changed):
        await runner.confirm("offsets-reset", plan, **form)
    plan = await runner.plan("offsets-reset", **form)
    async with Producer(cluster.name_server) as producer:
        for queue in await producer.queues("bound"):
            await producer.send(Message("bound", b"later"), queue=queue)
    await runner.confirm("offsets-reset", plan, **form)
    assert await at(runner, "bound") == [10, 10]  # what came later is not skipped


async def test_members_go_on_from_there(runner: ActionRunner, cluster: LocalCluster) -> None:
    await prepared(runner, cluster, "live")
    async with (
        Consumer(cluster.name_server, group="live", topics=["live"]) as consumer,
        asyncio.timeout(LONG),
    ):
        for _ in range(12):
            message = await consumer.receive()
            assert message is not None
            await message.ack()
        plan = await runner.plan("offsets-reset", group="live", topic="live", kind="begin")
        assert "1 members of live are connected to broker-a" in plan.notes[0]
        await runner.confirm("offsets-reset", plan, group="live", topic="live", kind="begin")
        again: set[tuple[int, int]] = set()
        while len(again) < 20:
            message = await consumer.receive()
            assert message is not None
            again.add((message.queue.queue_id, message.record.queue_offset))
            await message.ack()


async def test_offsets_are_cloned(runner: ActionRunner, cluster: LocalCluster) -> None:
    await prepared(runner, cluster, "source")
    await runner.do("group-create", group="copy")
    form = {"source": "source", "target": "copy", "topic": "source"}
    plan = await runner.plan("offsets-clone", **form)
    assert rows(plan) == [("broker-a, queue 0", "0", "4"), ("broker-a, queue 1", "0", "4")]
    await runner.do("offsets-clone", **form)
    table = (await runner.admin.consume_stats("copy", "source")).offset_table
    assert [one.consumer_offset for one in table.values()] == [4, 4]
    assert "would change" in (await runner.plan("offsets-clone", **form)).refusals[0]
    stranger = await runner.plan("offsets-clone", **form | {"target": "nobody"})
    assert "does not know group nobody; create it first" in stranger.refusals[0]


async def test_what_cannot_be_is_refused(runner: ActionRunner, cluster: LocalCluster) -> None:
    await prepared(runner, cluster, "odd")
    base = {"group": "odd", "topic": "odd"}
    for form, what in (
        ({"kind": "time"}, "time is missing"),
        ({"kind": "offset", "offset": "3"}, "queue is missing"),
        ({"kind": "offset", "queue": "0", "offset": "11"}, "queue 0 has 0 to 10"),
        ({"kind": "begin", "queue": "9"}, "no queue 9 on broker broker-a"),
        ({"kind": "begin", "broker": "broker-b"}, "not on a broker broker-b"),
        ({"kind": "time", "time": "soon"}, "'soon' is no time"),
    ):
        with pytest.raises(Unfit, match=what):
            await runner.plan("offsets-reset", **base, **form)
    plan = await runner.plan("offsets-reset", group="nobody", topic="odd", kind="begin")
    assert plan.refusals == ["broker broker-a does not know group nobody"]
