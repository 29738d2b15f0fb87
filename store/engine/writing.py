"""Messages into the store. `put_all` is the hot path: straight code, few calls, no copies.

A message gets its place in the log and its entry in the queue in the same call; its record is only
staged. Whatever may fail (size, room in log and queue) comes first, so that a message is in both or
in neither.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...protocol.message.properties import PROPERTIES_BYTES_MAX, find
from ...protocol.message.record import (
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
from ..base.errors import IllegalMessage, StoreError
from ..index.index import is_indexed
from ..log.commit_log import STAGED_BYTES_MAX
from ..queues.consume_queue import ENTRY, ENTRY_BYTES, ConsumeQueue
from .batch_writing import BatchQueueAppender, too_large, with_crc, with_room_for_crc
from .state import HOST_BYTES_V4, StoreState

if TYPE_CHECKING:
    from ...protocol.kernels.plain_sends import PlainSends
    from ..kernels.plain_records import Course, PlainRecords

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


class Appender:
    """Stores messages: one by one, or all plain messages of a tick at once."""

    def __init__(self, state: StoreState, batch_queues: BatchQueueAppender) -> None:
        self._state = state
        self._batch_queues = batch_queues
        self._host = state.host
        self._log = state.log
        self._queues = state.queues
        self._index = state.index
        # Direct references for the hot path.
        self._plain_queues = state.queues.plain
        self._pending_keys = state.index.pending

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
        log, queues, host = self._log, self._plain_queues, self._host
        staged, pending = log.staged, self._pending_keys
        if len(pending) > self._state.index_pending_max:
            self._state.relieve_index()
        body_bytes_max = self._state.settings.max_message_bytes
        store_ms, start = self._state.now_ms(), log.end
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
                    levels_ms = self._state.settings.delay_levels_ms
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
                    self._log.write_staged()
                places.append((log_offset, queue_offset, end))
            except StoreError as wrong:
                places.append(wrong)
                if until_error:
                    break
        if log.end != start:
            self._state.last_ms = store_ms
        return places

    def plain_queue(self, key: tuple[str, int]) -> ConsumeQueue | None:
        """This queue, if plain messages can be put there."""
        queue = self._plain_queues.get(key)
        return None if queue is None or queue.is_special else queue

    def put_plain(
        self, plain: "PlainSends", courses: Sequence["Course"], hosts: bytes, maker: "PlainRecords"
    ) -> bool:
        """Store these messages, as `put_all` does, or none of them: then False.

        `courses` has one with a `plain_queue` for each of their parts, `hosts` the 8 bytes of the
        sender of each piece. They are readable after the next `write_staged`, too.
        """
        log = self._log
        size = 0
        counts: dict[ConsumeQueue, int] = {}
        for (queue, more, _), (_, messages, came, *_) in zip(courses, plain.parts, strict=True):
            size += messages * (queue.fixed_bytes + len(more)) + came
            counts[queue] = counts.get(queue, 0) + messages
        base, end = log.end, log.end + size
        if end > log.room_end or len(self._host) != HOST_BYTES_V4:
            return False
        for queue, messages in counts.items():
            if queue.at + messages * ENTRY_BYTES > queue.limit and not _has_room(queue, messages):
                return False
        if self._index.waiting > self._state.index_pending_max:
            self._state.relieve_index()
        store_ms = self._state.now_ms()
        records, entries, keys = maker.make(
            plain, courses, counts, hosts, self._host, base, size, store_ms
        )
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

    def _put_unusual(self, message: Message, queue: ConsumeQueue | None, store_ms: int) -> Placed:
        """`put_all` for one that is not as nearly all are. StoreError when it is not stored."""
        (
            (topic, queue_id), flag, sys_flag, born_ms, born_host, body, properties, tags_code,
            reconsume_times, prepared_offset, _,
        ) = message  # fmt: skip
        if tags_code is None:
            tags_code = store_ms + self._state.settings.delay_levels_ms[queue_id]
        if queue is None and self._state.has_batch_queue(topic, queue_id):
            return self._batch_queues.put(
                topic, queue_id, flag, sys_flag, born_ms, born_host, body, properties,
                tags_code, 1, reconsume_times,
            )  # fmt: skip
        if (
            len(body) > self._state.settings.max_message_bytes
            or len(properties) > PROPERTIES_BYTES_MAX
        ):
            raise too_large(len(body), len(properties), self._state.settings.max_message_bytes)
        if queue is None:
            self._queues.make(topic, queue_id)
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
            tags_code = due_ms(
                properties, store_ms, self._state.settings.delay_levels_ms, tags_code
            )
        is_queued = sys_flag & TRANSACTION_MASK in (0, TRANSACTION_COMMIT)
        queue_offset = queue.next if is_queued else 0
        if self._state.settings.append_crc:
            properties = with_room_for_crc(properties)
        record = Record(
            0, 0, 0, queue.queue_id, flag, queue_offset, 0, sys_flag, born_ms, born_host, store_ms,
            self._host, reconsume_times, prepared_offset, body, queue.topic, properties,
        )  # fmt: skip
        size = queue.fixed_bytes + len(body) + len(properties)
        size += len(born_host) + len(self._host) - 2 * HOST_BYTES_V4
        if log.end + size > log.room_end:
            log.roll(size)
        log_offset = record.log_offset = log.end
        data = encode_record(record)
        assert len(data) == size
        if self._state.settings.append_crc:
            data = with_crc(data)
        if is_queued:
            queue.append(log_offset, size, tags_code)
        log.staged.append(data)
        log.end = log_offset + size
        if is_indexed(sys_flag):
            self._index.pending.append((queue.topic, properties, log_offset, store_ms, None))
        return log_offset, queue_offset, log.end


def _has_room(queue: ConsumeQueue, messages: int) -> bool:
    """Whether the queue's file has room for so many more, once as much is reserved."""
    try:
        queue.make_room(messages)
    except StoreError:
        return False
    return queue.at + messages * ENTRY_BYTES <= queue.limit


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
