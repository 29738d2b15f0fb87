"""Popping in order: one batch at a time, counts, attempts, and the file of it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aerobee.broker.groups.groups import Groups
from aerobee.broker.pop.orders import PopOrders
from aerobee.broker.topics.topics import Topics
from aerobee.protocol import codes
from aerobee.protocol.bodies.group import SubscriptionGroupConfig
from aerobee.protocol.bodies.topic import TopicConfig
from aerobee.protocol.command import Command
from aerobee.protocol.headers.pop import Notification

from ...clocks import Clock
from ..conftest import Config, Run
from ..popping import INVISIBLE_MS, Popper, crashed, records

KEY = ("T", "cg", 0)


@pytest.fixture
async def p(run: Run, config: Config, clock: Clock) -> Popper:
    return Popper(*await run(config()), clock)


async def ordered(p: Popper, **wanted: Any) -> Command:
    return await p.ask(order=True, **wanted)


def bodies(answer: Command) -> list[bytes]:
    return [record.body for record in records(answer)]


async def test_the_next_batch_comes_when_the_one_before_is_acknowledged(p: Popper) -> None:
    await p.send(b"a", b"b", b"c")
    answer = await ordered(p, max_messages=2)
    fields = answer.fields()
    assert bodies(answer) == [b"a", b"b"]
    assert (fields["reviveQid"], fields["orderCountInfo"]) == ("999", "0 0 0")
    assert (fields["startOffsetInfo"], fields["msgOffsetInfo"]) == ("0 0 0", "0 0 0,1")
    handles = p.handles(answer)
    assert (await ordered(p)).code == codes.POLLING_TIMEOUT
    assert (await p.ack(handles[b"b"])).code == 0
    assert p.offset() == 0
    assert (await ordered(p)).code == codes.POLLING_TIMEOUT
    assert (await p.ack(handles[b"a"])).code == 0
    assert p.offset() == 2
    assert bodies(await ordered(p)) == [b"c"]


async def test_a_batch_that_is_not_acknowledged_in_time_comes_again_with_counts(
    p: Popper,
) -> None:
    await p.send(b"a", b"b")
    await ordered(p, max_messages=1)
    await p.later(INVISIBLE_MS)
    answer = await ordered(p)
    assert bodies(answer) == [b"a", b"b"]
    assert answer.fields()["orderCountInfo"] == "0 qo0%0 1;0 0 0"
    await p.later(INVISIBLE_MS)
    answer = await ordered(p)
    assert answer.fields()["orderCountInfo"] == "0 qo0%0 2;0 qo0%1 1;0 0 1"
    assert p.broker.topics.get("%RETRY%cg_T") is None


async def test_what_is_acknowledged_of_a_batch_does_not_come_again(p: Popper) -> None:
    await p.send(b"a", b"b", b"c")
    handles = p.handles(await ordered(p))
    await p.ack(handles[b"a"])
    await p.later(INVISIBLE_MS)
    assert bodies(await ordered(p)) == [b"b", b"c"]


async def test_the_same_attempt_gets_the_same_batch_again(p: Popper) -> None:
    await p.send(b"a", b"b")
    assert bodies(await ordered(p, attempt_id="one", max_messages=1)) == [b"a"]
    again = await ordered(p, attempt_id="one", max_messages=1)
    assert bodies(again) == [b"a"]
    assert again.fields()["orderCountInfo"] == "0 0 0"
    assert (await ordered(p, attempt_id="two")).code == codes.POLLING_TIMEOUT


async def test_queues_do_not_wait_for_each_other(run: Run, config: Config, clock: Clock) -> None:
    p = Popper(*await run(config()), clock, queues=2)
    await p.send(b"a")
    assert bodies(await ordered(p)) == [b"a"]
    await p.send(b"b")
    await p.send(b"c", queue_id=1)
    assert bodies(await ordered(p)) == [b"c"]


async def test_a_waiting_pop_gets_the_next_batch_when_the_one_before_is_through(
    p: Popper,
) -> None:
    await p.send(b"a", b"b")
    handles = p.handles(await ordered(p, max_messages=1))
    asked = asyncio.create_task(ordered(p, poll_ms=10_000))
    await p.waiting(1)
    await p.ack(handles[b"a"])
    assert bodies(await asked) == [b"b"]


async def test_a_waiting_pop_gets_a_batch_again_when_its_time_is_up(p: Popper) -> None:
    await p.send(b"a")
    await ordered(p)
    asked = asyncio.create_task(ordered(p, poll_ms=INVISIBLE_MS * 2))
    await p.waiting(1)
    await p.later(INVISIBLE_MS - 1)
    assert not asked.done()
    await p.later(1)
    assert bodies(await asked) == [b"a"]


async def test_a_changed_time_counts_from_now(p: Popper) -> None:
    await p.send(b"a", b"b")
    pop_ms = p.clock.ms
    handles = p.handles(await ordered(p))
    p.clock.ms += 10_000
    answer = await p.change(handles[b"a"], 60_000)
    assert answer.fields() == {
        "popTime": str(pop_ms),
        "invisibleTime": "70000",
        "reviveQid": "999",
    }
    await p.later(INVISIBLE_MS)
    assert (await ordered(p)).code == codes.POLLING_TIMEOUT
    await p.later(30_000)
    assert bodies(await ordered(p)) == [b"a", b"b"]


async def test_a_batch_without_an_invisible_time_takes_that_of_the_next_pop(p: Popper) -> None:
    await p.send(b"a")
    assert list(p.handles(await ordered(p, invisible_ms=0))) == [b"a"]
    assert p.handles(await ordered(p)) == {}
    assert p.handles(await ordered(p, invisible_ms=0)) == {}
    await p.later(INVISIBLE_MS)
    assert list(p.handles(await ordered(p))) == [b"a"]


async def test_a_notification_in_order_knows_of_the_block(p: Popper) -> None:
    await p.send(b"a", b"b")
    handles = p.handles(await ordered(p, max_messages=1))
    header = Notification("cg", "T", -1, 0, p.clock.ms, True)
    assert (await p.caller.ask(codes.NOTIFICATION, header)).fields()["hasMsg"] == "false"
    await p.ack(handles[b"a"])
    assert (await p.caller.ask(codes.NOTIFICATION, header)).fields()["hasMsg"] == "true"


async def test_a_handle_of_a_batch_that_came_again_changes_nothing(p: Popper) -> None:
    await p.send(b"a")
    handles = p.handles(await ordered(p))
    await p.later(INVISIBLE_MS)
    again = p.handles(await ordered(p))
    late = await p.ack(handles[b"a"])
    refused = await p.change(handles[b"a"], 1_000)
    assert (late.code, refused.code) == (codes.SUCCESS, codes.NO_MESSAGE)
    for answer in (late, refused):
        assert "the queue was popped again since" in (answer.remark or "")
    assert p.offset() == 0
    assert (await p.ack(again[b"a"])).code == 0


async def test_a_message_that_was_not_in_the_batch_is_refused(p: Popper) -> None:
    await p.send(b"a", b"b")
    text = p.handles(await ordered(p, max_messages=1))[b"a"]
    answer = await p.ack(text[:-1] + "1")
    assert answer.code == codes.MESSAGE_ILLEGAL
    assert "offset is illegal, key:T@cg@0, commit:1" in (answer.remark or "")
    assert (await p.ack(text)).code == 0
    assert (await p.ack(text)).code == 0  # it is done already


async def test_a_reset_frees_the_queue(p: Popper) -> None:
    await p.send(b"a", b"b")
    await ordered(p, max_messages=1)
    p.broker.offsets.reset("T", "cg", 0, 0)
    p.clock.ms += 1
    assert bodies(await ordered(p)) == [b"a", b"b"]


async def test_other_messages_are_passed_in_order_too(p: Popper) -> None:
    await p.send(b"no", b"no", TAGS="no")
    assert (await ordered(p, expression="yes")).code == codes.POLLING_TIMEOUT
    assert p.offset() == 2


async def test_a_restart_and_a_crash_keep_the_order(
    run: Run, config: Config, clock: Clock, p: Popper, tmp_path: Path
) -> None:
    await p.send(b"a", b"b", b"c")
    handles = p.handles(await ordered(p, max_messages=2))
    await p.ack(handles[b"a"])
    p.broker.offsets.save()
    p.broker.pop.orders.save()
    left = crashed(p.broker, tmp_path / "crashed")
    await p.caller.peers.close()
    await p.broker.stop()
    for settings in ({}, left):
        p = Popper(*await run(config(**settings)), clock)
        assert (await ordered(p)).code == codes.POLLING_TIMEOUT
        assert (await p.ack(handles[b"b"])).code == 0
        assert bodies(await ordered(p)) == [b"c"]


# --- the file -------------------------------------------------------------------------------------


@pytest.fixture
def orders(p: Popper, tmp_path: Path) -> PopOrders:
    """A table of its own beside the broker's."""
    return PopOrders(tmp_path / "orders.json", p.broker.topics, p.broker.groups, p.clock)


def known(topics: Topics, groups: Groups) -> None:
    topics.put(TopicConfig("T", 1, 1))
    groups.put(SubscriptionGroupConfig(group_name="cg"))


async def test_the_file_is_javas(p: Popper, orders: PopOrders) -> None:
    known(p.broker.topics, p.broker.groups)
    now_ms = p.clock.ms
    orders.popped(KEY, [10, 11, 14], now_ms, 60_000, "attempt")
    orders.ack(KEY, 11, now_ms)
    orders.hide(KEY, 14, now_ms, now_ms + 99)
    batch = {
        "a": "attempt",
        "cm": 2,
        "i": 60_000,
        "l": now_ms,
        "o": [10, 1, 4],
        "ot": {"14": now_ms + 99},
        "popTime": now_ms,
    }
    orders.save()
    assert json.loads(orders.path.read_bytes()) == {"table": {"T@cg": {"0": batch}}}

    loaded = PopOrders(orders.path, p.broker.topics, p.broker.groups, p.clock)
    loaded.load()
    assert loaded.to_body() == orders.to_body()
    assert loaded.is_blocked(KEY, None)
    assert not loaded.is_blocked(KEY, "attempt")
    p.clock.ms += 60_000
    assert loaded.freed(p.clock.ms) == [KEY]
    assert loaded.freed(p.clock.ms) == []


async def test_a_file_of_a_java_broker_is_read(p: Popper, orders: PopOrders) -> None:
    text = '{"table":{ "T@cg":{0:{"a":"attempt-1","cm":1,"i":10000,"l":5,"o":[\n0,\n1],'
    text += f'"popTime":{p.clock.ms}}}}}\n}}}}'
    orders.path.write_text(text)
    orders.load()
    assert orders.is_blocked(KEY, None)
    assert orders.ack(KEY, 1, p.clock.ms) == 2
    assert not orders.is_blocked(KEY, None)


async def test_what_is_out_of_use_leaves_the_file(p: Popper, orders: PopOrders) -> None:
    known(p.broker.topics, p.broker.groups)
    for key in (KEY, ("T", "gone", 0), ("Gone", "cg", 0), ("T", "cg", 5)):
        orders.popped(key, [0], p.clock.ms, 1_000, None)
    assert orders.to_body().table.keys() == {"T@cg"}
    assert orders.to_body().table["T@cg"].keys() == {0}
    p.clock.ms += 24 * 3_600_000 + 1
    assert orders.to_body().table == {}
