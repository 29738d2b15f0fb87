"""Writes a topic to files through Spark: what `aerobee ingest` does.

The ranges are planned once and given to Spark as offsets: the number of messages is known before
the read, and messages that arrive meanwhile are left for the next run. A job with `follow` is a
stream: `ingest_stream` writes it.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import col, count, hour, lit, to_date

from ..client.base.security import Security
from ..client.base.start_from import FIRST, StartFrom
from ..client.blocking.reader import Reader
from ..client.cluster.route import MessageQueue
from ..protocol.names import SPARK_GROUP
from . import register
from .options import FORMATS, MALFORMED, Offsets
from .security_options import options_of
from .session import SparkFailed, session

AVAILABLE_NOW, CONTINUOUS = "available-now", "continuous"
OBSERVED, ROWS = "malformed", "rows"  # Spark's names of their number
CHECKPOINT = ".checkpoint"  # behind the name of the table of a stream
EARLIEST = StartFrom(FIRST)
SCAN = "BatchScan"  # how Spark's plans call the reading of such a source as ours
CHECK_SECONDS = 0.2  # between checks of how many rows Spark has read

OnRows = Callable[[int, int | None], None]  # rows read so far, messages left if that is known


@dataclass(frozen=True, slots=True)
class Ingest:
    """The job of an ingest. `target` is a folder, or a URI that Spark can write to.

    `schema` (`bodies.schema_of`) makes typed columns out of JSON bodies. `follow` is None for what
    the topic holds now, once, or AVAILABLE_NOW or CONTINUOUS for a stream.
    """

    topic: str
    target: str
    format: str = "parquet"
    name_server: str | None = None
    master: str = "local[*]"
    start: StartFrom = EARLIEST
    overwrite: bool = False
    partition_by: tuple[str, ...] = ()
    schema: str | None = None
    follow: str | None = None
    checkpoint: str | None = None
    security: Security = field(default_factory=Security)

    @property
    def table(self) -> str:
        """The target without a trailing slash: other names are made by a suffix to it."""
        return self.target.rstrip("/") or "/"

    @property
    def progress(self) -> str:
        """The folder of the checkpoint."""
        return self.checkpoint or self.table + CHECKPOINT


@dataclass(frozen=True, slots=True)
class Written:
    """The number of rows that were read, and of those among them that did not fit the schema."""

    rows: int
    malformed: int = 0


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
    with Reader(job.name_server, group=SPARK_GROUP, security=job.security) as reader:
        for queue in reader.queues(job.topic):
            name = f"{queue.broker_name}:{queue.queue_id}"
            ending[name] = reader.max_offset(queue)
            starting[name] = min(_first(reader, queue, job.start), ending[name])
    messages = sum(ending.values()) - sum(starting.values())
    return Span({job.topic: starting}, {job.topic: ending}, messages)


def ingest(job: Ingest, span: Span, on_rows: OnRows) -> Written:
    """Writes the span and returns the numbers of rows; calls `on_rows` with the progress.

    SparkFailed, with one sentence, when Java is missing, the folder is unusable or a task fails.
    """
    check_target(job)
    with session(f"aerobee ingest {job.topic}", job.master, delta=job.format == "delta") as spark:
        bad = Observation(OBSERVED)
        tables = _tables(spark, job, span, bad)
        with _reported(spark, lambda rows: on_rows(rows, max(0, span.messages - rows))):
            mode = "overwrite" if job.overwrite else "error"
            for rows, target in tables:
                rows = with_times(job, rows)
                writer = rows.write.format(job.format).mode(mode)
                writer.partitionBy(*folders_of(job, rows, target)).save(target)
        # Spark's status store learns of the end slightly later.
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        return Written(_rows_read(spark), 0 if job.schema is None else bad.get[ROWS])


def check_format(job: Ingest) -> None:
    """SparkFailed when no package here can write the format."""
    if job.format not in FORMATS:
        raise SparkFailed(f"format {job.format!r} is unknown; give {', '.join(FORMATS)}")
    if job.format == "delta" and find_spec("delta") is None:
        raise SparkFailed(
            "format delta needs the package delta-spark, which is not installed; install the one "
            "for this version of PySpark, or give parquet"
        )


def check_target(job: Ingest) -> None:
    """SparkFailed when the target is a file, or a folder with something in it."""
    check_format(job)
    targets = [job.target]
    if job.schema is not None:
        targets.append(job.table + MALFORMED)
    for target in targets:
        _check_folder(job, target)


def _check_folder(job: Ingest, target: str) -> None:
    folder = Path(target)
    if "://" in target or not folder.exists() or job.overwrite:
        return
    if not folder.is_dir() or any(folder.iterdir()):
        raise SparkFailed(
            f"{target} is there already and not empty; give another folder, "
            "or --overwrite to replace it"
        )
    # Spark treats an empty folder as an existing table.
    folder.rmdir()


def _first(reader: Reader, queue: MessageQueue, start: StartFrom) -> int:
    if start.where == FIRST:
        return reader.min_offset(queue)
    return reader.offset_at(queue, start.ms)


def source_options(job: Ingest) -> dict[str, str]:
    """The source's options for a stream."""
    options = {"subscribe": job.topic, **options_of(job.security)}
    if job.start.where == FIRST:
        options["startingOffsets"] = "earliest"
    else:
        options["startingTimestamp"] = str(job.start.ms)
    if job.name_server:
        options["nameServer"] = job.name_server
    return options


def with_times(job: Ingest, rows: DataFrame) -> DataFrame:
    """The rows with the columns `date` and `hour` of their time of storing, where the table is
    partitioned by them and has no such column of its own. In the time zone of the session."""
    names = ("message_timestamp", "timestamp")  # a body may have a field of the second name
    stamp = col(next(name for name in names if name in rows.columns))
    for name, part in (("date", to_date), ("hour", hour)):
        if name in job.partition_by and name not in rows.columns:
            rows = rows.withColumn(name, part(stamp))
    return rows


def counted(rows: DataFrame, by: Observation | str) -> DataFrame:
    """The rows; Spark notes their number (ROWS) under this name while it writes them."""
    return rows.observe(by, count(lit(1)).alias(ROWS))


def folders_of(job: Ingest, rows: DataFrame, target: str) -> list[str]:
    """The columns that a table is partitioned by; SparkFailed when it has no such column.

    The table of malformed rows has fewer columns and is partitioned by the ones it has.
    """
    missing = [name for name in job.partition_by if name not in rows.columns]
    if missing and not target.endswith(MALFORMED):
        raise SparkFailed(
            f"--partition-by names {', '.join(missing)}; the columns are {', '.join(rows.columns)},"
            " and date and hour are made of the time of storing"
        )
    return [name for name in job.partition_by if name in rows.columns]


def text_values(rows: DataFrame, format: str) -> DataFrame:
    """Bodies as text for JSON and CSV, which have no bytes."""
    if format not in ("json", "csv"):
        return rows
    return rows.withColumn("value", col("value").cast("string"))


def _tables(
    spark: SparkSession, job: Ingest, span: Span, bad: Observation
) -> list[tuple[DataFrame, str]]:
    """The folders of a job; `bad` counts the malformed rows."""
    rows = _rows(spark, job, span)
    if job.schema is None:
        return [(text_values(rows, job.format), job.target)]
    from .bodies import malformed, schema_of, typed

    schema = schema_of(job.schema)
    rest = counted(text_values(malformed(rows, schema), job.format), bad)
    return [(typed(rows, schema), job.target), (rest, job.table + MALFORMED)]


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
    return source.options(**options_of(job.security)).load()


@contextmanager
def _reported(spark: SparkSession, on_rows: Callable[[int], None]) -> Iterator[None]:
    """Reports the number of rows read so far from a thread, until the block ends."""
    ended = threading.Event()

    def check() -> None:
        while not ended.wait(CHECK_SECONDS):
            try:
                on_rows(_rows_read(spark))
            except (Py4JError, OSError):
                return  # Spark is stopping

    thread = threading.Thread(target=check, name="rows-read", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _rows_read(spark: SparkSession) -> int:
    """The rows that this session's query has read: the metric of its scan on Spark's SQL page.

    Only Spark's status store has it while a query runs, and only with commas in it. Other queries
    of the session are not ours: Delta reads its own log.
    """
    jvm: Any = spark._jsparkSession
    store = jvm.sharedState().statusStore()
    most = 0
    executions = store.executionsList()
    for index in range(executions.size()):
        number = executions.apply(index).executionId()
        values = store.executionMetrics(number)
        nodes = store.planGraph(number).allNodes()
        for place in range(nodes.size()):
            node = nodes.apply(place)
            if node.name().startswith(SCAN):
                most = max(most, *_output_rows(node.metrics(), values))
    return most


def _output_rows(metrics: Any, values: Any) -> Iterator[int]:
    yield 0
    for place in range(metrics.size()):
        metric = metrics.apply(place)
        if metric.name() == "number of output rows":
            value = values.get(metric.accumulatorId())
            if value.isDefined():
                yield int(value.get().replace(",", ""))
