"""Streams, sinks and filters as users write them; the end-to-end test reads what this prints.

python stream_program.py FOLDER

It brings a cluster of its own, so that it can change topics and take files away in mid-stream.
"""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

from aerobee.client import Admin, Message, blocking
from aerobee.client.blocking import MessageQueue
from aerobee.spark import register
from aerobee.spark.stream import SPARK_ADMITS
from aerobee.testing import LocalCluster
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

FLAKY = 600  # rows of the write whose task is tried twice

found: dict[str, Any] = {}


class Program:
    """One session and one cluster."""

    def __init__(self, spark: SparkSession, cluster: LocalCluster, folder: Path) -> None:
        self.spark = spark
        self.cluster = cluster
        self.folder = folder
        self.producer = blocking.Producer(cluster.name_server)

    def topic(self, name: str, queues: int) -> None:
        async def make() -> None:
            async with Admin(self.cluster.name_server) as admin:
                await admin.create_topic(name, queues)

        asyncio.run(make())

    def delete(self, name: str) -> None:
        async def delete() -> None:
            async with Admin(self.cluster.name_server) as admin:
                await admin.delete_topic(name)

        asyncio.run(delete())

    def send(self, topic: str, numbers: range, **more: Any) -> None:
        for number in numbers:
            self.producer.send(Message(topic, b"%d" % number, **more), timeout=60)

    def send_to_queues(self, topic: str, numbers: range, queues: int, **more: Any) -> None:
        """To queues in turn, whether the producer has heard of them by now or not."""
        for number in numbers:
            queue = MessageQueue(topic, "broker-a", number % queues)
            self.producer.send(Message(topic, b"%d" % number, **more), queue=queue, timeout=60)

    def read(self, **options: str) -> DataFrame:
        source = self.spark.read.format("rocketmq").option("nameServer", self.cluster.name_server)
        return source.options(**options).load()

    def stream(self, name: str, **options: str) -> list[int]:
        """Read what is there into a table, under one checkpoint; the rows of each micro-batch."""
        source = self.spark.readStream.format("rocketmq")
        rows = source.option("nameServer", self.cluster.name_server).options(**options).load()
        query = (
            rows.writeStream.format("parquet")
            .option("path", str(self.folder / name / "rows"))
            .option("checkpointLocation", str(self.folder / name / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]

    def values(self, name: str) -> list[int]:
        """The numbers in a table, sorted."""
        table = self.spark.read.parquet(str(self.folder / name / "rows"))
        return sorted(int(row.value) for row in table.select("value").collect())

    def write(self, rows: DataFrame, **options: str) -> None:
        writer = rows.write.format("rocketmq").mode("append")
        writer.option("nameServer", self.cluster.name_server).options(**options).save()

    def error(self, name: str, **options: str) -> str:
        try:
            self.stream(name, **options)
        except PySparkException as wrong:
            return str(wrong)
        return "nothing went wrong"


def streams(program: Program) -> None:
    program.topic("grown", 2)
    program.send("grown", range(60), tags="even")
    options = {"subscribe": "grown", "startingOffsets": "earliest"}
    found["limited"] = program.stream("grown", maxOffsetsPerTrigger="25", **options)
    while not SPARK_ADMITS and (
        more := program.stream("grown", maxOffsetsPerTrigger="25", **options)
    ):
        found["limited"] += more  # before PySpark 4.2 each run is one micro-batch
    found["nothing new"] = program.stream("grown", **options)
    program.topic("grown", 4)
    program.send_to_queues("grown", range(60, 100), 4, tags="odd")
    program.stream("grown", **options)
    program.topic("grown", 2)
    program.send_to_queues("grown", range(100, 104), 2)
    program.stream("grown", **options)
    program.topic("grown", 4)
    found["grown"] = program.values("grown")
    pattern = {"subscribePattern": "late-.*", "startingOffsets": "earliest"}
    program.topic("late-1", 1)
    program.send("late-1", range(5))
    program.stream("late", **pattern)
    program.topic("late-2", 1)
    program.send("late-2", range(5, 9))
    program.stream("late", **pattern)
    found["late"] = program.values("late")
    lag = program.cluster.call(
        lambda: program.cluster.brokers[0].offsets.get("late-1", "aerobee-spark", 0)
    )
    found["committed"] = lag
    found["no end"] = program.error("error", subscribe="grown", endingOffsets="latest")


def losses(program: Program) -> None:
    program.topic("empty", 2)
    empty = {"subscribe": "empty", "startingOffsets": "earliest"}
    found["empty"] = [program.read(subscribe="empty").count(), program.stream("empty", **empty)]
    again = {"subscribe": "again", "startingOffsets": "earliest"}
    program.topic("again", 1)
    program.send_to_queues("again", range(6), 1)
    program.stream("again", **again)
    program.delete("again")
    program.topic("again", 1)
    program.send_to_queues("again", range(6, 8), 1)
    found["again"] = [program.error("again", **again), program.read(subscribe="again").count()]
    program.stream("again", failOnDataLoss="false", **again)
    program.send_to_queues("again", range(8, 10), 1)
    program.stream("again", **again)
    found["again"].append(program.values("again"))


def filters(program: Program) -> None:
    found["tags"] = program.read(subscribe="grown", subExpression="odd || none").count()
    program.topic("numbered", 1)
    for number in range(10):
        program.send("numbered", range(number, number + 1), properties={"n": str(number)})
    found["sql"] = program.read(subscribe="numbered", filterSql="n BETWEEN 3 AND 6").count()
    store = str(program.cluster.brokers[0].root)
    rows = program.read(subscribe="grown", storePath=store, minPartitions="8")
    found["files"] = sorted(int(row.value) for row in rows.select("value").collect())
    found["assigned"] = program.read(assign='{"grown": [0]}').count()


def sinks(program: Program) -> None:
    rows = program.spark.range(100).select(
        F.col("id").cast("string").alias("value"),
        F.concat(F.lit("k"), F.col("id")).alias("key"),
        F.lit("tag").alias("tags"),
        F.create_map(F.lit("größe"), F.lit("groß")).alias("properties"),
    )
    program.write(rows, topic="written")
    written = program.read(subscribe="written", rowSchema="full")
    one = written.where("value = '7'").collect()
    found["written"] = [written.count(), written.select("value").distinct().count()]
    found["row"] = [one[0].key, one[0].tags, one[0].properties["größe"]]
    program.write(rows, topic="whole", transactions="true")
    found["whole"] = program.read(subscribe="whole").count()
    delayed = rows.select("value").limit(3).withColumn("delay", F.lit(7200))
    program.write(delayed, topic="delayed")
    before = program.read(subscribe="delayed").count()
    program.cluster.advance(hours=2, seconds=2)
    found["delayed"] = [before, program.read(subscribe="delayed").count()]
    source = program.spark.readStream.format("rocketmq")
    source = source.option("nameServer", program.cluster.name_server)
    copied = source.options(subscribe="written", startingOffsets="earliest").load()
    writer = copied.select("value", "key").writeStream.format("rocketmq")
    writer = writer.option("nameServer", program.cluster.name_server).option("topic", "copy")
    writer = writer.option("checkpointLocation", str(program.folder / "copy"))
    writer.trigger(availableNow=True).start().awaitTermination()
    found["copied"] = program.read(subscribe="copy").count()
    # The first try of a task fails in its middle.
    flaky = program.spark.range(0, FLAKY, 1, 1).selectExpr("concat(id, repeat('x', 2000)) as value")
    flaky = flaky.mapInArrow(fail_at_first, "value string")
    for topic, transactions in (("tried", "false"), ("tried-whole", "true")):
        program.write(flaky, topic=topic, transactions=transactions)
        rows = program.read(subscribe=topic).selectExpr("split(value, 'x')[0] as number")
        once = program.read(subscribe=topic, dedup="true")
        found[topic] = [rows.count(), rows.distinct().count(), once.count()]
    # The same task again, as Spark does after a failure: the same ids.
    for _ in range(2):
        for number in range(20):
            message = Message(
                "twice", b"%d" % number, properties={"AEROBEE_ROW": f"q/1/0/{number}"}
            )
            queues = program.producer.queues("twice")
            program.producer.send(message, queue=queues[number % len(queues)])
    found["twice"] = [
        program.read(subscribe="twice").count(),
        program.read(subscribe="twice", dedup="true").count(),
        program.read(subscribe="twice", dedup="true", startingOffsets=_halves()).count(),
    ]


def fail_at_first(batches: Iterator[Any]) -> Iterator[Any]:
    """The same rows; the first try of the task ends when most of them are through."""
    for number, batch in enumerate(batches):
        if number == 5 and TaskContext.get().attemptNumber() == 0:  # type: ignore[union-attr]
            raise RuntimeError("the first try of a task, which is to fail")
        yield batch


def _halves() -> str:
    """The second half of each of the four queues: all of it was there before."""
    return json.dumps({"twice": {str(queue): 5 for queue in range(4)}})


def main(folder: Path) -> None:
    spark = (
        SparkSession.builder.master("local[2,2]")  # each task is tried twice
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
        # A new Python worker has that many seconds to say hello; a busy machine needs more than 15.
        .config("spark.python.authenticate.socketTimeout", "120s")
        .getOrCreate()
    )
    register(spark)
    with LocalCluster(enable_property_filter=True) as cluster:
        program = Program(spark, cluster, folder)
        for part in (streams, losses, filters, sinks):
            part(program)
        program.producer.close()
    print("FOUND " + json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
