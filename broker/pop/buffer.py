"""Check points in memory, and the group offsets that depend on them.

A pop leaves a check point here. Most are acknowledged within moments, and then nothing is written
at all. One that stays too long, or whose messages will be visible again soon, goes into the revive
topic (`revive_log`); from then on its acknowledgements go there, too.

The check points of one queue and group stand in a line, in the order of their pops. The group's
offset passes one when it is acknowledged, or in the log and on disk. So the check points that a
crash takes from memory are popped again: messages may come twice, but none is lost.
"""

import heapq
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...protocol.errors import Refusal
from ...store.base.errors import StoreError
from ...store.engine.store import MessageStore
from ..groups.offsets import Offsets
from ..settings.config import BrokerConfig
from .checkpoints import CheckPoint, CheckPointKey
from .revive_log import PopLog

log = logging.getLogger(__name__)

GroupQueueKey = tuple[str, str, int]  # topic, group, queue id
HEAP_ENTRIES_MAX = 3  # for each check point in memory, before finished ones are swept out


class Line:
    """The check points of one queue and group. `base` is the group's offset as it was set here."""

    __slots__ = ("base", "points")

    def __init__(self, base: int) -> None:
        self.base = base
        self.points: deque[CheckPoint] = deque()


@dataclass(slots=True, eq=False)
class PopBuffer:
    """The check points in memory. `count` is how many of them are not in the log."""

    _config: BrokerConfig
    _store: MessageStore
    _offsets: Offsets
    _log: PopLog
    _points: dict[CheckPointKey, CheckPoint] = field(init=False, default_factory=dict)
    _lines: dict[GroupQueueKey, Line] = field(init=False, default_factory=dict)
    _due: list[tuple[int, int, CheckPoint]] = field(
        init=False, default_factory=list
    )  # when each must be in the log
    _number: int = field(init=False, default=0)

    @property
    def count(self) -> int:
        return len(self._points)

    def next_offset(self, topic: str, group: str, queue_id: int) -> int:
        """The offset at which the group's next pop of this queue begins; -1 when it never read it.

        If another request has set the group's offset since, the line is dropped: its messages
        still come again unless they are acknowledged.
        """
        offset = self._offsets.get(topic, group, queue_id)
        line = self._lines.get((topic, group, queue_id))
        if line is None:
            return offset
        if offset != line.base:
            self.clear(topic, group, queue_id)
            return offset
        return line.points[-1].next_offset

    @property
    def in_lines(self) -> int:
        """Check points that a group's offset has not passed."""
        return sum(len(line.points) for line in self._lines.values())

    def latest(self, topic: str, group: str, queue_id: int) -> int:
        """The offset at which the group's next pop begins if its check points are still here; -1 if
        not."""
        line = self._lines.get((topic, group, queue_id))
        if line is None or line.base != self._offsets.get(topic, group, queue_id):
            return -1
        return line.points[-1].next_offset

    def add(self, point: CheckPoint, now_ms: int) -> bool:
        """Keep a new check point; False when there is one like it. StoreError when it can't be.

        `point.next_offset` says where the next pop begins.
        """
        key = point.key
        if key in self._points:
            return False
        config = self._config
        left_ms = point.revive_ms - now_ms - config.pop_ck_stay_buffer_time_out
        line_key = (point.topic, point.group, point.queue_id)
        line = self._lines.get(line_key) or Line(self._offsets.get(*line_key))
        is_long = len(line.points) >= config.pop_ck_offset_max_queue_size
        is_full = len(self._points) >= config.pop_ck_max_buffer_size
        if config.enable_pop_buffer_merge and left_ms > 0 and not is_long and not is_full:
            self._points[key] = point
            self._number += 1
            due_ms = now_ms + min(config.pop_ck_stay_buffer_time, left_ms)
            heapq.heappush(self._due, (due_ms, self._number, point))
        else:
            self._write(point)
        if is_long and not line.points[0].is_acked:
            self._write(line.points[0])  # the line gets shorter from here
        line.points.append(point)
        self._lines[line_key] = line
        return True

    def skip(self, topic: str, group: str, queue_id: int, start: int, end: int) -> None:
        """Let the group's offset pass from `start` to `end`, where no message concerns the
        group."""
        if (topic, group, queue_id) not in self._lines:
            self._offsets.commit(topic, group, queue_id, end)
            return
        last = self._lines[topic, group, queue_id].points[-1]
        if last.offsets:
            point = CheckPoint(topic, group, queue_id, start, 0, 0, 0, (), end)
            self._lines[topic, group, queue_id].points.append(point)
        else:
            last.next_offset = end

    def find(self, key: CheckPointKey) -> CheckPoint | None:
        """The check point, None when it isn't in memory."""
        return self._points.get(key)

    def ack(self, key: CheckPointKey, offsets: Sequence[int], log_end: int = 0) -> bool:
        """Note acknowledgements; False when the check point isn't in memory.

        The group's offset waits until the log is on disk up to `log_end`.
        """
        point = self._points.get(key)
        if point is None:
            return False
        for offset in offsets:
            point.ack(offset)
        point.log_end = max(point.log_end, log_end)
        if point.is_acked:
            del self._points[key]
            self._advance((point.topic, point.group, point.queue_id))
        return True

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        """Give up the line of a queue and group; its check points stay."""
        self._lines.pop((topic, group, queue_id), None)

    def sweep(self, now_ms: int) -> None:
        """Write the check points that have been here too long, and `advance`."""
        due = self._due
        try:
            while due and (due[0][2].is_acked or due[0][0] <= now_ms):
                if not due[0][2].is_acked:
                    self._write(due[0][2])
                heapq.heappop(due)
        except (StoreError, Refusal) as wrong:
            log.warning("%d check points of pop stay in memory: %s", self.count, wrong)
        if len(due) > HEAP_ENTRIES_MAX * (self.count + 1):
            due[:] = [entry for entry in due if not entry[2].is_acked]
            heapq.heapify(due)
        self.advance()

    def write_all(self) -> None:
        """Write all check points that are only in memory. StoreError when the disk is full."""
        for point in list(self._points.values()):
            self._write(point)

    def advance(self) -> None:
        """Let the groups' offsets pass the finished check points."""
        for key in list(self._lines):
            self._advance(key)

    def _write(self, point: CheckPoint) -> None:
        if point.is_stored:
            return
        point.log_end = max(point.log_end, self._log.check_point(point))
        point.is_stored = True
        self._points.pop(point.key, None)

    def _advance(self, key: GroupQueueKey) -> None:
        """Move the group's offset behind the check points at the head that are over."""
        line = self._lines.get(key)
        if line is None:
            return
        points, base = line.points, line.base
        if self._offsets.get(*key) != base:
            del self._lines[key]
            return
        durable = self._store.durable_end
        while points and (points[0].is_acked or points[0].is_stored):
            if points[0].log_end > durable:
                break
            line.base = points.popleft().next_offset
        if line.base != base:
            self._offsets.commit(*key, line.base)
        if not points:
            del self._lines[key]
