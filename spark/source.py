"""The data source `rocketmq` for PySpark: `spark.read.format("rocketmq")`, and `readStream`.

PySpark pickles the source, its readers and its writers and calls them in other processes: they hold
options and columns only, never a connection. Each of these processes imports this module first, and
some need only the schema; readers and writers are therefore imported on use.
"""

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from ..lake.rows.columns import Column, row_columns
from .errors import readable_errors
from .options import read_options, with_lake
from .schema import chosen_columns, ddl

if TYPE_CHECKING:
    from .batch import RocketmqReader
    from .sink import RocketmqStreamWriter, RocketmqWriter
    from .sink_options import WriteOptions
    from .stream import RocketmqStreamReader

NAME = "rocketmq"


class RocketmqSource(DataSource):
    """Topics as tables: `spark.options` has the options, `lake.rows.columns` the columns."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.given = dict(options)

    @classmethod
    def name(cls) -> str:
        return NAME

    @readable_errors()
    def schema(self) -> str:
        # Also a file of a lake that can't be read is told here: see `streamReader`.
        options = with_lake(read_options(self.given, stream=None), self.given)
        return ddl(row_columns(headers=options.headers, full=options.full))

    @readable_errors()
    def reader(self, schema: StructType) -> "RocketmqReader":
        from .batch import batch_reader

        return batch_reader(read_options(self.given), _columns(schema))

    def streamReader(self, schema: StructType) -> "RocketmqStreamReader":
        # No `readable_errors`: PySpark 4.3 fails once more after an error here, with a bug of its
        # own, and without the traceback only that one would be shown.
        from .stream import RocketmqStreamReader

        options = with_lake(read_options(self.given, stream=True), self.given)
        return RocketmqStreamReader(options, _columns(schema))

    @readable_errors()
    def writer(self, schema: StructType, overwrite: bool) -> "RocketmqWriter":
        if overwrite:
            raise ValueError("topics can't be overwritten; write with mode append")
        from .sink import RocketmqWriter

        return RocketmqWriter(self._write_options(schema))

    @readable_errors()
    def streamWriter(self, schema: StructType, overwrite: bool) -> "RocketmqStreamWriter":
        from .sink import RocketmqStreamWriter

        return RocketmqStreamWriter(self._write_options(schema))

    def _write_options(self, schema: StructType) -> "WriteOptions":
        from .sink_options import check_columns, write_options

        options = write_options(self.given)
        check_columns([(each.name, each.dataType.simpleString()) for each in schema], options)
        return options


def _columns(schema: StructType) -> tuple[Column, ...]:
    fields = [(each.name, each.dataType.simpleString(), each.nullable) for each in schema]
    return chosen_columns(fields)
