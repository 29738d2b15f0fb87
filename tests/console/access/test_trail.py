"""The acts of an audit: two lines are one act, and each kind of result has its word."""

from typing import Any

import pytest
from aerobee.console.access.trail import Ending, acts, ending

BEGIN = {
    "at": "2023-11-14T22:13:20.123+00:00",
    "entry": "e1",
    "step": "begin",
    "visitor": "ann",
    "from": "127.0.0.1",
    "cluster": "main",
    "action": "topic-delete",
    "target": "orders",
    "details": {"topic": "orders"},
}
END = {"at": "2023-11-14T22:13:21+00:00", "entry": "e1", "step": "end", "result": {"counts": {}}}


def test_two_lines_are_one_act() -> None:
    (act,) = acts([END, BEGIN])
    assert (act.visitor, act.address, act.action, act.target) == (
        "ann",
        "127.0.0.1",
        "topic-delete",
        "orders",
    )
    assert (act.at_ms, act.ended_ms) == (1_700_000_000_123, 1_700_000_001_000)
    assert (act.ending, act.result) == (Ending.DONE, {"counts": {}})


def test_an_act_without_a_second_line_is_open_and_an_end_alone_is_none() -> None:
    (act,) = acts([END | {"entry": "e2"}, BEGIN])
    assert (act.ending, act.ended_ms, act.result) == (Ending.OPEN, None, None)


def test_lines_of_other_kinds_are_shown_as_far_as_they_go() -> None:
    (act,) = acts([{"step": "begin", "at": 5, "details": [1]}, {"step": "else"}, {}])
    assert (act.at_ms, act.visitor, act.details) == (None, "", {})


@pytest.mark.parametrize(
    ("result", "word"),
    [
        ("it ends", Ending.DONE),
        ({"counts": {"done": 2}, "places": [["a", "done", ""]]}, Ending.DONE),
        ({"counts": {"done": 2, "refused": 1}}, Ending.PARTLY),
        ({"counts": {"done": 1, "not tried": 1}}, Ending.PARTLY),
        ({"counts": {"refused": 2}}, Ending.REFUSED),
        ({"counts": {"done": 2, "unknown": 1}}, Ending.UNKNOWN),
        ({"not done": "the cluster has changed"}, Ending.NOT_DONE),
        ({"phase": "ended", "why": None, "sent": 3, "refused": 0}, Ending.DONE),
        ({"phase": "stopped", "why": None, "sent": 3, "refused": 0}, Ending.PARTLY),
        ({"phase": "ended", "why": "20 failed", "sent": 0, "refused": 20}, Ending.REFUSED),
        ({"phase": "ended", "why": None, "sent": 3, "unknown": 1}, Ending.UNKNOWN),
        ({"counts": "none"}, Ending.DONE),
        ({"messages": 3, "not whole": None}, Ending.DONE),
        ({"messages": 0, "not whole": "it was cut off"}, Ending.PARTLY),
    ],
)
def test_each_result_has_a_word(result: Any, word: Ending) -> None:
    assert ending(result) is word
