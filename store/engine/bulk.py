"""Bulk reads, for readers of whole queues.

`get_many` returns the same messages in the same order as repeated calls of `get`. The caller alone
limits its size; the limits of the settings are for consumers.
"""

from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from ...protocol.errors import Malformed
from ...protocol.message.record import QUEUE_ID_AT
from ..base import status
from ..base.kernels import Buffer
from ..log.records import Records, locate
from ..log.run import has_right_crc
from ..queues.consume_queue import EXT_ADDRESS_MAX, ConsumeQueue, read_array
from .reading import Found, Reader
from .state import StoreState

MANY_BYTES_MAX = 15 << 20  # an answer must fit into a frame


class BulkReader:
    """Reads messages in bulk."""

    def __init__(self, state: StoreState, reader: Reader) -> None:
        self._state = state
        self._log = state.log
        self._queues = state.queues
        self._get = reader.get

    def get_many(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        messages_max: int,
        bytes_max: int,
        tags_codes: frozenset[int] | None = None,
    ) -> Found:
        """Like `get`: up to `messages_max` messages in `bytes_max` bytes, and at least one.

        With `tags_codes`, `messages_max` is the number of entries checked. The messages come from
        one file of the queue and one of the log. Messages far back, which may be on the disk alone,
        come in a quarter of the bytes.
        """
        queue = self._queues.simple.get((topic, queue_id))
        found = None
        if queue is not None and queue.min_offset <= offset:
            found = self._many(queue, offset, messages_max, bytes_max, tags_codes)
        # Nothing there, or a case that only the slow path can explain.
        return found or self._get(topic, queue_id, offset, messages_max, bytes_max, tags_codes)

    def _many(
        self,
        queue: ConsumeQueue,
        offset: int,
        messages_max: int,
        bytes_max: int,
        tags_codes: frozenset[int] | None,
    ) -> Found | None:
        log = self._log
        self._log.write_staged()
        end = queue.readable_end(self._state.readable_end) if self._state.is_bounded else queue.next
        if offset >= end:
            return None
        file, at, room = queue.locate(offset)
        count = max(1, min(messages_max, room, end - offset))
        entries = read_array(file, at, count)
        behind = offset + count
        numbers = np.arange(count)  # of the entries that are wanted
        if tags_codes is not None:
            tags = entries["tags"].astype(np.int64)
            if (tags <= EXT_ADDRESS_MAX).any():
                return None
            numbers = np.flatnonzero(np.isin(tags, list(tags_codes)))
            if not len(numbers):
                return Found(status.NO_MATCHED_MESSAGE, behind, queue.min_offset, end, [], 0, 0)
            entries = entries.take(numbers)
        places, sizes = entries["offset"].astype(np.int64), entries["size"].astype(np.int64)
        segment = log.segments.find(int(places[0]))
        if segment is None:
            return None
        bytes_max = min(bytes_max, MANY_BYTES_MAX)
        if log.end - int(places[0]) > self._state.memory_bytes:
            bytes_max //= 4
        fits = (np.cumsum(sizes) <= bytes_max) & (places + sizes <= segment.end)
        fits[0] = True
        taken = len(fits) if fits.all() else int(np.argmin(fits))
        if taken < len(numbers):
            behind = offset + int(numbers[taken])
        starts = places[:taken] - segment.base
        ends = starts + sizes[:taken]
        if (starts[1:] < ends[:-1]).any() or int(ends[-1]) > segment.size:
            return None
        if (starts[1:] == ends[:-1]).all():
            data: Buffer = segment.memory[int(starts[0]) : int(ends[-1])]
        else:
            chunks = itemgetter(*map(slice, starts.tolist(), ends.tolist()))  # as in a pull
            data = b"".join(chunks(segment.memory))
        if offset < queue.opened and not _is_whole(data, queue, offset, numbers[:taken]):
            return None
        log.count_read(len(data))
        return Found(status.FOUND, behind, queue.min_offset, end, [data], len(data), taken)


def _is_whole(data: Buffer, queue: ConsumeQueue, offset: int, numbers: NDArray[np.intp]) -> bool:
    """True if `data` has exactly the records of these entries of the queue, undamaged."""
    try:
        records = locate(bytes(data))
    except Malformed:
        return False
    if len(records) != len(numbers):
        return False
    return bool(
        (records.queue_offsets() == numbers + offset).all()
        and (records.int32(QUEUE_ID_AT) == queue.queue_id).all()
        and _all_of_topic(records, queue.topic.encode())
        and has_right_crc(records).all()
    )


def _all_of_topic(records: Records, topic: bytes) -> bool:
    if (records.topic_end - records.topic_at != len(topic)).any():
        return False
    held = np.frombuffer(records.data, np.uint8)
    found = held[records.topic_at[:, None] + np.arange(len(topic))]
    return bool((found == np.frombuffer(topic, np.uint8)).all())
