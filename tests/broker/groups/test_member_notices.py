"""Members are told that their group has changed: few at once, many in slices."""

import asyncio
from typing import Any, cast

from aerobee.broker.groups.clients import ConsumerGroup
from aerobee.broker.groups.member_notices import AT_ONCE_MAX, MemberNotices
from aerobee.protocol.aio.scheduler import Scheduler
from aerobee.protocol.aio.slices import Slices


class Wire:
    def __init__(self, told: list["Wire"]) -> None:
        self.told = told

    def oneway(self, code: int, fields: dict[str, str]) -> None:
        assert fields == {"consumerGroup": "g"}
        self.told.append(self)


def group_of(number: int, told: list[Wire]) -> ConsumerGroup:
    members: Any = {Wire(told): None for _ in range(number)}
    return ConsumerGroup("g", members=members)


def notices() -> MemberNotices:
    times = iter(range(1 << 30))
    return MemberNotices(Slices(Scheduler(), clock=lambda: float(next(times))))


async def test_few_members_are_told_at_once() -> None:
    told: list[Wire] = []
    notices().tell(group_of(AT_ONCE_MAX, told))
    assert len(told) == AT_ONCE_MAX


async def test_many_members_are_told_in_slices_and_once_more_when_the_group_has_changed() -> None:
    told: list[Wire] = []
    group = group_of(AT_ONCE_MAX * 3, told)
    notes = notices()
    notes.tell(group)
    assert told == []
    while len(told) < 10:
        before = len(told)
        await asyncio.sleep(0)
        assert len(told) - before <= 2
    gone = cast(Any, next(reversed(group.members)))
    del group.members[gone]
    new = Wire(told)
    cast(Any, group.members)[new] = None
    for _ in range(5):  # several changes are one more round
        notes.tell(group)
    while notes._rounds:  # noqa: ASYNC110 - no event for tests
        await asyncio.sleep(0)
    assert gone not in told
    assert told.count(new) == 1
    assert len(told) == (AT_ONCE_MAX * 3 - 1) + AT_ONCE_MAX * 3


async def test_a_stop_ends_a_round() -> None:
    told: list[Wire] = []
    notes = notices()
    notes.tell(group_of(AT_ONCE_MAX * 3, told))
    await asyncio.sleep(0)
    await notes.stop()
    assert len(told) < AT_ONCE_MAX
    assert not notes._rounds
