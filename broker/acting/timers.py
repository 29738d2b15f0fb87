"""The timers of a slave that may act for its master.

Acting, it puts all messages of its queue into the wheel, as a master does. What is due is not
stored in its topic but offered: `offered` has the copies, and after `settle` the next ones come.
"""

from ...protocol.message import properties
from ...store.timer.timer_log import IS_TIMER
from ..replication.following_timers import FollowingTimers
from ..runtime.throttle import FEW
from ..scheduled.expiring_slot import ExpiringSlot
from ..scheduled.real_destination import real_place
from ..scheduled.timer_delivery import RECALL_KEY
from ..scheduled.timers import Part, Timers


class ActingTimers(FollowingTimers):
    """A slave's timers; `begin` and `end` say whether it acts for its master."""

    offered: Part | None = None  # due copies that another broker is to get
    _is_acting = False

    def begin(self) -> None:
        """Go on where the master was."""
        # Where it never said: not at 0, since the slot of that time looks used in a new wheel.
        self.state.read_ms = self.state.read_ms or self.state.precision_ms
        self._is_acting = True

    def end(self) -> None:
        """Follow the master again."""
        self._is_acting = False
        self.offered = self._due = None
        self._queue_target = -1

    def step(self, now_ms: int, most: int = FEW) -> bool:
        if not self._is_acting:
            return super().step(now_ms, most)
        if self.offered is not None:
            return False
        return Timers.step(self, now_ms, most)

    def settle(self, done: int) -> None:
        """Other brokers have taken the first `done` of the offered copies."""
        part, due = self.offered, self._due
        self.offered = None
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
        record = self._read(place, length) if self._is_acting else None
        if record is None or properties.find(record.raw_properties, RECALL_KEY) is not None:
            return
        if not self.state.log.has_room:
            self.state.log.roll()
        topic, _ = real_place(record.raw_properties)
        self._place(place, length, 0, topic, IS_TIMER, self.state.floor(now_ms))
