"""Batches in simple queues: the messages of one request become neighbours.

All messages of a batch are stored, or none.
"""

from ...protocol.errors import Malformed
from ...protocol.message.batch import ENTRY_BYTES_MIN as BATCH_ENTRY_BYTES_MIN
from ...protocol.message.batch import FLAG_AND_LENGTH as BATCH_ENTRY
from ...protocol.message.properties import INNER_MULTI_QUEUE_OFFSET, PROPERTIES_BYTES_MAX, find
from ...protocol.message.record import (
    CRC_MASK,
    HOST_BYTES_V4,
    INNER_BATCH,
    LAYOUT,
    PROPERTIES_LENGTH,
    TRANSACTION_MASK,
    Record,
    crc32,
    encode_record,
)
from ...protocol.message.tags import TAG_HASHES
from ..base.errors import IllegalMessage, MessageTooLarge, StoreError
from ..index.index import Pending
from ..log.commit_log import STAGED_BYTES_MAX
from ..queues.consume_queue import ENTRY_BYTES, RUN_MAX, ConsumeQueue, run_of
from .batch_writing import too_large, with_crc, with_room_for_crc
from .light_queues import OFFSETS
from .messages import Batch, PlacedBatch
from .state import StoreState

# The head of a record in two parts: what differs from message to message of a batch, and what
# differs only with the length of the body.
HEAD_START = LAYOUT.span("size", "log_offset")
HEAD_REST = LAYOUT.span("sys_flag", "body_length")
RECORD_EXTRA_BYTES_MAX = 64 << 10  # what a record may have on top of maxMessageSize

# Records in chunks, flat queue entries, keys, the end of the log.
_Encoded = tuple[list[bytes], list[int], list[Pending], int]


class BatchAppender:
    """Stores batches in simple queues."""

    def __init__(self, state: StoreState) -> None:
        self._state = state
        self._log = state.log
        self._queues = state.queues
        self._index = state.index

    def put_batch(self, batch: Batch, shared: bytes) -> PlacedBatch:
        """Store a batch: where its messages are. StoreError or Malformed when it is not stored.

        They lie side by side, and are readable after the next `write_staged`. The properties
        `shared` are added to each message's own.
        """
        if len(self._index.pending) > self._state.index_pending_max:
            self._state.relieve_index()
        store_ms = self._state.now_ms()
        placed = self._put_batch(batch, shared, store_ms)
        self._state.last_ms = store_ms
        return placed

    def _put_batch(self, batch: Batch, shared: bytes, store_ms: int) -> PlacedBatch:
        """Store one batch, message by message. StoreError or Malformed when it is not stored."""
        key, sys_flag, _, _, _, _ = batch
        if sys_flag & (TRANSACTION_MASK | INNER_BATCH):
            raise IllegalMessage(
                f"a batch with system flag {sys_flag} can't be stored: no transactions, no batches "
                "in batches; send the messages singly"
            )
        if self._state.settings.lmq_enable and OFFSETS in batch.body:
            raise IllegalMessage(
                f"a message of the batch has the property {INNER_MULTI_QUEUE_OFFSET}, which the "
                "broker sets; leave it out, and send messages for light queues singly"
            )
        queue = self._queues.simple.get(key) or self._new_queue(*key)
        log = self._log
        parts, entries, pending, end = self._records(queue, batch, log.end, shared, store_ms)
        size = end - log.end
        size_max = self._state.settings.max_message_bytes + RECORD_EXTRA_BYTES_MAX
        if size > size_max:
            raise MessageTooLarge(
                f"the batch is {size} bytes as stored, the limit is {size_max} (maxMessageSize and "
                "64 KiB); send fewer messages at once"
            )
        if end > log.room_end:
            log.roll(size)
            parts, entries, pending, end = self._records(queue, batch, log.end, shared, store_ms)
        first = queue.next
        _append_entries(queue, entries)
        log.staged += parts
        log.end = end
        self._index.pending += pending
        if end - log.written > STAGED_BYTES_MAX:
            self._log.write_staged()
        return first, entries[0::3], end

    def _new_queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        if self._state.has_batch_queue(topic, queue_id):
            raise StoreError(
                f"topic {topic} has batch consume queues: a batch goes there as one record"
            )
        return self._queues.make(topic, queue_id)

    def _records(
        self, queue: ConsumeQueue, batch: Batch, base: int, shared: bytes, store_ms: int
    ) -> _Encoded:
        """The records of a batch that begins at `base`, in chunks; entries; keys; the end."""
        _, sys_flag, born_ms, born_host, data, reconsume_times = batch
        topic, queue_id, queue_offset = queue.topic, queue.queue_id, queue.next
        magic, topic_field, fixed_bytes = queue.magic, queue.topic_field, queue.fixed_bytes
        host, body_bytes_max = self._state.host, self._state.settings.max_message_bytes
        append_crc = self._state.settings.append_crc
        is_fast = len(born_host) == len(host) == HOST_BYTES_V4 and not append_crc
        chunks: list[bytes] = []
        entries: list[int] = []
        pending: list[Pending] = []
        # What the messages of a batch have in common is packed once for each length.
        middles: dict[int, bytes] = {}
        tails: dict[int, bytes] = {}
        pack = HEAD_START.pack
        may_have_keys = b"KEY" in data or b"KEY" in shared
        at, end = 0, len(data)
        while at < end:
            flag, stop, start, behind = _entry_at(data, at, end)
            body, properties = data[at + BATCH_ENTRY.size : stop], data[start:behind]
            at = behind
            if properties and properties[-1] != 2:
                properties += b"\x02"  # the shared ones come behind it
            body_bytes, properties_bytes = len(body), len(properties) + len(shared)
            if body_bytes > body_bytes_max or properties_bytes > PROPERTIES_BYTES_MAX:
                raise too_large(body_bytes, properties_bytes, body_bytes_max)
            if is_fast:
                size = fixed_bytes + body_bytes + properties_bytes
                middle = middles.get(body_bytes)
                if middle is None:
                    middle = middles[body_bytes] = HEAD_REST.pack(
                        sys_flag, born_ms, born_host, store_ms, host, reconsume_times, 0, body_bytes
                    )
                tail = tails.get(properties_bytes)
                if tail is None:
                    tail = topic_field + PROPERTIES_LENGTH.pack(properties_bytes)
                    tails[properties_bytes] = tail
                crc = crc32(body) & CRC_MASK
                head = pack(size, magic, crc, queue_id, flag, queue_offset, base)
                chunks += (head, middle, body, tail, properties, shared)
            else:
                raw = properties + shared
                record = Record(
                    0,
                    0,
                    0,
                    queue_id,
                    flag,
                    queue_offset,
                    base,
                    sys_flag,
                    born_ms,
                    born_host,
                    store_ms,
                    host,
                    reconsume_times,
                    0,
                    body,
                    topic,
                    with_room_for_crc(raw) if append_crc else raw,
                )
                encoded = encode_record(record)
                chunks.append(with_crc(encoded) if append_crc else encoded)
                size = len(encoded)
            tags = find(properties, b"TAGS")
            entries += (base, size, TAG_HASHES[tags] if tags else 0)
            if may_have_keys:
                pending.append((topic, properties + shared, base, store_ms, None))
            base += size
            queue_offset += 1
        if not entries:
            raise Malformed("the batch is empty")
        return chunks, entries, pending, base


def _entry_at(data: bytes, at: int, end: int) -> tuple[int, int, int, int]:
    """Flag, end of the body, start and end of the properties of the message at this place of a
    batch that ends at `end`. Malformed when it runs over the end."""
    if at + BATCH_ENTRY_BYTES_MIN > end:
        raise Malformed(f"{end - at} bytes are left over at {at}")
    flag, body_bytes = BATCH_ENTRY.unpack_from(data, at)
    at += BATCH_ENTRY.size
    stop = at + body_bytes
    if body_bytes < 0 or stop + 2 > end:
        raise Malformed(f"a body of {body_bytes} bytes at {at} runs over the end {end}")
    own = data[stop] << 8 | data[stop + 1]
    start = stop + 2
    if own > PROPERTIES_BYTES_MAX or start + own > end:
        raise Malformed(f"properties of {own} bytes at {stop} run over the end {end}")
    return flag, stop, start, start + own


def _append_entries(queue: ConsumeQueue, entries: list[int]) -> None:
    """Append entries, given as flat numbers: all, or on DiskFull none."""
    count = len(entries) // 3
    at = queue.at
    if at + count * ENTRY_BYTES <= queue.limit and count <= RUN_MAX:
        run_of(count).pack_into(queue.view, at, *entries)
        queue.at = at + count * ENTRY_BYTES
        queue.next += count
        return
    first = queue.next
    try:
        for number in range(0, len(entries), 3):
            queue.append(*entries[number : number + 3])
    except StoreError:
        queue.cut(first)
        raise
