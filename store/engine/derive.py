"""Queues and index made from the log: what recovery does for every message behind a safe place.

Dispatching a message that its queue has already changes nothing, so a range can be dispatched again
at any time. Queue offsets stand in the records; the log has the last word on them.
"""

import logging
from collections.abc import Mapping

from ...protocol.message.properties import INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET, find
from ...protocol.message.record import INNER_BATCH, TRANSACTION_COMMIT, TRANSACTION_MASK
from ...protocol.message.tags import raw_tags_code
from ...protocol.names import LMQ_PREFIX
from ..base.settings import StoreSettings
from ..index.index import Index, is_indexed
from ..log.run import Passed
from ..queues.consume_queue import EXT_ADDRESS_MAX, FILLER, ConsumeQueue, Entry
from ..queues.queues import Queues, is_legal
from .light_queues import has_light
from .writing import due_ms

log = logging.getLogger(__name__)

FILLERS_MAX = 20_000_000  # entries that may be missing in a queue, such as of a lost log file
PENDING_KEYS_MAX = 50_000  # messages whose keys are gathered before they go into the index


class QueueGap(Exception):
    """A queue lacks entries before a message: it has to be made from the whole log."""


class Derive:
    """Brings queues and index to where the log is. `is_whole`: the log is read from its start."""

    def __init__(
        self,
        queues: Queues,
        index: Index,
        settings: StoreSettings,
        *,
        is_whole: bool,
        deleted: Mapping[str, int] | None = None,
        sure_end: int = -1,
    ) -> None:
        """`deleted` has topics whose messages before a place of the log get no entry.

        The entries there are of messages before `sure_end` are right.
        """
        self._queues = queues
        self._index = index
        self._settings = settings
        self._is_whole = is_whole
        self._deleted = deleted or {}
        self._sure_end = sure_end
        self.last_ms = 0
        self.arrived: set[tuple[str, int]] = set()  # light queues with new entries

    def queue(self, record: Passed) -> None:
        """The entry of a message in its queue. QueueGap when entries before it are missing."""
        self.last_ms = record.store_ms
        if record.sys_flag & TRANSACTION_MASK not in (0, TRANSACTION_COMMIT):
            return
        if self._deleted and record.log_offset < self._deleted.get(record.topic, 0):
            return
        raw = record.raw_properties
        tags_code = raw_tags_code(raw) if b"TAGS\x01" in raw else 0
        if record.sys_flag & INNER_BATCH:
            self._batch_entry(record, tags_code)
            return
        if not is_legal(record.topic, record.queue_id):
            log.error(
                "the record at %d of the log is damaged: it names queue %d of topic %r, which "
                "can't be; it is passed over",
                record.log_offset,
                record.queue_id,
                record.topic,
            )
            return
        queue = self._queues.make(record.topic, record.queue_id)
        if queue.is_schedule:
            tags_code = due_ms(raw, record.store_ms, self._settings.delay_levels_ms, tags_code)
        self._entry(queue, record.queue_offset, record.log_offset, record.size, tags_code)
        if self._settings.lmq_enable and has_light(record.topic):
            self._lmq_entries(record, tags_code)

    def index(self, record: Passed) -> None:
        """The keys of a message in the index."""
        if is_indexed(record.sys_flag):
            self._index.pending.append(
                (record.topic, record.raw_properties, record.log_offset, record.store_ms, None)
            )
            if len(self._index.pending) >= PENDING_KEYS_MAX:
                self._index.flush(record.log_offset + record.size)

    def _entry(
        self, queue: ConsumeQueue, offset: int, place: int, size: int, tags_code: int
    ) -> None:
        if offset < queue.next:
            if offset < queue.first_offset:
                if not self._is_whole:
                    return
                # Files at its beginning are missing, or another record led us astray.
                queue.cut(0)
                queue.begin_at(offset)
            elif queue.entry(offset) == (place, size, tags_code) or _is_ext(queue, offset, place):
                return
            elif self._is_sure(queue.entry(offset)):
                log.error(
                    "the record at %d of the log is damaged: it says that it is message %d of "
                    "queue %d of topic %s, which is at %d; it is passed over",
                    place,
                    offset,
                    queue.queue_id,
                    queue.topic,
                    queue.entry(offset)[0],
                )
                return
            else:
                # The topic was deleted and made again, or the entry did not survive a power cut.
                queue.cut(offset)
        if offset > queue.next:
            if not self._is_whole:
                raise QueueGap(f"{queue.topic} {queue.queue_id}")
            if queue.next == 0:
                queue.begin_at(offset)
            elif offset - queue.next > FILLERS_MAX:
                log.error(
                    "the record at %d of the log is damaged: it says that it is message %d of "
                    "queue %d of topic %s, which has %d; it is passed over",
                    place,
                    offset,
                    queue.queue_id,
                    queue.topic,
                    queue.next,
                )
                return
            else:
                queue.fill(offset)
        queue.append(place, size, tags_code)

    def _is_sure(self, entry: Entry) -> bool:
        """True if an entry is right, and a record that says otherwise is not."""
        place, size, _ = entry
        return place < self._sure_end and 0 < size < FILLER[1]

    def _batch_entry(self, record: Passed, tags_code: int) -> None:
        base, number = (_number(record.raw_properties, name) for name in _INNER)
        if base is None or number is None or number <= 0:
            return
        queue = self._queues.make_batch(record.topic, record.queue_id)
        if record.log_offset + record.size > queue.log_end:
            queue.append(record.log_offset, record.size, tags_code, record.store_ms, base, number)

    def _lmq_entries(self, record: Passed, tags_code: int) -> None:
        """Entries in the light queues that a message names besides its own."""
        names = find(record.raw_properties, INNER_MULTI_DISPATCH.encode())
        offsets = find(record.raw_properties, INNER_MULTI_QUEUE_OFFSET.encode())
        if names is None or offsets is None:
            return
        pairs = zip(names.decode(errors="replace").split(","), offsets.split(b","), strict=False)
        for name, text in pairs:
            if not name.startswith(LMQ_PREFIX) or not text.isdigit():
                continue
            is_full = self._queues.light >= self._settings.light_queues_max
            if not is_legal(name, 0) or (is_full and not self._queues.find(name, 0)):
                continue
            queue = self._queues.make(name, 0)
            self.arrived.add((name, 0))
            self._entry(queue, int(text), record.log_offset, record.size, tags_code)


_INNER = (b"INNER_BASE", b"INNER_NUM")


def _number(raw: bytes, name: bytes) -> int | None:
    found = find(raw, name)
    return int(found) if found is not None and found.isdigit() else None


def _is_ext(queue: ConsumeQueue, offset: int, place: int) -> bool:
    """True if the entry leads to this message by way of consumequeue_ext."""
    found, _, tags_code = queue.entry(offset)
    return found == place and tags_code <= EXT_ADDRESS_MAX
