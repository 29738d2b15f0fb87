"""The record of a message: as it lies in the commit log, and as a pull answers it.

Everything is big-endian. Version 1 has a one-byte topic length, version 2 (topics over 127
characters) a two-byte one. Hosts are ip and port, 8 bytes with IPv4, 20 with IPv6; two bits of the
system flag say which. `total size` counts the whole record, and a reader that gets to another
length has a damaged one before it.
"""

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from zlib import crc32 as zlib_crc32

import msgspec

from ..errors import Malformed
from . import properties as props
from .layout import Layout
from .message_id import offset_message_id

Data = bytes | bytearray | memoryview

try:
    from isal.isal_zlib import crc32 as fast_crc32
except ImportError:
    fast_crc32 = zlib_crc32

crc32: Callable[[Data], int] = fast_crc32

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194  # the end of a commit log file

COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_MASK = 0xC
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
COMPRESSION_MASK = 0x700
COMPRESSION_LZ4 = 0x100
COMPRESSION_ZSTD = 0x200
COMPRESSION_ZLIB = 0x300

CRC_MASK = 0x7FFFFFFF  # the Java side keeps a crc as a signed int and masks the sign away
V1_TOPIC_CHARS_MAX = 127

# What stands before body, topic and properties, where both hosts are IPv4. An IPv6 host has
# HOST_V6_EXTRA_BYTES more, and moves the fields behind it.
LAYOUT = Layout(
    {
        "size": "i",  # of the whole record, bytes
        "magic": "I",
        "body_crc": "i",
        "queue_id": "i",
        "flag": "i",
        "queue_offset": "q",
        "log_offset": "q",
        "sys_flag": "i",
        "born_ms": "q",
        "born_host": "8s",
        "store_ms": "q",
        "store_host": "8s",
        "reconsume_times": "i",
        "prepared_offset": "q",  # of a transaction
        "body_length": "i",
    }
)
(
    SIZE_AT,
    MAGIC_AT,
    BODY_CRC_AT,
    QUEUE_ID_AT,
    FLAG_AT,
    QUEUE_OFFSET_AT,
    LOG_OFFSET_AT,
    SYS_FLAG_AT,
    BORN_MS_AT,
    BORN_HOST_AT,
    STORE_MS_AT,
    STORE_HOST_AT,
    RECONSUME_TIMES_AT,
    PREPARED_OFFSET_AT,
    BODY_LENGTH_AT,
) = LAYOUT.at.values()
HEAD = LAYOUT.struct
HEAD_BYTES = LAYOUT.size
# The same in pieces, for hosts of any size.
START = LAYOUT.span("size", "born_ms")
MIDDLE = LAYOUT.span("store_ms", "store_ms")
END = LAYOUT.span("reconsume_times", "body_length")
# What is needed to find the properties, where both hosts are IPv4.
LENGTHS = LAYOUT.pick("magic.low", "sys_flag.low", "body_length.unsigned")
SIZE_AND_LENGTHS = LAYOUT.pick("size", "magic.low", "sys_flag.low", "body_length.unsigned")
SIZE_AND_QUEUE_OFFSET = LAYOUT.pick("size", "queue_offset")
QUEUE_ID = LAYOUT.span("queue_id", "queue_id")
QUEUE_OFFSET = LAYOUT.span("queue_offset", "queue_offset")
BODY_LENGTH = Struct(">I")
TOPIC_LENGTH_V2 = Struct(">H")
PROPERTIES_LENGTH = Struct(">h")
HOSTS_V6 = BORN_HOST_V6 | STORE_HOST_V6
HOST_BYTES_V4 = 8

RECORD_BYTES_MIN = HEAD.size + 1 + PROPERTIES_LENGTH.size  # v1, IPv4, nothing inside
HOST_V6_EXTRA_BYTES = 12
RESERVED_CRC_BYTES = 20  # "__CRC32#", a separator, ten digits, a separator
CRC_DIGITS = 10


class Record(msgspec.Struct, gc=False):
    """One stored message. Times in ms, hosts as 8 or 20 bytes, `body` as stored (compressed)."""

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    log_offset: int
    sys_flag: int
    born_ms: int
    born_host: bytes
    store_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_offset: int
    body: bytes
    topic: str
    raw_properties: bytes

    @property
    def properties(self) -> dict[str, str]:
        """The properties, parsed at each access."""
        return props.decode(self.raw_properties)

    @property
    def offset_id(self) -> str:
        """The offset message id."""
        return offset_message_id(self.store_host, self.log_offset)

    @property
    def is_body_intact(self) -> bool:
        """True if the body has the crc that was stored with it."""
        return self.body_crc == body_crc(self.body)


def body_crc(body: Data) -> int:
    """The crc of a stored body: 31 bits, 0 for an empty one."""
    return crc32(body) & CRC_MASK


def topic_field(topic: str) -> tuple[int, bytes]:
    """Magic, and the topic with its length before it, of records of this topic."""
    name = topic.encode()
    # RocketMQ chooses the version by characters and writes the length in bytes.
    if len(topic) > V1_TOPIC_CHARS_MAX:
        return MAGIC_V2, TOPIC_LENGTH_V2.pack(len(name)) + name
    return MAGIC_V1, bytes([len(name)]) + name


def encode_record(record: Record) -> bytes:
    """The bytes of a record. `size`, `magic`, `body_crc` and the host bits are worked out here."""
    magic, topic = topic_field(record.topic)
    flags = record.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)
    if len(record.born_host) > 8:
        flags |= BORN_HOST_V6
    if len(record.store_host) > 8:
        flags |= STORE_HOST_V6
    rest = b"".join(
        (
            record.born_host,
            MIDDLE.pack(record.store_ms),
            record.store_host,
            END.pack(record.reconsume_times, record.prepared_offset, len(record.body)),
            record.body,
            topic,
            PROPERTIES_LENGTH.pack(len(record.raw_properties)),
            record.raw_properties,
        )
    )
    return (
        START.pack(
            START.size + len(rest),
            magic,
            body_crc(record.body),
            record.queue_id,
            record.flag,
            record.queue_offset,
            record.log_offset,
            flags,
            record.born_ms,
        )
        + rest
    )


def decode_record(data: Data, at: int = 0) -> Record:
    """The record that begins at `at`; bytes behind it are left alone.

    Malformed when it is cut off, has an unknown magic, or its lengths contradict each other. The
    body's crc is not checked: `is_body_intact` does that.
    """
    available = len(data) - at
    if available < RECORD_BYTES_MIN:
        raise Malformed(
            f"a record has at least {RECORD_BYTES_MIN} bytes, only {available} are left at {at}"
        )
    # Nearly every record has IPv4 hosts and a short topic: it is read in one piece.
    (
        size,
        magic,
        crc,
        queue_id,
        flag,
        queue_offset,
        log_offset,
        sys_flag,
        born_ms,
        born_host,
        store_ms,
        store_host,
        reconsume_times,
        prepared_offset,
        body_bytes,
    ) = HEAD.unpack_from(data, at)
    if magic == MAGIC_V1 and not sys_flag & HOSTS_V6:
        end = at + size
        place = at + HEAD_BYTES + body_bytes
        if body_bytes >= 0 and place + 3 <= end and size <= available:
            topic_end = place + 1 + data[place]
            if topic_end + 2 <= end:
                (properties_bytes,) = PROPERTIES_LENGTH.unpack_from(data, topic_end)
                if topic_end + 2 + properties_bytes == end:
                    return Record(
                        size,
                        magic,
                        crc,
                        queue_id,
                        flag,
                        queue_offset,
                        log_offset,
                        sys_flag,
                        born_ms,
                        born_host,
                        store_ms,
                        store_host,
                        reconsume_times,
                        prepared_offset,
                        bytes(data[at + HEAD_BYTES : place]),
                        bytes(data[place + 1 : topic_end]).decode(errors="replace"),
                        bytes(data[topic_end + 2 : end]),
                    )
    return _decode_field_by_field(data, at)


def _decode_field_by_field(data: Data, at: int) -> Record:
    """`decode_record` for IPv6 hosts and long topics, and for what is no record."""
    available = len(data) - at
    size, magic, crc, queue_id, flag, queue_offset, log_offset, sys_flag, born_ms, *_ = (
        HEAD.unpack_from(data, at)
    )
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise Malformed(f"the record at {at} has the unknown magic {magic:08X}")
    if not RECORD_BYTES_MIN <= size <= available:
        raise Malformed(f"the record at {at} says that it has {size} bytes, {available} are left")
    end = at + size
    place = at + BORN_HOST_AT
    born_bytes = 20 if sys_flag & BORN_HOST_V6 else 8
    store_bytes = 20 if sys_flag & STORE_HOST_V6 else 8
    smallest = RECORD_BYTES_MIN + born_bytes + store_bytes - 16 + (magic == MAGIC_V2)
    if size < smallest:
        raise Malformed(f"the record at {at} has {size} bytes, its kind has at least {smallest}")
    born_host = bytes(data[place : place + born_bytes])
    place += born_bytes
    (store_ms,) = MIDDLE.unpack_from(data, place)
    place += MIDDLE.size
    store_host = bytes(data[place : place + store_bytes])
    place += store_bytes
    reconsume_times, prepared_offset, body_bytes = END.unpack_from(data, place)
    place += END.size
    if not 0 <= body_bytes <= size - smallest:
        raise Malformed(f"the record at {at} has a body of {body_bytes} bytes in {size}")
    body = bytes(data[place : place + body_bytes])
    place += body_bytes
    if magic == MAGIC_V1:
        topic_bytes = data[place]
        place += 1
    else:
        (topic_bytes,) = TOPIC_LENGTH_V2.unpack_from(data, place)
        place += TOPIC_LENGTH_V2.size
    if place + topic_bytes + PROPERTIES_LENGTH.size > end:
        raise Malformed(f"the record at {at} has a topic of {topic_bytes} bytes beyond its end")
    topic = bytes(data[place : place + topic_bytes]).decode(errors="replace")
    place += topic_bytes
    (properties_bytes,) = PROPERTIES_LENGTH.unpack_from(data, place)
    place += PROPERTIES_LENGTH.size
    if place + properties_bytes != end or properties_bytes < 0:
        raise Malformed(
            f"the record at {at} has {size} bytes, its fields add up to "
            f"{place + properties_bytes - at}"
        )
    return Record(
        size,
        magic,
        crc,
        queue_id,
        flag,
        queue_offset,
        log_offset,
        sys_flag,
        born_ms,
        born_host,
        store_ms,
        store_host,
        reconsume_times,
        prepared_offset,
        body,
        topic,
        bytes(data[place:end]),
    )


def store_ms_of(data: Data) -> int:
    """The store time of the record that these bytes begin with, without reading the rest."""
    at = BORN_HOST_AT + (20 if data[SYS_FLAG_AT + 3] & BORN_HOST_V6 else 8)
    found: int = MIDDLE.unpack_from(data, at)[0]
    return found


def raw_properties_of(data: Data) -> bytes:
    """The properties of the one record that these bytes are, without reading the rest.

    Malformed when they can't be where its lengths say.
    """
    try:
        magic, flags, body_bytes = LENGTHS.unpack_from(data)
        at = HEAD.size
        if flags & (BORN_HOST_V6 | STORE_HOST_V6):
            at += HOST_V6_EXTRA_BYTES * (bool(flags & BORN_HOST_V6) + bool(flags & STORE_HOST_V6))
            (body_bytes,) = BODY_LENGTH.unpack_from(data, at - BODY_LENGTH.size)
        at += body_bytes
        if magic == MAGIC_V1 & 0xFF:
            at += 1 + data[at]
        else:
            at += TOPIC_LENGTH_V2.size + TOPIC_LENGTH_V2.unpack_from(data, at)[0]
    except (StructError, IndexError):
        at = len(data)
    at += PROPERTIES_LENGTH.size
    if at > len(data):
        raise Malformed(f"a record of {len(data)} bytes says that its properties begin at {at}")
    return bytes(data[at:])


def properties_places(data: bytes) -> list[tuple[int, int, int]]:
    """The places of adjacent records: the start of each, the start of its properties, its end.

    The start of the properties is -1 for a record of a rare kind, and for bytes that can't be read:
    call `raw_properties_of`. Bytes that can't be told from what follows are one piece with it.
    """
    places = []
    at, end = 0, len(data)
    while at < end:
        left = end - at
        size = properties_at = -1
        if left >= RECORD_BYTES_MIN:
            size, magic, flags, body_bytes = SIZE_AND_LENGTHS.unpack_from(data, at)
            if magic == MAGIC_V1 & 0xFF and not flags & HOSTS_V6:
                topic_at = at + HEAD_BYTES + body_bytes
                if topic_at < end:
                    properties_at = topic_at + 1 + data[topic_at] + PROPERTIES_LENGTH.size
        if not RECORD_BYTES_MIN <= size <= left:
            size = left
        following = at + size
        places.append((at, properties_at if properties_at <= following else -1, following))
        at = following
    return places


def moved(data: bytes, queue_id: int, delta: int) -> bytes:
    """The same records in another queue, their offsets in it higher by `delta`: a static topic's
    records have the ids and offsets of physical queues. Malformed when they can't be read."""
    found = bytearray(data)
    at, total = 0, len(found)
    while at < total:
        if total - at < RECORD_BYTES_MIN:
            raise Malformed(f"{total - at} bytes at {at} are no record")
        size, offset = SIZE_AND_QUEUE_OFFSET.unpack_from(found, at)
        if size < RECORD_BYTES_MIN:
            raise Malformed(f"a record of {size} bytes at {at}, {RECORD_BYTES_MIN} is the least")
        QUEUE_ID.pack_into(found, at + QUEUE_ID_AT, queue_id)
        QUEUE_OFFSET.pack_into(found, at + QUEUE_OFFSET_AT, offset + delta)
        at += size
    return bytes(found)


def decode_all(data: Data) -> list[Record]:
    """The records that lie one after the other in the body of a pull's answer.

    Nearly all of them are version 1 with IPv4 hosts and read here in one piece; `decode_record`
    reads the others, and says what is wrong with one.
    """
    if type(data) is not bytes:
        data = bytes(data)
    records = []
    total = len(data)
    unpack, unpack_length = HEAD.unpack_from, PROPERTIES_LENGTH.unpack_from
    name, topic = b"", ""  # of the record before, which mostly has the same
    at = 0
    while at < total:
        if total - at >= RECORD_BYTES_MIN:
            (
                size,
                magic,
                crc,
                queue_id,
                flag,
                queue_offset,
                log_offset,
                sys_flag,
                born_ms,
                born_host,
                store_ms,
                store_host,
                reconsume_times,
                prepared_offset,
                body_bytes,
            ) = unpack(data, at)
            end = at + size
            body_at = at + HEAD_BYTES
            topic_at = body_at + body_bytes
            if magic == MAGIC_V1 and not sys_flag & HOSTS_V6 and body_at <= topic_at < end <= total:
                properties_at = topic_at + 1 + data[topic_at] + PROPERTIES_LENGTH.size
                if (
                    properties_at <= end
                    and unpack_length(data, properties_at - 2)[0] == end - properties_at
                ):
                    found = data[topic_at + 1 : properties_at - 2]
                    if found != name:
                        name, topic = found, found.decode(errors="replace")
                    records.append(
                        Record(
                            size,
                            magic,
                            crc,
                            queue_id,
                            flag,
                            queue_offset,
                            log_offset,
                            sys_flag,
                            born_ms,
                            born_host,
                            store_ms,
                            store_host,
                            reconsume_times,
                            prepared_offset,
                            data[body_at:topic_at],
                            topic,
                            data[properties_at:end],
                        )
                    )
                    at = end
                    continue
        record = decode_record(data, at)
        records.append(record)
        at += record.size
    return records


def crc_property(record: Data) -> bytes:
    """The property that option enabledAppendPropCRC puts last, for the record bytes before it.

    Its digits are the decimal crc with the least significant one first.
    """
    digits = f"{crc32(record) & CRC_MASK:0{CRC_DIGITS}d}"[::-1]
    return f"{props.CRC32}\x01{digits}\x02".encode()


def is_crc_property_right(record: bytes) -> bool | None:
    """True if a whole record agrees with the crc property at its end; None if it has none."""
    end = len(record) - RESERVED_CRC_BYTES
    found = record[end:]
    if end < RECORD_BYTES_MIN or not found.startswith(props.CRC32.encode() + b"\x01"):
        return None
    return found == crc_property(record[:end])
