"""Members are told that their group has changed: few at once, many in slices."""

import asyncio
from typing import cast

from aerobee.broker.groups.clients import ClientKey, ConsumerGroup, Member
from aerobee.broker.groups.member_notices import AT_ONCE_MAX, MemberNotices
from aerobee.protocol.aio.connection import Connection
from aerobee.protocol.aio.scheduler import Scheduler
from aerobee.protocol.aio.slices import Slices


class Wire:
    def __init__(self, told: list["Wire"]) -> None:
        self.told = told

    def oneway(self, code: int, fields: dict[str, str]) -> None:
        assert fields == {"consumerGroup": "g"}
        self.told.append(self)


def group_of(number: int, told: list[Wire]) -> ConsumerGroup:
    wires = (Wire(told) for _ in range(number))
    return ConsumerGroup("g", members={member.key: member for member in map(member_of, wires)})


def member_of(wire: Wire) -> Member:
    return Member(ClientKey(cast(Connection, wire)), "c", "JAVA", 1, "127.0.0.1:1", 0)


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
    gone, _ = group.members.popitem()
    new = Wire(told)
    member = member_of(new)
    group.members[member.key] = member
    for _ in range(5):  # several changes are one more round
        notes.tell(group)
    while notes._rounds:  # noqa: ASYNC110 - no event for tests
        await asyncio.sleep(0)
    assert cast(Wire, gone.connection) not in told
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
