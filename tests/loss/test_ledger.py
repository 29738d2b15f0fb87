"""The checker itself: each rule has a history that breaks it, and one that keeps it."""

import sys
from collections.abc import Callable

import pytest

from .ledger import Ledger, Lost

Q = ("T", 0)


def good() -> Ledger:
    """Two messages, acknowledged, read and committed; a third on its way."""
    ledger = Ledger()
    for offset, body in enumerate((b"one", b"two")):
        ledger.sent(body, Q)
        ledger.acknowledged(body, offset)
    ledger.sent(b"three", Q)
    ledger.delivered(Q, 0, b"one")
    ledger.delivered(Q, 1, b"two")
    ledger.committed("g", Q, 2)
    return ledger


def read(ledger: Ledger, *bodies: bytes, first: int = 0) -> None:
    for offset, body in enumerate(bodies, first):
        ledger.delivered(Q, offset, body)
    ledger.read_all(Q, first, first + len(bodies))


def start_again(ledger: Ledger, *bodies: bytes, forgiven: tuple[bytes, ...] = ()) -> None:
    ledger.crashed(forgiven)
    read(ledger, *bodies)
    ledger.recovered([Q])


def test_a_history_in_which_all_is_well_has_no_fault() -> None:
    ledger = good()
    start_again(ledger, b"one", b"two", b"three")
    ledger.restored("g", Q, 2)
    ledger.sent(b"four", Q)
    ledger.acknowledged(b"four", 3)
    start_again(ledger, b"one", b"two", b"three", b"four")
    ledger.check()


def test_what_was_never_acknowledged_may_be_dropped_and_its_offset_taken() -> None:
    ledger = good()
    start_again(ledger, b"one", b"two")
    ledger.sent(b"four", Q)
    ledger.acknowledged(b"four", 2)
    ledger.check()


def test_old_files_may_go() -> None:
    ledger = good()
    read(ledger, b"two", first=1)
    ledger.check()


def test_what_a_flush_mode_does_not_promise_may_be_gone_or_there() -> None:
    for left in ((b"one",), (b"one", b"two")):
        ledger = good()
        start_again(ledger, *left, forgiven=(b"two",))
        ledger.restored("g", Q, len(left))
        ledger.check()


def test_a_topic_that_is_being_deleted_may_be_gone_or_there() -> None:
    for left in ((), (b"one", b"two")):
        ledger = good()
        ledger.deleting("T")
        ledger.crashed()
        read(ledger, *left)
        ledger.recovered([Q] if left else [])
        ledger.sent(b"new", Q)
        ledger.acknowledged(b"new", len(left))
        ledger.check()


Break = Callable[[Ledger], None]


def lose_the_last(ledger: Ledger) -> None:
    start_again(ledger, b"one")


def lose_the_queue(ledger: Ledger) -> None:
    ledger.crashed()
    ledger.recovered([])


def leave_a_hole(ledger: Ledger) -> None:
    ledger.sent(b"four", Q)
    ledger.acknowledged(b"four", 3)
    read(ledger, b"one", b"two")
    ledger.delivered(Q, 3, b"four")
    ledger.read_all(Q, 0, 4)


def give_an_offset_twice(ledger: Ledger) -> None:
    ledger.acknowledged(b"three", 1)


def give_an_offset_twice_across_a_crash(ledger: Ledger) -> None:
    ledger.delivered(Q, 2, b"three")  # read, so it counts, acknowledged or not
    start_again(ledger, b"one", b"two")
    ledger.sent(b"four", Q)
    ledger.acknowledged(b"four", 2)


def deliver_one_at_two_places(ledger: Ledger) -> None:
    ledger.delivered(Q, 2, b"one")


def deliver_what_nobody_sent(ledger: Ledger) -> None:
    ledger.delivered(Q, 2, b"ghost")


def deliver_in_another_queue(ledger: Ledger) -> None:
    ledger.delivered(("T", 1), 0, b"three")


def change_the_order(ledger: Ledger) -> None:
    ledger.sent(b"four", ("T", 5))
    ledger.acknowledged(b"four", 7)
    ledger.sent(b"five", ("T", 5))
    ledger.acknowledged(b"five", 6)


def bring_back_what_was_dropped(ledger: Ledger) -> None:
    start_again(ledger, b"one", b"two")
    start_again(ledger, b"one", b"two", b"three")


def bring_back_a_deleted_topic(ledger: Ledger) -> None:
    ledger.deleted("T")
    start_again(ledger, b"one", b"two")


def commit_beyond_the_end(ledger: Ledger) -> None:
    ledger.committed("g", Q, 3)


def start_beyond_the_end(ledger: Ledger) -> None:
    start_again(ledger, b"one", b"two")
    ledger.restored("g", Q, 3)


def go_back(ledger: Ledger) -> None:
    start_again(ledger, b"one", b"two")
    ledger.restored("g", Q, 1)


@pytest.mark.parametrize(
    ("breaks", "text"),
    [
        (lose_the_last, "is lost, the queue ends at 1"),
        (lose_the_queue, "is lost with 2 messages"),
        (leave_a_hole, "offset 2: nothing is there"),
        (give_an_offset_twice, "first message b'two', now message b'three'"),
        (give_an_offset_twice_across_a_crash, "first message b'three', now message b'four'"),
        (deliver_one_at_two_places, "is at 0 and at 2"),
        (deliver_what_nobody_sent, "b'ghost' was never sent there"),
        (deliver_in_another_queue, "b'three' was never sent there"),
        (change_the_order, "was sent after 7 was acknowledged, and lies before it"),
        (bring_back_what_was_dropped, "b'three' was dropped and came back"),
        (bring_back_a_deleted_topic, "b'one' was dropped and came back"),
        (commit_beyond_the_end, "committed 3 beyond the end"),
        (start_beyond_the_end, "is at 3 of"),
        (go_back, "went back from 2 to 1"),
    ],
)
def test_a_broken_rule_is_named(breaks: Break, text: str) -> None:
    ledger = good()
    ledger.check()
    breaks(ledger)
    with pytest.raises(Lost, match=text):
        ledger.check()


def test_ten_times_the_messages_are_ten_times_the_work() -> None:
    def calls(count: int) -> int:
        ledger = Ledger()
        for number in range(count):
            ledger.sent(b"%d" % number, Q)
            ledger.acknowledged(b"%d" % number, number)
        for _ in range(3):
            start_again(ledger, *(b"%d" % number for number in range(count)))
        made = 0

        def note(frame: object, event: str, value: object) -> None:
            nonlocal made
            made += event in ("call", "c_call")

        sys.setprofile(note)
        try:
            ledger.check()
        finally:
            sys.setprofile(None)
        return made

    assert calls(10_000) < 11 * calls(1_000)
