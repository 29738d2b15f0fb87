"""Writes a topic to files through Spark: what `aerobee ingest` does.

The ranges are planned here once and given to Spark as offsets, so that the number of messages is
known before anything is read and what comes in meanwhile is left for the next time.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from ..client.blocking import MessageQueue, Reader
from ..client.start_from import FIRST, StartFrom
from . import register
from .options import DEFAULT_GROUP, Offsets
from .session import SparkFailed, session

FORMATS = ("parquet", "json", "csv")
EARLIEST = StartFrom(FIRST)
LOOK_SECONDS = 0.2  # between looks at how many rows Spark has read

OnRows = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Ingest:
    """What to write where. `target` is a folder, or a URI that Spark can write to."""

    topic: str
    target: str
    format: str = "parquet"
    name_server: str | None = None
    master: str = "local[*]"
    start: StartFrom = EARLIEST
    overwrite: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets to be read, as the source takes them, and how many messages they hold."""

    starting: Offsets
    ending: Offsets
    messages: int


def measure(job: Ingest) -> Span:
    """The offsets that the topic holds now, from the job's start on; raises the client's errors."""
    starting: dict[str, int] = {}
    ending: dict[str, int] = {}
    with Reader(job.name_server, group=DEFAULT_GROUP) as reader:
        for queue in reader.queues(job.topic):
            name = f"{queue.broker_name}:{queue.queue_id}"
            ending[name] = reader.max_offset(queue)
            starting[name] = min(_first(reader, queue, job.start), ending[name])
    messages = sum(ending.values()) - sum(starting.values())
    return Span({job.topic: starting}, {job.topic: ending}, messages)


def ingest(job: Ingest, span: Span, on_rows: OnRows) -> int:
    """Writes the span and returns the number of rows; `on_rows` hears of it now and then.

    SparkFailed in one sentence when Java or the folder is not as it must be, or a task fails.
    """
    check_target(job)
    with session(f"aerobee ingest {job.topic}", job.master) as spark:
        rows = _rows(spark, job, span)
        with _told(spark, on_rows):
            mode = "overwrite" if job.overwrite else "error"
            rows.write.format(job.format).mode(mode).save(job.target)
        # The store hears of the end a little later than we do.
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        return _rows_read(spark)


def check_target(job: Ingest) -> None:
    """SparkFailed when the target is a file, or a folder with something in it."""
    folder = Path(job.target)
    if job.format not in FORMATS:
        raise SparkFailed(f"format {job.format!r} is unknown; give {', '.join(FORMATS)}")
    if "://" in job.target or not folder.exists() or job.overwrite:
        return
    if not folder.is_dir() or any(folder.iterdir()):
        raise SparkFailed(
            f"{job.target} is there already and not empty; give another folder, "
            "or --overwrite to replace it"
        )
    # Spark takes an empty folder for a table that is there.
    folder.rmdir()


def _first(reader: Reader, queue: MessageQueue, start: StartFrom) -> int:
    if start.where == FIRST:
        return reader.min_offset(queue)
    return reader.offset_at(queue, start.ms)


def _rows(spark: SparkSession, job: Ingest, span: Span) -> DataFrame:
    register(spark)
    source = (
        spark.read.format("rocketmq")
        .option("subscribe", job.topic)
        .option("startingOffsets", json.dumps(span.starting))
        .option("endingOffsets", json.dumps(span.ending))
        .option("minPartitions", str(spark.sparkContext.defaultParallelism))
    )
    if job.name_server:
        source = source.option("nameServer", job.name_server)
    rows = source.load()
    # JSON has no bytes and CSV neither: there a body is text.
    return (
        rows if job.format == "parquet" else rows.withColumn("value", col("value").cast("string"))
    )


@contextmanager
def _told(spark: SparkSession, on_rows: OnRows) -> Iterator[None]:
    """Tells the number of rows read so far from a thread, until the block ends."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(LOOK_SECONDS):
            try:
                on_rows(_rows_read(spark))
            except Py4JError:
                return  # Spark is stopping

    thread = threading.Thread(target=look, name="rows-read", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _rows_read(spark: SparkSession) -> int:
    """The rows that this session's query has read: the metric that Spark's SQL page shows.

    Only Spark's status store has it while a query runs, and only with commas in it.
    """
    jvm: Any = spark._jsparkSession
    store = jvm.sharedState().statusStore()
    most = 0
    executions = store.executionsList()
    for index in range(executions.size()):
        execution = executions.apply(index)
        values = store.executionMetrics(execution.executionId())
        metrics = execution.metrics()
        for place in range(metrics.size()):
            metric = metrics.apply(place)
            if metric.name() == "number of output rows":
                value = values.get(metric.accumulatorId())
                if value.isDefined():
                    most = max(most, int(value.get().replace(",", "")))
    return most
