"""From the bytes that a pull brought to rows in Arrow's columns.

`decode` is a function of bytes. Plain records, which is what nearly all are, cost no Python object
each but their position; compressed ones and batches are made plain first (`unwrap`). Only those
columns are made that are asked for.
"""

import socket
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..protocol import properties as props
from ..protocol.message_id import offset_message_id
from ..protocol.record import BORN_HOST_AT, LOG_OFFSET_AT, QUEUE_OFFSET_AT
from .properties import Properties, as_text
from .records import (
    BORN_TIMESTAMP_AT,
    FLAG_AT,
    QUEUE_ID_AT,
    RECONSUME_TIMES_AT,
    STORE_HOST_AT,
    STORE_TIMESTAMP_AT,
    Records,
    locate,
    slices,
)
from .schema import HEADERS, STORED_AT, TEXT_MAP, TEXTS, TIMESTAMP, Column
from .unwrap import needs_unwrap, unwrapped

OFFSET_MAX = (1 << 63) - 1


def decode(
    data: bytes,
    columns: Sequence[Column],
    *,
    broker_name: str,
    first: int = 0,
    end: int = OFFSET_MAX,
) -> pa.RecordBatch:
    """The messages in `data` whose queue offset is in [first, end), as rows with these columns.

    `data` holds whole records, one after the other, in one queue's order; a batch in one record
    may be there twice and counts once. Malformed when bodies don't unpack or the bytes are no
    records.
    """
    records = locate(data)
    if needs_unwrap(records.sys_flags).any():
        records = locate(unwrapped(records))
    offsets = records.queue_offsets()
    passed = np.maximum.accumulate(np.append(np.int64(first - 1), offsets[:-1]))[: len(offsets)]
    wanted = (offsets > passed) & (offsets < end)
    if not wanted.all():
        records = records.picked(wanted)
    rows = _Rows(records, broker_name)
    schema = pa.schema([pa.field(column.name, column.arrow) for column in columns])
    arrays = [_MAKERS[column.name](rows) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Rows:
    """The columns of one batch; what several of them need is made once."""

    def __init__(self, records: Records, broker_name: str) -> None:
        self.records = records
        self.broker_name = broker_name

    @cached_property
    def properties(self) -> Properties:
        records = self.records
        return Properties(slices(records.data, records.properties_at, records.properties_end))

    @cached_property
    def key(self) -> pa.StringArray:
        return self.properties.column(props.KEYS)

    def value(self) -> pa.BinaryArray:
        records = self.records
        return slices(records.data, records.body_at, records.body_end)

    def topic(self) -> pa.StringArray:
        records = self.records
        return as_text(slices(records.data, records.topic_at, records.topic_end))

    def constant(self, value: str | int, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), len(self.records))

    def int32(self, at: int, shift: NDArray[np.int64] | int = 0) -> pa.Array:
        return pa.array(self.records.int32(at, shift))

    def time(self, at: int, shift: NDArray[np.int64] | int = 0) -> pa.Array:
        milliseconds = self.records.int64(at, shift)
        return pa.array(milliseconds * 1000).cast(TIMESTAMP)

    def keys(self) -> pa.ListArray:
        # Double blanks leave empty pieces, which are no keys.
        tidy = pc.utf8_trim(pc.replace_substring_regex(self.key, " +", " "), " ")
        return pc.split_pattern(tidy, " ").cast(TEXTS)

    def message_id(self) -> pa.StringArray:
        """The client's unique id and, where there is none, the id of the place in the log."""
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
        """ "ip:port" of the sender; each one is written once, for there are few."""
        records = self.records
        at = records.starts + BORN_HOST_AT
        hosts = slices(records.data, at, at + 8 + records.born_v6).dictionary_encode()
        texts = pa.array([_host(host) for host in hosts.dictionary.to_pylist()], pa.string())
        return texts.take(hosts.indices)


def _host(address: bytes) -> str:
    family = socket.AF_INET if len(address) == 8 else socket.AF_INET6
    ip = socket.inet_ntop(family, address[:-4])
    port = int.from_bytes(address[-4:], "big")
    return f"{ip}:{port}" if family == socket.AF_INET else f"[{ip}]:{port}"


_MAKERS: dict[str, Callable[[_Rows], pa.Array]] = {
    "key": lambda rows: rows.key,
    "value": _Rows.value,
    "topic": _Rows.topic,
    "partition": lambda rows: rows.int32(QUEUE_ID_AT),
    "offset": lambda rows: pa.array(rows.records.int64(QUEUE_OFFSET_AT)),
    "timestamp": lambda rows: rows.time(STORE_TIMESTAMP_AT, rows.records.born_v6),
    "timestampType": lambda rows: rows.constant(STORED_AT, pa.int32()),
    "tags": lambda rows: rows.properties.column(props.TAGS),
    "headers": lambda rows: rows.properties.headers(HEADERS),
    "brokerName": lambda rows: rows.constant(rows.broker_name, pa.string()),
    "queueId": lambda rows: rows.int32(QUEUE_ID_AT),
    "keys": _Rows.keys,
    "msgId": _Rows.message_id,
    "bornTimestamp": lambda rows: rows.time(BORN_TIMESTAMP_AT),
    "bornHost": _Rows.born_host,
    "flag": lambda rows: rows.int32(FLAG_AT),
    "sysFlag": lambda rows: pa.array(rows.records.sys_flags),
    "reconsumeTimes": lambda rows: rows.int32(RECONSUME_TIMES_AT, rows.records.all_v6),
    "properties": lambda rows: rows.properties.maps(TEXT_MAP),
}
