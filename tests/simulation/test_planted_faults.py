"""Each planted fault is found: by a history of rules, by one of a whole cluster, or by a test.

A fault replaces one rule of the product. `abstract` finds a fault that needs an order of events,
the simulation one that needs a process, a network or a clock.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aerobee.broker.controlled.authority import Authority
from aerobee.broker.controlled.member import Member
from aerobee.broker.replication.replica import Replica
from aerobee.broker.replication.sync_state import SyncState
from aerobee.controller import rules
from aerobee.protocol import codes
from aerobee.store.engine import cutting
from aerobee.store.engine.state import StoreState
from aerobee.store.epochs import entries
from aerobee.store.epochs.entries import EpochEntry

from ..broker.replication import test_elected_master
from ..store.engine import test_cutting
from ..store.epochs import test_epochs
from . import abstract, abstract_ids, test_set
from .abstract import Broken, all_in_the_set, alone_in_the_set
from .abstract_ids import GivenTwice

Patch = pytest.MonkeyPatch


def ignore_the_pending_set(patch: Patch) -> None:
    """An acknowledgement waits for the set that the controller has confirmed, and no other."""
    patch.setattr(SyncState, "counted", lambda state: state.members)


def keep_an_empty_epoch(patch: Patch) -> None:
    """An epoch that begins where the last one does is not noted, as in RocketMQ."""
    whole = entries.appended

    def appended(known: Sequence[EpochEntry], entry: EpochEntry) -> tuple[EpochEntry, ...]:
        if known and known[-1].start_offset >= entry.start_offset:
            return tuple(known)
        return whole(known, entry)

    patch.setattr("aerobee.store.epochs.epochs.appended", appended)


def elect_anybody(patch: Patch) -> None:
    """Let a replica outside of the set be elected when no member is alive."""
    patch.setattr(rules, "elect_master", partial(rules.elect_master, unclean=True))


def read_beyond_the_confirmed_end(patch: Patch) -> None:
    """Readers get all that this broker has."""
    patch.setattr(StoreState, "readable_end", property(lambda state: state.safe_end))


def go_on_without_authority(patch: Patch) -> None:
    """A master takes changes, whatever it has not heard."""
    patch.setattr(Authority, "refusal", lambda *given: None)


@pytest.mark.parametrize(
    ("plant", "first", "events", "says"),
    [
        (ignore_the_pending_set, alone_in_the_set, 4, "lacks what was acknowledged"),
        (elect_anybody, alone_in_the_set, 4, "lacks what was acknowledged"),
        (read_beyond_the_confirmed_end, all_in_the_set, 3, "lacks what was acknowledged"),
        (go_on_without_authority, all_in_the_set, 5, "for longer than it may"),
    ],
)
def test_a_history_of_rules_finds(
    plant: Callable[[Patch], None],
    first: abstract.First,
    events: int,
    says: str,
    monkeypatch: Patch,
) -> None:
    plant(monkeypatch)
    is_timed = plant is go_on_without_authority
    with pytest.raises(Broken, match=says):
        abstract.explore(first()._replace(is_timed=is_timed), events)


def test_an_id_that_is_given_twice_is_found(monkeypatch: Patch) -> None:
    """The controller takes every application for the one that it knows."""
    whole = rules.apply_id
    monkeypatch.setattr(
        rules,
        "apply_id",
        lambda *given: whole(*given)._replace(code=0),  # the id is taken
    )
    with pytest.raises(GivenTwice):
        abstract_ids.explore(12)


def test_an_empty_epoch_that_is_kept_is_found(monkeypatch: Patch, tmp_path: Path) -> None:
    keep_an_empty_epoch(monkeypatch)
    with pytest.raises(AssertionError):
        test_epochs.test_fault_10_2_an_epoch_without_a_message_is_replaced_by_the_next(
            tmp_path / "epochs"
        )


def test_a_cut_that_is_not_synced_is_found(monkeypatch: Patch) -> None:
    """Cut in memory only; the disk has the cut at some later time."""
    monkeypatch.setattr(cutting, "_sync", lambda *given: None)
    with pytest.raises(AssertionError):
        test_cutting.test_a_crash_in_a_cut_leaves_all_of_the_end_or_nothing(None)


def test_offsets_of_an_older_master_are_found(monkeypatch: Patch) -> None:
    """A slave copies from the master that a name server names."""
    monkeypatch.setattr(Replica, "on_master", Replica._take)
    with pytest.raises(AssertionError):
        test_elected_master.test_offsets_are_copied_from_the_elected_master_and_no_older_one()


def take_a_heartbeat_for_proof(patch: Patch) -> None:
    """A controller that answers a heartbeat has confirmed the master, whether it leads or not."""

    async def beat(member: Member[Any], address: str) -> None:
        while True:
            header, asked_ms = member._heartbeat(), member._now_ms()
            with suppress(ConnectionError, TimeoutError):
                if header is not None:
                    await member._peers.request(address, codes.BROKER_HEARTBEAT, header)
                    member._authority.named(asked_ms)
            await asyncio.sleep(1)

    def begin(member: Member[Any]) -> None:
        for address in member.config.controllers:
            member._tasks.append(asyncio.create_task(beat(member, address)))

    patch.setattr(Member, "_begin_heartbeats", begin)


@pytest.mark.parametrize("plant", [take_a_heartbeat_for_proof, go_on_without_authority])
def test_a_scene_of_a_set_finds(plant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        test_set.test_a_master_that_only_a_following_controller_answers_refuses_changes_in_time()
