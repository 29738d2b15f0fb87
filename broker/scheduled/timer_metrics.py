"""Counts of the waiting timer messages of each topic: the file config/timermetrics."""

from collections.abc import Callable, Iterator
from itertools import islice
from operator import itemgetter
from pathlib import Path

from ...protocol.bodies.body import Body, filled
from ...protocol.bodies.data_version import DataVersion
from ...protocol.codec import fastjson
from ...protocol.wire import Int64
from ...store.files import json_file
from ..runtime.persistent import PersistentTable

TOPICS_MAX = 100_000  # with a count of their own


class Metric(Body):
    """The count of one topic, and when it last changed, ms."""

    count: Int64 = 0
    time_stamp: Int64 = 0


class TimerMetricsTable(Body):
    """The file, and the body of GET_TIMER_METRICS (61)."""

    data_version: DataVersion | None = None
    timing_count: dict[str, Metric] = {}


class TimerMetrics(PersistentTable):
    """The counts by topic. They are figures for people: nothing depends on them."""

    def __init__(self, path: Path, now_ms: Callable[[], int]) -> None:
        super().__init__(path, now_ms)
        self.counts: dict[str, Metric] = {}

    def load(self) -> None:
        """Read the file; ValueError naming it when neither it nor its .bak can be read."""
        found = json_file.load(self.path, TimerMetricsTable.decode)
        if found is not None:
            self.counts = dict(found.timing_count)
            self.version = found.data_version or DataVersion()

    def add(self, topic: str, number: int) -> None:
        """Add to the number of waiting messages of a topic."""
        metric = self.counts.get(topic)
        if metric is None:
            if len(self.counts) >= TOPICS_MAX:
                return
            metric = self.counts[topic] = Metric()
        metric.count += number
        metric.time_stamp = self._now_ms()
        self.changed = True

    def follow(self, counts: dict[str, Metric]) -> None:
        """Have a master's counts, up to the limit."""
        if counts != self.counts:
            self.counts = dict(islice(counts.items(), TOPICS_MAX))
            self.changed = True

    def text(self, *, standard: bool = False) -> Iterator[bytes]:
        """The table as its file and the answer to 61 have it."""
        entries = (
            fastjson.dump({topic: metric}, ascii_only=standard)[1:-1]
            for topic, metric in sorted(self.counts.items(), key=itemgetter(0))
        )
        return filled(TimerMetricsTable(self.version), "timingCount", entries, standard=standard)
