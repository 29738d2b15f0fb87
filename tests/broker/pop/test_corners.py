"""Pop where several things meet: filters, order, retries, groups that go, queues that go, restarts.

Whatever is done with the handles, each message is acknowledged, comes again, or is a dead letter.
"""

from pathlib import Path

import pytest
from aerobee.protocol import codes
from aerobee.protocol.bodies.topic import TopicConfig

from ...clocks import Clock
from ..conftest import Config, Run
from ..popping import BACK_AFTER_MS, INVISIBLE_MS, Popper, crashed
from .test_ack_handlers import batch_ack, batch_of

SQL = {"expression_type": "SQL92", "expression": "a > 1"}
TAG = {"expression_type": "TAG", "expression": "x"}


@pytest.fixture
async def p(run: Run, config: Config, clock: Clock) -> Popper:
    return Popper(*await run(config(enable_property_filter=True)), clock)


async def drained(p: Popper, **wanted: object) -> list[bytes]:
    """All that comes in the next hours, acknowledged; once each."""
    found = []
    for _ in range(8):
        handles = await p.pop(**wanted)
        for body, text in handles.items():
            assert (await p.ack(text)).code == codes.SUCCESS
            found.append(body)
        await p.later(BACK_AFTER_MS)
    return found


@pytest.mark.parametrize("wanted", [SQL, TAG])
async def test_what_a_filter_lets_through_comes_again_and_what_it_does_not_never(
    p: Popper, wanted: dict[str, str]
) -> None:
    await p.send(b"yes", TAGS="x", a="2")
    await p.send(b"no", TAGS="y", a="1")
    await p.send(b"too", TAGS="x", a="3")
    assert list(await p.pop(**wanted)) == [b"yes", b"too"]
    await p.later(BACK_AFTER_MS)
    assert sorted(await drained(p, **wanted)) == [b"too", b"yes"]
    assert p.offset() == 3


@pytest.mark.parametrize("wanted", [SQL, TAG])
async def test_in_order_a_filter_leaves_none_out_that_matches(
    p: Popper, wanted: dict[str, str]
) -> None:
    for number, (tag, value) in enumerate([("y", "1"), ("x", "2"), ("y", "1"), ("x", "3")]):
        await p.send(b"%d" % number, TAGS=tag, a=value)
    first = await p.pop(order=True, max_messages=1, **wanted)
    assert list(first) == [b"1"]
    assert await p.pop(order=True, **wanted) == {}
    await p.later(BACK_AFTER_MS)
    again = await p.pop(order=True, max_messages=1, **wanted)
    assert list(again) == [b"1"]
    for text in first.values():
        late = await p.ack(text)
        assert "popped again since" in (late.remark or "")
    assert (await p.ack(again[b"1"])).code == codes.SUCCESS
    assert list(await p.pop(order=True, **wanted)) == [b"3"]


@pytest.mark.parametrize("clean", ["true", "false"])
async def test_a_group_that_is_deleted_while_its_messages_are_out_harms_nobody(
    p: Popper, clean: str
) -> None:
    other = Popper(p.broker, p.caller, p.clock, group="other")
    await p.send(b"a", b"b", TAGS="x")
    handles = await p.pop(**TAG)
    assert list(await other.pop(**TAG)) == [b"a", b"b"]
    fields = {"groupName": p.group, "cleanOffset": clean}
    assert (await p.caller.ask(codes.DELETE_SUBSCRIPTIONGROUP, fields)).code == codes.SUCCESS
    answer = await p.ack(handles[b"a"])
    assert answer.code in (codes.SUCCESS, codes.SUBSCRIPTION_GROUP_NOT_EXIST)
    await p.later(BACK_AFTER_MS)
    assert sorted(await drained(other, **TAG)) == [b"a", b"b"]
    await p.send(b"c", TAGS="x")
    found = await drained(p, **TAG)  # its first pop makes the group again
    assert {b"b", b"c"} <= set(found) <= {b"a", b"b", b"c"}


async def test_a_second_acknowledgement_changes_nothing(p: Popper) -> None:
    await p.send(b"a", b"b")
    handles = await p.pop()
    for _ in range(2):
        assert (await p.ack(handles[b"a"])).code == codes.SUCCESS
    await p.later(BACK_AFTER_MS)
    for _ in range(2):
        assert (await p.ack(handles[b"a"])).code == codes.SUCCESS
    assert await drained(p) == [b"b"]


async def test_an_acknowledgement_after_the_message_came_again_is_not_for_the_new_one(
    p: Popper,
) -> None:
    await p.send(b"a")
    late = (await p.pop())[b"a"]
    await p.later(BACK_AFTER_MS)
    again = (await p.pop())[b"a"]
    answer = await p.ack(late)
    assert answer.code == codes.SUCCESS  # as in RocketMQ, whose clients can't do anything about it
    assert "expired" in (answer.remark or "")
    await p.later(BACK_AFTER_MS)
    assert (await p.ack(again)).code == codes.SUCCESS
    assert await drained(p) == [b"a"]


async def test_a_message_whose_time_is_changed_after_it_was_acknowledged_comes_once_more(
    p: Popper,
) -> None:
    await p.send(b"a", b"b")
    handles = await p.pop()
    assert (await p.ack(handles[b"a"])).code == codes.SUCCESS
    changed = await p.change(handles[b"a"], 60_000)
    found = await drained(p)
    # As in RocketMQ: a new check point, whatever was acknowledged before.
    assert (changed.code, sorted(found)) == (codes.SUCCESS, [b"a", b"b"])


async def test_of_a_batch_with_foreign_offsets_its_own_are_done(p: Popper) -> None:
    await p.send(b"a", b"b", b"c")
    first = await p.pop(max_messages=2)
    second = await p.pop()
    assert (list(first), list(second)) == ([b"a", b"b"], [b"c"])
    # The bit of the third is that of another pop, those behind it of nothing at all.
    foreign = batch_of(p, first[b"a"], [0, 2])
    nothing = batch_of(p, first[b"a"], [0, 77])
    own = batch_of(p, first[b"a"], [1])
    answer = await batch_ack(p, foreign, nothing, own)
    assert answer.code in (codes.MESSAGE_ILLEGAL, codes.NO_MESSAGE)
    assert "not popped with this handle" in (answer.remark or "")
    assert sorted(await drained(p)) == [b"a", b"c"]


@pytest.mark.parametrize("killed", [False, True])
async def test_a_handle_outlives_a_restart(
    run: Run, config: Config, clock: Clock, tmp_path: Path, killed: bool
) -> None:
    broker, caller = await run(config())
    p = Popper(broker, caller, clock)
    await p.send(b"a", b"b", b"c")
    handles = await p.pop()
    assert (await p.ack(handles[b"a"])).code == codes.SUCCESS
    await p.synced()
    if killed:
        where = crashed(broker, tmp_path / "copy")
    else:
        await broker.stop()
        where = {"store_path_root_dir": str(broker.root)}
    again = Popper(*await run(config(**where)), clock)
    assert (await again.ack(handles[b"b"])).code == codes.SUCCESS
    changed = await again.change(handles[b"c"], INVISIBLE_MS)
    assert changed.code == codes.SUCCESS
    await again.later(BACK_AFTER_MS)
    found = await drained(again)
    # What was not written when it was killed comes again; nothing is lost.
    assert b"c" in found
    if not killed:
        assert found == [b"c"]


async def test_what_was_popped_from_a_queue_that_is_gone_comes_again(p: Popper) -> None:
    p.broker.topics.put(TopicConfig("T", 3, 3))
    await p.send(b"zero")
    await p.send(b"two", queue_id=2)
    handles = await p.pop()
    assert sorted(handles) == [b"two", b"zero"]
    p.broker.topics.put(TopicConfig("T", 1, 1))
    assert (await p.ack(handles[b"zero"])).code == codes.SUCCESS
    gone = await p.ack(handles[b"two"])
    assert gone.code == codes.MESSAGE_ILLEGAL
    assert "topicConfig.readQueueNums:[1]" in (gone.remark or "")
    answer = await p.ask(queue_id=2)
    assert answer.code == codes.INVALID_PARAMETER
    await p.later(BACK_AFTER_MS)
    assert await drained(p) == [b"two"]
