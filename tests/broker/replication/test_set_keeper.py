"""The sync state sets that a master proposes, by how its slaves stand and what the controller
answers."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aerobee.broker.replication.set_keeper import (
    FIRST_MS,
    JOIN_MS,
    JOIN_PAUSE_MS,
    NEAR_MS,
    RETRY_MS,
    SetKeeper,
    Standing,
)
from aerobee.broker.replication.sync_state import SyncState

from ...clocks import Clock

LATE_MS = 15_000


class Rig:
    """A keeper of broker 1; `answers` are what the controller does with each question."""

    def __init__(self, clock: Clock, *members: int) -> None:
        self.clock = clock
        self.state = SyncState(frozenset({1, *members}), 1)
        self.asked: list[list[int]] = []
        self.answers = True  # False: never
        self.wrong: Exception | None = None
        self.keeper = SetKeeper(1, self.state, self._alter, clock)
        self.standings: dict[int, Standing] = {}

    async def _alter(self, wanted: frozenset[int]) -> None:
        self.asked.append(sorted(wanted))
        if self.wrong is not None:
            raise self.wrong
        if self.answers:
            self.keeper.apply(wanted, self.state.set_epoch + 1)

    def stands(self, number: int, acked: int, behind_ms: int = 0, *, learner: bool = False) -> None:
        """Set the state of this slave now: its end, and the time for which it has been behind."""
        self.standings[number] = Standing(acked, self.clock.ms - behind_ms, learner)
        self.state.last_report_ms[number] = self.clock.ms

    async def propose(self, confirmed: int = 100, epoch_start: int = 50) -> list[list[int]]:
        """The proposals that are made now."""
        before = len(self.asked)
        self.keeper.propose(self.standings, confirmed, epoch_start, LATE_MS)
        for _ in range(3):
            await asyncio.sleep(0)
        return self.asked[before:]


@pytest.fixture
async def rig(clock: Clock) -> AsyncIterator[Rig]:
    found = Rig(clock)
    yield found
    await found.keeper.stop()


async def test_all_that_have_caught_up_are_proposed_at_once(rig: Rig) -> None:
    rig.stands(2, 100)
    rig.stands(3, 120)
    rig.stands(4, 120, learner=True)
    rig.stands(5, 120, NEAR_MS + 1)
    rig.stands(6, 49)
    assert await rig.propose() == [[1, 2, 3]]
    assert await rig.propose() == []
    assert rig.state.members == {1, 2, 3}


async def test_one_that_is_nearly_there_is_waited_for(rig: Rig, clock: Clock) -> None:
    rig.stands(2, 90, NEAR_MS)
    assert await rig.propose() == []
    assert rig.keeper.needed() == {1, 2}
    rig.stands(2, 100)
    assert await rig.propose() == [[1, 2]]
    assert rig.keeper.needed() == {1, 2}
    del rig.standings[2]
    assert await rig.propose() == [[1]]
    assert rig.keeper.needed() == {1}


async def test_not_for_long(rig: Rig, clock: Clock) -> None:
    rig.stands(2, 90)
    await rig.propose()
    clock.ms += JOIN_MS + 1
    rig.stands(2, 90)
    assert await rig.propose() == []
    assert rig.keeper.needed() == {1}
    clock.ms += JOIN_PAUSE_MS - 1
    rig.stands(2, 90)
    await rig.propose()
    assert rig.keeper.needed() == {1}
    clock.ms += 1
    rig.stands(2, 90)
    await rig.propose()
    assert rig.keeper.needed() == {1, 2}


async def test_one_that_goes_away_is_not_waited_for(rig: Rig) -> None:
    rig.stands(2, 90)
    await rig.propose()
    del rig.standings[2]
    await rig.propose()
    assert rig.keeper.needed() == {1}


async def test_a_question_without_an_answer_is_asked_again_and_counts(
    rig: Rig, clock: Clock
) -> None:
    rig.wrong = TimeoutError("no answer")
    rig.stands(2, 100)
    assert await rig.propose() == [[1, 2]]
    assert await rig.propose() == []
    rig.keeper.apply(frozenset({1}), 1)
    assert rig.state.counted() == {1, 2}
    clock.ms += RETRY_MS
    rig.stands(2, 100)
    del rig.standings[2]  # it is gone: now 1 is wanted, and 2 counts until there is an answer
    assert await rig.propose() == [[1]]
    assert rig.state.counted() == {1, 2}
    rig.wrong = None
    clock.ms += RETRY_MS
    assert await rig.propose() == [[1]]
    assert rig.state.counted() == {1}


async def test_a_lost_question_counts_until_the_set_has_another_number(
    rig: Rig, clock: Clock
) -> None:
    """The lost question may get to the controller behind a later one, whose refusal changes
    nothing."""
    rig.wrong = TimeoutError("no answer")
    rig.stands(2, 100)
    assert await rig.propose() == [[1, 2]]
    rig.wrong, rig.answers = None, False
    clock.ms += RETRY_MS
    del rig.standings[2]
    assert await rig.propose() == [[1]]
    rig.keeper.apply(frozenset({1}), 1)
    assert rig.state.counted() == {1, 2}
    rig.keeper.apply(frozenset({1}), 2)
    assert rig.state.counted() == {1}


async def test_a_refused_question_counts_until_the_set_is_told(rig: Rig) -> None:
    rig.answers = False
    rig.stands(2, 100)
    assert await rig.propose() == [[1, 2]]
    assert rig.state.counted() == {1, 2}
    rig.keeper.apply(frozenset({1, 7}), 5)
    assert rig.state.counted() == {1, 7}


async def test_a_member_that_never_reported_has_some_time(clock: Clock) -> None:
    rig = Rig(clock, 2)
    clock.ms += FIRST_MS - 1
    assert await rig.propose() == []
    clock.ms += 1
    assert await rig.propose() == [[1]]


async def test_a_member_that_is_behind_for_too_long_leaves(clock: Clock) -> None:
    rig = Rig(clock, 2)
    clock.ms += 60_000
    rig.stands(2, 10, LATE_MS)
    assert await rig.propose() == []
    rig.stands(2, 10, LATE_MS + 1)
    assert await rig.propose() == [[1]]


async def test_a_broker_that_is_no_member_proposes_nothing(rig: Rig) -> None:
    rig.keeper.apply(frozenset({2}), 4)
    rig.stands(2, 100)
    assert await rig.propose() == []
