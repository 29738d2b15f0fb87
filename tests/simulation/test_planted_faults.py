"""Each planted fault is found: by a history of rules, by one of a whole cluster, or by a test.

A fault replaces one rule of the product. `abstract` finds those that need an order of events, the
simulation those that need a process, a network or a clock.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from aerobee.broker.member.authority import Authority
from aerobee.broker.replication.sync_state import SyncState
from aerobee.controller import rules
from aerobee.store.engine import cutting
from aerobee.store.engine.state import StoreState
from aerobee.store.epochs import entries as epochs
from aerobee.store.epochs.entries import EpochEntry

from ..store.engine import test_cutting
from . import abstract, abstract_ids
from .abstract import Broken, all_in_the_set, alone_in_the_set
from .abstract_ids import GivenTwice

Patch = pytest.MonkeyPatch


def ignore_the_pending_set(patch: Patch) -> None:
    """An acknowledgement waits for the set that the controller has confirmed, and no other."""
    patch.setattr(SyncState, "counted", lambda state: state.members)


def forget_a_lost_proposal(patch: Patch) -> None:
    """A proposal whose answer is lost counts no more once a later one is answered."""
    patch.setattr(SyncState, "is_lost", property(lambda state: False, lambda state, value: None))


def keep_an_empty_epoch(patch: Patch) -> None:
    """An epoch that begins where the last one does is not noted, as in RocketMQ."""
    whole = epochs.appended

    def appended(known: Sequence[EpochEntry], entry: EpochEntry) -> tuple[EpochEntry, ...]:
        if known and known[-1].start_offset >= entry.start_offset:
            return tuple(known)
        return whole(known, entry)

    patch.setattr(epochs, "appended", appended)


def elect_anybody(patch: Patch) -> None:
    """Where no member of the set is alive, another replica is elected."""
    patch.setattr(rules, "elect_master", partial(rules.elect_master, unclean=True))


def read_beyond_the_confirmed_end(patch: Patch) -> None:
    """Readers get all that this broker has."""
    patch.setattr(StoreState, "readable_end", property(lambda state: state.safe_end))


def go_on_without_authority(patch: Patch) -> None:
    """A master takes changes, whatever it has not heard."""
    patch.setattr(Authority, "refusal", lambda *given: None)


@pytest.mark.parametrize(
    ("plant", "says"),
    [
        (ignore_the_pending_set, "lacks what was acknowledged"),
        (forget_a_lost_proposal, "lacks what was acknowledged"),
        (keep_an_empty_epoch, "lacks what was acknowledged|shows readers"),
        (elect_anybody, "lacks what was acknowledged"),
        (read_beyond_the_confirmed_end, "lacks what was acknowledged"),
        (go_on_without_authority, "for longer than it may"),
    ],
)
def test_a_history_of_rules_finds(
    plant: Callable[[Patch], None], says: str, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    is_timed = plant is go_on_without_authority
    with pytest.raises(Broken, match=says):
        for events in range(1, 8):
            for first in (all_in_the_set, alone_in_the_set):
                abstract.explore(first()._replace(is_timed=is_timed), events)


def test_an_id_that_is_given_twice_is_found(monkeypatch: Patch) -> None:
    """The controller takes every application for the one that it knows."""
    whole = rules.apply_id
    monkeypatch.setattr(
        rules, "apply_id", lambda *given: whole(*given)._replace(code=0)  # the id is taken
    )
    with pytest.raises(GivenTwice):
        abstract_ids.explore(12)


def test_a_cut_that_is_not_synced_is_found(monkeypatch: Patch, tmp_path: Path) -> None:
    """What goes is cut in memory, and on the disk whenever that comes."""
    monkeypatch.setattr(cutting, "_sync", lambda *given: None)
    with pytest.raises(AssertionError):
        test_cutting.test_a_crash_in_a_cut_leaves_all_of_the_end_or_nothing(None)
