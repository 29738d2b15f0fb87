"""Takes the progress of the acting master over into a master that returns.

Progress of deliveries only grows, so the greater one counts. Offsets of groups may go back, so
there the newer version counts: a slave that was away must not take them back.
"""

import asyncio
import logging
from collections.abc import Callable

from ...protocol.bodies.data_version import DataVersion
from ...protocol.bodies.offsets import ConsumerOffsetSerializeWrapper
from ...store.timer.timer_wheel import SLOTS
from ..groups.offsets import Offsets
from ..replication.following_timers import FollowingWork
from ..runtime.throttle import MANY
from ..scheduled.delays import DelayOffsets, Delays
from ..scheduled.expiring_slot import ExpiringSlot
from ..scheduled.real_destination import real_place
from ..scheduled.timer_delivery import recall_key, waiting_message
from ..scheduled.timer_parts import TimerParts
from ..scheduled.wheel_intake import Moment
from .remote_delivery import stays

log = logging.getLogger(__name__)


def is_older(theirs: DataVersion | None, own: DataVersion) -> bool:
    """True if a table with version `theirs` is older than one with `own`, by RocketMQ's order."""
    found = theirs or DataVersion()
    return (found.state_version, found.counter, found.timestamp) < (
        own.state_version,
        own.counter,
        own.timestamp,
    )


def take_offsets(
    offsets: Offsets,
    found: ConsumerOffsetSerializeWrapper,
    source: str,
    end_of: Callable[[str, int], int],
) -> bool:
    """Take the offsets of groups from the broker at `source`, unless they are older than these."""
    if is_older(found.data_version, offsets.version):
        log.info(
            "the offsets of %s are not taken, these are newer: %s there, %s here",
            source,
            found.data_version,
            offsets.version,
        )
        return False
    offsets.follow(found.offset_table, found.data_version)
    offsets.cut_at(end_of)
    log.info("the offsets of %s are taken, they are newer", source)
    return True


def take_delays(delays: Delays, found: DelayOffsets) -> None:
    """Take the progress of each delay level that is ahead of the progress here."""
    for level, offset in found.offset_table.items():
        if 0 < level <= delays.levels:
            delays.passed(level, offset)
    delays.cut_at_log()


class TakenTimers:
    """The timers of a master that returns, before they go on by themselves."""

    def __init__(self, parts: TimerParts) -> None:
        self._store = parts.store
        self._state = parts.state
        self._intake = parts.intake
        self._following = FollowingWork(parts, self._keep_late)
        self._until_ms = 0  # the first slot that the acting master has not sent

    async def take(self, read_ms: int, queue_offset: int, now_ms: int) -> None:
        """Skip what the acting master has sent: all in the slots before `read_ms`, of the messages
        before `queue_offset`. What never reached it, or stays here, is due here.

        One slot after the other: what is due here goes into a later slot, then this one is cleared.
        So nothing is lost where it ends early. StoreError when the disk takes nothing.
        """
        state = self._state
        if read_ms <= state.read_ms:
            return
        self._until_ms = until_ms = state.floor(read_ms)
        # First into the wheel with what is not there yet.
        await self._follow_all(state.read_ms, queue_offset, now_ms)
        while True:
            # In a new wheel the slot of time 0 seems used.
            slot_ms = state.wheel.next_used(state.read_ms or state.precision_ms, until_ms)
            if slot_ms is None or slot_ms >= until_ms:
                break
            await self._follow_all(slot_ms, queue_offset, now_ms)
            self._place(await self._left(slot_ms, queue_offset), now_ms)
            await self._follow_all(slot_ms + state.precision_ms, queue_offset, now_ms)
        await self._follow_all(read_ms, queue_offset, now_ms)

    async def _follow_all(self, read_ms: int, queue_offset: int, now_ms: int) -> None:
        self._following.follow(read_ms, queue_offset)
        while self._following.step(now_ms, MANY):  # noqa: ASYNC110 - other work goes on meanwhile
            await asyncio.sleep(0)

    def _keep_late(self, place: int, length: int, now_ms: int) -> None:
        """Keep a message that comes out of the queue after its slot, if it stays here."""
        record = waiting_message(self._store, place, length)
        topic = "" if record is None else real_place(record.raw_properties)[0]
        if stays(topic):
            self._place([(place, length, topic)], now_ms)

    def _place(self, messages: list[tuple[int, int, str]], now_ms: int) -> None:
        """Put messages into the first slot that stays, or on the way there, where the wheel is too
        far behind: the next slots are taken, too."""
        state = self._state
        slot_ms = min(self._until_ms, state.read_ms + SLOTS // 2 * state.precision_ms)
        write_ms = max(state.floor(now_ms), slot_ms)
        self._intake.place_due(messages, Moment(now_ms, write_ms, slot_ms))

    async def _left(self, slot_ms: int, queue_offset: int) -> list[tuple[int, int, str]]:
        """Place, length and topic of the messages in this slot that came into the queue at
        `queue_offset` or later, or are not sent elsewhere."""
        state = self._state
        found: list[tuple[int, int, str]] = []
        due = ExpiringSlot(slot_ms, state.wheel.get(slot_ms).last)
        while due.prepare(state.log, self._store):  # noqa: ASYNC110
            await asyncio.sleep(0)
        for number in range(state.delivered if slot_ms == state.read_ms else 0, len(due)):
            place, length, _, _ = due.unit(number)
            record = waiting_message(self._store, place, length)
            if record is None:
                continue
            topic, _ = real_place(record.raw_properties)
            if record.queue_offset < queue_offset and not stays(topic):
                continue
            if not (due.recalls and due.is_recalled(number, recall_key(record))):
                found.append((place, length, topic))
        return found
