"""Previews are found by their visitor only, until they are used or too old."""

import pytest
from aerobee.console.actions import kept as clock
from aerobee.console.actions import previews as module
from aerobee.console.actions.action import Changed, Plan
from aerobee.console.actions.previews import KEPT_MS, Previews

OWNER = ("one", "main", "ann")


def test_it_is_of_one_visitor_action_and_cluster_and_serves_once() -> None:
    kept = Previews()
    ident = kept.keep(OWNER, {"x": "1"}, Plan())
    for wrong in (("two", "main", "ann"), ("one", "other", "ann"), ("one", "main", "bob")):
        with pytest.raises(Changed):
            kept.find(ident, wrong)
    assert kept.find(ident, OWNER).values == {"x": "1"}
    kept.drop(ident)
    with pytest.raises(Changed, match="is not kept: it was used"):
        kept.find(ident, OWNER)


def test_old_ones_end_and_the_oldest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000
    monkeypatch.setattr(clock, "now_ms", lambda: now)
    monkeypatch.setattr(module, "KEPT_MAX", 2)
    kept = Previews()
    first, second, third = (kept.keep(OWNER, {}, Plan()) for _ in range(3))
    with pytest.raises(Changed):
        kept.find(first, OWNER)
    kept.find(second, OWNER)
    now += KEPT_MS + 1
    with pytest.raises(Changed, match="older than 10 minutes"):
        kept.find(third, OWNER)
