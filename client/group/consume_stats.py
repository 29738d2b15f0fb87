"""How fast a group consumes: RocketMQ's ConsumeStatus by topic.

Counting is an addition to a slot; rates come from samples of the counters, taken every few seconds
and kept for a minute, and for an hour in steps of ten minutes.
"""

from collections import deque
from dataclasses import dataclass, field, replace

from ...protocol.bodies.running import ConsumeStatus

MINUTE_SECONDS = 60.0
HOUR_SECONDS = 3600.0
HOUR_STEP_SECONDS = 600.0


@dataclass(slots=True, eq=False)
class TopicStats:
    """Counters of one topic, only ever growing. Times in seconds."""

    ok: int = 0
    failed: int = 0
    consumed: int = 0  # calls of the listener
    consume_seconds: float = 0.0
    pulled: int = 0  # messages
    pulls: int = 0
    pull_seconds: float = 0.0


@dataclass(slots=True)
class _History:
    minute: deque[tuple[float, TopicStats]] = field(default_factory=deque)
    hour: deque[tuple[float, TopicStats]] = field(default_factory=deque)


class ConsumeStats:
    """The counters of a group's topics and their rates; times are the caller's, in seconds."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicStats] = {}
        self._history: dict[str, _History] = {}

    def of(self, topic: str) -> TopicStats:
        """The counters of a topic."""
        return self._topics.setdefault(topic, TopicStats())

    def sample(self, now: float) -> None:
        """Remember the counters as they are, once every few seconds."""
        for topic, stats in self._topics.items():
            history = self._history.setdefault(topic, _History())
            history.minute.append((now, replace(stats)))
            while now - history.minute[0][0] > MINUTE_SECONDS:
                history.minute.popleft()
            if not history.hour or now - history.hour[-1][0] >= HOUR_STEP_SECONDS:
                history.hour.append((now, replace(stats)))
            while now - history.hour[0][0] > HOUR_SECONDS:
                history.hour.popleft()

    def status(self, topic: str, now: float) -> ConsumeStatus:
        """Rates over the last minute, failures over the last hour; times in ms."""
        stats = self.of(topic)
        history = self._history.get(topic, _History())
        began, before = history.minute[0] if history.minute else (now, TopicStats())
        seconds = max(now - began, 1.0)
        long_ago = history.hour[0][1] if history.hour else TopicStats()
        return ConsumeStatus(
            pull_rt=_average(stats.pull_seconds - before.pull_seconds, stats.pulls - before.pulls),
            pull_tps=(stats.pulled - before.pulled) / seconds,
            consume_rt=_average(
                stats.consume_seconds - before.consume_seconds, stats.consumed - before.consumed
            ),
            consume_ok_tps=(stats.ok - before.ok) / seconds,
            consume_failed_tps=(stats.failed - before.failed) / seconds,
            consume_failed_msgs=stats.failed - long_ago.failed,
        )


def _average(seconds: float, count: int) -> float:
    return 1000 * seconds / count if count else 0.0
