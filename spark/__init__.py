"""RocketMQ topics as a PySpark data source.

    spark.read.format("rocketmq").option("subscribe", "orders").load()

PySpark finds the source by itself where aerobee is installed, and in the environment that
scripts/venv makes. Elsewhere, as after `pip install -e` alone, call `register`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .table import read_table

__all__ = ["read_table", "register"]


def __getattr__(name: str) -> Any:
    """`read_table`, which most users of the source do without."""
    if name == "read_table":
        from .table import read_table

        return read_table
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def register(spark: "SparkSession") -> None:
    """Make `format("rocketmq")` known to this session.

    SparkFailed when the Python of its workers can't read with it.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import SparkSession

    from .session import check_python
    from .source import RocketmqSource

    if isinstance(spark, SparkSession):  # of Spark Connect's the workers are elsewhere
        check_python(spark.sparkContext.pythonExec)
    try:
        spark.dataSource.register(RocketmqSource)
    except AnalysisException as wrong:
        # PySpark has found it by itself, and takes no other under that name.
        if wrong.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
