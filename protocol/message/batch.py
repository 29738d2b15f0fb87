"""The body of a batch: messages for one queue, one after the other, in one SEND.

Topic, queue, system flag and born time are in the request's header, once for all. The inner batches
of pop-era stores (system flag 0x80) have the same layout in the body of one record.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from ..errors import Malformed
from .layout import Layout
from .record import COMPRESSED, INNER_BATCH, NEED_UNWRAP, PROPERTIES_LENGTH, Data, Record

# What stands before body, properties length and properties of each message.
LAYOUT = Layout(
    {
        "size": "i",  # of the entry, bytes
        "magic": "i",  # written 0, never read
        "body_crc": "i",  # written 0, never read
        "flag": "i",
        "body_length": "i",
    }
)
FLAG_AT, BODY_LENGTH_AT = LAYOUT.at["flag"], LAYOUT.at["body_length"]
ENTRY = LAYOUT.struct
FLAG_AND_LENGTH = LAYOUT.pick("flag", "body_length")  # the two fields that are read
ENTRY_BYTES_MIN = ENTRY.size + PROPERTIES_LENGTH.size


@dataclass(slots=True)
class Entry:
    """One message of a batch."""

    flag: int
    body: bytes
    raw_properties: bytes


def encode_batch(entries: Iterable[Entry]) -> bytes:
    """The body of a batch request with these messages."""
    parts: list[bytes] = []
    for entry in entries:
        body, raw = entry.body, entry.raw_properties
        size = ENTRY_BYTES_MIN + len(body) + len(raw)
        parts += (
            ENTRY.pack(size, 0, 0, entry.flag, len(body)),
            body,
            PROPERTIES_LENGTH.pack(len(raw)),
            raw,
        )
    return b"".join(parts)


def split_batch(data: Data) -> list[Entry]:
    """The messages of a batch body; Malformed when an entry runs over the end.

    As in RocketMQ the fields are read in sequence: the entries' total sizes decide nothing.
    """
    entries = []
    end = len(data)
    at = 0
    while at < end:
        if end - at < ENTRY_BYTES_MIN:
            raise Malformed(f"{end - at} bytes are left at {at}, an entry has {ENTRY_BYTES_MIN}")
        _, _, _, flag, size = ENTRY.unpack_from(data, at)
        body_at = at + ENTRY.size
        at = body_at + size
        if size < 0 or at + PROPERTIES_LENGTH.size > end:
            raise Malformed(f"an entry's body of {size} bytes at {body_at} runs over the end {end}")
        body = bytes(data[body_at:at])
        (size,) = PROPERTIES_LENGTH.unpack_from(data, at)
        at += PROPERTIES_LENGTH.size
        if size < 0 or at + size > end:
            raise Malformed(f"an entry's properties of {size} bytes at {at} run over the end {end}")
        entries.append(Entry(flag, body, bytes(data[at : at + size])))
        at += size
    return entries


def unwrap_all(records: list[Record]) -> list[Record]:
    """The same for many records; the list itself when none of them holds a batch."""
    for record in records:
        if record.sys_flag & INNER_BATCH:
            return [inner for each in records for inner in unwrap(each)]
    return records


def unwrap(record: Record) -> list[Record]:
    """The messages of a record that holds an inner batch; any other record stands for itself.

    The inner messages share the record's place in the log; their queue offsets count up from its.
    """
    if not record.sys_flag & INNER_BATCH or not record.sys_flag & NEED_UNWRAP:
        return [record]
    flags = record.sys_flag & ~(INNER_BATCH | NEED_UNWRAP | COMPRESSED)
    return [
        msgspec.structs.replace(
            record,
            flag=entry.flag,
            body=entry.body,
            raw_properties=entry.raw_properties,
            queue_offset=record.queue_offset + index,
            sys_flag=flags,
        )
        for index, entry in enumerate(split_batch(record.body))
    ]
