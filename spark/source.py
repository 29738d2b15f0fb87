"""The data source `rocketmq` for PySpark: `spark.read.format("rocketmq")`.

PySpark pickles the source and its reader and calls them in other processes: both hold options and
columns only, never a connection. Ranges are planned in the driver; each task reads its range with a
connection of its own.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..client import reader
from ..client.blocking import Reader
from .decode import decode
from .options import ReadOptions, read_options
from .plan import QueueRange, plan
from .pull import pull_pieces
from .schema import Column, chosen_columns, ddl, row_columns

NAME = "rocketmq"


class RocketmqSource(DataSource):
    """Topics as tables; `options` says which words it takes, `schema` which columns it gives."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.read_options = read_options(options)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return ddl(row_columns(headers=self.read_options.headers, full=self.read_options.full))

    def reader(self, schema: StructType) -> "RocketmqReader":
        fields = [(each.name, each.dataType.simpleString(), each.nullable) for each in schema]
        return RocketmqReader(self.read_options, chosen_columns(fields))


class RocketmqReader(DataSourceReader):
    """One batch read."""

    def __init__(self, options: ReadOptions, columns: tuple[Column, ...]) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """A task for each range of the plan."""
        with Reader(self.options.name_server, group=self.options.group) as bounds:
            return [InputPartition(each) for each in plan(bounds, self.options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range, batch by batch."""
        wanted: QueueRange | None = partition.value
        if wanted is None:  # PySpark makes one partition of none
            return
        options = self.options
        pieces = pull_pieces(
            reader.Reader(options.name_server, group=options.group),
            wanted,
            messages_per_pull=options.messages_per_pull,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        for piece in pieces:
            yield decode(
                piece.data,
                self.columns,
                broker_name=wanted.broker_name,
                first=piece.start,
                end=piece.end,
            )
