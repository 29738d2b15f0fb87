"""Parked pulls: woken by their queue only, answered in time, limited in number."""

from dataclasses import dataclass, field

import pytest
from aerobee.broker.pull import long_polls as holds_module
from aerobee.broker.pull.long_polls import LongPolls
from aerobee.broker.runtime import parking
from aerobee.broker.runtime.parking import ParkedRequest
from aerobee.protocol.command import Command, Response
from aerobee.protocol.headers.pull import PullMessage

QUEUE = ("T", 0)
OTHER = ("T", 1)


@dataclass
class Wire:
    """Stands in for a connection: remembers what it was told to answer."""

    is_lost: bool = False
    should_defer: bool = False
    postponed: list[int] = field(default_factory=list)
    sent: list[tuple[int, int]] = field(default_factory=list)

    def respond_late(
        self, command: Command, reply: Response, waited_ms: int, *, is_long_polling: bool
    ) -> None:
        self.sent.append((command.opaque, reply.code))

    def postpone(self, command: Command) -> None:
        self.postponed.append(command.opaque)


class Messages:
    """Stands in for the pull handler: finds something where `there` says so."""

    def __init__(self) -> None:
        self.there: set[int] = set()
        self.served: list[tuple[int, bool]] = []

    def rerun(
        self, header: PullMessage, command: Command, connection: Wire, final: bool
    ) -> Response | None:
        self.served.append((header.queue_id, final))
        if header.queue_id in self.there:
            return Response(0)
        return Response(19) if final else None


@pytest.fixture
def messages() -> Messages:
    return Messages()


@pytest.fixture
def long_polls(messages: Messages) -> LongPolls:
    return LongPolls(messages.rerun, lambda: 0)  # type: ignore[arg-type]


def hold(wire: Wire, opaque: int, queue_id: int = 0, deadline_ms: int = 1_000) -> ParkedRequest:
    header = PullMessage("g", "T", queue_id, 0, 32, 2, 0, 15_000, 0)
    return ParkedRequest(header, Command(opaque=opaque), wire, 0, deadline_ms)  # type: ignore[arg-type]


def test_only_the_pulls_of_a_marked_queue_run_again(
    long_polls: LongPolls, messages: Messages
) -> None:
    wire = Wire()
    assert long_polls.park(QUEUE, hold(wire, 1))
    assert long_polls.park(OTHER, hold(wire, 2, 1))
    messages.there = {0, 1}
    long_polls.mark(QUEUE)
    long_polls.serve()
    assert wire.sent == [(1, 0)]
    assert long_polls.count == 1
    long_polls.serve()
    assert wire.sent == [(1, 0)]


def test_a_pull_that_still_finds_nothing_stays_parked(
    long_polls: LongPolls, messages: Messages
) -> None:
    wire = Wire()
    long_polls.park(QUEUE, hold(wire, 1))
    long_polls.mark(QUEUE)
    long_polls.serve()
    assert (wire.sent, long_polls.count) == ([], 1)
    messages.there = {0}
    long_polls.mark(QUEUE)
    long_polls.serve()
    assert (wire.sent, long_polls.count) == ([(1, 0)], 0)


def test_a_pull_is_answered_when_its_time_is_up_and_not_before(long_polls: LongPolls) -> None:
    wire = Wire()
    long_polls.park(QUEUE, hold(wire, 1, deadline_ms=1_000))
    long_polls.park(QUEUE, hold(wire, 2, deadline_ms=2_000))
    long_polls.sweep(999)
    assert wire.sent == []
    long_polls.sweep(1_000)
    assert (wire.sent, long_polls.count) == ([(1, 19)], 1)
    long_polls.sweep(2_000)
    assert (wire.sent, long_polls.count) == ([(1, 19), (2, 19)], 0)


def test_a_client_that_left_is_forgotten(long_polls: LongPolls, messages: Messages) -> None:
    gone, here = Wire(), Wire()
    long_polls.park(QUEUE, hold(gone, 1))
    long_polls.park(QUEUE, hold(here, 2))
    gone.is_lost = True
    long_polls.sweep(0)
    assert long_polls.count == 1
    messages.there = {0}
    long_polls.mark(QUEUE)
    long_polls.serve()
    assert (gone.sent, here.sent) == ([], [(2, 0)])


def test_one_pull_over_the_limit_is_not_parked(
    long_polls: LongPolls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holds_module, "PARKED_PER_QUEUE_MAX", 2)
    wire = Wire()
    assert [long_polls.park(QUEUE, hold(wire, n)) for n in range(3)] == [True, True, False]
    assert long_polls.park(OTHER, hold(wire, 4, 1))
    monkeypatch.setattr(holds_module, "PARKED_MAX", 3)
    assert not long_polls.park(("U", 0), hold(wire, 5))
    assert long_polls.count == 3


def test_everybody_can_be_woken_at_once(long_polls: LongPolls, messages: Messages) -> None:
    wire = Wire()
    long_polls.park(QUEUE, hold(wire, 1))
    long_polls.park(OTHER, hold(wire, 2, 1))
    long_polls.wake_all()
    long_polls.serve()
    assert messages.served == [(0, False), (1, False)]


def test_who_watches_a_queue_is_told_after_its_pulls(
    long_polls: LongPolls, messages: Messages
) -> None:
    told: list[tuple[tuple[str, int], int]] = []

    def watcher(key: tuple[str, int]) -> None:
        told.append((key, len(messages.served)))

    long_polls.watch(QUEUE, watcher)
    assert QUEUE in long_polls.parked
    assert long_polls.count == 0
    long_polls.mark(QUEUE)
    long_polls.mark(OTHER)
    long_polls.serve()
    long_polls.park(QUEUE, hold(Wire(), 1))
    long_polls.mark(QUEUE)
    long_polls.serve()
    assert told == [(QUEUE, 0), (QUEUE, 1)]
    long_polls.sweep(1_000)
    assert QUEUE in long_polls.parked
    long_polls.unwatch(QUEUE, watcher)
    assert QUEUE not in long_polls.parked
    long_polls.mark(QUEUE)
    long_polls.serve()
    assert len(told) == 2


def test_a_pull_stays_parked_when_nobody_watches_its_queue_any_more(long_polls: LongPolls) -> None:
    long_polls.watch(QUEUE, print)
    long_polls.park(QUEUE, hold(Wire(), 1))
    long_polls.unwatch(QUEUE, print)
    assert long_polls.count == len(long_polls.parked[QUEUE]) == 1


def test_a_client_that_does_not_read_is_not_looked_for_until_it_does(
    long_polls: LongPolls, messages: Messages
) -> None:
    slow, quick = Wire(should_defer=True), Wire()
    long_polls.park(QUEUE, hold(slow, 1))
    long_polls.park(QUEUE, hold(quick, 2))
    messages.there.add(0)
    long_polls.mark(QUEUE)
    long_polls.serve()
    assert (slow.sent, slow.postponed) == ([], [1])
    assert quick.sent == [(2, 0)]
    assert long_polls.count == 0
    long_polls.park(QUEUE, hold(slow, 3))
    long_polls.sweep(1_000)
    assert (slow.sent, slow.postponed) == ([], [1, 3])


def test_a_sweep_over_many_pauses_and_passes_over_what_was_served_meanwhile(
    long_polls: LongPolls, messages: Messages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "CHECKED_PER_PART", 4)
    wire = Wire()
    for queue_id in range(8):
        assert long_polls.park(("T", queue_id), hold(wire, queue_id, queue_id))
    pauses = 0
    for _ in long_polls.sweep_in_parts(1_000):
        pauses += 1
        if pauses == 1:
            messages.there = {5}
            long_polls.mark(("T", 5))
            long_polls.serve()
    assert pauses == 3
    assert sorted(wire.sent) == [(n, 0 if n == 5 else 19) for n in range(8)]
    assert long_polls.count == 0
