"""The timers of a slave that may act for its master.

Acting, it puts all messages of its queue into the wheel, as a master does. What is due is not
stored in its topic but offered: `offered` has the copies, and after `settle` the next ones come.
"""

from dataclasses import replace

from ...store.base.errors import StoreError
from ..replication.following_timers import FollowingTimers
from ..runtime.throttle import FEW
from ..scheduled.expiring_slot import ExpiringSlot
from ..scheduled.real_destination import real_place
from ..scheduled.timer_delivery import NEVER_IN_WHEEL
from ..scheduled.timers import Part, Timers


class OfferedError(StoreError):
    """A message must be taken before the queue goes on."""


class ActingTimers(FollowingTimers):
    """A slave's timers; `begin` and `end` say whether it acts for its master."""

    offered: Part | None = None  # due copies that another broker is to get
    _is_acting = False
    _late = -1  # the place of the message that is offered, where it came after its slot
    _taken_late = -1  # the place of the last one that was taken
    _sent: tuple[int, int] | None = None  # slot and queue offset where it ended acting

    def begin(self) -> None:
        """Go on where the master was."""
        self._sent = None
        # Where it never said: not at 0, since the slot of that time looks used in a new wheel.
        self.state.read_ms = self.state.read_ms or self.state.precision_ms
        self._is_acting = True

    def end(self) -> None:
        """Follow the master again."""
        if self._is_acting:
            self._sent = self.state.read_ms, self.state.queue_offset
        self._is_acting = False
        self.offered = self._due = None
        self._late = self._taken_late = -1
        self._queue_target = -1

    def follow(self, read_ms: int, queue_offset: int) -> None:
        if self._sent is not None and read_ms >= self._sent[0]:
            self._sent = None  # the master has taken it
        super().follow(read_ms, queue_offset)

    def check_point(self) -> bytes:
        """As a master's; while it acts, and until its master has taken that, what was sent.

        The check on the disk is older, and the master delivers again what its answer lacks.
        """
        sent = (self.state.read_ms, self.state.queue_offset) if self._is_acting else self._sent
        if sent is None:
            return super().check_point()
        read_ms, offset = sent
        check = replace(
            self.state.check, read_ms=read_ms, queue_offset=offset, master_queue_offset=offset
        )
        return check.numbers()

    def step(self, now_ms: int, most: int = FEW) -> bool:
        if not self._is_acting:
            return super().step(now_ms, most)
        if self.offered is not None:
            return False
        try:
            return Timers.step(self, now_ms, most)
        except OfferedError:
            return False

    def settle(self, done: int) -> None:
        """Other brokers have taken the first `done` of the offered copies."""
        part, due, late = self.offered, self._due, self._late
        self.offered, self._late = None, -1
        if late >= 0:
            self._taken_late = late if done else -1
            return
        if part is None or due is None:
            return
        self._settle(part, done)
        if self.state.delivered >= len(due):
            self._finish(due)
        self._note()

    def _queue_end(self) -> int:
        return Timers._queue_end(self) if self._is_acting else super()._queue_end()

    def _deliver(self, due: ExpiringSlot, now_ms: int, most: int) -> int:
        part = Part(self.state.delivered)
        self._gather(part, due, now_ms, most)
        if not part.copies:
            self._settle(part, 0)
            return self.state.delivered - part.first
        self.offered = part
        return most  # the slot ends in `settle`

    def _deliver_late(self, place: int, length: int, now_ms: int) -> None:
        """Offer a message that comes out of the queue after its slot. The queue goes on once it is
        taken: a master that returns relies on that."""
        if not self._is_acting or place == self._taken_late:
            return
        record = self._read(place, length)
        if record is None:
            return
        topic, queue_id = real_place(record.raw_properties)
        copy = self._delivery.copy(record, topic, queue_id, now_ms, NEVER_IN_WHEEL, rolled=False)
        if copy is not None:
            self.offered, self._late = Part(0, copies=[copy]), place
            raise OfferedError("a timer message waits for another broker")
