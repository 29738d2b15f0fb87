"""Counters of timer messages that only RocketMQ's metrics show."""

from collections import Counter
from collections.abc import Sequence

from ...protocol.histogram import Histogram

TOPICS_MAX = 50_000  # of each kind, as Java's metricsOtelCardinalityLimit
DELAY_BOUNDS_S = (60, 600, 3_600, 43_200, 86_400, 259_200)


class TimerMeters:
    """By topic: messages that came into the wheel, that came out of it, and how many seconds ahead
    of their time they came in."""

    def __init__(self) -> None:
        self.enqueued: dict[str, int] = {}
        self.dequeued: dict[str, int] = {}
        self.delays: dict[str, Histogram] = {}

    def came(self, topic: str, delays_ms: Sequence[int]) -> None:
        """Messages came into the wheel, so long ahead of their time."""
        _add(self.enqueued, topic, len(delays_ms))
        found = self.delays.get(topic)
        if found is None:
            if len(self.delays) >= TOPICS_MAX:
                return
            found = self.delays[topic] = Histogram(DELAY_BOUNDS_S)
        for seconds, number in Counter([max(0, ms) // 1_000 for ms in delays_ms]).items():
            found.record(seconds, number)

    def came_all(self, topics: Sequence[str], delays_ms: Sequence[int]) -> None:
        """The same for messages of several topics."""
        if topics.count(topics[0]) == len(topics):
            self.came(topics[0], delays_ms)
            return
        by_topic: dict[str, list[int]] = {}
        for topic, delay_ms in zip(topics, delays_ms, strict=True):
            by_topic.setdefault(topic, []).append(delay_ms)
        for topic, found in by_topic.items():
            self.came(topic, found)

    def left(self, topic: str) -> None:
        """A message came out of the wheel."""
        _add(self.dequeued, topic, 1)


def _add(table: dict[str, int], topic: str, number: int) -> None:
    if topic in table or len(table) < TOPICS_MAX:
        table[topic] = table.get(topic, 0) + number
