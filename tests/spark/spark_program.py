"""A program that uses the source as users do; the end-to-end test runs it and reads what it prints.

python spark_program.py NAME_SERVER TOPIC
"""

import json
import os
import sys
from typing import Any

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

from aerobee.spark import register
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def main(name_server: str, topic: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    register(spark)

    def read(**options: str) -> Any:
        source = spark.read.format("rocketmq").option("nameServer", name_server)
        return source.options(**{"subscribe": topic, **options})

    def error(**options: str) -> str:
        try:
            read(**options).load().count()
        except PySparkException as wrong:
            return str(wrong)
        return "nothing went wrong"

    everything = read(includeHeaders="true", rowSchema="full").load().orderBy("partition", "offset")
    subset = read().schema("offset bigint, value binary").load()
    chunks = read(minPartitions="8").load()
    halves = {topic: {str(queue): 10 for queue in range(4)}}
    found = {
        "types": everything.dtypes,
        "rows": [_as_json(row.asDict(recursive=True)) for row in everything.collect()],
        "base": read().load().columns,
        "subset": [subset.columns, subset.where("length(value) > 0").count()],
        "partitions": [read().load().rdd.getNumPartitions(), chunks.rdd.getNumPartitions()],
        "chunks": [chunks.count(), chunks.select("partition", "offset").distinct().count()],
        "halves": read(startingOffsets=json.dumps(halves)).load().count(),
        "twice": read(subscribe=f"{topic},{topic}").load().count(),
        "empty": read(startingOffsets=json.dumps({topic: dict.fromkeys("0123", -1)}))
        .load()
        .count(),
        "errors": [
            error(includeHeader="true"),
            error(subscribe="nosuchtopic"),
            error(nameServer="127.0.0.1:1"),
        ],
        "sql": spark.sql("select 1 as one").collect()[0].one,
    }
    millis = "unix_millis(timestamp) as ms"
    utc = read().load().selectExpr("partition", "offset", millis).collect()
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    there = read().load().selectExpr("partition", "offset", millis).collect()
    found["zones"] = sorted(map(tuple, utc)) == sorted(map(tuple, there))
    found["filtered"] = {}
    moment = utc[0].ms
    for pushed in ("false", "true"):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", pushed)
        rows = {
            "queue": read().load().where("partition = 2"),
            "offsets": read().load().where("offset >= 5 and offset < 7"),
            "tags": read().load().where("tags = 'größe' and partition in (0, 1)"),
            "time": read().load().where(f"timestamp <= timestamp_millis({moment})"),
            "nothing": read().load().where("topic = 'another'"),
            "key": read().load().where("key is not null and partition = 0"),
        }
        found["filtered"][pushed] = {
            name: [sorted([row.partition, row.offset] for row in each.collect()), _tasks(each)]
            for name, each in rows.items()
        }
    print("FOUND " + json.dumps(found))
    spark.stop()


def _tasks(rows: Any) -> int:
    tasks: int = rows.rdd.getNumPartitions()
    return tasks


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _as_json(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_as_json(inner) for inner in value]
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    return value.isoformat() if hasattr(value, "isoformat") else value


if __name__ == "__main__":
    main(*sys.argv[1:])
