"""The files of one commit: Parquet, one for each day of the rows' store time.

Rows are written as they are read, so what is held is one row group of each file.
"""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from .table_schema import STORE_TIME, file_schema, measured

DAY_US = 86_400_000_000
ROW_GROUP_BYTES = 32 << 20  # of Arrow data, before it is encoded
ZSTD_LEVEL = 1  # a third of level 3's time, for files a tenth larger
# The columns with few different values. A dictionary of the others would be made in vain. No DELTA
# encodings: Iceberg's vectorized readers for Spark did not decode them for long.
WITH_DICTIONARY = [
    *("topic", "partition", "timestamp", "timestampType", "tags", "brokerName", "queueId"),
    *("bornTimestamp", "bornHost", "flag", "sysFlag", "reconsumeTimes", "properties.key_value.key"),
]
FILES_MAX = 8  # open at once; the oldest is finished for one more


class DataFiles:
    """Writes rows into new files of a table; `finish` returns them for a commit.

    `more` are the columns behind those of a message, or `schema` is that of whole rows. A table
    without partitions gets one file. `sort_order_id` is that of the table's sort order if each file
    will have all its rows in it.
    """

    def __init__(
        self,
        table: Table,
        more: Sequence[pa.Field] = (),
        *,
        schema: pa.Schema | None = None,
        sort_order_id: int | None = None,
    ) -> None:
        self._table = table
        self._is_by_day = bool(table.spec().fields)
        self._schema = file_schema(table.schema(), more) if schema is None else schema
        self._sort_order_id = sort_order_id
        self._name = uuid.uuid4()
        self._count = 0
        self._open: dict[int, _DayFile] = {}
        self._finished: list[DataFile] = []
        self._paths: list[str] = []

    def write(self, rows: pa.RecordBatch) -> None:
        """Append rows with the table's columns."""
        runs = _by_day(rows) if self._is_by_day else [(0, rows)] if rows.num_rows else []
        for day, part in runs:
            file = self._open.pop(day, None) or self._begin(day)
            self._open[day] = file  # the last one written is the last
            file.write(part)

    def finish(self) -> list[DataFile]:
        """Close the files; what the catalog needs to know of all so far."""
        while self._open:
            self._finish_oldest()
        return self._finished

    def discard(self) -> None:
        """Delete the files, which no snapshot has. Errors stay silent: they are orphans then."""
        for file in self._open.values():
            with suppress(Exception):
                file.abandon()
        self._open.clear()
        for path in self._paths:
            with suppress(Exception):
                self._table.io.delete(path)

    def _begin(self, day: int) -> "_DayFile":
        if len(self._open) >= FILES_MAX:
            self._finish_oldest()
        folder = f"{self._table.metadata.location}/data"
        if self._is_by_day:
            folder += f"/timestamp_day={np.datetime64(day, 'D')}"
        path = f"{folder}/{self._name}-{self._count}.parquet"
        self._count += 1
        self._paths.append(path)
        return _DayFile(self._table.io.new_output(path).create(), path, day, self._schema)

    def _finish_oldest(self) -> None:
        day = next(iter(self._open))
        file = self._open[day]
        size, found = file.finish()
        del self._open[day]
        partition = Record(day) if self._is_by_day else Record()
        self._finished.append(
            data_file(self._table, file.path, size, found, partition, self._sort_order_id)
        )


def data_file(
    table: Table,
    path: str,
    size: int,
    footer: pq.FileMetaData,
    partition: Record,
    sort_order_id: int | None = None,
) -> DataFile:
    """What the catalog needs to know of a Parquet file of `size` bytes."""
    metadata = table.metadata
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=_statistics_plan(table),
        parquet_column_mapping=parquet_path_to_id_mapping(metadata.schema()),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        file_size_in_bytes=size,
        sort_order_id=sort_order_id,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def _statistics_plan(table: Table) -> dict[int, StatisticsCollector]:
    """Which statistics a file has: none of what is within a column, which `measured` leaves out."""
    plan = compute_statistics_plan(table.schema(), table.metadata.properties)
    none = MetricsMode(MetricModeTypes.NONE)
    return {
        field_id: replace(each, mode=none) if "." in each.column_name else each
        for field_id, each in plan.items()
    }


class _DayFile:
    """One file, which gets a row group whenever enough rows are there."""

    def __init__(self, sink: Any, path: str, day: int, schema: pa.Schema) -> None:
        self.path = path
        self.day = day
        self._sink = sink
        self._schema = schema
        self._found: list[pq.FileMetaData] = []
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._writer = pq.ParquetWriter(
            sink,
            schema,
            compression="zstd",
            compression_level=ZSTD_LEVEL,
            store_schema=False,
            use_dictionary=WITH_DICTIONARY,
            write_statistics=measured(schema),
            metadata_collector=self._found,
        )

    def write(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= ROW_GROUP_BYTES:
            self._write_group()

    def finish(self) -> tuple[int, pq.FileMetaData]:
        """The file's size in bytes, and its footer."""
        self._write_group()
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        return size, self._found[0]

    def abandon(self) -> None:
        self._waiting.clear()
        with suppress(Exception):
            self._writer.close()
        self._sink.close()

    def _write_group(self) -> None:
        if not self._waiting:
            return
        rows = pa.Table.from_batches(
            [
                pa.RecordBatch.from_arrays(each.columns, schema=self._schema)
                for each in self._waiting
            ]
        )
        self._waiting.clear()
        self._bytes = 0
        self._writer.write_table(rows, row_group_size=len(rows))


def _by_day(rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows in runs of one day, numbered since 1970-01-01 in UTC."""
    if not rows.num_rows:
        return
    days = rows.column(STORE_TIME).cast(pa.int64()).to_numpy() // DAY_US
    begins = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(days)]
    for begin, end in pairwise(begins):
        yield int(days[begin]), rows.slice(begin, end - begin)
