"""The driver of a streaming query that gets killed; the test of it starts it again and again.

python exactly_once_program.py NAME_SERVER TOPIC FOLDER [LAKE_YAML]

Says `BATCH n` when a micro-batch is in the table, goes on by itself after the broker was away, and
on the line `finish` reads what is left, writes the rows of the table to FOLDER/rows.json and says
`FINISHED`. It leads a process group, so that Spark's JVM can be killed with it.
"""

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

from aerobee.spark import register
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

CHECK_SECONDS = 0.1
AGAIN_SECONDS = 0.5  # after a query has failed


def main(name_server: str, topic: str, folder: Path, lake: str = "") -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.python.authenticate.socketTimeout", "120s")
        .getOrCreate()
    )
    register(spark)
    source = spark.readStream.format("rocketmq").option("nameServer", name_server)
    source = source.option("subscribe", topic).option("startingOffsets", "earliest")
    source = source.option("lakeConfig", lake)  # none if empty

    def writer(source: Any) -> Any:
        rows = source.load().selectExpr("partition", "offset", "cast(value as string) as value")
        table = rows.writeStream.format("parquet").option("path", str(folder / "table"))
        return table.option("checkpointLocation", str(folder / "checkpoint"))

    told = threading.Event()
    threading.Thread(target=_hear, args=(told,), daemon=True).start()
    unlimited = writer(source)
    limited = writer(source.option("maxOffsetsPerTrigger", "300"))
    while not told.is_set():
        _go_on(limited.trigger(processingTime="100 milliseconds"), told)
    # Before PySpark 4.2 such a run is one micro-batch, and it may be one that was cut off.
    while _go_on(unlimited.trigger(availableNow=True), threading.Event()) != 0:
        pass
    table = spark.read.parquet(str(folder / "table"))
    found = [list(row) for row in table.select("partition", "offset", "value").collect()]
    (folder / "rows.json").write_text(json.dumps(found))
    print("FINISHED", flush=True)
    spark.stop()


def _go_on(writer: Any, told: threading.Event) -> int | None:
    """Run the query until it ends or is told to end; the rows it has read, None if it failed."""
    last = None
    rows = 0
    try:
        query = writer.start()
        while query.isActive and not told.wait(CHECK_SECONDS):
            progress = query.lastProgress
            if progress and progress["numInputRows"] and progress["batchId"] != last:
                last = progress["batchId"]
                print(f"BATCH {last}", flush=True)
        query.stop()
        rows = sum(each["numInputRows"] for each in query.recentProgress)
        failed = query.exception()
    except PySparkException as wrong:
        failed = wrong
    if failed is not None:
        print(f"FAILED {str(failed)[:300]!r}", flush=True)
        told.wait(AGAIN_SECONDS)
    return rows if failed is None else None


def _hear(told: threading.Event) -> None:
    for line in sys.stdin:
        if line.strip() == "finish":
            told.set()


if __name__ == "__main__":
    os.setsid()
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
