"""From the bytes that a pull brought to rows in Arrow's columns.

`decode` is a function of bytes. What a record holds is read by `store/columns`; here is which
column of the source is made of what. Only those columns are made that are asked for.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa

from ..protocol.record import QUEUE_OFFSET_AT
from ..store.columns.rows import OFFSET_MAX, TEXT_MAP, Rows, rows_of
from ..store.records import (
    BORN_TIMESTAMP_AT,
    FLAG_AT,
    QUEUE_ID_AT,
    RECONSUME_TIMES_AT,
    STORE_TIMESTAMP_AT,
)
from .schema import HEADERS, ROW_ID, STORED_AT, Column


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
    rows = rows_of(data, first=first, end=end)
    schema = pa.schema([pa.field(column.name, column.arrow) for column in columns])
    arrays = [
        rows.constant(broker_name, pa.string())
        if column.name == "brokerName"
        else _MAKERS[column.name](rows)
        for column in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


_MAKERS: dict[str, Callable[[Rows], pa.Array]] = {
    "key": lambda rows: rows.key,
    "value": Rows.value,
    "topic": Rows.topic,
    "partition": lambda rows: rows.int32(QUEUE_ID_AT),
    "offset": lambda rows: rows.int64(QUEUE_OFFSET_AT),
    "timestamp": lambda rows: rows.time(STORE_TIMESTAMP_AT, rows.records.born_v6),
    "timestampType": lambda rows: rows.constant(STORED_AT, pa.int32()),
    "tags": Rows.tags,
    "rowId": lambda rows: rows.properties.column(ROW_ID),
    "headers": lambda rows: rows.properties.headers(HEADERS),
    "queueId": lambda rows: rows.int32(QUEUE_ID_AT),
    "keys": Rows.keys,
    "msgId": Rows.message_id,
    "bornTimestamp": lambda rows: rows.time(BORN_TIMESTAMP_AT),
    "bornHost": Rows.born_host,
    "flag": lambda rows: rows.int32(FLAG_AT),
    "sysFlag": lambda rows: pa.array(rows.records.sys_flags),
    "reconsumeTimes": lambda rows: rows.int32(RECONSUME_TIMES_AT, rows.records.all_v6),
    "properties": lambda rows: rows.properties.maps(TEXT_MAP),
}
