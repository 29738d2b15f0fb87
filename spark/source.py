"""The data source `rocketmq` for PySpark: `spark.read.format("rocketmq")`, and `readStream`.

PySpark pickles the source and its readers and calls them in other processes: they hold options and
columns only, never a connection. Ranges are planned in the driver; each task reads its range with a
connection of its own.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..client.blocking import Reader
from .asking import Asking
from .narrow import EVERYTHING, narrowed
from .options import ReadOptions, read_options
from .plan import plan
from .read import read_range
from .schema import Column, chosen_columns, ddl, row_columns
from .sink import RocketmqStreamWriter, RocketmqWriter
from .sink_options import WriteOptions, check_columns, write_options
from .stream import RocketmqStreamReader

NAME = "rocketmq"
PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"  # from PySpark 4.1 on


class RocketmqSource(DataSource):
    """Topics as tables; `options` says which words it takes, `schema` which columns it gives."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.given = dict(options)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        options = read_options(self.given, stream=None)
        return ddl(row_columns(headers=options.headers, full=options.full))

    def reader(self, schema: StructType) -> "RocketmqReader":
        kind = NarrowingReader if _filters_are_pushed() else RocketmqReader
        return kind(read_options(self.given), _columns(schema))

    def streamReader(self, schema: StructType) -> RocketmqStreamReader:
        return RocketmqStreamReader(read_options(self.given, stream=True), _columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> RocketmqWriter:
        if overwrite:
            raise ValueError("topics can't be overwritten; write with mode append")
        return RocketmqWriter(self._write_options(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> RocketmqStreamWriter:
        return RocketmqStreamWriter(self._write_options(schema))

    def _write_options(self, schema: StructType) -> WriteOptions:
        options = write_options(self.given)
        check_columns([(each.name, each.dataType.simpleString()) for each in schema], options)
        return options


class RocketmqReader(DataSourceReader):
    """One batch read."""

    def __init__(self, options: ReadOptions, columns: tuple[Column, ...]) -> None:
        self.options = options
        self.columns = columns
        self.narrowing = EVERYTHING

    def partitions(self) -> Sequence[InputPartition]:
        """A task for each range of the plan."""
        with Reader(self.options.name_server, **self.options.reader) as bounds:
            found = plan(Asking(bounds, self.options), self.options, self.narrowing)
            return [InputPartition(each) for each in found]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one range, batch by batch; PySpark 4.0 has None where there is no range."""
        wanted = None if partition is None else partition.value
        return read_range(self.options, self.columns, wanted)


class NarrowingReader(RocketmqReader):
    """One batch read that filters of the query narrow.

    A class of its own: where Spark pushes no filters down, one that takes some fails the query.
    """

    def pushFilters(self, filters: list[Any]) -> Iterator[Any]:
        """Take what the plan can do; gives what Spark must do after it."""
        self.narrowing, rest = narrowed(filters, self.options)
        self.options = self.narrowing.told(self.options)
        return iter(rest)


def _filters_are_pushed() -> bool:
    """Whether `spark.sql.python.filterPushdown.enabled` is on: Spark plans in this module then."""
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return PUSHING in sys.modules or getattr(main, "name", None) == PUSHING


def _columns(schema: StructType) -> tuple[Column, ...]:
    fields = [(each.name, each.dataType.simpleString(), each.nullable) for each in schema]
    return chosen_columns(fields)
