"""PySpark reads topics of a real broker; the test of it reads what this prints.

python spark_program.py NAME_SERVER TOPIC FOLDER
"""

import hashlib
import json
import os
import sys
from typing import Any

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

from aerobee.spark import register
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def main(name_server: str, topic: str, folder: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.authenticate.socketTimeout", "120s")
        .getOrCreate()
    )
    register(spark)

    def batch(**more: str) -> list[Any]:
        source = spark.read.format("rocketmq").option("nameServer", name_server)
        rows = source.options(subscribe=topic, rowSchema="full", **more).load()
        return [_plain(row) for row in rows.orderBy("partition", "offset").collect()]

    def stream() -> list[int]:
        """Micro-batches until all is there; the rows of each."""
        source = spark.readStream.format("rocketmq").option("nameServer", name_server)
        source = source.options(subscribe=topic, startingOffsets="earliest", rowSchema="full")
        query = (
            source.option("maxOffsetsPerTrigger", "40")
            .load()
            .writeStream.format("parquet")
            .option("path", f"{folder}/rows")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]

    def error(**more: str) -> str:
        try:
            batch(**more)
        except PySparkException as wrong:
            return str(wrong)
        return "nothing went wrong"

    found: dict[str, Any] = {
        "batch": batch(),
        "chunks": len(batch(minPartitions="7")),
        "tags": len(batch(subExpression="red")),
        "few": len(batch(maxMessagesPerPull="3")),
        "micro-batches": stream(),
        "error": error(startingOffsets=json.dumps({topic: dict.fromkeys("0123", 5_000)})),
    }
    table = spark.read.parquet(f"{folder}/rows").orderBy("partition", "offset")
    found["stream"] = [_plain(row) for row in table.collect()]
    print("FOUND " + json.dumps(found))
    spark.stop()


def _plain(row: Any) -> list[Any]:
    value = bytes(row.value)
    digest = hashlib.sha256(value).hexdigest()
    return [row.key, row.tags, len(value), digest, row.properties.get("größe"), row.brokerName]


if __name__ == "__main__":
    main(*sys.argv[1:])
