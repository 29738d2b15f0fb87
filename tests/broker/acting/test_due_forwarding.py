"""What becomes due on an acting master goes to brokers of other names."""

import pytest
from aerobee.broker import server
from aerobee.broker.acting.remote_delivery import ForwardedMessage, RemoteDelivery
from aerobee.broker.acting.timers import ActingWork
from aerobee.broker.transactions.transactions import GROUP, HALF_TOPIC
from aerobee.protocol import codes
from aerobee.protocol.headers.send import SendMessageResponse
from aerobee.protocol.headers.topics import UpdateTopic
from aerobee.protocol.headers.transactions import EndTransaction
from aerobee.protocol.message.record import TRANSACTION_ROLLBACK
from aerobee.store.timer.timer_check import NUMBERS

from ...waiting import until
from ..conftest import records
from .pairs import Pair

IN_VIRTUAL_TIME = True


async def fill(pair: Pair) -> None:
    """Messages of each kind that wait, and the end of one transaction."""
    caller = pair.caller(pair.master)
    soon = str(server.wall_clock_ms() + 60_000)
    await caller.send("T", b"by level", DELAY="5", TAGS="tag", KEYS="key")
    await caller.send("T", b"by time", TIMER_DELIVER_MS=soon)
    await caller.send("T", b"half", TRAN_MSG="true", PGROUP="pg", UNIQ_KEY="u1")
    ended = await caller.send("T", b"ended", TRAN_MSG="true", PGROUP="pg", UNIQ_KEY="u2")
    found = ended.header(SendMessageResponse)
    ((place, _, _),) = pair.master.store.entries(HALF_TOPIC, 0, found.queue_offset, 1)
    rollback = EndTransaction("pg", found.queue_offset, place, TRANSACTION_ROLLBACK, "u2")
    answer = await caller.ask(codes.END_TRANSACTION, rollback)
    assert answer.code == codes.SUCCESS, answer.remark
    pair.master.transactions.write_ended()
    pair.master.wake(("T", 0))  # the tick that follows writes it to the log
    await until(lambda: pair.master.timers and pair.master.timers.state.queue_offset == 1)
    await until(lambda: pair.master.timers and pair.master.timers.state.check.queue_offset == 1)
    await pair.copied()


def half_messages(pair: Pair) -> int:
    return pair.other.store.max_offset(HALF_TOPIC, 0)


def has_passed_all(pair: Pair) -> bool:
    """True if the progress of the acting master is beyond each message that was due."""
    timers = pair.slave.timers
    assert timers is not None
    return (
        pair.slave.delays.offsets == {5: 1}
        and pair.slave.offsets.get(HALF_TOPIC, GROUP, 0) == 2
        and timers.state.queue_offset == 1  # it is in the wheel
        and timers.state.read_ms > server.wall_clock_ms() + 60_000
    )


async def test_fault_10_10_delays_timers_and_half_messages_go_to_another_broker_once(
    pair: Pair,
) -> None:
    await fill(pair)
    await pair.lose_master()
    end = pair.slave.store.log_end
    pair.ahead_ms = 120_000
    await until(lambda: pair.other.store.max_offset("T", 0) == 2)
    await until(lambda: half_messages(pair) == 1)
    found = {one.body: one for one in records(await pair.caller(pair.other).pull("T"))}
    assert sorted(found) == [b"by level", b"by time"]
    by_level = found[b"by level"].properties
    assert (by_level["TAGS"], by_level["KEYS"]) == ("tag", "key")
    assert {"DELAY", "REAL_TOPIC", "TIMER_OUT_MS"}.isdisjoint(by_level)
    assert {"TIMER_DELIVER_MS", "REAL_TOPIC", "TIMER_OUT_MS"}.isdisjoint(
        found[b"by time"].properties
    )
    await until(lambda: has_passed_all(pair))
    assert pair.slave.store.log_end == end  # nothing is stored on the acting master


async def test_fault_10_10_what_another_broker_took_is_not_delivered_by_the_master_that_returns(
    pair: Pair,
) -> None:
    await fill(pair)
    await pair.lose_master()
    pair.ahead_ms = 120_000
    await until(lambda: pair.other.store.max_offset("T", 0) == 2)
    await until(lambda: has_passed_all(pair))
    await pair.return_master()
    await until(lambda: not pair.acting.is_acting)
    await pair.master.catch_up()
    assert pair.master.store.max_offset("T", 0) == 0
    assert pair.master.store.max_offset(HALF_TOPIC, 0) == 2  # and no check was repeated
    assert pair.other.store.max_offset("T", 0) == 2
    assert pair.master.delays.offsets == {5: 1}


async def test_a_cursor_waits_until_another_broker_has_taken_the_message(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    begun: set[bytes] = set()
    send = RemoteDelivery.send

    async def noted(remote_delivery: RemoteDelivery, message: ForwardedMessage) -> None:
        begun.add(message.body)
        await send(remote_delivery, message)

    monkeypatch.setattr(RemoteDelivery, "send", noted)
    await fill(pair)
    await pair.halt(pair.other)
    await pair.lose_master()
    pair.ahead_ms = 120_000
    await until(lambda: begun == {b"by level", b"by time", b"half"})
    await until(lambda: "what is due of topic T waits" in caplog.text)
    assert pair.slave.delays.offsets == {}
    assert pair.slave.offsets.get(HALF_TOPIC, GROUP, 0) <= 0
    pair.other = await pair.broker("other", broker_name="broker-b")
    await until(lambda: pair.other.store.max_offset("T", 0) == 2)
    await until(lambda: pair.slave.delays.offsets == {5: 1})
    await until(lambda: half_messages(pair) == 1)


async def test_fault_10_10_a_broker_that_declines_is_asked_until_it_takes_the_message(
    pair: Pair,
) -> None:
    await fill(pair)
    caller = pair.caller(pair.other)
    await caller.ask(codes.UPDATE_AND_CREATE_TOPIC, UpdateTopic("T", 1, 1, 4))
    pair.other.store.pause("test", "the disk is full")
    await pair.lose_master()
    pair.ahead_ms = 120_000
    acting = pair.acting
    await until(
        lambda: (
            acting._due_forwarding is not None and acting._due_forwarding._remote_delivery._warned
        )
    )
    assert pair.slave.delays.offsets == {}
    pair.other.store.resume("test")
    await caller.ask(codes.UPDATE_AND_CREATE_TOPIC, UpdateTopic("T", 1, 1, 6))
    await until(lambda: pair.other.store.max_offset("T", 0) == 2)


async def test_a_topic_of_one_broker_is_made_on_another_one(pair: Pair) -> None:
    caller = pair.caller(pair.master)
    await caller.ask(codes.UPDATE_AND_CREATE_TOPIC, UpdateTopic("Lonely", 1, 1, 6))
    await caller.send("Lonely", b"by level", DELAY="5")
    await pair.copied()
    await pair.lose_master()
    pair.ahead_ms = 120_000
    await until(lambda: pair.other.topics.get("Lonely") is not None)
    await until(lambda: pair.slave.delays.offsets == {5: 1})
    queues = pair.other.store.queue_keys()
    assert sum(pair.other.store.max_offset(*key) for key in queues if key[0] == "Lonely") == 1


async def test_a_timer_beyond_the_window_keeps_its_time_on_the_other_broker(pair: Pair) -> None:
    caller = pair.caller(pair.master)
    window_ms = pair.master.config.timer_roll_window_slot * 1_000
    at_ms = server.wall_clock_ms() + 2 * window_ms
    await caller.send("T", b"far", TIMER_DELIVER_MS=str(at_ms))
    await until(lambda: pair.master.timers and pair.master.timers.state.check.queue_offset == 1)
    await pair.copied()
    await pair.lose_master()
    timers = pair.slave.timers
    await until(lambda: timers and timers.state.queue_offset == 1)  # it is in the wheel
    pair.ahead_ms = window_ms + 60_000  # then it goes around
    await until(lambda: pair.other.store.max_offset("rmq_sys_wheel_timer", 0) == 1)
    assert pair.other.store.max_offset("T", 0) == 0
    pair.ahead_ms = 2 * window_ms + 60_000
    await until(lambda: pair.other.store.max_offset("T", 0) == 1)
    (found,) = records(await pair.caller(pair.other).pull("T"))
    assert found.body == b"far"


async def test_an_acting_master_tells_what_it_has_sent_before_its_disk_has_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(pair)
    timers = pair.slave.timers
    assert timers is not None
    assert isinstance(timers.work, ActingWork)
    monkeypatch.setattr(timers.state, "unsynced", lambda: None)  # nothing is synced from here on
    await pair.lose_master()
    pair.ahead_ms = 120_000
    await until(lambda: has_passed_all(pair))

    async def told() -> tuple[int, int]:
        answer = await pair.caller(pair.slave).ask(codes.GET_TIMER_CHECK_POINT)
        read_ms, _, queue_offset, *_ = NUMBERS.unpack(answer.body or b"")
        return read_ms, queue_offset

    read_ms, queue_offset = await told()
    assert (read_ms > server.wall_clock_ms() + 60_000, queue_offset) == (True, 1)
    timers.work.end()  # the master asks once the slave has ended acting
    assert await told() >= (read_ms, 1)
    timers.work.follow(read_ms + 120_000, 1)  # the master has taken that
    assert await told() == (timers.state.check.read_ms, timers.state.check.queue_offset)


async def test_without_remote_escape_what_is_due_waits_for_the_master(pair: Pair) -> None:
    await pair.halt(pair.slave)
    pair.slave = await pair.broker(
        "slave", broker_role="SLAVE", broker_id=1, enable_remote_escape=False
    )
    await fill(pair)
    await pair.lose_master()
    pair.ahead_ms = 120_000
    await pair.slave.catch_up()
    assert pair.slave.delays.offsets == {}
    assert pair.other.store.max_offset("T", 0) == 0
    await pair.return_master()
    await until(lambda: pair.master.store.max_offset("T", 0) == 2)
