"""Timer messages: delivered at a time of their own, to a tick of the clock, days ahead.

Such a message is stored in the topic of the wheel. From its queue it comes into the timer wheel
(`wheel_intake`). When its tick is over, never before, it is stored once more, in its own topic
(`due_slots`). A time beyond the wheel's reach goes around again. All of it happens in short steps
between which requests are served, and each step notes how far it came (`timer_state`). What a step
does is the `TimerWork` of the broker's role: a master delivers (`delivering`), a slave follows.
"""

from typing import NamedTuple, Protocol

from ...store.timer.timer_check import TimerCheck
from ...store.timer.timer_log import QUEUE, WHEEL_TOPIC
from ..runtime.throttle import FEW
from .timer_parts import TimerParts
from .timer_state import TimerState

# The values of a broker without timers in GET_BROKER_RUNTIME_INFO.
NO_FIGURES: dict[str, object] = {
    "timerReadBehind": 0,
    "timerOffsetBehind": 0,
    "timerCongestNum": 0,
    "timerEnqueueTps": 0.0,
    "timerDequeueTps": 0.0,
}


class TimerWork(Protocol):
    """The work of timers, chosen by the role of their broker."""

    state: TimerState

    def step(self, now_ms: int, most: int) -> bool:
        """One short part of the work, with up to `most` deliveries; True when there is more."""

    def check(self) -> TimerCheck:
        """The progress that others are told: what the disk has."""
        return self.state.check


class TimerLag(NamedTuple):
    """Messages that are not in the wheel yet and the age of the first; messages in the wheel, and
    how late those are that are due. Times in ms."""

    enqueue: int
    enqueue_ms: int
    dequeue: int
    dequeue_ms: int


class Timers:
    """The timers of a broker, with the work of its role. `on_timers_stored` gets the messages that
    their sends report. Times in ms."""

    def __init__(self, parts: TimerParts, work: TimerWork) -> None:
        self.state = parts.state
        self.metrics = parts.metrics
        self.meters = parts.tally.meters
        self.on_timers_stored = parts.intake.tell
        self.work = work
        self._tally = parts.tally
        self._store = parts.store
        self._sampled = (0, 0, 0)
        self._rates = (0.0, 0.0)

    @property
    def enqueued(self) -> int:
        """Messages that came out of the queue since the start."""
        return self._tally.enqueued

    @property
    def dequeued(self) -> int:
        """Messages that were delivered since the start."""
        return self._tally.dequeued

    def step(self, now_ms: int, most: int = FEW) -> bool:
        """One short part of the work; True when there is more that can be done at once.

        Up to `most` messages are delivered.

        StoreError when the disk takes nothing: the next call tries the same work again.
        """
        return self.work.step(now_ms, most)

    def sample(self, now_ms: int) -> None:
        """Work the rates out since the last time."""
        counts = (now_ms, self.enqueued, self.dequeued)
        elapsed_ms = now_ms - self._sampled[0]
        if elapsed_ms > 0:
            rates = [
                (now - last) * 1_000 / elapsed_ms
                for now, last in zip(counts, self._sampled, strict=True)
            ]
            self._rates = (round(rates[1], 1), round(rates[2], 1))
            self._sampled = counts

    def check_point(self) -> bytes:
        """The 56 bytes that config/timercheck begins with."""
        return self.work.check().numbers()

    def figures(self, now_ms: int) -> dict[str, object]:
        """Values for runtime info: seconds behind, messages behind, waiting, and the rates."""
        state = self.state
        end = self._store.max_offset(WHEEL_TOPIC, QUEUE)
        values = (
            max(0, now_ms - state.read_ms) // 1_000,
            max(0, end - state.queue_offset),
            max(0, state.waiting - state.delivered),
            *self._rates,
        )
        return dict(zip(NO_FIGURES, values, strict=True))

    def lag(self, now_ms: int) -> TimerLag:
        """The lag of the timers in the figures of RocketMQ's metrics."""
        state = self.state
        end = self._store.max_offset(WHEEL_TOPIC, QUEUE)
        behind = max(0, end - state.queue_offset)
        first_ms = self._store.store_ms_at(WHEEL_TOPIC, QUEUE, state.queue_offset) if behind else 0
        return TimerLag(
            behind,
            max(0, now_ms - first_ms) if first_ms > 0 else 0,
            max(0, state.waiting - state.delivered),
            max(0, state.floor(now_ms) - state.read_ms),
        )
