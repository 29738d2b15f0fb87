"""Reading: pulls, and lookups of messages by offset, place, time and key.

Readers see nothing beyond `readable_end`. Records that are neighbours in the log are returned as
one view of it, others as one copy: copying some kilobytes is cheaper than sending many small
buffers.
"""

import logging
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import islice
from struct import Struct

import numpy as np
import numpy.typing as npt

from ...protocol.message.record import decode_record, store_ms_of
from ...protocol.names import LMQ_PREFIX
from ..base import status
from ..base.kernels import Buffer
from ..kernels.interpreted import copy_records, places_of
from ..log.keys import index_keys
from ..log.walk import whole_record
from ..queues.batch_queue import BatchQueue
from ..queues.consume_queue import EXT_ADDRESS_MAX, ConsumeQueue, Entry, read_array
from ..queues.queues import Queue
from ..queues.time_search import offset_at
from .state import StoreState

log = logging.getLogger(__name__)

PULL_BYTES_MIN = 100
NEAR_SCAN = 8  # entries scanned first for each message that a pull may take
DAMAGED_MAX = 1_000  # places whose damage is logged
SAMPLE_MAX = 20_000  # entries read to estimate how many messages have a tag (maxConsumeQueueScan)
QUERY_MESSAGES_MAX = 64  # maxMsgsNumBatch
QUERY_READS_MAX = 10_000  # messages read in one query because one of their keys has the hash
INDEX_PRECISION_MS = 1_000  # the index has the times of messages in seconds

PLACE = Struct(">q")


@dataclass(slots=True)
class Found:
    """The result of a search for messages.

    `records` are whole records, `size` bytes and `count` messages in all; `next_offset` is where to
    continue.
    """

    status: int
    next_offset: int
    min_offset: int
    max_offset: int
    records: list[Buffer]
    size: int
    count: int


def _beside(offset: int, start: int, end: int) -> Found:
    """The result for an offset without a message, in a queue with offsets [start, end)."""
    if end == 0:
        return Found(status.NO_MESSAGE_IN_QUEUE, 0, start, end, [], 0, 0)
    if offset < start:
        return Found(status.OFFSET_TOO_SMALL, start, start, end, [], 0, 0)
    if offset == end:
        return Found(status.OFFSET_OVERFLOW_ONE, offset, start, end, [], 0, 0)
    return Found(status.OFFSET_OVERFLOW_BADLY, end, start, end, [], 0, 0)


class Reader:
    """Finds messages and returns their records."""

    def __init__(self, state: StoreState) -> None:
        self._state = state
        self._log = state.log
        self._queues = state.queues
        self._index = state.index
        self._damaged: set[int] = set()  # places in the log whose damage was reported

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        messages_max: int,
        bytes_max: int,
        tags_codes: frozenset[int] | None = None,
    ) -> Found:
        """The messages of a queue from `offset` on; with `tags_codes` only those with such tags.

        At least one message if there is any. At most `messages_max` messages in `bytes_max` bytes,
        within the limits of the settings, from one queue file.
        """
        log = self._log
        if log.staged:
            log.write_staged()
        queue = self._queues.simple.get((topic, queue_id))
        if queue is None:
            return self._get_batched(topic, queue_id, offset, messages_max, bytes_max, tags_codes)
        settings = self._state.settings
        end = queue.readable_end(self._state.readable_end) if self._state.is_bounded else queue.next
        start = queue.min_offset
        if not start <= offset < end:
            return _beside(offset, start, end)
        segment, at, room = queue.locate(offset)
        if room > end - offset:
            room = end - offset
        if messages_max > settings.pull_messages_max:
            messages_max = settings.pull_messages_max
        if messages_max < 1:
            messages_max = 1
        if bytes_max > settings.pull_bytes_max:
            bytes_max = settings.pull_bytes_max
        count = messages_max if messages_max < room else room
        first = PLACE.unpack_from(segment.view, at)[0]
        if log.end - first > self._state.memory_bytes:
            messages_max = max(1, min(messages_max, settings.pull_messages_max_on_disk))
            bytes_max = min(bytes_max, settings.pull_bytes_max_on_disk)
            if count > messages_max:
                count = messages_max
        if bytes_max < PULL_BYTES_MIN:
            bytes_max = PULL_BYTES_MIN
        if tags_codes is not None:
            scan = max(settings.scan_bytes_max // 20, messages_max)
            return self._get_tagged(
                queue, offset, min(room, scan), messages_max, bytes_max, tags_codes, end
            )
        found = Found(status.FOUND, offset + count, start, end, [], 0, count)
        log_file = log.segments.find(first) if offset >= queue.opened else None
        if log_file is not None:
            records = self._state.kernels.gather(segment, at, count, log_file, bytes_max)
            if records is not None:
                found.records.append(records)
                found.size = size = len(records)
                log.count_read(size)
                return found
        flat = places_of(count).unpack_from(segment.view, at)
        numbers = range(offset, offset + count)
        self._collect(found, queue, numbers, flat[::2], flat[1::2], bytes_max)
        return found

    def _get_tagged(
        self,
        queue: ConsumeQueue,
        offset: int,
        scan: int,
        messages_max: int,
        bytes_max: int,
        tags_codes: frozenset[int],
        end: int,
    ) -> Found:
        """`get` for messages with one of these tags codes, among the next `scan` entries."""
        found = Found(status.FOUND, offset + scan, queue.min_offset, end, [], 0, 0)
        segment, at, _ = queue.locate(offset)
        entries = read_array(segment, at, scan)
        # Usually the first entries have all that one pull may take.
        near = messages_max * NEAR_SCAN
        numbers = self._tagged(queue, offset, entries[:near], tags_codes)
        if len(numbers) <= messages_max and near < scan:
            numbers = self._tagged(queue, offset, entries, tags_codes)
        count = len(numbers)
        if not count:
            found.status = status.NO_MATCHED_MESSAGE
            return found
        if count > messages_max:
            count = messages_max
            numbers = numbers[:count]
            found.next_offset = offset + int(numbers[-1]) + 1
        found.count = count
        wanted = entries.take(numbers)  # seven times quicker than entries[numbers]
        offsets, sizes = wanted["offset"].tolist(), wanted["size"].tolist()
        log_file = self._log.segments.find(offsets[0]) if offset >= queue.opened else None
        if log_file is not None:
            records = copy_records(log_file, offsets, sizes, bytes_max)
            if records is not None:
                found.records.append(records)
                found.size = len(records)
                self._log.count_read(found.size)
                return found
        behind = found.next_offset
        places = [offset + number for number in numbers.tolist()]
        done = self._collect(found, queue, places, offsets, sizes, bytes_max)
        if done == count:
            found.next_offset = behind
        return found

    def _tagged(
        self,
        queue: ConsumeQueue,
        offset: int,
        entries: npt.NDArray[np.void],
        tags_codes: frozenset[int],
    ) -> npt.NDArray[np.intp]:
        """The numbers of the entries with these tags codes, ascending; the first is of `offset`."""
        tags = entries["tags"]
        hits = np.zeros(len(tags), bool)
        for wanted in tags_codes:
            hits |= tags == wanted
        if offset < queue.opened:  # only a Java broker writes addresses of an extension
            for number in (tags <= EXT_ADDRESS_MAX).nonzero()[0]:
                code = self._queues.ext_tags_code(queue.topic, queue.queue_id, int(tags[number]))
                hits[number] = code is None or code in tags_codes
        return hits.nonzero()[0]

    def _collect(
        self,
        found: Found,
        queue: ConsumeQueue,
        numbers: Sequence[int],
        offsets: Sequence[int],
        sizes: Sequence[int],
        bytes_max: int,
    ) -> int:
        """Add these records to `found`, up to `bytes_max`; deleted and damaged ones are left out.

        Entries and records that this process did not write are checked. `numbers` are the queue
        offsets. Returns how many entries were handled; `found.next_offset` is behind the last one.
        """
        commit_log = self._log
        limit = self._state.readable_end
        done = 0
        for number, place, length in zip(numbers, offsets, sizes, strict=True):
            if found.records and found.size + length > bytes_max:
                break
            done += 1
            record = commit_log.record(place, limit)
            if number < queue.opened and not 0 <= place < commit_log.start:
                record = self._checked(queue, number, place, length, record)
            if record is None or len(record) != length:
                continue
            found.records.append(record)
            found.size += length
        found.count = len(found.records)
        if found.count > 1:
            found.records = [b"".join(found.records)]
        commit_log.count_read(found.size)
        found.next_offset = numbers[done - 1] + 1
        if not found.records:
            found.status = status.MESSAGE_WAS_REMOVING
        return done

    def _checked(
        self, queue: ConsumeQueue, number: int, place: int, size: int, record: memoryview | None
    ) -> memoryview | None:
        """The record, if it is whole and belongs to this offset of the queue."""
        if record is not None and len(record) == size:
            segment = self._log.segments.find(place)
            passed = None if segment is None else whole_record(segment, place)
            if passed is not None and (
                (passed.queue_offset, passed.queue_id, passed.topic)
                == (number, queue.queue_id, queue.topic)
                or queue.topic.startswith(LMQ_PREFIX)  # it has the offsets of its own queue
            ):
                return record
        self._report(place, f"message {number} of queue {queue.queue_id} of {queue.topic}")
        return None

    def _report(self, place: int, what: str) -> None:
        """Log damage, once for each place."""
        if place not in self._damaged and len(self._damaged) < DAMAGED_MAX:
            self._damaged.add(place)
            log.error(
                "%s is damaged, in the log at %d or on the way there, and is not delivered; "
                "`aerobee store check` tells more",
                what,
                place,
            )

    def _get_batched(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        messages_max: int,
        bytes_max: int,
        tags_codes: frozenset[int] | None,
    ) -> Found:
        """`get` for a batch queue: whole records, the first one holding message `offset`."""
        queue = self._queues.batch.get((topic, queue_id))
        if queue is None:
            return Found(status.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0, [], 0, 0)
        limit = self._state.readable_end
        start, end = queue.min_offset, queue.readable_end(limit)
        found = Found(status.NO_MATCHED_MESSAGE, offset, start, end, [], 0, 0)
        if end == 0:
            found.status, found.next_offset = status.NO_MESSAGE_IN_QUEUE, 0
        elif offset < start:
            found.status, found.next_offset = status.OFFSET_TOO_SMALL, start
        elif offset == end:
            found.status = status.OFFSET_OVERFLOW_ONE
        elif offset > end:
            found.status, found.next_offset = status.OFFSET_OVERFLOW_BADLY, end
        if found.status != status.NO_MATCHED_MESSAGE:
            return found
        messages_max = min(messages_max, self._state.settings.pull_messages_max)
        bytes_max = min(bytes_max, self._state.settings.pull_bytes_max)
        for unit in queue.units(offset, messages_max, limit):
            if unit.base > found.next_offset:
                self._report(
                    unit.log_offset,
                    f"what lies before message {unit.base} of batch queue {queue_id} of {topic}",
                )
            too_many = found.count + unit.number > messages_max
            if found.records and (too_many or found.size + unit.size > bytes_max):
                break
            found.next_offset = unit.base + unit.number
            record = self._log.record(unit.log_offset, limit)
            if record is not None and unit.log_offset < self._state.opened_end:
                segment = self._log.segments.find(unit.log_offset)
                if segment is None or whole_record(segment, unit.log_offset) is None:
                    self._report(unit.log_offset, "a batch")
                    record = None
            if record is None or (tags_codes is not None and unit.tags_code not in tags_codes):
                continue
            found.records.append(record)
            found.size += unit.size
            found.count += unit.number
            found.status = status.FOUND
        return found

    # ---- offsets

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The offset of the first message that a queue still has.

        As in RocketMQ, it is 0 for a queue that never had one, -1 for such a batch queue.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None or queue.next == 0:
            return -1 if self._state.has_batch_queue(topic, queue_id) else 0
        return queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset behind the last readable message of a queue; 0 without a queue."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        state = self._state
        return queue.readable_end(state.readable_end) if state.is_bounded else queue.next

    def next_offset(self, topic: str, queue_id: int) -> int:
        """The offset that the next message of a queue gets, readable or not; 0 without a queue."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.next

    def offset_at(self, topic: str, queue_id: int, moment_ms: int, upper: bool = False) -> int:
        """The offset of the message stored at this moment, as RocketMQ finds it.

        For a moment between two messages it is the later one, with `upper` the earlier one.
        """
        self._log.write_staged()
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        end = self.max_offset(topic, queue_id)
        if isinstance(queue, BatchQueue):
            found = queue.offset_at(moment_ms, upper)
        else:
            found = offset_at(queue, end, moment_ms, upper, self._log.start, self._store_ms)
        return max(queue.min_offset, min(found, end))

    def store_ms_at(self, topic: str, queue_id: int, offset: int) -> int:
        """The time when the message at this offset was stored, ms; -1 if there is none."""
        self._log.write_staged()
        queue = self._queues.find(topic, queue_id)
        place = None if queue is None else self._place(queue, offset)
        return -1 if place is None else self._store_ms(place) or -1

    def earliest_store_ms(self, topic: str, queue_id: int) -> int:
        """The time when the first message still in the queue was stored, ms; -1 if it is empty."""
        return self.store_ms_at(topic, queue_id, self.min_offset(topic, queue_id))

    def in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        """True if a message is near enough to the end of the log to be in memory, most likely."""
        queue = self._queues.find(topic, queue_id)
        place = None if queue is None else self._place(queue, offset)
        return place is None or self._log.end - place <= self._state.memory_bytes

    def entries(self, topic: str, queue_id: int, offset: int, count: int) -> list[Entry]:
        """Up to `count` entries of a consume queue: log offset, size, tags code each."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return []
        self._log.write_staged()
        if isinstance(queue, BatchQueue):
            units = queue.units(offset, count, self._state.readable_end)
            return [(unit.log_offset, unit.size, unit.tags_code) for unit in units]
        return queue.entries(offset, count, self.max_offset(topic, queue_id))

    def count_tagged(
        self, topic: str, queue_id: int, start: int, end: int, tags_codes: frozenset[int]
    ) -> int:
        """The number of messages with offsets [start, end) and such tags, estimated from a sample
        if there are more than `SAMPLE_MAX`.

        Messages deleted from the head of the queue don't count. In a batch queue all messages
        count, because an entry there is a batch.
        """
        queue = self._queues.simple.get((topic, queue_id))
        if queue is None:
            return max(0, end - start)
        start, end = max(start, queue.min_offset), min(end, queue.next)
        wanted = min(end - start, SAMPLE_MAX)
        scanned = count = 0
        while scanned < wanted:
            segment, at, room = queue.locate(start + scanned)
            entries = read_array(segment, at, min(room, wanted - scanned))
            count += len(self._tagged(queue, start + scanned, entries, tags_codes))
            scanned += len(entries)
        return count if wanted < SAMPLE_MAX else count * (end - start) // wanted

    # ---- messages by place or key

    def message_at(self, log_offset: int, *, all_written: bool = False) -> bytes | None:
        """The record that begins at this log offset; None when none does. With `all_written` also
        one that readers can't see yet."""
        if log_offset >= self._log.written:
            self._log.write_staged()
        end = self._log.written if all_written else self._state.readable_end
        record = self._log.record(log_offset, end)
        if record is None:
            return None
        if log_offset < self._state.opened_end:
            segment = self._log.segments.find(log_offset)
            if segment is None or whole_record(segment, log_offset) is None:
                self._report(log_offset, "a message")
                return None
        self._log.count_read(len(record))
        return bytes(record)

    def query(
        self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int = QUERY_MESSAGES_MAX
    ) -> list[bytes]:
        """The records of a topic with this key or unique key in a time range, oldest first."""
        self._state.index_pending()
        steps = self.query_in_parts(topic, key, begin_ms, end_ms, limit)
        try:
            while True:
                next(steps)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]

    def query_in_parts(
        self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int = QUERY_MESSAGES_MAX
    ) -> Generator[None, None, list[bytes]]:
        """`query` among the keys that are in the index already, as a generator.

        It yields after each message that it reads, so that other work runs in between: a message
        that is not in memory must be read from the disk.
        """
        limit = min(limit, QUERY_MESSAGES_MAX)
        wanted = key.encode(errors="replace")
        found: dict[int, bytes] = {}
        places = self._index.find(topic, key, begin_ms - INDEX_PRECISION_MS, end_ms)
        for place in islice(places, QUERY_READS_MAX):
            if len(found) >= limit or place < self._log.start:
                break
            data = self.message_at(place)
            if data is not None:
                record = decode_record(data)
                # Another key may have the same hash.
                is_it = record.topic == topic and wanted in index_keys(record.raw_properties)
                if is_it and begin_ms <= record.store_ms <= end_ms:
                    found[place] = data
            yield
        return [found[place] for place in sorted(found)]

    def queues(self, topic: str) -> list[int]:
        """The ids of the queues of a topic that have been used, ascending."""
        return sorted(queue.queue_id for queue in self._queues.all() if queue.topic == topic)

    def queue_keys(self) -> list[tuple[str, int]]:
        """The topic and the id of every queue."""
        return [*self._queues.simple, *self._queues.batch]

    def topics(self) -> dict[str, list[int]]:
        """Every topic with a queue, and the ids of its queues."""
        found: dict[str, list[int]] = {}
        for queue in self._queues.all():
            found.setdefault(queue.topic, []).append(queue.queue_id)
        return found

    def _place(self, queue: Queue, offset: int) -> int | None:
        """The log offset of the message at this queue offset."""
        if not queue.min_offset <= offset < queue.next:
            return None
        if isinstance(queue, BatchQueue):
            units = queue.units(offset, 1, self._state.readable_end)
            return units[0].log_offset if units else None
        return queue.entry(offset)[0]

    def _store_ms(self, place: int) -> int:
        """The time when the record at this place was stored, ms; 0 if there is none."""
        record = self._log.record(place, self._state.readable_end)
        return 0 if record is None else store_ms_of(record)
