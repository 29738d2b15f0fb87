"""The batch reader: `spark.read.format("rocketmq")`.

The ranges are planned in a Python process of the driver's machine; each task reads its range with a
connection of its own. Arrow and the record decoder are imported in tasks only.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ..client.blocking.reader import Reader
from ..lake.rows.columns import Column
from .errors import readable_errors
from .options import ReadOptions
from .plan import plan
from .pushdown import EVERYTHING, push_down
from .retrying_bounds import RetryingBounds

if TYPE_CHECKING:
    import pyarrow as pa

PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"  # from PySpark 4.1 on


class RocketmqReader(DataSourceReader):
    """One batch read."""

    def __init__(self, options: ReadOptions, columns: tuple[Column, ...]) -> None:
        self.options = options
        self.columns = columns
        self.pushed = EVERYTHING

    @readable_errors()
    def partitions(self) -> Sequence[InputPartition]:
        """A task for each range of the plan."""
        with Reader(self.options.name_server, **self.options.reader) as bounds:
            found = plan(RetryingBounds(bounds, self.options), self.options, self.pushed)
            return [InputPartition(each) for each in found]

    def read(self, partition: InputPartition | None) -> "Iterator[pa.RecordBatch]":
        """The rows of one range, batch by batch; PySpark 4.0 passes None for no range."""
        from .read import read_range

        wanted = None if partition is None else partition.value
        return read_range(self.options, self.columns, wanted)


class PushdownReader(RocketmqReader):
    """One batch read with filter pushdown.

    A class of its own: a reader with `pushFilters` fails the query where pushdown is off.
    """

    @readable_errors()
    def pushFilters(self, filters: list[Any]) -> Iterator[Any]:
        """Use the filters that the plan can apply; returns the ones that Spark must apply."""
        self.pushed, rest = push_down(filters, self.options)
        self.options = self.pushed.with_tags(self.options)
        return iter(rest)


def batch_reader(options: ReadOptions, columns: tuple[Column, ...]) -> RocketmqReader:
    """The reader for this query."""
    kind = PushdownReader if _filters_are_pushed() else RocketmqReader
    return kind(options, columns)


def _filters_are_pushed() -> bool:
    """True if `spark.sql.python.filterPushdown.enabled` is on: Spark then plans in PUSHING."""
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return PUSHING in sys.modules or getattr(main, "name", None) == PUSHING
