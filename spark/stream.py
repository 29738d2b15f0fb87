"""The streaming reader: `spark.readStream.format("rocketmq")`.

Spark's checkpoint has the position of a query. The offsets that its group commits at the brokers
are a copy for monitoring its lag and are never read. The driver's reader keeps one
connection, made when it is needed; it is left out when Spark pickles the reader for the tasks.

PySpark before 4.2 doesn't tell `latestOffset` where a micro-batch begins. The reader knows: where
the last one ended, which Spark tells by asking for its tasks (after a restart for those from its
end to its end, before all else), and for the first one where the stream begins. A query that starts
at the latest offsets has nothing in its first micro-batch, so that these are the ones in the
checkpoint: asked for again, after a crash in that micro-batch, they would lie further on.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ..client.blocking.reader import Reader
from ..client.cluster.route import MessageQueue
from ..client.errors import AerobeeError
from ..lake.rows.columns import Column
from . import progress
from .errors import readable_errors
from .options import ReadOptions
from .plan import Bounds
from .progress import Progress
from .retrying_bounds import RetryingBounds
from .stream_tables import StreamTables

if TYPE_CHECKING:
    import pyarrow as pa

try:
    from pyspark.sql.streaming import datasource as admission
except ImportError:  # PySpark before 4.2
    admission = None  # type: ignore[assignment]
SPARK_ADMITS = admission is not None  # says where a micro-batch begins and how much it may take
_Base: Any = object if admission is None else admission.SupportsTriggerAvailableNow

log = logging.getLogger(__name__)


class RocketmqStreamReader(DataSourceStreamReader, _Base):  # type: ignore[misc]
    """One streaming query's reader."""

    def __init__(self, options: ReadOptions, columns: tuple[Column, ...]) -> None:
        self.options = options
        self.columns = columns
        self._bounds: Reader | None = None
        self._tables = None if options.lake_config is None else StreamTables(options)
        self._first: Progress | None = None  # where a new query begins
        self._end: Progress | None = None  # of the last micro-batch that Spark has told of
        self._target: Progress | None = None  # of a query that reads what is there, and ends
        self._is_asked = False  # for the end of a micro-batch
        self._waiting_since: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_bounds": None, "_tables": None}

    # --- in the driver --------------------------------------------------------------------------

    @readable_errors()
    def initialOffset(self) -> Progress:
        if self._first is None:
            self._first = progress.first(self._ask_all({}), self.options, self._end)
        return self._first

    def getDefaultReadLimit(self) -> Any:
        """Admission control: what `maxOffsetsPerTrigger` says, or `maxBytesPerTrigger` alone."""
        if self.options.rows_max is not None:
            return admission.ReadMaxRows(self.options.rows_max)
        if self.options.bytes_max is not None:
            return admission.ReadMaxBytes(self.options.bytes_max)
        return admission.ReadAllAvailable()

    @readable_errors()
    def prepareForTriggerAvailableNow(self) -> None:
        self._target = progress.latest(self._ask_all({}), self.options, {})

    @readable_errors()
    def latestOffset(self, start: Progress | None = None, limit: Any = None) -> Progress:
        """The end of the next micro-batch. PySpark before 4.2 gives neither argument."""
        is_told, is_asked, self._is_asked = start is not None, self._is_asked, True
        if start is None:
            start = self.initialOffset() if self._end is None else self._end
        is_new = not is_asked and self._end is None and start == self._first
        if is_new and self.options.starting.moves:
            return start
        bounds = self._ask_all(start)
        end = progress.latest(bounds, self.options, start)
        if self._target is not None:
            end = _no_further(end, self._target, start)
        lows = progress.lows_of(bounds, start, end)
        # Without a start, this may be the only call for a query that reads up to the present.
        if (is_told or is_asked) and self._is_to_wait(progress.rows_between(start, end, lows)):
            return start
        is_limited = not is_told or hasattr(limit, "max_rows") or hasattr(limit, "max_bytes")
        if is_limited and self.options.rows_max is not None:
            end = progress.limited(start, end, lows, self.options.rows_max)
        if is_limited and (most := self.options.bytes_max) is not None:
            rows = progress.rows_of_bytes(start, end, lows, most, self._size_at)
            end = progress.limited(start, end, lows, rows)
        return end

    def reportLatestOffset(self) -> Progress | None:
        """The ends of all queues, which the query's status shows."""
        try:
            return progress.latest(self._ask_all({}), self.options, {})
        except AerobeeError as wrong:
            log.warning("the latest offsets can't be had: %s", wrong)
            return None

    @readable_errors()
    def partitions(self, start: Progress, end: Progress) -> Sequence[InputPartition]:
        """A task for each range of the micro-batch."""
        self._end = end
        log = self._ask()
        if self._tables is None:
            return [*map(InputPartition, progress.ranges(log, self.options, start, end))]
        return [*map(InputPartition, self._tables.tasks(log, start, end))]

    def commit(self, end: Progress) -> None:
        """Commit the group's offsets at the brokers, for monitoring its lag."""
        if self.options.commit_offsets:
            progress.commit(self._open().commit, end)

    def stop(self) -> None:
        """Close the connection."""
        if self._bounds is not None:
            self._bounds.close()
            self._bounds = None

    # --- in a task ------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of one range, batch by batch."""
        from .read import read_range  # Arrow and what decodes records: in tasks only

        return read_range(self.options, self.columns, partition.value)

    # --- inside ---------------------------------------------------------------------------------

    def _open(self) -> Reader:
        if self._bounds is None:
            self._bounds = Reader(self.options.name_server, **self.options.reader)
        return self._bounds

    def _ask(self) -> RetryingBounds:
        # A broker that stops unregisters its routes and registers them again at its start.
        were_there = self._first is not None or self._end is not None
        return RetryingBounds(self._open(), self.options, were_there=were_there)

    def _ask_all(self, start: Progress) -> Bounds:
        """The bounds of table and log together."""
        log = self._ask()
        return log if self._tables is None else self._tables.over(log, start)

    def _size_at(self, queue: MessageQueue, offset: int) -> float:
        """The mean bytes of the next offsets: of the records of one pull, or of a table's rows."""
        size = None if self._tables is None else self._tables.size_at(queue, offset)
        if size is not None:
            return size
        pulled = self._ask().ask(lambda: self._open().pull(queue, offset), queue.topic)
        return len(pulled.body) / max(1, pulled.next_offset - offset)

    def _is_to_wait(self, rows: int) -> bool:
        """Fewer rows than wanted are there, and there is time left for more to come."""
        wanted = self.options.rows_min
        if wanted is None or rows >= wanted or self._target is not None:
            self._waiting_since = None
            return False
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since < self.options.wait_ms / 1000:
            return True
        self._waiting_since = None
        return False


def _no_further(end: Progress, target: Progress, start: Progress) -> Progress:
    """`end`, limited to `target`; a queue that the target lacks stays at its start.

    A queue whose offsets went back keeps the offset of `end`: `ranges` reports the loss.
    """
    found: Progress = {}
    for topic, queues in end.items():
        for name, offset in queues.items():
            stop = target.get(topic, {}).get(name, start.get(topic, {}).get(name))
            if stop is not None:
                begin = start.get(topic, {}).get(name, 0)
                kept = offset if offset < begin else max(begin, min(offset, stop))
                found.setdefault(topic, {})[name] = kept
    return found
