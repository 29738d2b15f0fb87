"""The timers of a slave: its wheel gets the messages of the master's wheel, and loses the ones that
the master has delivered. A slave delivers nothing.

So the files are ready at any time for a start as master, which continues at the old master's last
known progress. Messages that the old master delivered after that come twice, and none is missing.
"""

from ...store.timer.timer_log import QUEUE, WHEEL_TOPIC
from ..runtime.throttle import FEW
from ..scheduled.timers import Timers

SLOTS_PER_STEP = 64  # of the wheel, that the master has delivered


class FollowingTimers(Timers):
    """The same files and figures; `follow` takes the master's progress."""

    _master_ms: int | None = None  # the slot that the master delivers next; not known at first
    _master_offset = 0  # of the queue: the master's wheel has everything before it

    def follow(self, read_ms: int, queue_offset: int) -> None:
        """The master has delivered all slots before `read_ms`, and everything that it put into them
        of the messages before `queue_offset`. The deliveries must be in the log here."""
        self._master_ms = self.state.floor(read_ms)
        self._master_offset = queue_offset

    def step(self, now_ms: int, most: int = FEW) -> bool:
        """As that of a master; `most` is for deliveries, of which there are none."""
        state = self.state
        if self._master_ms is None:
            return False
        # Where the master's clock is behind ours, or ours was a master, too far ahead is not safe.
        state.read_ms = min(state.read_ms, self._master_ms)
        least = self._store.min_offset(WHEEL_TOPIC, QUEUE)
        state.queue_offset = max(state.queue_offset, least)  # a slave's log may begin anywhere
        try:
            self._put_slots()
            is_behind = self._drop_delivered(self._master_ms)
            write_ms = max(state.floor(now_ms), state.read_ms)
            return self._enqueue(now_ms, write_ms) or is_behind
        finally:
            if self._touched:
                self._note()

    def _queue_end(self) -> int:
        # Messages that the master's wheel lacks may be late there, and delivered at once.
        return min(super()._queue_end(), self._master_offset)

    def _deliver_late(self, place: int, length: int, now_ms: int) -> None:
        pass  # the master has

    def _drop_delivered(self, until_ms: int) -> bool:
        """Clear the slots before this one; True when there are more of them."""
        state = self.state
        for _ in range(SLOTS_PER_STEP):
            slot_ms = state.wheel.next_used(state.read_ms, until_ms)
            if slot_ms is None or slot_ms >= until_ms:
                if state.read_ms < until_ms:
                    state.read_ms, state.delivered, self._touched = until_ms, 0, True
                return False
            state.waiting -= state.wheel.get(slot_ms).number
            state.wheel.clear(slot_ms)
            state.read_ms, state.delivered = slot_ms + state.precision_ms, 0
            self._touched = True
        return True

    def _count(self, topic: str, number: int) -> None:
        pass  # the counts are the master's
