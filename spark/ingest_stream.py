"""`aerobee ingest` as a stream: up to the present (`available-now`) or endless (`continuous`).

The position is in a checkpoint beside the table: the same command continues where the last run
ended, however that ended, and no row is lost or repeated. With a schema, malformed rows have a
query, a checkpoint and a table of their own; each of the two is exactly-once by itself.
"""

import json
import threading
import time
from ast import literal_eval
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ..client.blocking.reader import Reader
from ..client.errors import AerobeeError
from . import register
from .bodies import malformed, schema_of, typed
from .ingest import (
    AVAILABLE_NOW,
    CONTINUOUS,
    OBSERVED,
    ROWS,
    Ingest,
    OnRows,
    Written,
    check_format,
    counted,
    folders_of,
    source_options,
    text_values,
    with_times,
)
from .options import MALFORMED, read_options
from .progress import Progress, commit, latest, rows_between
from .session import SparkFailed, Stopped, on_signals, sentence, session
from .stream import SPARK_ADMITS

CHECK_SECONDS = 0.2
SIGNAL_SECONDS = 0.5  # between the JVM's end and our own signal, when both are signalled
END_SECONDS_MAX = 20.0  # a signal waits for a micro-batch; one that is cut off is repeated
TRIGGER = "1 second"  # between the micro-batches of a continuous one, at least


def check_stream(job: Ingest) -> None:
    """SparkFailed when the stream can't be written, or can't go on where it ended."""
    check_format(job)
    check_checkpoint(job)


def check_checkpoint(job: Ingest) -> None:
    """SparkFailed when the table exists and its checkpoint does not."""
    if "://" in job.target:
        return
    target, checkpoint = Path(job.table), Path(job.progress)
    if target.exists() and not target.is_dir():
        raise SparkFailed(f"{target} is no folder; give another one")
    if target.is_dir() and any(target.iterdir()) and not checkpoint.is_dir():
        raise SparkFailed(
            f"{target} has something in it and the checkpoint {checkpoint} is not there, so where "
            "to go on is unknown; give --checkpoint, or another folder"
        )


def follow(job: Ingest, on_rows: OnRows) -> Written:
    """Writes the topic as a stream and returns the rows of this run, as `ingest` does."""
    check_stream(job)
    with session(f"aerobee ingest {job.topic}", job.master, delta=job.format == "delta") as spark:
        register(spark)
        return _follow(spark, job, on_rows)


def _follow(spark: SparkSession, job: Ingest, on_rows: OnRows) -> Written:
    """Run until everything is read or a signal arrives; returns the rows of this run, whose offsets
    are then committed, so that the group has no lag.

    A signal waits for the running micro-batch; one that takes too long is repeated by the next run.
    A signal is the normal end of a continuous stream. Stopped when it interrupts another job, or
    when it also reached Spark's JVM.
    """
    with _stop_signals() as stop, _ends(job) as ends:
        running = _RunningQueries(ends)
        try:
            rows = Written(0)
            for _ in range(_runs(job)):
                if not stop.is_set():
                    _start(spark, job, running)
                    rows = running.wait(stop, on_rows)
                    _commit(job, running.end)
        except (PySparkException, Py4JError, SparkFailed, OSError) as wrong:
            # The JVM may have received the signal first.
            if not stop.wait(SIGNAL_SECONDS) or stop.number is None:
                raise
            raise Stopped(stop.number) from wrong
        finally:
            running.stop()
    if stop.number is not None and job.follow != CONTINUOUS:
        raise Stopped(stop.number)
    return rows


def _commit(job: Ingest, end: Progress) -> None:
    """Commit what the query has read: Spark commits a micro-batch with the next one only."""
    options = read_options(source_options(job), stream=True)
    with Reader(options.name_server, **options.reader) as reader:
        commit(reader.commit, end)


def _runs(job: Ingest) -> int:
    """The number of runs of the query that read everything.

    PySpark before 4.2 reads all in one micro-batch; after an interruption it repeats only that one.
    """
    return 2 if job.follow == AVAILABLE_NOW and not SPARK_ADMITS else 1


@contextmanager
def _ends(job: Ingest) -> Iterator[Callable[[], Progress] | None]:
    """A function for the ends of the queues; None from PySpark 4.2 on, which reports them."""
    if SPARK_ADMITS:
        yield None
        return
    options = read_options(source_options(job), stream=True)
    with Reader(options.name_server, **options.reader) as reader:

        def ends() -> Progress:
            with suppress(AerobeeError):  # the lag is for display only
                return latest(reader, options, {})
            return {}

        yield ends


def _start(spark: SparkSession, job: Ingest, running: "_RunningQueries") -> None:
    """Start the query, or with a schema both."""
    source = spark.readStream.format("rocketmq").options(**source_options(job))
    running.queries.clear()
    if job.schema is None:
        rows = text_values(source.load(), job.format)
        running.start(rows, job.table, job.progress, job)
        return
    schema = schema_of(job.schema)
    rows = typed(source.load(), schema)
    running.start(rows, job.table, job.progress, job)
    source = source.option("commitOffsets", "false")
    rest = counted(text_values(malformed(source.load(), schema), job.format), OBSERVED)
    side = job.table + MALFORMED
    running.start(rest, side, job.progress + MALFORMED, job)


@dataclass
class _RunningQueries:
    """The running queries, and the rows that the first of them has read, by micro-batch.

    `ends` returns the ends of the queues where Spark doesn't report them. `lag` is as of
    `reported_at`, the timestamp of a progress report.
    """

    ends: Callable[[], Progress] | None = None
    queries: list[StreamingQuery] = field(default_factory=list)
    rows: dict[int, int] = field(default_factory=dict)
    malformed: dict[int, int] = field(default_factory=dict)
    lag: int | None = None
    reported_at: str = ""

    def start(self, rows: Any, target: str, checkpoint: str, job: Ingest) -> None:
        rows = with_times(job, rows)
        writer = rows.writeStream.format(job.format).option("checkpointLocation", checkpoint)
        if job.partition_by:
            writer = writer.partitionBy(*folders_of(job, rows, target))
        if job.follow == CONTINUOUS:
            writer = writer.trigger(processingTime=TRIGGER)
        else:
            writer = writer.trigger(availableNow=True)
        self.queries.append(writer.start(target))

    @property
    def end(self) -> Progress:
        """The progress of the first query."""
        last = self.queries[0].lastProgress
        return _offsets(last["sources"][0]["endOffset"]) if last else {}

    def wait(self, stop: threading.Event, on_rows: OnRows) -> Written:
        while any(query.isActive for query in self.queries) and not stop.wait(CHECK_SECONDS):
            on_rows(self._count().rows, self._lag())
            for query in self.queries:
                self._check(query)
        self._end_batches()
        for query in self.queries:
            self._check(query)
        return self._count()

    def _end_batches(self) -> None:
        """Let the micro-batches at work come to their end, so that their rows are counted."""
        deadline = time.monotonic() + END_SECONDS_MAX
        for query in self.queries:
            while query.isActive and query.status["isTriggerActive"]:
                if time.monotonic() > deadline:
                    return
                time.sleep(CHECK_SECONDS)

    def stop(self) -> None:
        with suppress(PySparkException, Py4JError, OSError):  # the JVM may be gone
            for query in self.queries:
                query.stop()

    def _count(self) -> Written:
        for each in self.queries[0].recentProgress:
            self.rows[each["batchId"]] = each["numInputRows"]
        for query in self.queries[1:]:
            for each in query.recentProgress:
                if (found := each["observedMetrics"].get(OBSERVED)) is not None:
                    self.malformed[each["batchId"]] = found[ROWS]
        return Written(sum(self.rows.values()), sum(self.malformed.values()))

    def _lag(self) -> int | None:
        """Messages that the first query has not read yet; None before its first report."""
        last = self.queries[0].lastProgress
        if not last:
            return None
        if last["timestamp"] != self.reported_at:
            self.reported_at = last["timestamp"]
            ends = None if self.ends is None else self.ends()
            self.lag = lag_of(last["sources"][0], ends)
        return self.lag

    def _check(self, query: StreamingQuery) -> None:
        wrong = query.exception()
        if wrong is not None:
            raise SparkFailed(sentence(wrong))


def lag_of(source: Mapping[str, Any], ends: Progress | None = None) -> int | None:
    """The number of messages between the offsets of a query's source and the ends of its queues.

    `ends` is for sources that don't report them. None where both are unknown.
    """
    end = _offsets(source["endOffset"])
    latest = _offsets(source["latestOffset"]) if ends is None else ends
    if not end or not latest:
        return None
    return rows_between(
        end, latest, {topic: dict.fromkeys(each, 0) for topic, each in latest.items()}
    )


def _offsets(reported: Any) -> Progress:
    """A progress given as JSON, as a Python literal (PySpark 4.0) or as a dict; {} without one."""
    if isinstance(reported, str) and reported.startswith("{"):
        try:
            reported = json.loads(reported)
        except ValueError:
            reported = literal_eval(reported)
    return reported if isinstance(reported, dict) else {}


class _StopSignal(threading.Event):
    """Set by a signal, whose `number` it keeps."""

    number: int | None = None


@contextmanager
def _stop_signals() -> Iterator[_StopSignal]:
    """An event that Ctrl-C and SIGTERM set while the block runs."""
    stop = _StopSignal()

    def tell(number: int) -> None:
        stop.number = number
        stop.set()

    with on_signals(tell):
        yield stop
