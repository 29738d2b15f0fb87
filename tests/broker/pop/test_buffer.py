"""Check points in memory: limits, commit order per queue, and a full disk."""

from typing import Any

import pytest
from aerobee.broker.pop.checkpoints import CheckPoint, from_body
from aerobee.protocol import codes
from aerobee.protocol.bodies.pop import PopCheckPoint
from aerobee.store.base.errors import DiskFull
from aerobee.store.engine.messages import Message

from ...clocks import Clock
from ..conftest import Config, Run
from ..popping import BACK_AFTER_MS, Popper


async def popper(run: Run, config: Config, clock: Clock, **wanted: Any) -> Popper:
    return Popper(*await run(config(**wanted)), clock)


def in_the_timer(p: Popper) -> int:
    return p.broker.store.max_offset("rmq_sys_wheel_timer", 0)


async def test_a_check_point_with_a_short_invisible_time_is_written_at_once(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    await p.send(b"a", b"b")
    await p.pop(max_messages=1, invisible_ms=3_000)
    assert (p.broker.pop.buffer.count, in_the_timer(p)) == (0, 1)
    await p.pop(max_messages=1, invisible_ms=3_001)
    assert (p.broker.pop.buffer.count, in_the_timer(p)) == (1, 1)
    clock.ms += 1
    p.broker.pop.sweep()
    assert (p.broker.pop.buffer.count, in_the_timer(p)) == (0, 2)


async def test_the_buffer_can_be_switched_off_and_on_at_run_time(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    await p.send(b"a", b"b", b"c")
    handles: dict[bytes, str] = {}
    seen = []
    for merge in ("true", "false", "true"):
        wanted = f"enablePopBufferMerge={merge}".encode()
        assert (await p.caller.ask(codes.UPDATE_BROKER_CONFIG, None, wanted)).code == 0
        clock.ms += 1
        handles |= await p.pop(max_messages=1)
        seen.append((p.broker.pop.buffer.count, in_the_timer(p)))
    assert seen == [(1, 0), (1, 1), (2, 1)]
    for body in (b"b", b"c", b"a"):
        assert (await p.ack(handles[body])).code == 0
    await p.synced()
    p.broker.pop.sweep()
    assert p.offset() == 3  # no check point is lost, in memory or in the log


async def test_check_points_beyond_the_limit_of_the_buffer_are_written(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock, pop_ck_max_buffer_size=2)
    await p.send(b"a", b"b", b"c", b"d")
    for _ in range(3):
        clock.ms += 1
        await p.pop(max_messages=1)
    assert (p.broker.pop.buffer.count, in_the_timer(p)) == (2, 1)


async def test_the_commit_queue_is_limited_and_shrinks_from_its_head(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock, pop_ck_offset_max_queue_size=2)
    await p.send(b"a", b"b", b"c", b"d")
    for _ in range(3):
        clock.ms += 1
        await p.pop(max_messages=1)
    assert (p.broker.pop.buffer.count, in_the_timer(p)) == (1, 2)
    await p.synced()
    p.broker.pop.sweep()
    assert p.offset() == 1


async def test_the_offset_moves_in_the_order_of_the_pops(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    await p.send(b"a", b"b", b"c")
    handles: dict[bytes, str] = {}
    for _ in range(3):
        clock.ms += 1
        handles |= await p.pop(max_messages=1)
    offsets = []
    for body in (b"b", b"a", b"c"):
        await p.ack(handles[body])
        offsets.append(p.offset())
    assert offsets == [0, 2, 3]


async def test_the_offset_of_messages_without_a_match_waits_for_earlier_pops(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    await p.send(b"yes", TAGS="yes")
    await p.send(b"no", TAGS="no")
    (text,) = (await p.pop(expression="yes", max_messages=1)).values()
    await p.pop(expression="yes")
    await p.send(b"no", TAGS="no")
    await p.pop(expression="yes")
    assert p.offset() == 0
    await p.ack(text)
    assert p.offset() == 3


async def test_a_message_cannot_be_popped_twice_in_the_same_millisecond(
    run: Run, config: Config, clock: Clock
) -> None:
    p = await popper(run, config, clock)
    await p.send(b"a", b"b")
    await p.pop()
    p.broker.offsets.commit("T", "cg", 0, 5)
    p.broker.offsets.commit("T", "cg", 0, 0)
    p.broker.pop.buffer.clear("T", "cg", 0)
    answer = await p.ask()
    assert (answer.code, answer.fields()["restNum"]) == (210, "2")
    clock.ms += 1
    assert len(await p.pop()) == 2


async def test_on_a_full_disk_a_pop_returns_no_message_without_a_check_point(
    run: Run, config: Config, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = await popper(run, config, clock, enable_pop_buffer_merge=False)
    await p.send(b"a")
    store = p.broker.store

    def full(*_: object) -> None:
        raise DiskFull("no room on the disk")

    with monkeypatch.context() as patched:
        patched.setattr(store, "put", full)
        answer = await p.ask()
        assert (answer.code, answer.remark) == (1, "no room on the disk")
    (text,) = (await p.pop()).values()
    with monkeypatch.context() as patched:
        patched.setattr(store, "put", full)
        for answer in (await p.ack(text), await p.change(text, 10_000)):
            assert (answer.code, answer.remark) == (1, "no room on the disk")
    assert (await p.ack(text)).code == 0


async def test_messages_with_a_check_point_from_before_the_disk_was_full_are_returned(
    run: Run, config: Config, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, caller = await run(config(enable_pop_buffer_merge=False))
    p = Popper(broker, caller, clock, queues=2)
    await p.send(b"a")
    await p.send(b"b", queue_id=1)
    put, room = broker.store.put, [1]

    def put_once(message: Message) -> tuple[int, int, int]:
        if not room:
            raise DiskFull("no room on the disk")
        room.pop()
        return put(message)

    with monkeypatch.context() as patched:
        patched.setattr(broker.store, "put", put_once)
        first = await p.pop()
    assert len(first) == 1
    assert (first | await p.pop()).keys() == {b"a", b"b"}


async def test_a_check_point_that_a_full_disk_rejects_stays_in_memory(
    run: Run, config: Config, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = await popper(run, config, clock)
    await p.send(b"a")
    await p.pop()

    def full(*_: object) -> None:
        raise DiskFull("no room on the disk")

    with monkeypatch.context() as patched:
        patched.setattr(p.broker.store, "put", full)
        clock.ms += 11_000
        p.broker.pop.sweep()
        assert (p.broker.pop.buffer.count, p.offset()) == (1, 0)
    await p.later(BACK_AFTER_MS)
    assert list(await p.pop()) == [b"a"]


def test_a_check_point_has_a_bit_for_each_of_its_messages() -> None:
    point = CheckPoint("T", "cg", 0, 10, 5, 1_000, 3, range(10, 42))
    for offset in range(10, 41):
        assert point.ack(offset)
    assert not point.ack(9)
    assert not point.ack(42)
    assert (point.is_acked, point.left()) == (False, [41])
    assert point.ack(41)
    assert (point.is_acked, point.left()) == (True, [])
    body = PopCheckPoint.decode(point.to_body("b").encode())
    assert body.bit_map == -1  # all of Java's 32 bits
    assert body.queue_offset_diff == list(range(32))
    again = from_body(body, 3)
    assert again is not None
    assert (again.acked, again.key) == (point.acked, point.key)
