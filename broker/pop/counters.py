"""Counters of pop that only RocketMQ's metrics show."""

from collections.abc import Hashable
from typing import TypeVar

from ...protocol.histogram import Histogram

SERIES_MAX = 50_000  # of each kind, as Java's metricsOtelCardinalityLimit
SCAN_BOUNDS_MS = (1, 10, 100, 1_000, 2_000, 3_000)
# The values of the labels revive_message_type and put_status.
CHECK_POINT, ACK = "CK", "ACK"
PUT_OK = "PUT_OK"

Key = TypeVar("Key", bound=Hashable)


class PopMeters:
    """`scans` are the times of the sweeps through the check points in memory, in ms."""

    def __init__(self) -> None:
        self.scans = Histogram(SCAN_BOUNDS_MS)
        # Group, topic, type: written to the revive topic. With the queue in the third place: read.
        self.revive_in: dict[tuple[str, str, str], int] = {}
        self.revive_out: dict[tuple[str, str, int, str], int] = {}
        self.retries: dict[tuple[str, str], int] = {}  # group, topic
        self._in_flight: dict[tuple[str, str, int], int] = {}

    def wrote(self, group: str, topic: str, kind: str) -> None:
        """Count an entry written to the revive topic."""
        _add(self.revive_in, (group, topic, kind))

    def read(self, group: str, topic: str, queue_id: int, kind: str) -> None:
        """Count an entry read from a queue of the revive topic."""
        _add(self.revive_out, (group, topic, queue_id, kind))

    def retried(self, group: str, topic: str) -> None:
        """Count a message of the topic that was put into the retry topic."""
        _add(self.retries, (group, topic))

    def popped(self, topic: str, group: str, queue_id: int, messages: int) -> None:
        """Count messages that go to a consumer."""
        _add(self._in_flight, (topic, group, queue_id), messages)

    def finished(self, topic: str, group: str, queue_id: int, messages: int) -> int:
        """Count messages that were acknowledged, or are to be popped again. Returns how many are
        left."""
        key = (topic, group, queue_id)
        left = max(0, self._in_flight.get(key, 0) - messages)
        if left > 0:
            self._in_flight[key] = left
        else:
            self._in_flight.pop(key, None)
        return left

    def in_flight(self, topic: str, group: str, queue_id: int) -> int:
        """The number of messages of a queue that were popped since the start and are not
        finished."""
        return self._in_flight.get((topic, group, queue_id), 0)

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        """Forget the messages in flight of a queue in which the group's offset was reset."""
        self._in_flight.pop((topic, group, queue_id), None)

    def forget_topic(self, topic: str) -> None:
        """Forget the messages in flight of a deleted topic."""
        for key in [key for key in self._in_flight if key[0] == topic]:
            del self._in_flight[key]

    def forget_group(self, group: str) -> None:
        """Forget the messages in flight of a deleted group."""
        for key in [key for key in self._in_flight if key[1] == group]:
            del self._in_flight[key]


def _add(table: dict[Key, int], key: Key, number: int = 1) -> None:
    found = table.get(key)
    if found is not None:
        table[key] = found + number
    elif len(table) < SERIES_MAX:
        table[key] = number
