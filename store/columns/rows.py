"""Messages as rows: from the bytes of whole records to Arrow columns.

A single uncompressed record, as nearly all are, costs no Python object except its position.
Compressed records and batches are unpacked first (`unwrap`). A column is made when it is asked for.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...protocol.errors import Malformed
from ...protocol.message import properties as props
from ...protocol.message.message_id import host_text, offset_message_id
from ...protocol.message.record import (
    BORN_HOST_AT,
    BORN_MS_AT,
    FLAG_AT,
    HEAD_BYTES,
    LOG_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECONSUME_TIMES_AT,
    STORE_HOST_AT,
    STORE_MS_AT,
)
from ..log.records import Records, locate, unaligned
from .arrays import constant, numbers, slices
from .properties import Properties, as_text
from .unwrap import needs_unwrap, unwrapped

BATCH_BYTES_MAX = (1 << 31) - 1  # Arrow's binary columns count in 32 bits
OFFSET_MAX = (1 << 63) - 1
TIMESTAMP = pa.timestamp("us", tz="UTC")
# The inner names are the ones that Spark gives to the same types, because it compares them.
TEXTS = pa.list_(pa.field("element", pa.string()))
TEXT_MAP = pa.map_(pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string()))


def rows_of(
    data: bytes, *, first: int = 0, end: int = OFFSET_MAX, records: Records | None = None
) -> "Rows":
    """The messages in `data` whose queue offset is in [first, end).

    `data` holds whole records, one after the other, in one queue's order; a batch in one record
    may occur twice and counts once. `records` says where they lie, if known. Malformed when
    bodies don't unpack, when the bytes are no records, or when they are more than an Arrow column
    takes.
    """
    rows = every_row(data, records)
    records = rows.records
    offsets = records.queue_offsets()
    passed = np.maximum.accumulate(np.append(np.int64(first - 1), offsets[:-1]))[: len(offsets)]
    wanted = (offsets > passed) & (offsets < end)
    return rows if wanted.all() else Rows(records.picked(wanted))


def every_row(data: bytes, records: Records | None = None) -> "Rows":
    """The messages of all records in `data`. Malformed as `rows_of`."""
    if len(data) > BATCH_BYTES_MAX:
        raise Malformed(
            f"{len(data)} bytes of records at once, the limit is {BATCH_BYTES_MAX}; "
            "read fewer messages at once (with Spark: set maxMessagesPerPull lower)"
        )
    records = records or locate(data)
    if needs_unwrap(records.sys_flags).any():
        records = locate(unwrapped(records))
    return Rows(records)


class Rows:
    """The columns of one batch; parts that several columns need are made once."""

    def __init__(self, records: Records) -> None:
        self.records = records

    def __len__(self) -> int:
        return len(self.records)

    @cached_property
    def properties(self) -> Properties:
        """All properties, to make columns of."""
        records = self.records
        return Properties(slices(records.data, records.properties_at, records.properties_end))

    @cached_property
    def key(self) -> pa.StringArray:
        """The property KEYS, as one text; null if absent."""
        return self.properties.column(props.KEYS)

    def value(self) -> pa.BinaryArray:
        """The body, unpacked."""
        records = self.records
        return slices(records.data, records.body_at, records.body_end)

    def topic(self) -> pa.StringArray:
        """The topic."""
        records = self.records
        return as_text(slices(records.data, records.topic_at, records.topic_end))

    def tags(self) -> pa.StringArray:
        """The property TAGS; null if absent."""
        return self.properties.column(props.TAGS)

    def constant(self, value: str | int, kind: pa.DataType) -> pa.Array:
        """The same for every message."""
        return constant(value, kind, len(self.records))

    def int32(self, at: int, shift: NDArray[np.int64] | int = 0) -> pa.Array:
        """The 4-byte field at this position of a record."""
        return numbers(self._field(at, ">i4", shift).astype(np.int32))

    def int64(self, at: int) -> pa.Array:
        """The 8-byte field at this position of a record."""
        return numbers(self._field(at, ">i8").astype(np.int64))

    def time(self, at: int, shift: NDArray[np.int64] | int = 0) -> pa.Array:
        """The milliseconds at this position of a record, as a time."""
        micros = self._field(at, ">i8", shift).astype(np.int64) * 1000
        return numbers(micros).cast(TIMESTAMP)

    def _field(self, at: int, kind: str, shift: NDArray[np.int64] | int = 0) -> NDArray[Any]:
        """The number of this kind at this position of each record, `shift` bytes further on."""
        records = self.records
        found: NDArray[Any]
        if records.all_v6.any():
            found = unaligned(records.data, kind)[records.starts + (at + shift)]
        else:
            place: Any = {"names": ["it"], "formats": [kind], "offsets": [at]}
            found = self._heads.view(np.dtype(place | {"itemsize": HEAD_BYTES}))["it"]
        return found

    @cached_property
    def _heads(self) -> NDArray[np.void]:
        """The first HEAD_BYTES of each record: all its fields of a fixed size, where no host is
        IPv6."""
        return unaligned(self.records.data, f"V{HEAD_BYTES}")[self.records.starts]

    def keys(self) -> pa.ListArray:
        """The keys, split at blanks; null if absent."""
        if not pc.any(pc.match_substring(self.key, " ")).as_py():
            return _alone(self.key)
        # Double blanks would give empty keys.
        tidy = pc.utf8_trim(pc.replace_substring_regex(self.key, " +", " "), " ")
        return pc.split_pattern(tidy, " ").cast(TEXTS)

    def message_id(self) -> pa.StringArray:
        """The client's unique id or, without one, the id made of store host and log offset."""
        ids = self.properties.column(props.UNIQ_KEY)
        if not ids.null_count:
            return ids
        records = self.records
        missing = np.flatnonzero(ids.is_null().to_numpy(zero_copy_only=False))
        rest = records.picked(missing)
        at = rest.starts + STORE_HOST_AT + rest.born_v6
        size = 8 + rest.all_v6 - rest.born_v6
        hosts = slices(records.data, at, at + size).to_pylist()
        places = rest.int64(LOG_OFFSET_AT).tolist()
        found = [offset_message_id(host, at) for host, at in zip(hosts, places, strict=True)]
        mask = np.zeros(len(records), bool)
        mask[missing] = True
        return pc.replace_with_mask(ids, pa.array(mask), pa.array(found, pa.string()))

    def born_host(self) -> pa.StringArray:
        """The sender's "ip:port"; there are few different ones, so each is formatted once."""
        records = self.records
        if records.all_v6.any():
            at = records.starts + BORN_HOST_AT
            hosts = slices(records.data, at, at + 8 + records.born_v6).dictionary_encode()
            different = hosts.dictionary.to_pylist()
        else:  # as numbers, which is faster
            hosts = numbers(self._field(BORN_HOST_AT, ">i8").astype(np.int64)).dictionary_encode()
            different = [
                each.to_bytes(8, "big", signed=True) for each in hosts.dictionary.to_pylist()
            ]
        texts = pa.array([host_text(host) for host in different], pa.string())
        return texts.take(hosts.indices)


# Each column of a store's batches with its type, and how it is made; other columns are made of
# these (`lake/rows/decode.py`).
FIELDS: dict[str, tuple[pa.DataType, Callable[[Rows], pa.Array]]] = {
    "topic": (pa.string(), Rows.topic),
    "queue_id": (pa.int32(), lambda rows: rows.int32(QUEUE_ID_AT)),
    "queue_offset": (pa.int64(), lambda rows: rows.int64(QUEUE_OFFSET_AT)),
    "log_offset": (pa.int64(), lambda rows: rows.int64(LOG_OFFSET_AT)),
    "born_time": (TIMESTAMP, lambda rows: rows.time(BORN_MS_AT)),
    "store_time": (TIMESTAMP, lambda rows: rows.time(STORE_MS_AT, rows.records.born_v6)),
    "tags": (pa.string(), Rows.tags),
    "keys": (TEXTS, Rows.keys),
    "message_id": (pa.string(), Rows.message_id),
    "born_host": (pa.string(), Rows.born_host),
    "flag": (pa.int32(), lambda rows: rows.int32(FLAG_AT)),
    "sys_flag": (pa.int32(), lambda rows: numbers(rows.records.sys_flags)),
    "reconsume_times": (
        pa.int32(),
        lambda rows: rows.int32(RECONSUME_TIMES_AT, rows.records.all_v6),
    ),
    "properties": (TEXT_MAP, lambda rows: rows.properties.maps(TEXT_MAP)),
    "body": (pa.binary(), Rows.value),
}


def _alone(texts: pa.StringArray) -> pa.ListArray:
    """Lists of one text each; null where the text is null."""
    present = texts.is_valid().to_numpy(zero_copy_only=False)
    bounds = np.append(0, np.cumsum(present)).astype(np.int32)
    return pa.ListArray.from_arrays(
        numbers(bounds), texts.drop_null(), type=TEXTS, mask=texts.is_null()
    )
