"""How the demo counts what its two members have seen."""

from aerobee.tools.demo_member import Seen, count_once


def test_offsets_in_a_row_are_one_range() -> None:
    seen = Seen()
    for offset in (5, 6, 7, 9, 6):
        seen.add("broker:0", offset)
    seen.add("broker:1", 8)
    assert seen.queues == {"broker:0": [[5, 7], [9, 9], [6, 6]], "broker:1": [[8, 8]]}


def test_what_came_twice_counts_once() -> None:
    assert count_once([]) == 0
    assert count_once([[0, 0]]) == 1
    assert count_once([[5, 7], [9, 9], [6, 6]]) == 4
    assert count_once([[0, 9], [5, 14], [20, 20], [2, 3]]) == 16
