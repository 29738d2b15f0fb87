"""The data source `rocketmq` for PySpark: `spark.read.format("rocketmq")`, and `readStream`.

PySpark pickles the source and its readers and calls them in other processes: they hold options and
columns only, never a connection. Ranges are planned in the driver; each task reads its range with a
connection of its own.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..client.blocking import Reader
from .options import ReadOptions, read_options
from .plan import plan
from .read import read_range
from .schema import Column, chosen_columns, ddl, row_columns
from .sink import RocketmqStreamWriter, RocketmqWriter
from .sink_options import WriteOptions, check_columns, write_options
from .stream import RocketmqStreamReader

NAME = "rocketmq"


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
        return RocketmqReader(read_options(self.given), _columns(schema))

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

    def partitions(self) -> Sequence[InputPartition]:
        """A task for each range of the plan."""
        with Reader(self.options.name_server, **self.options.reader) as bounds:
            return [InputPartition(each) for each in plan(bounds, self.options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, batch by batch."""
        return read_range(self.options, self.columns, partition.value)


def _columns(schema: StructType) -> tuple[Column, ...]:
    fields = [(each.name, each.dataType.simpleString(), each.nullable) for each in schema]
    return chosen_columns(fields)
