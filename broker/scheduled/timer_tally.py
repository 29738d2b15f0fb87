"""What the work of the timers counts, and what a step of it leaves to be noted at its end."""

from ...store.timer.timer_log import IS_RECALL
from .timer_counters import TimerMeters
from .timer_metrics import TimerMetrics
from .timer_state import TimerState


class TimerTally:
    """`metrics` gets the changes of the counts of topics; None where these counts come from
    elsewhere."""

    def __init__(self, state: TimerState, metrics: TimerMetrics | None) -> None:
        self.meters = TimerMeters()
        self.enqueued = 0  # messages since the start
        self.dequeued = 0
        self.touched = False  # there is progress to be noted
        self._state = state
        self._metrics = metrics
        self._counts: dict[str, int] = {}  # of topics, changed by the step at hand

    def count(self, topic: str, number: int) -> None:
        """Note a change of a topic's count, for the metrics to take over at the end of the step."""
        if number and self._metrics is not None:
            counts = self._counts
            counts[topic] = counts.get(topic, 0) + number

    def note(self) -> None:
        """Note the step's progress, and its changes of the counts."""
        self._state.note()
        self.touched = False
        if self._metrics is not None:
            for topic, number in self._counts.items():
                self._metrics.add(topic, number)
            self._counts.clear()


def unit_weight(magic: int) -> int:
    """The difference that a unit makes to the count of its slot."""
    return -1 if magic & IS_RECALL else 1
