"""Decodes the bytes of a pull into rows in Arrow columns.

`store/columns` reads the records; this module maps their fields to columns, and makes only those
that are asked for.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa

from ...protocol.message.record import (
    BORN_MS_AT,
    FLAG_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECONSUME_TIMES_AT,
    STORE_MS_AT,
)
from ...store.columns.arrays import numbers
from ...store.columns.rows import OFFSET_MAX, TEXT_MAP, TEXTS, TIMESTAMP, Rows, rows_of
from ...store.log.records import Records
from .columns import ROW_ID, Column

# The inner names must equal Spark's for the same types: it compares them.
HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(pa.field("element", HEADER))
STORED_AT = 1  # timestampType as Kafka numbers it: 0 create time, 1 log append time


def decode(
    data: bytes,
    columns: Sequence[Column],
    *,
    broker_name: str,
    first: int = 0,
    end: int = OFFSET_MAX,
    records: Records | None = None,
) -> pa.RecordBatch:
    """The messages in `data` whose queue offset is in [first, end), as rows with these columns.

    `data` holds whole records, one after the other, in one queue's order; a batch in one record
    may be there twice and counts once. `records` says where they lie, if known. Malformed when
    bodies don't unpack or the bytes are no records.
    """
    rows = rows_of(data, first=first, end=end, records=records)
    arrays = [
        rows.constant(broker_name, pa.string())
        if column.name == "brokerName"
        else _MAKERS[column.name][1](rows)
        for column in columns
    ]
    fields = [pa.field(column.name, arrow_type(column)) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def arrow_type(column: Column) -> pa.DataType:
    """The type of a column in `decode`'s rows."""
    return pa.string() if column.name == "brokerName" else _MAKERS[column.name][0]


_MAKERS: dict[str, tuple[pa.DataType, Callable[[Rows], pa.Array]]] = {
    "key": (pa.string(), lambda rows: rows.key),
    "value": (pa.binary(), Rows.value),
    "topic": (pa.string(), Rows.topic),
    "partition": (pa.int32(), lambda rows: rows.int32(QUEUE_ID_AT)),
    "offset": (pa.int64(), lambda rows: rows.int64(QUEUE_OFFSET_AT)),
    "timestamp": (TIMESTAMP, lambda rows: rows.time(STORE_MS_AT, rows.records.born_v6)),
    "timestampType": (pa.int32(), lambda rows: rows.constant(STORED_AT, pa.int32())),
    "tags": (pa.string(), Rows.tags),
    "rowId": (pa.string(), lambda rows: rows.properties.column(ROW_ID)),
    "headers": (HEADERS, lambda rows: rows.properties.headers(HEADERS)),
    "queueId": (pa.int32(), lambda rows: rows.int32(QUEUE_ID_AT)),
    "keys": (TEXTS, Rows.keys),
    "msgId": (pa.string(), Rows.message_id),
    "bornTimestamp": (TIMESTAMP, lambda rows: rows.time(BORN_MS_AT)),
    "bornHost": (pa.string(), Rows.born_host),
    "flag": (pa.int32(), lambda rows: rows.int32(FLAG_AT)),
    "sysFlag": (pa.int32(), lambda rows: numbers(rows.records.sys_flags)),
    "reconsumeTimes": (
        pa.int32(),
        lambda rows: rows.int32(RECONSUME_TIMES_AT, rows.records.all_v6),
    ),
    "properties": (TEXT_MAP, lambda rows: rows.properties.maps(TEXT_MAP)),
}
