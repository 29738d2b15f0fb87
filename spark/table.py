"""A table of a lake with what came since, as one DataFrame: without a jar of Iceberg.

Spark's own reader reads the table's Parquet files, the source the live messages behind them, whose
bodies are decoded where the table has columns of JSON.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..lake.rows.columns import row_columns
from .schema import ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..lake.union import TopicTable

COLUMNS = row_columns(full=True)


def read_table(
    spark: "SparkSession",
    name: str,
    *,
    config: Path | str = "lake.yaml",
    since_ms: int | None = None,
    **options: str,
) -> "DataFrame":
    """The messages of a topic: those in its table, and those that came since.

        aerobee.spark.read_table(spark, "orders").groupBy("tags").count()

    `config` has the lake's settings, `since_ms` leaves out what was stored before (ms since the
    epoch), `options` are those of the source for the live part. The rows are those at the moment of
    the call. With columns of JSON the executors need aerobee[lake]; live messages that do not fit
    them are left out. LakeError when the table can't be read, as where another engine has deleted
    rows by delete files.
    """
    from ..lake.union import Tables

    with Tables.of(config, since_ms=since_ms) as tables:
        found = tables[name]
        files, offsets = [_hadoop(file) for file in found.files], _offsets(found)
        address = tables.name_server
    schema = ", ".join(filter(None, [ddl(COLUMNS), found.decoding.ddl]))
    frames = []
    if files:
        frames.append(spark.read.schema(schema).parquet(*files))
    if offsets or not files:
        live = _live(spark, found.topic, address, offsets, options)
        if found.decoding.fields:
            live = live.mapInArrow(found.decoding.decoded, schema)
        frames.append(live)
    rows = frames[0]
    for more in frames[1:]:
        rows = rows.unionByName(more)
    if since_ms is not None:
        rows = rows.where(f"timestamp >= timestamp_millis({since_ms})")
    return rows


def _live(
    spark: "SparkSession",
    topic: str,
    address: str,
    offsets: dict[str, tuple[int, int]],
    options: dict[str, str],
) -> "DataFrame":
    said: dict[str, Any] = {"rowSchema": "full"}
    if address:
        said["nameServer"] = address
    if offsets:
        said["assign"] = json.dumps({topic: list(offsets)})
        for option, part in (("startingOffsets", 0), ("endingOffsets", 1)):
            said[option] = json.dumps({topic: {key: each[part] for key, each in offsets.items()}})
    else:  # an empty topic
        said |= {"subscribe": topic, "startingOffsets": "latest"}
    return spark.read.format("rocketmq").options(**(said | options)).load()


def _offsets(found: "TopicTable") -> dict[str, tuple[int, int]]:
    """By queue ("broker-a:0") the offsets [start, end) behind the table."""
    return {f"{each.broker_name}:{each.queue_id}": (each.start, each.end) for each in found.ranges}


def _hadoop(file: str) -> str:
    """The file's URI as Hadoop's file systems name it."""
    return "s3a://" + file.removeprefix("s3://") if file.startswith("s3://") else file
