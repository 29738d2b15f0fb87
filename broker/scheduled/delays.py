"""Delay levels: messages with a delay wait in SCHEDULE_TOPIC_XXXX.

Level n has queue n-1. Its consume queue holds the time of delivery in the place of the tag hash, in
order, so one cursor per level is enough: read the next entry, deliver while it is due. The cursors
are in delayOffset.json, which never passes the part of the log that is on disk. A crash repeats the
deliveries since the last write of the file, which at-least-once allows.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...protocol.bodies.body import Body
from ...protocol.bodies.data_version import DataVersion
from ...protocol.message.record import decode_record
from ...protocol.message.tags import raw_tags_code
from ...protocol.wire import Int32, Int64
from ...store.base.errors import StoreError
from ...store.engine.messages import Message
from ...store.engine.store import MessageStore
from ...store.files import json_file
from ..runtime.persistent import PersistentTable
from ..runtime.stats import Stats
from ..runtime.throttle import FEW
from .real_destination import real_place

log = logging.getLogger(__name__)

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
SCHEDULE_GROUP = "SCHEDULE_CONSUMER"  # as RocketMQ's metrics name the reader of that topic
BYTES_PER_STEP = 256 << 10  # of large messages, in one step
NEVER_MS = (1 << 63) - 1
WARN_MS = 10_000  # between two words about the same trouble


class DelayOffsets(Body):
    """delayOffset.json: delay level to the next queue offset."""

    offset_table: dict[Int32, Int64] = {}
    data_version: DataVersion | None = None


@dataclass(slots=True)
class Due:
    """Messages of a level that are due, as they go to their topics. `before` has the offset of
    each, `offset` the one behind the last that was read; `size` is in bytes."""

    offset: int
    copies: list[Message] = field(default_factory=list)
    before: list[int] = field(default_factory=list)
    size: int = 0


class Delays(PersistentTable):
    """The cursors of all levels. `mark((topic, queue))` says that a message was delivered."""

    def __init__(
        self,
        path: Path,
        store: MessageStore,
        levels_ms: list[int],
        now_ms: Callable[[], int],
        mark: Callable[[tuple[str, int]], None],
        stats: Stats,
    ) -> None:
        super().__init__(path, now_ms)
        self._store = store
        self._mark = mark
        self._stats = stats
        self.levels_ms = levels_ms
        self.offsets: dict[int, int] = {}
        self._certain: dict[int, int] = {}  # offsets before which all is delivered, and on disk
        self._pending: tuple[int, dict[int, int]] | None = (
            None  # the same, valid once the log is synced up to the first value
        )
        self._next_level = 0  # levels are served one after the other
        self._warned_ms = 0
        self._queues = 0  # of SCHEDULE_TOPIC_XXXX, at the start

    def load(self) -> None:
        """Read the file; ValueError naming it when neither it nor its .bak can be read."""
        found = json_file.load(self.path, DelayOffsets.decode)
        if found is not None:
            self.offsets = dict(found.offset_table)
            self.version = found.data_version or DataVersion()
        self._certain = dict(self.offsets)
        self._queues = max(self._store.queues(SCHEDULE_TOPIC), default=-1) + 1

    def cut_at_log(self) -> None:
        """Set back levels that are beyond the end of their queue: messages that it lacks were not
        delivered."""
        for level, offset in self.offsets.items():
            end = self._store.next_offset(SCHEDULE_TOPIC, level - 1)
            if offset > end:
                log.warning("delay level %d was at %d, its queue ends at %d", level, offset, end)
                self.offsets[level] = end
                self.changed = True
        self.save()

    def follow(self, offsets: Mapping[int, int], version: DataVersion | None = None) -> None:
        """Take over how far a master has delivered, whose deliveries are in the log here; with its
        version where one is given."""
        if offsets != self.offsets or version not in (None, self.version):
            self.offsets = dict(offsets)
            self.version = version or self.version
            self.changed = True

    def text(self, *, standard: bool = False) -> Iterator[bytes]:
        """The table as its file has it, in one piece."""
        yield self.to_body().encode(standard=standard)

    def to_body(self) -> DelayOffsets:
        """The table as delayOffset.json and GET_ALL_DELAY_OFFSET have it."""
        return DelayOffsets(dict(self.offsets), self.version)

    def pieces(self) -> Iterator[bytes]:
        """The text for delayOffset.json: the progress that a power cut can't take back any more."""
        if not self.changed:
            return
        self._note_certain()
        self._note_certain()
        self.changed = self._certain != self.offsets
        if not self.follows:
            self.version = self.version.following(self._now_ms())
        yield DelayOffsets(dict(self._certain), self.version).encode(standard=True)

    def _note_certain(self) -> None:
        if self._pending is not None and self._pending[0] <= self._store.durable_end:
            self._certain, self._pending = self._pending[1], None
        # A log that refuses writes has dropped the last deliveries.
        is_kept = self._store.refusal is None
        if self._pending is None and self._certain != self.offsets and is_kept:
            self._pending = (self._store.log_end, dict(self.offsets))

    def deliver(self, now_ms: int, most: int = FEW) -> bool:
        """Move due messages to their topics: up to `most`, then requests are served.

        True when more are due.
        """
        self._note_certain()
        known, end_of = self._store.state.queues.simple, self._store.max_offset
        levels = self.levels
        for _ in range(levels):
            level = self._next_level + 1
            key = SCHEDULE_TOPIC, level - 1
            try:
                # Most brokers use few levels: no call for the others.
                has_more = key in known and self.offsets.get(level, 0) < end_of(*key)
                if has_more and self._deliver_level(level, now_ms, most):
                    return True
            except StoreError as wrong:
                self._warn(level, wrong, now_ms)
            self._next_level = level % levels
        return False

    @property
    def levels(self) -> int:
        """The number of levels that may have messages, including those taken out of
        messageDelayLevel."""
        return max(len(self.levels_ms), self._queues)

    def due(self, level: int, now_ms: int, most: int) -> Due:
        """Up to `most` messages of a level that are due. StoreError when they can't be read."""
        self._note_certain()
        found = Due(self.offsets.get(level, 0))
        self._gather(found, level, now_ms, most)
        return found

    def passed(self, level: int, offset: int) -> None:
        """Note that a level is delivered up to `offset`."""
        if offset > self.offsets.get(level, 0):
            self.offsets[level] = offset
            self.changed = True

    def _deliver_level(self, level: int, now_ms: int, most: int) -> bool:
        """Deliver a part of a level; False when nothing of it was due."""
        due = Due(self.offsets.get(level, 0))
        copies = due.copies
        wrong: StoreError | None = None
        try:
            self._gather(due, level, now_ms, most)
        finally:
            found = self._store.put_all(copies, are_moved=True)
            if found and isinstance(found[-1], StoreError):
                wrong = found[-1]
                del found[-1]
                due.offset = due.before[len(found)]
            if due.size:
                self.offsets[level] = due.offset
                self.changed = True
            self._stats.moved(copies, found, (SCHEDULE_TOPIC, level - 1, SCHEDULE_GROUP))
            for place in dict.fromkeys(copy[0] for copy in copies[: len(found)]):
                self._mark(place)
        if wrong is not None:
            raise wrong
        if due.size:
            self._next_level = level % self.levels
        return due.size > 0

    def _gather(self, due: Due, level: int, now_ms: int, most: int) -> None:
        """Read the next messages of a level that are due."""
        store, queue_id = self._store, level - 1
        if due.offset >= store.max_offset(SCHEDULE_TOPIC, queue_id):
            return
        due.offset = max(due.offset, store.min_offset(SCHEDULE_TOPIC, queue_id))
        # A clock that was set back must not keep a message longer than its level says.
        latest_ms = NEVER_MS
        if queue_id < len(self.levels_ms):
            latest_ms = now_ms + self.levels_ms[queue_id]
        for log_offset, length, due_ms in store.entries(SCHEDULE_TOPIC, queue_id, due.offset, most):
            if now_ms < due_ms <= latest_ms or due.size >= BYTES_PER_STEP:
                break
            copy = self._copy(log_offset)
            if copy is not None:
                due.copies.append(copy)
                due.before.append(due.offset)
            due.size += length
            due.offset += 1

    def _warn(self, level: int, wrong: StoreError, now_ms: int) -> None:
        """Say that a level can't go on, but not each time that it is tried."""
        if abs(now_ms - self._warned_ms) >= WARN_MS:
            self._warned_ms = now_ms
            log.warning("delay level %d waits: %s", level, wrong)

    def _copy(self, log_offset: int) -> Message | None:
        """The message to store at its destination; None when it can't be delivered."""
        data = self._store.message_at(log_offset)
        if data is None:
            log.warning("the delayed message at %d is not in the log any more", log_offset)
            return None
        message = decode_record(data)
        raw = message.raw_properties
        topic, queue_id = real_place(raw)
        if not topic or queue_id < 0:
            log.error("the delayed message at %d names no topic; it is left alone", log_offset)
            return None
        place = topic, self._store.queue_left(topic, queue_id)
        return Message(
            place,
            message.flag,
            message.sys_flag,
            message.born_ms,
            message.born_host,
            message.body,
            raw,
            raw_tags_code(raw),
            message.reconsume_times,
        )
