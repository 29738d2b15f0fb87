"""Counts of waiting half messages, by the topic they are for: transactionMetrics.json; and of the
ways in which they ended since the start."""

from collections.abc import Callable, Iterator
from pathlib import Path

from ...protocol.bodies.body import Body, filled
from ...protocol.bodies.data_version import DataVersion
from ...protocol.codec import fastjson
from ...protocol.histogram import Histogram
from ...protocol.wire import Int64
from ...store.files import json_file
from ..runtime.persistent import PersistentTable

TOPICS_MAX = 100_000
LATENCY_BOUNDS_S = (5, 60, 600, 3_600, 43_200, 86_400)


class Waiting(Body):
    """Half messages of one topic; `time_stamp` in ms is of when they were counted."""

    count: Int64 = 0
    time_stamp: Int64 = 0


class TransactionMetrics(Body):
    """transactionMetrics.json."""

    transaction_count: dict[str, Waiting] = {}
    data_version: DataVersion | None = None


class TransactionCounts(PersistentTable):
    """The counts. `asked` are checks of producers, `given_up` messages that were never ended."""

    def __init__(self, path: Path, now_ms: Callable[[], int]) -> None:
        super().__init__(path, now_ms)
        self._waiting: dict[str, int] = {}
        self._commits: dict[str, int] = {}
        self._rollbacks: dict[str, int] = {}
        self._latencies: dict[str, Histogram] = {}
        self.asked = 0
        self.given_up = 0

    def load(self) -> None:
        """Read the file; ValueError naming it when neither it nor its .bak can be read."""
        found = json_file.load(self.path, TransactionMetrics.decode)
        if found is not None:
            self.version = found.data_version or DataVersion()
            self._waiting = {name: one.count for name, one in found.transaction_count.items()}

    def text(self, *, standard: bool = False) -> Iterator[bytes]:
        """The table as its file has it."""
        now_ms = self._now_ms()
        entries = (
            fastjson.dump({topic: Waiting(count, now_ms)}, ascii_only=standard)[1:-1]
            for topic, count in sorted(self._waiting.items())
        )
        body = TransactionMetrics({}, self.version)
        return filled(body, "transactionCount", entries, standard=standard)

    def begun(self, topic: str) -> None:
        """Count a half message for this topic."""
        self._add(topic, 1)

    def not_begun(self, topic: str) -> None:
        """Take back the count of a half message that could not be stored."""
        self._add(topic, -1)

    def committed(self, topic: str, born_ms: int) -> None:
        """Count a half message that became a message."""
        self._add(topic, -1)
        _count(self._commits, topic)
        seconds = max(0, self._now_ms() - born_ms) // 1_000
        found = self._latencies.get(topic)
        if found is None:
            if len(self._latencies) >= TOPICS_MAX:
                return
            found = self._latencies[topic] = Histogram(LATENCY_BOUNDS_S)
        found.record(seconds)

    def rolled_back(self, topic: str) -> None:
        """Count a half message that was taken back."""
        self._add(topic, -1)
        _count(self._rollbacks, topic)

    def gave_up(self, topic: str) -> None:
        """Count a half message that was checked too often or is too old."""
        self._add(topic, -1)
        self.given_up += 1

    def resumed(self, topic: str) -> None:
        """Count a half message that was given up and is checked again."""
        self._add(topic, 1)

    def waiting(self) -> Iterator[tuple[str, int]]:
        """Topics and how many half messages wait for each."""
        return iter(list(self._waiting.items()))

    def commits(self) -> Iterator[tuple[str, int]]:
        """Topics and commits since the start."""
        return iter(list(self._commits.items()))

    def latencies(self) -> Iterator[tuple[str, Histogram]]:
        """Topics and the seconds from a half message's birth to its commit."""
        return iter(list(self._latencies.items()))

    def rollbacks(self) -> Iterator[tuple[str, int]]:
        """Topics and rollbacks since the start."""
        return iter(list(self._rollbacks.items()))

    def _add(self, topic: str, change: int) -> None:
        found = self._waiting.get(topic)
        # What began before a crash may not have been counted: no number goes below nothing.
        count = max(0, change + (found or 0))
        if found is None and (not count or len(self._waiting) >= TOPICS_MAX):
            return
        self._waiting[topic] = count
        self.changed = True


def _count(table: dict[str, int], topic: str) -> None:
    if topic in table or len(table) < TOPICS_MAX:
        table[topic] = table.get(topic, 0) + 1
