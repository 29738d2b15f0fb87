"""The timers of a slave that may act for its master.

Acting, it puts all messages of its queue into the wheel, as a master does. What is due is not
stored in its topic but offered: `Offers.part` has the copies, and after `Offers.confirm` the next
ones come.
"""

from collections.abc import Callable
from dataclasses import replace

from ...store.base.errors import StoreError
from ...store.timer.timer_check import TimerCheck
from ..replication.following_timers import FollowingWork
from ..runtime.stats import Stats
from ..scheduled.delivering import DeliveringWork
from ..scheduled.due_slots import DueSlots, Part
from ..scheduled.expiring_slot import ExpiringSlot
from ..scheduled.timer_delivery import TimerDelivery
from ..scheduled.timer_parts import TimerParts


class OfferedError(StoreError):
    """A message must be taken before the queue goes on."""


class ActingWork:
    """The work of a slave's timers; `begin` and `end` say whether it acts for its master.

    It follows the master's timers, or delivers into `offers`.
    """

    def __init__(
        self, parts: TimerParts, mark: Callable[[tuple[str, int]], None], stats: Stats
    ) -> None:
        self.state = parts.state
        self.metrics = parts.metrics
        delivery = TimerDelivery(parts.store, mark, stats)
        self._slots = DueSlots(parts.store, parts.state, parts.tally, delivery)
        self.offers = Offers(parts, self._slots, delivery)
        self._delivering = DeliveringWork(parts, self._slots, self.offers)
        self._following = FollowingWork(parts)
        self._is_acting = False
        self._sent: tuple[int, int] | None = None  # slot and queue offset where it ended acting

    def begin(self) -> None:
        """Go on where the master was."""
        self._sent = None
        # Where it never said: not at 0, since the slot of that time seems used in a new wheel.
        self.state.read_ms = self.state.read_ms or self.state.precision_ms
        self._is_acting = True

    def end(self) -> None:
        """Follow the master again."""
        if self._is_acting:
            self._sent = self.state.read_ms, self.state.queue_offset
        self._is_acting = False
        self.offers.withdraw()
        self._slots.drop()

    def follow(self, read_ms: int, queue_offset: int) -> None:
        """Take over the master's progress: it has delivered all slots before `read_ms`, of the
        messages before `queue_offset`. It may have taken over what was sent here."""
        if self._sent is not None and read_ms >= self._sent[0]:
            self._sent = None
        self._following.follow(read_ms, queue_offset)

    def check(self) -> TimerCheck:
        """The check of a master; while this broker acts, and until its master has taken it over,
        the progress of what was sent.

        The check on the disk is older, and the master delivers again what its answer lacks.
        """
        check = self.state.check
        sent = (self.state.read_ms, self.state.queue_offset) if self._is_acting else self._sent
        if sent is None:
            return check
        read_ms, offset = sent
        return replace(check, read_ms=read_ms, queue_offset=offset, master_queue_offset=offset)

    def step(self, now_ms: int, most: int) -> bool:
        """One short part of the work; True when there is more. Acting, it has no more while copies
        are offered."""
        if not self._is_acting:
            return self._following.step(now_ms, most)
        if self.offers.part is not None:
            return False
        try:
            return self._delivering.step(now_ms, most)
        except OfferedError:
            return False


class Offers:
    """Due copies that another broker is to get: `part` has them."""

    def __init__(self, parts: TimerParts, slots: DueSlots, delivery: TimerDelivery) -> None:
        self.part: Part | None = None
        self._state = parts.state
        self._tally = parts.tally
        self._slots = slots
        self._delivery = delivery
        self._late = -1  # the place of the message that is offered, where it came after its slot
        self._taken_late = -1  # the place of the last one that was taken

    def confirm(self, done: int) -> None:
        """Note that other brokers have stored the first `done` of the offered copies."""
        part, due, late = self.part, self._slots.due, self._late
        self.part, self._late = None, -1
        if late >= 0:
            self._taken_late = late if done else -1
            return
        if part is None or due is None:
            return
        self._slots.confirm(part, done)
        if self._state.delivered >= len(due):
            self._slots.finish(due)
        self._tally.note()

    def withdraw(self) -> None:
        """Offer nothing any more."""
        self.part = None
        self._late = self._taken_late = -1

    def deliver(self, due: ExpiringSlot, now_ms: int, most: int) -> int:
        """Offer the next messages of a slot; returns how many of its units are done with, or `most`
        once there are copies: the slot ends in `confirm`."""
        part = Part(self._state.delivered)
        self._slots.gather(part, due, now_ms, most)
        if not part.copies:
            self._slots.confirm(part, 0)
            return self._state.delivered - part.first
        self.part = part
        return most

    def deliver_late(self, place: int, length: int, now_ms: int) -> None:
        """Offer a message that comes out of the queue after its slot. The queue goes on once it is
        taken: a master that returns relies on that."""
        if place == self._taken_late:
            return
        copy = self._delivery.late_copy(place, length, now_ms)
        if copy is not None:
            self.part, self._late = Part(0, copies=[copy]), place
            raise OfferedError("a timer message waits for another broker")
