"""Messages into batch consume queues: one record and one unit for each batch.

A record says in its properties how many messages it holds (INNER_NUM) and which offset the first of
them has (INNER_BASE), so that a queue can be made again from the log. The messages of a batch lie
in the body; a message that comes by itself is an ordinary record that counts as a batch of one.
"""

from ...protocol.message.properties import (
    CRC32,
    INNER_BASE,
    INNER_NUM,
    PROPERTIES_BYTES_MAX,
    without,
)
from ...protocol.message.record import (
    INNER_BATCH,
    RESERVED_CRC_BYTES,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    Record,
    crc_property,
    encode_record,
)
from ..base.errors import IllegalMessage, MessageTooLarge
from ..log.commit_log import STAGED_BYTES_MAX
from .messages import Message, Placed
from .state import StoreState

MESSAGES_MAX = (1 << 15) - 1  # of one unit: its field has 16 bits
_CRC_NAME = CRC32.encode() + b"\x01"


class BatchQueueAppender:
    """Stores batches in batch queues."""

    def __init__(self, state: StoreState) -> None:
        self._state = state
        self._log = state.log
        self._index = state.index

    def put(self, message: Message, number: int, body_bytes_max: int | None = None) -> Placed:
        """Store a record of `number` messages; result and errors are those of `Appender.put`. The
        limit of the body is maxMessageSize unless it is given.

        With the flag NEED_UNWRAP the messages are in the body, in the layout of a batch.
        """
        (topic, queue_id), flag, sys_flag, born_ms, born_host, body, properties, *_ = message
        tags_code = message.tags_code or 0
        if sys_flag & TRANSACTION_MASK not in (0, TRANSACTION_COMMIT):
            raise IllegalMessage(
                f"system flag {sys_flag} has no place in a batch queue: no transactions there; "
                "send to a topic without batch queues"
            )
        if not 0 < number <= MESSAGES_MAX:
            raise MessageTooLarge(
                f"the batch has {number} messages, a batch queue takes 1 to {MESSAGES_MAX}; send "
                "fewer at once"
            )
        queue, log = self._state.queues.make_batch(topic, queue_id), self._log
        if len(self._index.pending) > self._state.index_pending_max:
            self._state.relieve_index()
        base, store_ms = queue.next, self._state.now_ms()
        if b"INNER_" in properties:  # it was read from such a queue before
            properties = without(properties, INNER_NUM, INNER_BASE)
        properties += f"{INNER_NUM}\x01{number}\x02{INNER_BASE}\x01{base}\x02".encode()
        if body_bytes_max is None:
            body_bytes_max = self._state.settings.max_message_bytes
        if len(body) > body_bytes_max or len(properties) > PROPERTIES_BYTES_MAX:
            raise too_large(len(body), len(properties), body_bytes_max)
        record = Record(
            0,
            0,
            0,
            queue_id,
            flag,
            base,
            0,
            sys_flag | INNER_BATCH,
            born_ms,
            born_host,
            store_ms,
            self._state.host,
            message.reconsume_times,
            0,
            body,
            topic,
            with_room_for_crc(properties) if self._state.settings.append_crc else properties,
        )
        log_offset = record.log_offset = log.end
        data = encode_record(record)
        size = len(data)
        if log_offset + size > log.room_end:
            log.roll(size)
            log_offset = record.log_offset = log.end
            data = encode_record(record)
        if self._state.settings.append_crc:
            data = with_crc(data)
        queue.append(log_offset, size, tags_code, store_ms, base, number)
        log.staged.append(data)
        log.end = log_offset + size
        self._index.pending.append((topic, properties, log_offset, store_ms, None))
        self._state.last_ms = store_ms
        if log.end - log.written > STAGED_BYTES_MAX:
            self._log.write_staged()
        return log_offset, base, log.end


def with_room_for_crc(properties: bytes) -> bytes:
    """The properties without a crc property, followed by zeros in the size of one."""
    if _CRC_NAME in properties:
        properties = without(properties, CRC32)
    if properties and properties[-1] != 2:
        properties += b"\x02"
    if len(properties) + RESERVED_CRC_BYTES > PROPERTIES_BYTES_MAX:
        raise too_large(0, len(properties) + RESERVED_CRC_BYTES, 0)
    return properties + bytes(RESERVED_CRC_BYTES)


def too_large(body_bytes: int, properties_bytes: int, body_bytes_max: int) -> MessageTooLarge:
    """The error for a message whose body, or else whose properties, exceed the limit."""
    if body_bytes > body_bytes_max:
        return MessageTooLarge(
            f"the message body is {body_bytes} bytes, the limit is {body_bytes_max} "
            "(maxMessageSize); send it in parts, compress it, or raise the limit"
        )
    return MessageTooLarge(
        f"the message properties are {properties_bytes} bytes, the limit is "
        f"{PROPERTIES_BYTES_MAX}; put some of it into the body"
    )


def with_crc(data: bytes) -> bytes:
    """The record with its last property, so far zeros, set to the crc of the bytes before it."""
    covered = data[:-RESERVED_CRC_BYTES]
    return covered + crc_property(covered)
