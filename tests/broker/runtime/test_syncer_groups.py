"""Answers that wait for the disk together: when they go out, and what they say when it fails."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest
from aerobee.broker.runtime import syncer as syncer_module
from aerobee.broker.runtime.syncer import Syncer
from aerobee.protocol import codes
from aerobee.protocol.codec.frame import decode_all, encode_request, encode_response
from aerobee.protocol.command import Command, Response

from ..conftest import Clock

TIMEOUT_MS = 5_000
COMMAND = cast(Command, None)  # the connections here don't look at it


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
    """A log of `end` bytes, of which the disk has `durable_end`; syncs pass while it is `open`."""

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
    """A connection: the answers that went out."""

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
    """A syncer that has seen a quick disk, and who was answered then."""

    async def start() -> tuple[Syncer, Peer]:
        monkeypatch.setattr(syncer_module, "QUICK_SECONDS", 20.0)
        syncer, peer = await make(), Peer()
        put(store, syncer, peer, 1)
        await asyncio.wait_for(peer.came.wait(), 60)
        return syncer, peer

    return start


def reply(number: int = 0) -> Response:
    return Response(codes.SUCCESS, {"queueOffset": str(number)})


def put(store: Store, syncer: Syncer, peer: Peer, *numbers: int, **more: Any) -> None:
    """A turn: so many messages, whose answers wait together."""
    store.end += 100
    syncer.after_all(store.end, [(cast(Any, peer), COMMAND, reply(n)) for n in numbers], **more)


async def begun(store: Store) -> None:
    """Wait until the syncer's thread waits for the disk."""
    assert await asyncio.to_thread(store.begun.wait, 20)
    store.begun.clear()


@pytest.mark.requirement("Store: Sync flush: success only when on disk, and after a power cut")
async def test_a_group_is_answered_by_one_sync_in_its_order(make: Make, store: Store) -> None:
    syncer, peer = await make(), Peer()
    store.open.clear()
    put(store, syncer, peer, 0, 1, 2)
    put(store, syncer, peer, 3)
    assert store.plans == []  # the turn has not ended
    await begun(store)
    assert peer.answers == []
    store.open.set()
    assert await syncer.reach(store.end)
    assert peer.answers == [reply(n) for n in range(4)]
    assert len(store.plans) == 1


async def test_what_comes_during_a_sync_has_the_next_one_at_once(make: Make, store: Store) -> None:
    syncer, first, second = await make(), Peer(), Peer()
    store.open.clear()
    put(store, syncer, first, 0)
    await begun(store)
    put(store, syncer, second, 1)
    put(store, syncer, second, 2)
    under_way: list[int] = []
    first.respond_late = lambda *_: under_way.append(len(store.plans))  # type: ignore[method-assign]
    store.open.set()
    await asyncio.wait_for(second.came.wait(), 60)
    assert under_way == [2]
    assert second.answers == [reply(1), reply(2)]
    assert [plan.end for plan in store.plans] == [100, 300]


async def test_where_the_disk_is_quick_the_answers_are_there_when_the_turn_ends(
    quick: Quick, store: Store
) -> None:
    syncer, peer = await quick()
    put(store, syncer, peer, 2, 3)
    syncer.end_of_turn()
    assert peer.answers == [reply(1), reply(2), reply(3)]
    assert len(store.plans) == 2


async def test_a_disk_that_turns_slow_does_not_hold_the_loop(
    quick: Quick, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncer, peer = await quick()
    monkeypatch.setattr(syncer_module, "QUICK_SECONDS", 0.0)
    store.open.clear()
    for number in (2, 3):
        peer.came.clear()
        put(store, syncer, peer, number)
        syncer.end_of_turn()  # returns though the disk stands still
        assert len(peer.answers) == number - 1
        store.open.set()
        await asyncio.wait_for(peer.came.wait(), 60)
    assert peer.answers == [reply(1), reply(2), reply(3)]
    assert len(store.plans) == 3


async def test_a_quick_sync_that_fails_is_an_error_at_once(quick: Quick, store: Store) -> None:
    syncer, peer = await quick()
    store.wrong = OSError(5, "Input/output error")
    put(store, syncer, peer, 2)
    syncer.end_of_turn()
    assert peer.codes == [codes.SUCCESS, codes.SERVICE_NOT_AVAILABLE]
    assert "Input/output error" in store.refusal


async def test_what_is_on_disk_already_is_answered_without_a_sync(make: Make, store: Store) -> None:
    syncer, peer = await make(), Peer()
    put(store, syncer, peer, 0)
    await asyncio.wait_for(peer.came.wait(), 60)
    peer.came.clear()
    syncer.after_all(store.end, [(cast(Any, peer), COMMAND, reply(1))])
    await asyncio.wait_for(peer.came.wait(), 60)
    assert len(store.plans) == 1


async def test_each_of_a_group_is_told_that_the_disk_takes_too_long(
    make: Make, store: Store, clock: Clock
) -> None:
    syncer, peer = await make(), Peer()
    store.open.clear()
    frame = b"".join(encode_response(_request(7), reply(1)))
    store.end = 100
    syncer.after_all(100, [(cast(Any, peer), COMMAND, reply(0)), (cast(Any, peer), COMMAND, frame)])
    await begun(store)
    clock.ms += TIMEOUT_MS - 1
    syncer.sweep()
    assert peer.answers == []
    clock.ms += 1
    put(store, syncer, peer, 2)
    syncer.sweep()
    assert peer.codes == [codes.FLUSH_DISK_TIMEOUT] * 2
    assert [cast(Response, late).fields["queueOffset"] for late in peer.answers] == ["0", "1"]
    store.open.set()
    assert await syncer.reach(store.end)
    assert peer.codes == [codes.FLUSH_DISK_TIMEOUT] * 2 + [codes.SUCCESS]


async def test_a_late_answer_may_be_another_one(make: Make, store: Store, clock: Clock) -> None:
    syncer, peer = await make(), Peer()
    store.open.clear()
    put(store, syncer, peer, 0, late=lambda same, code: same)
    await begun(store)
    clock.ms += TIMEOUT_MS
    syncer.sweep()
    assert peer.codes == [codes.SUCCESS]


@pytest.mark.requirement("Store: Sync flush: success only when on disk, and after a power cut")
@pytest.mark.parametrize("wrong", [OSError(5, "Input/output error"), ValueError("a fault")])
async def test_a_sync_that_fails_is_an_error_for_all_who_wait_and_is_not_tried_again(
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
    assert not await asyncio.wait_for(reaching, 60)
    assert peer.codes == [codes.SERVICE_NOT_AVAILABLE] * 3
    assert str(wrong) in store.refusal
    store.wrong = None
    peer.came.clear()
    put(store, syncer, peer, 3)
    await asyncio.wait_for(peer.came.wait(), 60)
    await syncer.stop()
    assert peer.codes == [codes.SERVICE_NOT_AVAILABLE] * 4
    assert len(store.plans) == 1


@pytest.mark.requirement("Transactions, operation, overload: Overload says why")
async def test_so_many_answers_may_wait_however_many_groups_they_make(
    make: Make, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncer_module, "WAITING_MAX", 5)
    syncer, peer = await make(), Peer()
    store.open.clear()
    put(store, syncer, peer, 0, 1, 2)
    assert not syncer.is_full
    put(store, syncer, peer, 3, 4, 5, 6)
    assert syncer.is_full
    assert peer.codes == [codes.FLUSH_DISK_TIMEOUT] * 2
    store.open.set()
    assert await syncer.reach(store.end)
    assert peer.answers[2:] == [reply(n) for n in range(5)]
    assert not syncer.is_full


async def test_room_for_answers_comes_back_when_they_are_late(
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


@pytest.mark.requirement("Store: Sync flush: success only when on disk, and after a power cut")
async def test_a_stop_syncs_and_answers_what_is_left(make: Make, store: Store) -> None:
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
    assert not await asyncio.wait_for(syncer.reach(store.end), 60)
    assert store.plans == []
    assert peer.answers == []


async def test_the_disk_is_synced_every_interval_though_nobody_waits(
    make: Make, store: Store
) -> None:
    syncer = await make(0.001)
    ends = asyncio.Queue[int]()
    syncer.on_synced(lambda: ends.put_nowait(store.durable_end))
    store.end = 100
    while await asyncio.wait_for(ends.get(), 20) < 100:
        pass
    store.end = 200
    while await asyncio.wait_for(ends.get(), 20) < 200:
        pass


def _request(opaque: int) -> Command:
    (command,) = decode_all(encode_request(codes.SEND_MESSAGE_V2, opaque, {}, b""))
    return command


# ---- slaves

SLAVE_TIMEOUT_MS = 3_000
SLAVES: dict[str, Any] = {"has_slaves": True, "slave_timeout_ms": SLAVE_TIMEOUT_MS}


async def test_an_answer_waits_until_the_slaves_have_its_message(make: Make, store: Store) -> None:
    syncer, peer = await make(is_sync=False, **SLAVES), Peer()
    assert syncer.for_responses is syncer
    put(store, syncer, peer, 0, 1)
    put(store, syncer, peer, 2)
    syncer.replicated(99)
    assert peer.answers == []
    syncer.replicated(100)
    assert len(peer.answers) == 2
    syncer.replicated(50)  # what a slave has had it has
    syncer.replicated(200)
    assert peer.codes == [codes.SUCCESS] * 3
    assert store.plans == []  # the disk has its own time


@pytest.mark.requirement(
    "Store: Sync replication: the answer comes after the slave has the message, or says that it "
    "took too long"
)
async def test_an_answer_that_waits_for_both_goes_out_after_the_later(
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


async def test_slaves_that_take_too_long_are_told_and_the_answer_is_kept(
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
    assert cast(Response, peer.answers[0]).fields["queueOffset"] == "7"
    syncer.replicated(100)
    assert len(peer.answers) == 1


@pytest.mark.requirement(
    "Store: Sync replication: the answer comes after the slave has the message, or says that it "
    "took too long"
)
async def test_where_disk_and_slaves_are_late_the_slaves_are_named(
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
    assert len(peer.answers) == 1  # the disk has longer
    clock.ms += TIMEOUT_MS - SLAVE_TIMEOUT_MS
    syncer.sweep()
    assert peer.codes == [codes.FLUSH_SLAVE_TIMEOUT, codes.FLUSH_DISK_TIMEOUT]


async def test_more_than_may_wait_for_slaves_is_answered_at_once(
    make: Make, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncer_module, "WAITING_MAX", 2)
    syncer, peer = await make(is_sync=False, **SLAVES), Peer()
    put(store, syncer, peer, 0, 1, 2)
    assert syncer.is_full
    assert peer.codes == [codes.FLUSH_SLAVE_TIMEOUT]


async def test_a_stop_waits_for_slaves_that_are_about_to_have_it_and_for_no_others(
    make: Make, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncer, peer = await make(is_sync=False, **SLAVES), Peer()
    put(store, syncer, peer, 0)
    stopping = asyncio.ensure_future(syncer.stop())
    await asyncio.sleep(0)
    syncer.replicated(100)
    await asyncio.wait_for(stopping, 60)
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


async def test_where_nothing_is_waited_for_there_is_nothing_to_wait_with(make: Make) -> None:
    assert (await make(is_sync=False)).for_responses is None
    assert (await make()).for_responses is not None
