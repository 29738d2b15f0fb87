"""Messages into the store. `put_all` is the hot path: straight code, few calls, no copies.

A message gets its place in the log and its entry in the queue in the same call; its record is only
staged. Whatever may fail (size, room in log and queue) comes first, so that a message is in both or
in neither.
"""

from collections.abc import Iterable
from struct import Struct

from ..protocol.batch import ENTRY_BYTES_MIN as BATCH_ENTRY_BYTES_MIN
from ..protocol.batch import FLAG_AND_LENGTH as BATCH_ENTRY
from ..protocol.errors import Malformed
from ..protocol.properties import PROPERTIES_BYTES_MAX, find
from ..protocol.record import (
    BORN_HOST_V6,
    CRC_MASK,
    HEAD,
    INNER_BATCH,
    PROPERTIES_LENGTH,
    STORE_HOST_V6,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    Record,
    crc32,
    encode_record,
)
from ..protocol.tags import TAG_HASHES
from .batch_writing import BatchWriting, with_crc
from .commit_log import STAGED_BYTES_MAX
from .consume_queue import ENTRY, ENTRY_BYTES, RUN_MAX, ConsumeQueue, run_of
from .errors import IllegalMessage, MessageTooLarge, StoreError
from .even_batch import Made, even_records
from .index import Pending, is_indexed
from .parts import HOST_BYTES_V4

# The fixed head of a record with IPv4 hosts in two pieces: what differs from message to message of
# a batch, and what differs with the length of the body only.
HEAD_START = Struct(
    ">"
    "i"  # total size
    "I"  # magic
    "i"  # body crc
    "i"  # queue id
    "i"  # flag
    "q"  # queue offset
    "q"  # log offset
)
HEAD_REST = Struct(
    ">"
    "i"  # system flag
    "q"  # born time, ms
    "8s"  # born host
    "q"  # store time, ms
    "8s"  # store host
    "i"  # reconsume times
    "q"  # prepared transaction offset
    "i"  # body length
)
assert HEAD_START.size + HEAD_REST.size == HEAD.size
RECORD_EXTRA_BYTES_MAX = 64 << 10  # what a record may have on top of maxMessageSize
# A message that a transaction has committed is stored like any other. One that is prepared or
# rolled back (which has both bits) has no place in a queue.
SPECIAL_FLAGS = TRANSACTION_PREPARED | BORN_HOST_V6 | STORE_HOST_V6 | INNER_BATCH

# Topic and queue id, flag, system flag, born time in ms, born host (8 or 20 bytes), body,
# properties in stored form (ending in \x02), tags code, reconsume times, prepared transaction
# offset; and its unique key, where that is known to be its only key. The tags code is None for what
# is to wait in SCHEDULE_TOPIC_XXXX as long as the level of its queue says, and DELAY with it.
Message = tuple[
    tuple[str, int], int, int, int, bytes, bytes, bytes, int | None, int, int, bytes | None
]
Placed = tuple[int, int, int]  # log offset, queue offset, where it ends in the log


class Writing(BatchWriting):
    """The half of the store that takes messages."""

    def put(
        self,
        topic: str,
        queue_id: int,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        body: bytes,
        properties: bytes,
        tags_code: int,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
    ) -> Placed:
        """Store one message, as `put_all` does; StoreError when it is not stored."""
        message = (
            (topic, queue_id), flag, sys_flag, born_ms, born_host, body, properties, tags_code,
            reconsume_times, prepared_offset, None,
        )  # fmt: skip
        (placed,) = self.put_all((message,))
        if isinstance(placed, StoreError):
            raise placed
        return placed

    def put_all(
        self, messages: Iterable[Message], *, until_error: bool = False
    ) -> list[Placed | StoreError]:
        """Store messages in their order, each by itself: where it is, or why it was not stored.

        They are readable after the next `write_staged`. In SCHEDULE_TOPIC_XXXX the tags code is
        worked out here, from the property DELAY unless it is None. With `until_error` none is
        stored behind the first that was not, and the answer ends with that one.
        """
        log, queues, host = self._log, self._plain_queues, self.host
        staged, pending = log.staged, self._pending_keys
        if len(pending) > self.index_pending_max:
            self._relieve_index()
        body_bytes_max = self._body_bytes_max
        store_ms = self._last_ms = self._now_ms()
        places: list[Placed | StoreError] = []
        for message in messages:
            (
                key, flag, sys_flag, born_ms, born_host, body, properties, tags_code,
                reconsume_times, prepared_offset, unique,
            ) = message  # fmt: skip
            queue = queues.get(key)
            body_bytes = len(body)
            properties_bytes = len(properties)
            try:
                if (
                    queue is None
                    or queue.is_special
                    or sys_flag & SPECIAL_FLAGS
                    or body_bytes > body_bytes_max
                    or properties_bytes > PROPERTIES_BYTES_MAX
                    or len(born_host) + len(host) != 2 * HOST_BYTES_V4
                ):
                    places.append(self._put_unusual(message, queue, store_ms))
                    continue
                size = queue.fixed_bytes + body_bytes + properties_bytes
                log_offset = log.end
                end = log_offset + size
                if end > log.room_end:
                    log.roll(size)
                    log_offset = log.end
                    end = log_offset + size
                at = queue.at
                if at >= queue.limit:
                    queue.make_room()
                    at = queue.at
                queue_offset = queue.next
                if queue.is_schedule:
                    levels_ms = self.settings.delay_levels_ms
                    if tags_code is None:
                        tags_code = store_ms + levels_ms[key[1]]
                    else:
                        tags_code = due_ms(properties, store_ms, levels_ms, tags_code)
                staged += (
                    HEAD.pack(
                        size, queue.magic, crc32(body) & CRC_MASK, key[1], flag, queue_offset,
                        log_offset, sys_flag, born_ms, born_host, store_ms, host, reconsume_times,
                        prepared_offset, body_bytes,
                    ),
                    body,
                    queue.topic_field,
                    PROPERTIES_LENGTH.pack(properties_bytes),
                    properties,
                )  # fmt: skip
                log.end = end
                ENTRY.pack_into(queue.view, at, log_offset, size, tags_code)
                queue.at = at + ENTRY_BYTES
                queue.next = queue_offset + 1
                pending.append((key[0], properties, log_offset, store_ms, unique))
                if end - log.written > STAGED_BYTES_MAX:
                    self.write_staged()
                places.append((log_offset, queue_offset, end))
            except StoreError as wrong:
                places.append(wrong)
                if until_error:
                    break
        return places

    def put_batch(
        self,
        topic: str,
        queue_id: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        batch: bytes,
        shared_properties: bytes,
        reconsume_times: int = 0,
    ) -> tuple[int, list[int], int]:
        """Store the messages of a batch body side by side, all of them or none.

        Returns the first queue offset, the log offset of each message, and where the last ends.
        `shared_properties` are added to each message's own. Malformed when the body can't be read,
        else as `put`.
        """
        if sys_flag & (TRANSACTION_MASK | INNER_BATCH):
            raise IllegalMessage(
                f"a batch with system flag {sys_flag} can't be stored: no transactions, no batches "
                "in batches; send the messages singly"
            )
        queue = self._queues.plain.get((topic, queue_id))
        if queue is None:
            queue = self._new_queue(topic, queue_id)
        if len(self._index.pending) > self.index_pending_max:
            self._relieve_index()
        log = self._log
        store_ms = self._now_ms()
        context = (sys_flag, born_ms, born_host, shared_properties, reconsume_times, store_ms)
        parts, entries, pending, end = self._batch_records(queue, batch, log.end, *context)
        size = end - log.end
        if size > self.settings.max_message_bytes + RECORD_EXTRA_BYTES_MAX:
            raise MessageTooLarge(
                f"the batch is {size} bytes as stored, the limit is "
                f"{self.settings.max_message_bytes + RECORD_EXTRA_BYTES_MAX} (maxMessageSize and "
                "64 KiB); send fewer messages at once"
            )
        if end > log.room_end:
            log.roll(size)
            parts, entries, pending, end = self._batch_records(queue, batch, log.end, *context)
        first = queue.next
        _append_entries(queue, entries)
        log.staged += parts
        log.end = end
        self._index.pending += pending
        self._last_ms = store_ms
        if end - log.written > STAGED_BYTES_MAX:
            self.write_staged()
        return first, entries[0::3], end

    def _new_queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        if self.has_batch_queue(topic, queue_id):
            raise StoreError(
                f"topic {topic} has batch consume queues: a batch goes there as one record"
            )
        return self._queues.make(topic, queue_id)

    def _put_unusual(self, message: Message, queue: ConsumeQueue | None, store_ms: int) -> Placed:
        """`put_all` for one that is not as nearly all are. StoreError when it is not stored."""
        (
            (topic, queue_id), flag, sys_flag, born_ms, born_host, body, properties, tags_code,
            reconsume_times, prepared_offset, _,
        ) = message  # fmt: skip
        if tags_code is None:
            tags_code = store_ms + self.settings.delay_levels_ms[queue_id]
        if queue is None and self.has_batch_queue(topic, queue_id):
            return self.put_in_batch_queue(
                topic, queue_id, flag, sys_flag, born_ms, born_host, body, properties,
                tags_code, 1, reconsume_times,
            )  # fmt: skip
        if len(body) > self._body_bytes_max or len(properties) > PROPERTIES_BYTES_MAX:
            raise self._too_large(len(body), len(properties))
        if queue is None:
            self._new_queue(topic, queue_id)
            (placed,) = self.put_all((message,))
            if isinstance(placed, StoreError):
                raise placed
            return placed
        return self._put_special(
            queue, flag, sys_flag, born_ms, born_host, body, properties, tags_code,
            reconsume_times, prepared_offset, store_ms,
        )  # fmt: skip

    def _put_special(
        self,
        queue: ConsumeQueue,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        body: bytes,
        properties: bytes,
        tags_code: int,
        reconsume_times: int,
        prepared_offset: int,
        store_ms: int,
    ) -> Placed:
        """`put_all` for IPv6 hosts, transactions and records with a crc property."""
        if sys_flag & INNER_BATCH:
            raise IllegalMessage(
                f"system flag {sys_flag} says that the body is a batch in one record, which only "
                "batch queues have; send a plain batch"
            )
        log = self._log
        if queue.is_schedule:
            tags_code = due_ms(properties, store_ms, self.settings.delay_levels_ms, tags_code)
        is_queued = sys_flag & TRANSACTION_MASK in (0, TRANSACTION_COMMIT)
        queue_offset = queue.next if is_queued else 0
        if self.settings.append_crc:
            properties = self._with_room_for_crc(properties)
        record = Record(
            0, 0, 0, queue.queue_id, flag, queue_offset, 0, sys_flag, born_ms, born_host, store_ms,
            self.host, reconsume_times, prepared_offset, body, queue.topic, properties,
        )  # fmt: skip
        size = queue.fixed_bytes + len(body) + len(properties)
        size += len(born_host) + len(self.host) - 2 * HOST_BYTES_V4
        if log.end + size > log.room_end:
            log.roll(size)
        log_offset = record.log_offset = log.end
        data = encode_record(record)
        assert len(data) == size
        if self.settings.append_crc:
            data = with_crc(data)
        if is_queued:
            queue.append(log_offset, size, tags_code)
        log.staged.append(data)
        log.end = log_offset + size
        if is_indexed(sys_flag):
            self._index.pending.append((queue.topic, properties, log_offset, store_ms, None))
        return log_offset, queue_offset, log.end

    def _batch_records(
        self,
        queue: ConsumeQueue,
        batch: bytes,
        base: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        shared: bytes,
        reconsume_times: int,
        store_ms: int,
    ) -> Made:
        """The records of a batch that begins at `base`, in pieces; entries; keys; the end."""
        topic, queue_id, queue_offset = queue.topic, queue.queue_id, queue.next
        magic, topic_field, fixed_bytes = queue.magic, queue.topic_field, queue.fixed_bytes
        host, body_bytes_max = self.host, self.settings.max_message_bytes
        append_crc = self.settings.append_crc
        is_plain = len(born_host) == len(host) == HOST_BYTES_V4 and not append_crc
        if is_plain:
            even = even_records(
                queue, batch, base, sys_flag, born_ms, born_host, shared, reconsume_times,
                store_ms, host, body_bytes_max,
            )  # fmt: skip
            if even is not None:
                return even
        parts: list[bytes] = []
        entries: list[int] = []
        pending: list[Pending] = []
        # What the messages of a batch have in common is packed once for each length.
        middles: dict[int, bytes] = {}
        tails: dict[int, bytes] = {}
        unpack, pack = BATCH_ENTRY.unpack_from, HEAD_START.pack
        # One character a byte: finding a word in a str costs a fifth of finding it in bytes.
        text = batch.decode("latin-1")
        find_next, find_last = text.find, text.rfind
        codes: dict[bytes, int] = {}
        may_have_keys = "KEY" in text or b"KEY" in shared
        shared_bytes = len(shared)
        end = len(batch)
        at = 0
        while at < end:
            if at + BATCH_ENTRY_BYTES_MIN > end:
                raise Malformed(f"{end - at} bytes are left over at {at}")
            flag, body_bytes = unpack(batch, at)
            at += BATCH_ENTRY.size
            stop = at + body_bytes
            if body_bytes < 0 or stop + 2 > end:
                raise Malformed(f"a body of {body_bytes} bytes at {at} runs over the end {end}")
            body = batch[at:stop]
            own = batch[stop] << 8 | batch[stop + 1]
            start = stop + 2
            at = start + own
            if own > PROPERTIES_BYTES_MAX or at > end:
                raise Malformed(f"properties of {own} bytes at {stop} run over the end {end}")
            properties = batch[start:at]
            if own and batch[at - 1] != 2:
                properties += b"\x02"  # the shared ones come behind it
                own += 1
            properties_bytes = own + shared_bytes
            if body_bytes > body_bytes_max or properties_bytes > PROPERTIES_BYTES_MAX:
                raise self._too_large(body_bytes, properties_bytes)
            if is_plain:
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
                parts += (
                    pack(size, magic, crc, queue_id, flag, queue_offset, base),
                    middle,
                    body,
                    tail,
                    properties,
                    shared,
                )
            else:
                raw = properties + shared
                record = Record(
                    0, 0, 0, queue_id, flag, queue_offset, base, sys_flag, born_ms, born_host,
                    store_ms, host, reconsume_times, 0, body, topic,
                    self._with_room_for_crc(raw) if append_crc else raw,
                )  # fmt: skip
                data = encode_record(record)
                parts.append(with_crc(data) if append_crc else data)
                size = len(data)
            tags_at = find_last("TAGS\x01", start, at)
            if tags_at < 0:
                code = 0
            else:
                tags_end = find_next("\x02", tags_at, at)
                tags = batch[tags_at + 5 : tags_end]
                if tags_end < 0 or not tags or (tags_at > start and batch[tags_at - 1] != 2):
                    code = raw_tags_code(properties)  # not a plain pair: the long way
                elif tags in codes:
                    code = codes[tags]
                else:
                    code = codes[tags] = raw_tags_code(properties)
            entries += (base, size, code)
            if may_have_keys:
                pending.append((topic, properties + shared, base, store_ms, None))
            base += size
            queue_offset += 1
        if not entries:
            raise Malformed("the batch is empty")
        return parts, entries, pending, base


def raw_tags_code(properties: bytes) -> int:
    """The tags code of a message with these properties."""
    # Nearly always they are there once, at the start of a pair; the rest goes the long way.
    at = properties.find(b"TAGS\x01")
    end = properties.find(b"\x02", at)
    if at >= 0 and end > at + 5 and (at == 0 or properties[at - 1] == 2):
        tags: bytes | None = properties[at + 5 : end]
        if properties.find(b"TAGS\x01", end) >= 0:
            tags = find(properties, b"TAGS")
    else:
        tags = find(properties, b"TAGS")
    return TAG_HASHES[tags] if tags else 0


def due_ms(properties: bytes, store_ms: int, levels_ms: tuple[int, ...], otherwise: int = 0) -> int:
    """When a message in SCHEDULE_TOPIC_XXXX is to be delivered: its tags code there.

    `otherwise` when it asks for no delay. A level beyond the last counts as the last.
    """
    # Nearly always it is there once, as a pair of its own that is not the first.
    at = properties.find(b"\x02DELAY\x01")
    end = properties.find(b"\x02", at + 7)
    if at < 0 or end < at + 8 or properties.find(b"DELAY\x01", end) >= 0:
        level = find(properties, b"DELAY")
    else:
        level = properties[at + 7 : end]
    if level is None or not level.removeprefix(b"+").isdigit():
        return otherwise
    number = int(level)
    if number == 0:
        return otherwise
    return store_ms + (levels_ms[number - 1] if number <= len(levels_ms) else levels_ms[-1])


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
