"""The counts of the timers' work, and the changes that a step leaves to be noted at its end."""

from collections import Counter
from collections.abc import Sequence

from ...protocol.histogram import Histogram
from ...store.timer.timer_log import IS_RECALL
from .timer_metrics import TimerMetrics
from .timer_state import TimerState

TOPICS_MAX = 50_000  # of each kind, as Java's metricsOtelCardinalityLimit
DELAY_BOUNDS_S = (60, 600, 3_600, 43_200, 86_400, 259_200)


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


class TimerMeters:
    """Figures that only RocketMQ's metrics show. By topic: messages that came into the wheel, that
    came out of it, and how many seconds ahead of their time they came in."""

    def __init__(self) -> None:
        self.enqueued: dict[str, int] = {}
        self.dequeued: dict[str, int] = {}
        self.delays: dict[str, Histogram] = {}

    def came(self, topic: str, delays_ms: Sequence[int]) -> None:
        """Count messages that came into the wheel, so many ms ahead of their time."""
        _add(self.enqueued, topic, len(delays_ms))
        found = self.delays.get(topic)
        if found is None:
            if len(self.delays) >= TOPICS_MAX:
                return
            found = self.delays[topic] = Histogram(DELAY_BOUNDS_S)
        for seconds, number in Counter([max(0, ms) // 1_000 for ms in delays_ms]).items():
            found.record(seconds, number)

    def came_all(self, topics: Sequence[str], delays_ms: Sequence[int]) -> None:
        """Count messages of several topics that came into the wheel."""
        if topics.count(topics[0]) == len(topics):
            self.came(topics[0], delays_ms)
            return
        by_topic: dict[str, list[int]] = {}
        for topic, delay_ms in zip(topics, delays_ms, strict=True):
            by_topic.setdefault(topic, []).append(delay_ms)
        for topic, found in by_topic.items():
            self.came(topic, found)

    def left(self, topic: str) -> None:
        """Count a message that came out of the wheel."""
        _add(self.dequeued, topic, 1)


def unit_weight(magic: int) -> int:
    """The difference that a unit makes to the count of its slot."""
    return -1 if magic & IS_RECALL else 1


def _add(table: dict[str, int], topic: str, number: int) -> None:
    if topic in table or len(table) < TOPICS_MAX:
        table[topic] = table.get(topic, 0) + number
