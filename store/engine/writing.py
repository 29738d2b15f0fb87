"""Storing messages. `put_all` is the hot path: straight code, few calls, no copies.

A call gives a message its place in the log and its entry in the queue, and stages its record. All
that can fail (size, room in log and queue) comes first, so a message is in both or in neither.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...protocol.message.properties import PROPERTIES_BYTES_MAX, find
from ...protocol.message.record import (
    BORN_HOST_V6,
    CRC_MASK,
    HEAD,
    HOST_BYTES_V4,
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
from ..base.errors import IllegalMessage, StoreError
from ..index.index import is_indexed
from ..log.commit_log import STAGED_BYTES_MAX
from ..queues.consume_queue import ENTRY, ENTRY_BYTES, ConsumeQueue
from .batch_writing import BatchQueueAppender, too_large, with_crc, with_room_for_crc
from .light_queues import DISPATCH, light_queues, with_offsets
from .messages import Message, MessageFields, Placed
from .state import StoreState

if TYPE_CHECKING:
    from ...protocol.kernels.send_table import SendTable
    from ..kernels.record_encoder import RecordDestination, RecordEncoder

# A committed message is stored like any other. A prepared or rolled back one (which has both bits)
# gets no entry in a queue.
MOVED_BYTES_MAX = 16 << 20  # of a body that was taken before: more than maxMessageSize can be
SPECIAL_FLAGS = TRANSACTION_PREPARED | BORN_HOST_V6 | STORE_HOST_V6 | INNER_BATCH


Results = list[Placed | StoreError]  # for each message where it is, or why it is not stored


class Appender:
    """Stores messages: one by one, or all eligible sends of a tick at once."""

    def __init__(self, state: StoreState, batch_queues: BatchQueueAppender) -> None:
        self._state = state
        self._batch_queues = batch_queues
        self._log = state.log
        self._queues = state.queues
        self._index = state.index
        # Direct references for the hot path.
        self._simple_queues = state.queues.simple
        self._pending_keys = state.index.pending

    def put(self, message: Message, *, is_moved: bool = False) -> Placed:
        """Store one message, as `put_all` does; StoreError when it is not stored."""
        (placed,) = self.put_all((message,), are_moved=is_moved)
        if isinstance(placed, StoreError):
            raise placed
        return placed

    def put_all(self, messages: Iterable[MessageFields], *, are_moved: bool = False) -> Results:
        """Store messages in order; they are readable after the next `write_staged`.

        In SCHEDULE_TOPIC_XXXX the tags code follows from the property DELAY, or from the level of
        the queue if it is None. With `are_moved` they were taken before, and are stored for their
        readers now: maxMessageSize, which may be smaller by now, doesn't hold for them, and the
        first error is the last result.
        """
        log, queues, state = self._log, self._simple_queues, self._state
        staged, pending = log.staged, self._pending_keys
        if len(pending) > state.index_pending_max:
            state.relieve_index()
        host = state.host
        body_bytes_max = self._body_bytes_max(are_moved)
        store_ms, start, with_light = state.now_ms(), log.end, state.settings.lmq_enable
        places: Results = []
        for message in messages:
            (
                key,
                flag,
                sys_flag,
                born_ms,
                born_host,
                body,
                properties,
                tags_code,
                reconsume_times,
                prepared_offset,
                unique,
            ) = message
            queue = queues.get(key)
            body_bytes, properties_bytes = len(body), len(properties)
            try:
                if (
                    queue is None
                    or queue.is_special
                    or sys_flag & SPECIAL_FLAGS
                    or (with_light and DISPATCH in properties)
                    or body_bytes > body_bytes_max
                    or properties_bytes > PROPERTIES_BYTES_MAX
                    or len(born_host) + len(host) != 2 * HOST_BYTES_V4
                ):
                    places.append(self._put_unusual(message, queue, store_ms, are_moved))
                    continue
                size = queue.fixed_bytes + body_bytes + properties_bytes
                log_offset = log.end
                end = log_offset + size
                if end > log.room_end:
                    log_offset = log.roll(size)
                    end = log_offset + size
                at, queue_offset = queue.at, queue.next
                if at >= queue.limit:
                    at = queue.make_room()
                if queue.is_schedule:
                    tags_code = self._due_code(key[1], properties, store_ms, tags_code)
                staged += (
                    HEAD.pack(
                        size,
                        queue.magic,
                        crc32(body) & CRC_MASK,
                        key[1],
                        flag,
                        queue_offset,
                        log_offset,
                        sys_flag,
                        born_ms,
                        born_host,
                        store_ms,
                        host,
                        reconsume_times,
                        prepared_offset,
                        body_bytes,
                    ),
                    body,
                    queue.topic_field,
                    PROPERTIES_LENGTH.pack(properties_bytes),
                    properties,
                )
                log.end = end
                ENTRY.pack_into(queue.view, at, log_offset, size, tags_code)
                queue.at = at + ENTRY_BYTES
                queue.next = queue_offset + 1
                pending.append((key[0], properties, log_offset, store_ms, unique))
                if end - log.written > STAGED_BYTES_MAX:
                    log.write_staged()
                places.append((log_offset, queue_offset, end))
            except StoreError as wrong:
                places.append(wrong)
                if are_moved:
                    break
        if log.end != start:
            state.last_ms = store_ms
        return places

    def _due_code(
        self, queue_id: int, properties: bytes, store_ms: int, tags_code: int | None
    ) -> int:
        """The tags code of a message in SCHEDULE_TOPIC_XXXX: when it is delivered, in ms."""
        levels_ms = self._state.settings.delay_levels_ms
        if tags_code is None:
            return store_ms + levels_ms[queue_id]
        return due_ms(properties, store_ms, levels_ms, tags_code)

    def eligible_queue(self, key: tuple[str, int]) -> ConsumeQueue | None:
        """The queue with this key if `put_table` may append to it, else None."""
        queue = self._simple_queues.get(key)
        return None if queue is None or queue.is_special else queue

    def put_table(
        self,
        table: "SendTable",
        destinations: Sequence["RecordDestination"],
        hosts: Sequence[bytes],
        maker: "RecordEncoder",
    ) -> bool:
        """Store the messages of `table`, as `put_all` does. Returns False if none is stored,
        because the log file or a queue file has no room.

        `destinations` has one, with an `eligible_queue`, for each of `table.group_totals`. `hosts`
        has the host of the sender of each chunk, 8 or 20 bytes.
        """
        log = self._log
        maker.set_hosts(table, hosts, self._state.host)
        size = maker.extra_bytes
        counts: dict[ConsumeQueue, int] = {}
        for (queue, suffix, _), part in zip(destinations, table.group_totals, strict=True):
            _, messages, own_bytes, *_ = part
            size += messages * (queue.fixed_bytes + len(suffix)) + own_bytes
            counts[queue] = counts.get(queue, 0) + messages
        base, end = log.end, log.end + size
        if end > log.room_end:
            return False
        for queue, messages in counts.items():
            if queue.at + messages * ENTRY_BYTES > queue.limit and not _has_room(queue, messages):
                return False
        if self._index.waiting > self._state.index_pending_max:
            self._state.relieve_index()
        store_ms = self._state.now_ms()
        records, entries, keys = maker.make(table, destinations, counts, base, size, store_ms)
        log.staged.append(records)
        log.end = end
        start = 0
        for queue, messages in counts.items():
            at, behind = queue.at, start + messages * ENTRY_BYTES
            queue.at = at + behind - start
            queue.view[at : queue.at] = entries[start:behind]
            queue.next += messages
            start = behind
        self._index.add_block(keys)
        self._state.last_ms = store_ms
        if end - log.written > STAGED_BYTES_MAX:
            self._log.write_staged()
        return True

    def _put_unusual(
        self,
        fields: MessageFields,
        queue: ConsumeQueue | None,
        store_ms: int,
        is_moved: bool,
    ) -> Placed:
        """`put_all` for a message that its fast path leaves out. StoreError if it is not stored."""
        message = Message(*fields)
        topic, queue_id = message.key
        if message.tags_code is None:
            due = self._due_code(queue_id, message.properties, store_ms, None)
            message = message._replace(tags_code=due)
        if queue is None and self._state.has_batch_queue(topic, queue_id):
            return self._batch_queues.put(message, 1, self._body_bytes_max(is_moved))
        body_bytes, properties_bytes = len(message.body), len(message.properties)
        body_bytes_max = self._body_bytes_max(is_moved)
        if body_bytes > body_bytes_max or properties_bytes > PROPERTIES_BYTES_MAX:
            raise too_large(body_bytes, properties_bytes, body_bytes_max)
        if queue is None:
            self._queues.make(topic, queue_id)
            return self.put(Message(*fields), is_moved=is_moved)
        return self._put_special(queue, message, store_ms)

    def _body_bytes_max(self, is_moved: bool) -> int:
        return MOVED_BYTES_MAX if is_moved else self._state.settings.max_message_bytes

    def _put_special(self, queue: ConsumeQueue, message: Message, store_ms: int) -> Placed:
        """`put_all` for IPv6 hosts, transactions, light queues and records with a crc property."""
        sys_flag, properties, tags_code = message.sys_flag, message.properties, message.tags_code
        assert tags_code is not None
        if sys_flag & INNER_BATCH:
            raise IllegalMessage(
                f"system flag {sys_flag} says that the body is a batch in one record, which only "
                "batch queues have; send an ordinary batch"
            )
        log = self._log
        if queue.is_schedule:
            tags_code = self._due_code(queue.queue_id, properties, store_ms, tags_code)
        is_queued = sys_flag & TRANSACTION_MASK in (0, TRANSACTION_COMMIT)
        queue_offset = queue.next if is_queued else 0
        light: list[ConsumeQueue] = []
        if is_queued and self._state.settings.lmq_enable:
            light = light_queues(self._queues, self._state.settings, queue.topic, properties)
            if light:
                properties = with_offsets(properties, light)
        if self._state.settings.append_crc:
            properties = with_room_for_crc(properties)
        record = Record(
            0,
            0,
            0,
            queue.queue_id,
            message.flag,
            queue_offset,
            0,
            sys_flag,
            message.born_ms,
            message.born_host,
            store_ms,
            self._state.host,
            message.reconsume_times,
            message.prepared_offset,
            message.body,
            queue.topic,
            properties,
        )
        size = queue.fixed_bytes + len(message.body) + len(properties)
        size += len(message.born_host) + len(self._state.host) - 2 * HOST_BYTES_V4
        if log.end + size > log.room_end:
            log.roll(size)
        log_offset = record.log_offset = log.end
        data = encode_record(record)
        assert len(data) == size
        if self._state.settings.append_crc:
            data = with_crc(data)
        if is_queued:
            queue.append(log_offset, size, tags_code)
        for one in dict.fromkeys(light):
            if one is not queue:
                one.append(log_offset, size, tags_code)
                self._state.light_arrived[one.topic, 0] = None
        log.staged.append(data)
        log.end = log_offset + size
        if is_indexed(sys_flag):
            self._index.pending.append((queue.topic, properties, log_offset, store_ms, None))
        return log_offset, queue_offset, log.end


def _has_room(queue: ConsumeQueue, messages: int) -> bool:
    """Reserve room for that many entries. Returns whether the file of the queue has it."""
    try:
        queue.make_room(messages)
    except StoreError:
        return False
    return queue.at + messages * ENTRY_BYTES <= queue.limit


def due_ms(properties: bytes, store_ms: int, levels_ms: tuple[int, ...], otherwise: int = 0) -> int:
    """The delivery time of a message in SCHEDULE_TOPIC_XXXX, ms: its tags code there.

    Returns `otherwise` without a delay. A level beyond the last counts as the last.
    """
    level = find(properties, b"DELAY")
    if level is None or not level.removeprefix(b"+").isdigit():
        return otherwise
    number = int(level)
    if number == 0:
        return otherwise
    return store_ms + (levels_ms[number - 1] if number <= len(levels_ms) else levels_ms[-1])
