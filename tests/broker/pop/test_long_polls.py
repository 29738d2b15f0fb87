"""Parked pops and notifications: how many, in which order, and until when."""

from typing import Any

import pytest
from aerobee.broker.pop.long_polls import PopPolls
from aerobee.broker.pull.long_polls import LongPolls
from aerobee.protocol.command import Command, Response

PLACE = ("T", "g", 0)


class Wire:
    """Stands in for a connection: remembers which requests it was told to answer or put off."""

    def __init__(self) -> None:
        self.is_lost = self.should_defer = False
        self.sent: list[int] = []
        self.postponed: list[int] = []

    def respond_late(
        self, command: Command, reply: Response, waited_ms: int, *, is_long_polling: bool
    ) -> None:
        self.sent.append(command.opaque)

    def postpone(self, command: Command) -> None:
        self.postponed.append(command.opaque)


class Polls:
    """The parked requests of one place, whose header tells whether they find something."""

    def __init__(self, place_max: int = 9, *, once: bool = False) -> None:
        unused: Any = None
        serve: Any = self.serve
        self.polls = PopPolls(
            LongPolls(unused, lambda: 0), serve, place_max, 9, lambda: 0, once=once
        )

    def serve(self, header: bool, command: Command, connection: Wire, is_last: bool) -> Any:
        return Response(0) if header or is_last else None

    def park(self, wire: Wire, opaque: int, end_ms: int, *, finds: bool = True) -> bool:
        connection: Any = wire
        command = Command(opaque=opaque)
        return self.polls.park(PLACE, [("T", 0)], end_ms, finds, command, connection)


def test_one_more_than_the_limit_of_a_place_may_wait() -> None:
    polls, wire = Polls(place_max=1), Wire()
    assert [polls.park(wire, n, 1_000) for n in range(3)] == [True, True, False]


def test_a_request_is_answered_when_less_than_50_ms_are_left() -> None:
    polls, wire = Polls(), Wire()
    polls.park(wire, 1, 1_000)
    polls.polls.sweep(950)
    assert wire.sent == []
    polls.polls.sweep(951)
    assert (wire.sent, polls.polls.count) == ([1], 0)


def test_a_request_whose_time_is_up_is_answered_though_its_peer_has_to_read_first() -> None:
    polls, wire = Polls(), Wire()
    polls.park(wire, 1, 1_000)
    wire.should_defer = True
    polls.polls.sweep(1_000)
    assert (wire.sent, wire.postponed) == ([1], [])


@pytest.mark.parametrize("once", [False, True])
def test_requests_of_peers_that_left_or_have_to_read_first_are_passed_over(once: bool) -> None:
    polls, first, last, wire = Polls(once=once), Wire(), Wire(), Wire()
    polls.park(first, 1, 1_000)
    for opaque in (2, 3):
        polls.park(wire, opaque, 2_000)
    polls.park(last, 4, 3_000)
    first.is_lost = last.should_defer = True
    polls.polls.wake(PLACE)
    assert wire.sent == ([3] if once else [2, 3])
    assert (last.postponed, polls.polls.count) == ([4], 2 if once else 0)


@pytest.mark.parametrize("once", [False, True])
def test_a_request_that_finds_nothing_keeps_its_turn(once: bool) -> None:
    polls, wire = Polls(once=once), Wire()
    for opaque in (1, 2):
        polls.park(wire, opaque, 1_000, finds=False)
    polls.polls.wake(PLACE)
    order = [poll.command.opaque for poll in polls.polls.parked[PLACE]]
    assert (order, polls.polls.count, wire.sent) == ([1, 2], 2, [])
