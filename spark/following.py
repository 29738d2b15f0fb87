"""`aerobee ingest` as a stream: what is there (`available-now`) or for ever (`continuous`).

How far it is lies in a checkpoint beside the table, so the same command goes on where the last one
ended, however it ended, with no row lost or twice. With a schema, the rows that don't fit have a
query, a checkpoint and a table of their own: each is exact by itself.
"""

import json
import signal
import threading
import time
from ast import literal_eval
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ..client.blocking.reader import Reader
from ..client.errors import AerobeeError
from .bodies import malformed, schema_of, typed
from .ingest import (
    AVAILABLE_NOW,
    CONTINUOUS,
    MALFORMED,
    Ingest,
    OnRows,
    Tables,
    folders_of,
    source_options,
    text_values,
)
from .options import read_options
from .progress import Progress, latest, rows_between
from .session import SIGNALS, SparkFailed, Stopped, sentence
from .stream import SPARK_ADMITS

LOOK_SECONDS = 0.2
SIGNAL_SECONDS = 0.5  # between the JVM's end and our own signal, when both are told
END_SECONDS_MAX = 20.0  # that a signal waits for; what is cut off then is done again
TRIGGER = "1 second"  # between the micro-batches of a continuous one, at least


def check_checkpoint(tables: Tables) -> None:
    """SparkFailed when the table is there and nothing says how far it is."""
    if "://" in tables.target:
        return
    target, checkpoint = Path(tables.target), Path(tables.checkpoint)
    if target.exists() and not target.is_dir():
        raise SparkFailed(f"{target} is no folder; give another one")
    if target.is_dir() and any(target.iterdir()) and not checkpoint.is_dir():
        raise SparkFailed(
            f"{target} has something in it and the checkpoint {checkpoint} is not there, so where "
            "to go on is unknown; give --checkpoint, or another folder"
        )


def follow(spark: SparkSession, tables: Tables, on_rows: OnRows) -> int:
    """Run until there is nothing more, or a signal says to end; the rows of this run.

    A signal waits for the micro-batch at work; one that takes too long is done by the next run. It
    is how a continuous stream ends; Stopped when something else does not come to its end, or when
    the signal went to Spark's JVM as well.
    """
    with _told() as told, _ends(tables.job) as ends:
        followed = _Followed(ends)
        try:
            rows = 0
            for _ in range(_runs(tables.job)):
                if not told.is_set():
                    _start(spark, tables, followed)
                    rows = followed.wait(told, on_rows)
        except (PySparkException, Py4JError, SparkFailed, OSError) as wrong:
            # The JVM may have had the signal first.
            if not told.wait(SIGNAL_SECONDS) or told.number is None:
                raise
            raise Stopped(told.number) from wrong
        finally:
            followed.stop()
    if told.number is not None and tables.job.follow != CONTINUOUS:
        raise Stopped(told.number)
    return rows


def _runs(job: Ingest) -> int:
    """How often what is there has to be read.

    PySpark before 4.2 reads it in one micro-batch, and where one was cut off does just that again.
    """
    return 2 if job.follow == AVAILABLE_NOW and not SPARK_ADMITS else 1


@contextmanager
def _ends(job: Ingest) -> Iterator[Callable[[], Progress] | None]:
    """Asks the brokers where the queues end; None from PySpark 4.2 on, which tells it."""
    if SPARK_ADMITS:
        yield None
        return
    options = read_options(source_options(job), stream=True)
    with Reader(options.name_server, **options.reader) as reader:

        def ends() -> Progress:
            with suppress(AerobeeError):  # it is only to be shown
                return latest(reader, options, {})
            return {}

        yield ends


def _start(spark: SparkSession, tables: Tables, followed: "_Followed") -> None:
    """The query, or with a schema both of them."""
    source = spark.readStream.format("rocketmq").options(**source_options(tables.job))
    followed.queries.clear()
    if tables.job.schema is None:
        rows = text_values(source.load(), tables.job.format)
        followed.start(rows, tables.target, tables.checkpoint, tables)
        return
    schema = schema_of(tables.job.schema)
    rows = typed(source.load(), schema)
    followed.start(rows, tables.target, tables.checkpoint, tables)
    source = source.option("commitOffsets", "false")
    rest = text_values(malformed(source.load(), schema), tables.job.format)
    side = tables.target + MALFORMED
    followed.start(rest, side, tables.checkpoint + MALFORMED, tables)


@dataclass
class _Followed:
    """The running queries, and what the first of them has read by micro-batch.

    `ends` asks for the ends of the queues where Spark doesn't tell them. `lag` is as of `told_at`,
    the time of a progress.
    """

    ends: Callable[[], Progress] | None = None
    queries: list[StreamingQuery] = field(default_factory=list)
    rows: dict[int, int] = field(default_factory=dict)
    lag: int | None = None
    told_at: str = ""

    def start(self, rows: Any, target: str, checkpoint: str, tables: Tables) -> None:
        job = tables.job
        writer = rows.writeStream.format(job.format).option("checkpointLocation", checkpoint)
        if job.partition_by:
            writer = writer.partitionBy(*folders_of(job, rows, target))
        if job.follow == CONTINUOUS:
            writer = writer.trigger(processingTime=TRIGGER)
        else:
            writer = writer.trigger(availableNow=True)
        self.queries.append(writer.start(target))

    def wait(self, told: threading.Event, on_rows: OnRows) -> int:
        while any(query.isActive for query in self.queries) and not told.wait(LOOK_SECONDS):
            on_rows(self._count(), self._lag())
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
                time.sleep(LOOK_SECONDS)

    def stop(self) -> None:
        with suppress(PySparkException, Py4JError, OSError):  # the JVM may be gone
            for query in self.queries:
                query.stop()

    def _count(self) -> int:
        for each in self.queries[0].recentProgress:
            self.rows[each["batchId"]] = each["numInputRows"]
        return sum(self.rows.values())

    def _lag(self) -> int | None:
        """Messages that the first query has not read yet; None as long as it has not said."""
        last = self.queries[0].lastProgress
        if not last:
            return None
        if last["timestamp"] != self.told_at:
            self.told_at = last["timestamp"]
            ends = None if self.ends is None else self.ends()
            self.lag = lag_of(last["sources"][0], ends)
        return self.lag

    def _check(self, query: StreamingQuery) -> None:
        wrong = query.exception()
        if wrong is not None:
            raise SparkFailed(sentence(wrong))


def lag_of(source: Mapping[str, Any], ends: Progress | None = None) -> int | None:
    """How many messages lie between the offsets of a query's source and the ends of its queues.

    These are in `ends` where the source doesn't tell them. None when nobody does.
    """
    end = _offsets(source["endOffset"])
    latest = _offsets(source["latestOffset"]) if ends is None else ends
    if not end or not latest:
        return None
    return rows_between(
        end, latest, {topic: dict.fromkeys(each, 0) for topic, each in latest.items()}
    )


def _offsets(told: Any) -> Progress:
    """A progress, told as JSON, as Python writes it (PySpark 4.0) or as itself; empty without."""
    if isinstance(told, str) and told.startswith("{"):
        try:
            told = json.loads(told)
        except ValueError:
            told = literal_eval(told)
    return told if isinstance(told, dict) else {}


class _Told(threading.Event):
    """Set by a signal, of which it keeps the `number`."""

    number: int | None = None


@contextmanager
def _told() -> Iterator[_Told]:
    """An event that Ctrl-C and SIGTERM set while the block runs."""
    told = _Told()

    def tell(number: int, frame: FrameType | None) -> None:
        told.number = number
        told.set()

    before: dict[int, Callable[..., Any] | int | None] = {
        number: signal.signal(number, tell) for number in SIGNALS
    }
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
