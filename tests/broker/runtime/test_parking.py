"""Parked requests: run again, answered or put off, limited in number and in memory."""

from dataclasses import dataclass, field

import pytest
from aerobee.broker.runtime.parking import ANSWERED, GONE, WAITS, ParkedRequest, ParkingLot
from aerobee.protocol.aio.memory_budget import WAITING_SHARE, MemoryBudget
from aerobee.protocol.command import Command, Response
from aerobee.protocol.errors import Refusal


@dataclass
class Wire:
    """Stands in for a connection: remembers what it was told."""

    is_lost: bool = False
    should_defer: bool = False
    budget: MemoryBudget = field(default_factory=lambda: MemoryBudget(100 * WAITING_SHARE))
    postponed: int = 0
    sent: list[tuple[int, int, bool]] = field(default_factory=list)

    def respond_late(
        self, command: Command, reply: Response, waited_ms: int, *, is_long_polling: bool
    ) -> None:
        self.sent.append((reply.code, waited_ms, is_long_polling))

    def postpone(self, command: Command) -> None:
        self.postponed += 1


def serve(header: int, command: Command, connection: Wire, is_last: bool) -> Response | None:
    """Stands in for a handler: the header is the code of its response, 0 for none yet."""
    if header < 0:
        raise Refusal(-header, "refused")
    return Response(header) if header or is_last else None


def lot(*, is_long_polling: bool = True, may_overstay: bool = False) -> ParkingLot[str]:
    return ParkingLot(
        serve,  # type: ignore[arg-type]
        lambda: 30,
        is_long_polling=is_long_polling,
        may_overstay=may_overstay,
    )


def request(wire: Wire, header: int = 0, size: int = 0, end_ms: int = 100) -> ParkedRequest:
    return ParkedRequest(header, Command(), wire, 10, end_ms, size)  # type: ignore[arg-type]


def test_a_request_that_finds_nothing_waits_on_and_its_memory_stays_counted() -> None:
    wire = Wire()
    waiting = request(wire, size=60)
    parking = lot()
    assert parking.add("a", waiting, 9, 9)
    assert parking.run(waiting, is_last=False) == WAITS
    assert (wire.sent, wire.budget.waiting) == ([], 60)
    waiting.header = 7
    assert parking.run(waiting, is_last=False) == ANSWERED
    assert (wire.sent, wire.budget.waiting) == ([(7, 20, True)], 0)


def test_a_refusal_is_the_response() -> None:
    wire = Wire()
    assert lot(is_long_polling=False).run(request(wire, -5), is_last=False) == ANSWERED
    assert wire.sent == [(5, 20, False)]


def test_requests_are_limited_by_place_in_all_and_in_memory() -> None:
    parking, wire = lot(), Wire()
    assert [parking.add("a", request(wire), 2, 4) for _ in range(3)] == [True, True, False]
    assert [parking.add(place, request(wire), 2, 4) for place in "bcd"] == [True, True, False]
    parking = lot()
    assert [parking.add("a", request(wire, size=50), 9, 9) for _ in range(3)] == [True, True, False]
    assert (parking.count, wire.budget.waiting) == (2, 100)


@pytest.mark.parametrize("is_last", [False, True])
def test_the_request_of_a_lost_connection_is_let_go(is_last: bool) -> None:
    wire = Wire(is_lost=True, should_defer=True)
    lost = request(wire, 7, size=60)
    parking = lot()
    assert parking.add("a", lost, 9, 9)
    assert parking.run(lost, is_last=is_last) == GONE
    assert (wire.sent, wire.postponed, wire.budget.waiting) == ([], 0, 0)


@pytest.mark.parametrize(
    ("is_last", "may_overstay", "is_postponed"),
    [(False, False, True), (False, True, True), (True, True, True), (True, False, False)],
)
def test_a_request_is_postponed_until_its_peer_has_read_if_it_has_the_time(
    is_last: bool, may_overstay: bool, is_postponed: bool
) -> None:
    wire = Wire(should_defer=True)
    became = lot(may_overstay=may_overstay).run(request(wire, 7), is_last=is_last)
    assert became == (GONE if is_postponed else ANSWERED)
    assert (wire.postponed, len(wire.sent)) == ((1, 0) if is_postponed else (0, 1))


def test_a_sweep_answers_in_time_drops_the_lost_and_forgets_empty_places() -> None:
    parking, wire, gone = lot(), Wire(), Wire(is_lost=True)
    for place, parked in (
        ("a", request(wire, 7)),
        ("a", request(wire, 8, end_ms=101)),
        ("b", request(gone, 9, end_ms=500)),
    ):
        assert parking.add(place, parked, 9, 9)
    parking.sweep(99)
    assert (wire.sent, parking.count, list(parking.parked)) == ([], 2, ["a"])
    parking.sweep(100)
    assert ([code for code, _, _ in wire.sent], parking.count) == ([7], 1)
    parking.sweep(101)
    assert ([code for code, _, _ in wire.sent], parking.count) == ([7, 8], 0)
    assert not parking.parked
