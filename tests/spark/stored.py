"""Stored records for the tests of this folder, with fields that most of them don't care about."""

from typing import Any

import pyarrow as pa
from aerobee.protocol.message.batch import Entry, encode_batch
from aerobee.protocol.message.record import Record, encode_record

HOST_V4 = bytes((10, 1, 2, 3)) + (54321).to_bytes(4, "big")
HOST_V6 = bytes.fromhex("20010db8000000000000000000000001") + (54321).to_bytes(4, "big")
STORE_MS = 1_700_000_000_456


def raw(properties: dict[str, str]) -> bytes:
    """A property string."""
    return b"".join(f"{name}\x01{value}\x02".encode() for name, value in properties.items())


def stored(
    offset: int = 0,
    body: bytes = b"body",
    properties: dict[str, str] | bytes = b"",
    **fields: Any,
) -> bytes:
    """One record; `fields` are those of `Record`."""
    record = Record(
        size=0,
        magic=0,
        body_crc=0,
        queue_id=3,
        flag=0,
        queue_offset=offset,
        log_offset=offset * 1000,
        sys_flag=0,
        born_ms=STORE_MS - 333,
        born_host=HOST_V4,
        store_ms=STORE_MS,
        store_host=HOST_V4,
        reconsume_times=0,
        prepared_offset=0,
        body=body,
        topic="orders",
        raw_properties=properties if isinstance(properties, bytes) else raw(properties),
    )
    for name, value in fields.items():
        setattr(record, name, value)
    return encode_record(record)


def inner_batch(*messages: tuple[bytes, dict[str, str], int]) -> bytes:
    """A batch body of (body, properties, flag)."""
    return encode_batch(Entry(flag, body, raw(properties)) for body, properties, flag in messages)


def lz4(body: bytes) -> bytes:
    return _packed(body, "lz4")


def zstd(body: bytes) -> bytes:
    return _packed(body, "zstd")


def _packed(body: bytes, kind: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, kind) as stream:
        stream.write(body)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed
