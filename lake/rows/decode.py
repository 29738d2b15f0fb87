"""Decodes the bytes of a pull into rows in Arrow columns.

`store/columns` reads the records; this module maps their fields to columns, and makes only those
that are asked for.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa

from ...store.columns.rows import FIELDS, OFFSET_MAX, Rows, rows_of
from ...store.log.chunk import Chunk
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
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(columns))


def decode_chunk(chunk: Chunk, columns: Sequence[Column], broker_name: str) -> pa.RecordBatch:
    """The messages of a chunk as rows with these columns."""
    return decode(
        chunk.data,
        columns,
        broker_name=broker_name,
        first=chunk.start,
        end=chunk.end,
        records=chunk.records,
    )


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """The schema of rows with these columns."""
    return pa.schema([pa.field(column.name, arrow_type(column)) for column in columns])


def arrow_type(column: Column) -> pa.DataType:
    """The type of a column in `decode`'s rows."""
    return pa.string() if column.name == "brokerName" else _MAKERS[column.name][0]


# The columns that a store's batches have under other names.
_NAMES = {
    "value": "body",
    "partition": "queue_id",
    "queueId": "queue_id",
    "offset": "queue_offset",
    "timestamp": "store_time",
    "msgId": "message_id",
    "bornTimestamp": "born_time",
    "bornHost": "born_host",
    "sysFlag": "sys_flag",
    "reconsumeTimes": "reconsume_times",
    **{name: name for name in ("topic", "tags", "keys", "flag", "properties")},
}
_MAKERS: dict[str, tuple[pa.DataType, Callable[[Rows], pa.Array]]] = {
    "key": (pa.string(), lambda rows: rows.key),
    "timestampType": (pa.int32(), lambda rows: rows.constant(STORED_AT, pa.int32())),
    "rowId": (pa.string(), lambda rows: rows.properties.column(ROW_ID)),
    "headers": (HEADERS, lambda rows: rows.properties.headers(HEADERS)),
    **{name: FIELDS[field] for name, field in _NAMES.items()},
}
