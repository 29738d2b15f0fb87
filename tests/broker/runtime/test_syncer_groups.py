"""Responses that wait for a disk sync or slaves in groups: their order, timeouts, failures."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest
from aerobee.broker.runtime import syncer as syncer_module
from aerobee.broker.runtime import threads
from aerobee.broker.runtime.syncer import Answers, Syncer
from aerobee.protocol import codes
from aerobee.protocol.codec.frame import decode_all, encode_request, encode_response
from aerobee.protocol.command import Command, Response

from ...clocks import Clock
from ...waiting import LONG

TIMEOUT_MS = 5_000
COMMAND = cast(Command, None)  # the fake connections ignore it


class Plan:
    """A sync up to `end`."""

    def __init__(self, store: "Store", end: int) -> None:
        self.store = store
        self.end = end

    def run(self) -> None:
        self.store.begun.set()
        assert self.store.open.wait(20)
        if self.store.wrong is not None:
            raise self.store.wrong


class Store:
    """A log of `end` bytes, `durable_end` of them on disk; syncs pass while `open` is set."""

    def __init__(self) -> None:
        self.end = 0
        self.durable_end = 0
        self.plans: list[Plan] = []
        self.begun = threading.Event()
        self.open = threading.Event()
        self.open.set()
        self.wrong: Exception | None = None
        self.refusal = ""

    def sync_plan(self) -> Plan | None:
        if self.durable_end == self.end:
            return None
        self.plans.append(Plan(self, self.end))
        return self.plans[-1]

    def synced(self, plan: Plan) -> None:
        self.durable_end = plan.end

    def sync_failed(self, wrong: Exception) -> str:
        self.refuse_writes(f"the disk did not take a sync ({wrong})")
        return self.refusal

    def refuse_writes(self, reason: str) -> None:
        self.refusal = reason


class Peer:
    """A connection that collects its responses."""

    def __init__(self) -> None:
        self.answers: list[Response | bytes] = []
        self.came = asyncio.Event()

    def respond(self, command: Command, reply: Response | bytes) -> None:
        self.respond_late(command, reply, 0)

    def respond_late(self, command: Command, reply: Response | bytes, waited_ms: int) -> None:
        self.answers.append(reply)
        self.came.set()

    @property
    def codes(self) -> list[int]:
        return [cast(Response, reply).code for reply in self.answers]


Make = Callable[..., Awaitable[Syncer]]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def make(store: Store, clock: Clock) -> AsyncIterator[Make]:
    made: list[Syncer] = []

    async def start(interval_s: float = 3_600, **more: Any) -> Syncer:
        one = Syncer(
            cast(Any, store), interval_s=interval_s, timeout_ms=TIMEOUT_MS, now_ms=clock, **more
        )
        one.start()
        made.append(one)
        return one

    yield start
    store.open.set()
    for one in made:
        await one.stop()


Quick = Callable[[], Awaitable[tuple[Syncer, Peer]]]


@pytest.fixture
def quick(make: Make, store: Store, monkeypatch: pytest.MonkeyPatch) -> Quick:
    """A syncer that has seen a fast disk, and the peer of its first response."""

    async def start() -> tuple[Syncer, Peer]:
        monkeypatch.setattr(threads, "QUICK_SECONDS", 20.0)
        syncer, peer = await make(), Peer()
        put(store, syncer, peer, 1)
        await asyncio.wait_for(peer.came.wait(), LONG)
        return syncer, peer

    return start


def reply(number: int = 0) -> Response:
    return Response(codes.SUCCESS, {"queueOffset": str(number)})


def put(store: Store, syncer: Syncer, peer: Peer, *numbers: int, **more: Any) -> None:
    """One tick: stores the messages `numbers`, whose responses wait together."""
    store.end += 100
    answers: Answers = [(cast(Any, peer), COMMAND, reply(n)) for n in numbers]
    syncer.after(store.end, syncer.each(answers, **more))


async def begun(store: Store) -> None:
    """Wait until the syncer's thread waits for the disk."""
    assert await asyncio.to_thread(store.begun.wait, 20)
    store.begun.clear()


async def test_one_sync_acknowledges_a_group_in_order(make: Make, store: Store) -> None:
    syncer, peer = await make(), Peer()
    store.open.clear()
    put(store, syncer, peer, 0, 1, 2)
    put(store, syncer, peer, 3)
    assert store.plans == []  # the tick has not ended
    await begun(store)
    assert peer.answers == []
    store.open.set()
    assert await syncer.reach(store.end)
    assert peer.answers == [reply(n) for n in range(4)]
    assert len(store.plans) == 1


async def test_messages_that_arrive_during_a_sync_start_the_next_one_at_once(
    make: Make, store: Store
) -> None:
    syncer, first, second = await make(), Peer(), Peer()
    store.open.clear()
    put(store, syncer, first, 0)
    await begun(store)
    put(store, syncer, second, 1)
    put(store, syncer, second, 2)
    under_way: list[int] = []
    first.respond_late = lambda *_: under_way.append(len(store.plans))  # type: ignore[method-assign]
    store.open.set()
    await asyncio.wait_for(second.came.wait(), LONG)
    assert under_way == [2]
    assert second.answers == [reply(1), reply(2)]
    assert [plan.end for plan in store.plans] == [100, 300]


async def test_on_a_fast_disk_the_responses_go_out_at_the_end_of_the_tick(
    quick: Quick, store: Store
) -> None:
    syncer, peer = await quick()
    put(store, syncer, peer, 2, 3)
    syncer.end_of_tick()
    assert peer.answers == [reply(1), reply(2), reply(3)]
    assert len(store.plans) == 2


async def test_a_disk_that_becomes_slow_does_not_block_the_loop(
    quick: Quick, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncer, peer = await quick()
    monkeypatch.setattr(threads, "QUICK_SECONDS", 0.0)
    store.open.clear()
    for number in (2, 3):
        peer.came.clear()
        put(store, syncer, peer, number)
        syncer.end_of_tick()  # returns while the disk is blocked
        assert len(peer.answers) == number - 1
        store.open.set()
        await asyncio.wait_for(peer.came.wait(), LONG)
    assert peer.answers == [reply(1), reply(2), reply(3)]
    assert len(store.plans) == 3


async def test_a_failed_sync_on_a_fast_disk_is_an_error_at_once(quick: Quick, store: Store) -> None:
    syncer, peer = await quick()
    store.wrong = OSError(5, "Input/output error")
    put(store, syncer, peer, 2)
    syncer.end_of_tick()
    assert peer.codes == [codes.SUCCESS, codes.SERVICE_NOT_AVAILABLE]
    assert "Input/output error" in store.refusal


async def test_a_message_already_on_disk_is_acknowledged_without_a_sync(
    make: Make, store: Store
) -> None:
    syncer, peer = await make(), Peer()
    put(store, syncer, peer, 0)
    await asyncio.wait_for(peer.came.wait(), LONG)
    peer.came.clear()
    syncer.after(store.end, syncer.each([(cast(Any, peer), COMMAND, reply(1))]))
    await asyncio.wait_for(peer.came.wait(), LONG)
    assert len(store.plans) == 1


async def test_each_response_of_a_group_reports_the_flush_timeout(
    make: Make, store: Store, clock: Clock
) -> None:
    syncer, peer = await make(), Peer()
    store.open.clear()
    frame = b"".join(encode_response(_request(7), reply(1)))
    store.end = 100
    answers = [(cast(Any, peer), COMMAND, each) for each in (reply(0), frame)]
    syncer.after(100, syncer.each(answers))
    await begun(store)
    clock.ms += TIMEOUT_MS - 1
    syncer.sweep()
    assert peer.answers == []
    clock.ms += 1
    put(store, syncer, peer, 2)
    syncer.sweep()
    assert peer.codes == [codes.FLUSH_DISK_TIMEOUT] * 2
    late = [cast(Response, answer).fields for answer in peer.answers]
    assert late == [{"queueOffset": "0"}, {"queueOffset": "1"}]
    store.open.set()
    assert await syncer.reach(store.end)
    assert peer.codes == [codes.FLUSH_DISK_TIMEOUT] * 2 + [codes.SUCCESS]


async def test_a_caller_may_choose_the_response_after_a_timeout(
    make: Make, store: Store, clock: Clock
) -> None:
    syncer, peer = await make(), Peer()
    store.open.clear()
    put(store, syncer, peer, 0, late=lambda same, code: same)
    await begun(store)
    clock.ms += TIMEOUT_MS
    syncer.sweep()
    assert peer.codes == [codes.SUCCESS]


@pytest.mark.parametrize("wrong", [OSError(5, "Input/output error"), ValueError("a fault")])
async def test_a_failed_sync_fails_all_waiting_responses_and_is_not_retried(
    make: Make, store: Store, wrong: Exception
) -> None:
    syncer, peer = await make(), Peer()
    store.open.clear()
    store.wrong = wrong
    put(store, syncer, peer, 0, 1)
    await begun(store)
    put(store, syncer, peer, 2)
    reaching = asyncio.ensure_future(syncer.reach(store.end))
    store.open.set()
    assert not await asyncio.wait_for(reaching, LONG)
    assert peer.codes == [codes.SERVICE_NOT_AVAILABLE] * 3
    assert str(wrong) in store.refusal
    store.wrong = None
    peer.came.clear()
    put(store, syncer, peer, 3)
    await asyncio.wait_for(peer.came.wait(), LONG)
    await syncer.stop()
    assert peer.codes == [codes.SERVICE_NOT_AVAILABLE] * 4
    assert len(store.plans) == 1


async def test_the_number_of_waiting_responses_is_limited_over_all_groups(
    make: Make, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncer_module, "WAITING_MAX", 5)
    syncer, peer = await make(), Peer()

    def is_full() -> bool:
        return syncer.is_full

    store.open.clear()
    put(store, syncer, peer, 0, 1, 2)
    assert not is_full()
    put(store, syncer, peer, 3, 4, 5, 6)
    assert is_full()
    assert peer.codes == [codes.FLUSH_DISK_TIMEOUT] * 2
    store.open.set()
    assert await syncer.reach(store.end)
    assert peer.answers[2:] == [reply(n) for n in range(5)]
    assert not is_full()


async def test_responses_that_time_out_free_their_place(
    make: Make, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncer_module, "WAITING_MAX", 3)
    syncer, peer = await make(), Peer()
    store.open.clear()
    put(store, syncer, peer, 0, 1, 2)
    assert syncer.is_full
    clock.ms += TIMEOUT_MS
    syncer.sweep()
    assert not syncer.is_full


async def test_a_stop_syncs_and_sends_the_remaining_responses(make: Make, store: Store) -> None:
    syncer, peer = await make(), Peer()
    store.open.clear()
    put(store, syncer, peer, 0)
    await begun(store)
    put(store, syncer, peer, 1, 2)
    stopping = asyncio.ensure_future(syncer.stop())
    store.open.set()
    await stopping
    assert peer.answers == [reply(0), reply(1), reply(2)]
    assert store.durable_end == store.end


async def test_nothing_is_synced_after_a_stop(make: Make, store: Store) -> None:
    syncer, peer = await make(), Peer()
    await syncer.stop()
    put(store, syncer, peer, 0)
    assert not await asyncio.wait_for(syncer.reach(store.end), LONG)
    assert store.plans == []
    assert peer.answers == []


async def test_the_disk_is_synced_every_interval_without_waiting_responses(
    make: Make, store: Store
) -> None:
    syncer = await make(0.001)
    ends = asyncio.Queue[int]()
    syncer.on_synced(lambda: ends.put_nowait(store.durable_end))
    store.end = 100
    while await asyncio.wait_for(ends.get(), LONG) < 100:
        pass
    store.end = 200
    while await asyncio.wait_for(ends.get(), LONG) < 200:
        pass


def _request(opaque: int) -> Command:
    (command,) = decode_all(encode_request(codes.SEND_MESSAGE_V2, opaque, {}, b""))
    return command


# ---- slaves

SLAVE_TIMEOUT_MS = 3_000
SLAVES: dict[str, Any] = {"has_slaves": True, "slave_timeout_ms": SLAVE_TIMEOUT_MS}


async def test_a_response_waits_until_the_slaves_have_its_message(make: Make, store: Store) -> None:
    syncer, peer = await make(is_sync=False, **SLAVES), Peer()
    assert syncer.for_responses is syncer
    put(store, syncer, peer, 0, 1)
    put(store, syncer, peer, 2)
    syncer.replicated(99)
    assert peer.answers == []
    syncer.replicated(100)
    assert len(peer.answers) == 2
    syncer.replicated(50)  # a lower offset than before changes nothing
    syncer.replicated(200)
    assert peer.codes == [codes.SUCCESS] * 3
    assert store.plans == []  # replication starts no sync


async def test_a_response_that_waits_for_disk_and_slaves_goes_out_after_the_later_one(
    make: Make, store: Store
) -> None:
    syncer, peer = await make(**SLAVES), Peer()
    store.open.clear()
    put(store, syncer, peer, 0)
    await begun(store)
    syncer.replicated(100)
    assert peer.answers == []
    store.open.set()
    assert await syncer.reach(100)
    assert peer.codes == [codes.SUCCESS]
    put(store, syncer, peer, 1)
    assert await syncer.reach(200)
    assert len(peer.answers) == 1
    syncer.replicated(200)
    assert peer.codes == [codes.SUCCESS] * 2


async def test_slow_slaves_give_a_slave_timeout_with_the_fields_of_the_response(
    make: Make, store: Store, clock: Clock
) -> None:
    syncer, peer = await make(is_sync=False, **SLAVES), Peer()
    put(store, syncer, peer, 7)
    clock.ms += SLAVE_TIMEOUT_MS - 1
    syncer.sweep()
    assert peer.answers == []
    clock.ms += 1
    syncer.sweep()
    assert peer.codes == [codes.FLUSH_SLAVE_TIMEOUT]
    assert cast(Response, peer.answers[0]).fields == {"queueOffset": "7"}
    syncer.replicated(100)
    assert len(peer.answers) == 1


async def test_if_disk_and_slaves_are_late_the_code_is_slave_timeout(
    make: Make, store: Store, clock: Clock
) -> None:
    syncer, peer = await make(**SLAVES), Peer()
    store.open.clear()
    put(store, syncer, peer, 0)
    await begun(store)
    clock.ms += TIMEOUT_MS
    syncer.sweep()
    assert peer.codes == [codes.FLUSH_SLAVE_TIMEOUT]
    put(store, syncer, peer, 1)
    syncer.replicated(200)
    clock.ms += SLAVE_TIMEOUT_MS
    syncer.sweep()
    assert len(peer.answers) == 1  # the disk has a longer timeout
    clock.ms += TIMEOUT_MS - SLAVE_TIMEOUT_MS
    syncer.sweep()
    assert peer.codes == [codes.FLUSH_SLAVE_TIMEOUT, codes.FLUSH_DISK_TIMEOUT]


async def test_a_response_over_the_limit_is_a_slave_timeout_at_once(
    make: Make, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncer_module, "WAITING_MAX", 2)
    syncer, peer = await make(is_sync=False, **SLAVES), Peer()
    put(store, syncer, peer, 0, 1, 2)
    assert syncer.is_full
    assert peer.codes == [codes.FLUSH_SLAVE_TIMEOUT]
    syncer.replicated(store.end)  # else its stop waits for them


async def test_a_stop_waits_a_moment_for_the_slaves(
    make: Make, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncer, peer = await make(is_sync=False, **SLAVES), Peer()
    put(store, syncer, peer, 0)
    stopping = asyncio.ensure_future(syncer.stop())
    await asyncio.sleep(0)
    syncer.replicated(100)
    await asyncio.wait_for(stopping, LONG)
    assert peer.codes == [codes.SUCCESS]
    monkeypatch.setattr(syncer_module, "LAST_SECONDS", 0.01)
    store = Store()
    alone = Syncer(
        cast(Any, store), interval_s=9, timeout_ms=9, now_ms=Clock(), is_sync=False, **SLAVES
    )
    alone.start()
    put(store, alone, peer, 1)
    await alone.stop()
    assert peer.codes == [codes.SUCCESS, codes.FLUSH_SLAVE_TIMEOUT]


async def test_dropped_responses_are_never_sent(make: Make, store: Store) -> None:
    syncer, peer = await make(is_sync=False, **SLAVES), Peer()
    put(store, syncer, peer, 0)
    await syncer.drain(0.01)
    assert peer.answers == []
    syncer.drop()
    await syncer.drain(60)  # nothing waits: it returns at once
    syncer.replicated(1_000)
    await syncer.stop()
    assert peer.answers == []


async def test_without_sync_flush_and_slaves_responses_do_not_wait(make: Make) -> None:
    assert (await make(is_sync=False)).for_responses is None
    assert (await make()).for_responses is not None
