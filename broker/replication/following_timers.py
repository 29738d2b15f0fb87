"""The timers of a slave: its wheel gets the messages of the master's wheel, and loses the ones that
the master has delivered. A slave delivers nothing.

So the files are ready at any time for a start as master, which continues at the old master's last
known progress. Messages that the old master delivered after that come twice, and none is missing.
"""

from typing import Protocol

from ...store.timer.timer_log import QUEUE, WHEEL_TOPIC
from ..scheduled.timer_metrics import TimerMetrics
from ..scheduled.timer_parts import TimerParts
from ..scheduled.timer_state import TimerState
from ..scheduled.timers import TimerWork
from ..scheduled.wheel_intake import Late, Moment

SLOTS_PER_STEP = 64  # of the wheel, that the master has delivered


class Follower(Protocol):
    """Timers that the master's progress is told to."""

    state: TimerState
    metrics: TimerMetrics

    def follow(self, read_ms: int, queue_offset: int) -> None:
        """The master has delivered all slots before `read_ms`, and everything that it put into them
        of the messages before `queue_offset`. The deliveries must be in the log here."""


def ignore_late(place: int, length: int, now_ms: int) -> None:
    """Leave a message that comes out of the queue after its slot: the master delivers it."""


class FollowingWork(TimerWork):
    """The work of a slave's timers: `follow` takes the master's progress, and `step` goes as far.

    `late` gets messages that come out of the queue after their slot.
    """

    def __init__(self, parts: TimerParts, late: Late = ignore_late) -> None:
        self.state = parts.state
        self.metrics = parts.metrics
        self._store = parts.store
        self._tally = parts.tally
        self._intake = parts.intake
        self._late = late
        self._master_ms: int | None = None  # the slot that the master delivers next, once known
        self._master_offset = 0  # of the queue: the master's wheel has everything before it

    def follow(self, read_ms: int, queue_offset: int) -> None:
        """Take over the master's progress: it has delivered all slots before `read_ms`, and
        everything that it put into them of the messages before `queue_offset`. The deliveries must
        be in the log here."""
        self._master_ms = self.state.floor(read_ms)
        self._master_offset = queue_offset

    def step(self, now_ms: int, most: int) -> bool:
        """One short part of the work; True when there is more. `most` is for deliveries, of which
        there are none."""
        state, intake = self.state, self._intake
        if self._master_ms is None:
            return False
        # Where the master's clock is behind ours, or ours was a master, too far ahead is not safe.
        state.read_ms = min(state.read_ms, self._master_ms)
        least = self._store.min_offset(WHEEL_TOPIC, QUEUE)
        state.queue_offset = max(state.queue_offset, least)  # a slave's log may begin anywhere
        try:
            intake.put_slots()
            is_behind = self._drop_delivered(self._master_ms)
            write_ms = max(state.floor(now_ms), state.read_ms)
            # Messages that the master's wheel lacks may be late there, and delivered at once.
            end = min(self._store.max_offset(WHEEL_TOPIC, QUEUE), self._master_offset)
            if state.queue_offset >= end:
                return is_behind
            moment = Moment(now_ms, write_ms, state.read_ms)
            return intake.fill(moment, end, self._late) or is_behind
        finally:
            if self._tally.touched:
                self._tally.note()

    def _drop_delivered(self, until_ms: int) -> bool:
        """Clear the slots before this one; True when there are more of them."""
        state, tally = self.state, self._tally
        for _ in range(SLOTS_PER_STEP):
            slot_ms = state.wheel.next_used(state.read_ms, until_ms)
            if slot_ms is None or slot_ms >= until_ms:
                if state.read_ms < until_ms:
                    state.read_ms, state.delivered, tally.touched = until_ms, 0, True
                return False
            state.waiting -= state.wheel.get(slot_ms).number
            state.wheel.clear(slot_ms)
            state.read_ms, state.delivered = slot_ms + state.precision_ms, 0
            tally.touched = True
        return True
