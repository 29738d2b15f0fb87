"""The rows of one range of a queue: pulled or read from the files, decoded, and filtered.

Tags are compared once more, since brokers compare only hashes. With `dedup` repeated rows are
dropped.
"""

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from ..client.pull import reader
from ..lake.rows.columns import BY_NAME, ROW_ID_COLUMN, Column
from ..lake.rows.decode import decode_chunk
from ..lake.rows.pull import Pulling, pull_chunks
from ..lake.rows.ranges import DataLossError, QueueRange
from ..store.log.chunk import Chunk, MessagesGone
from .errors import readable_errors
from .options import ReadOptions

if TYPE_CHECKING:
    from ..lake.rows.table_part import TablePart

_kept: list[int] = []  # how many objects were kept, once


def read_range(
    options: ReadOptions, columns: tuple[Column, ...], wanted: "QueueRange | TablePart | None"
) -> Iterator[pa.RecordBatch]:
    """The rows with these columns, batch by batch, over a connection of its own."""
    if wanted is None:  # PySpark makes one partition of none
        return
    keep_modules()
    with readable_errors():
        yield from _chosen(options, columns, wanted)


def keep_modules() -> None:
    """Exclude all imported modules from garbage collection; once in a process that runs tasks.

    Spark keeps such a process and gives it one task after the other. PySpark collects after each,
    before it takes the next one, and the collector would traverse 100,000 objects of modules each
    time: 20 to 60 ms. Other processes that import the source keep their collector as it is.
    """
    if _kept or TaskContext.get() is None:
        return
    gc.freeze()
    _kept.append(gc.get_freeze_count())


def _chosen(
    options: ReadOptions, columns: tuple[Column, ...], wanted: "QueueRange | TablePart"
) -> Iterator[pa.RecordBatch]:
    """The rows of the range that pass the tags and are no repeats."""
    names = [column.name for column in columns]
    asked = columns
    tags = None if options.tags is None else [each.strip() for each in options.tags.split("||")]
    if tags is not None and "tags" not in names:
        asked = (*asked, BY_NAME["tags"])
    repeats = None
    if options.dedup_window and isinstance(wanted, QueueRange):
        asked = (*asked, ROW_ID_COLUMN)
        repeats = _Repeats(options, wanted)
    for rows in _batches(options, asked, wanted):
        if tags is not None:
            rows = rows.filter(pc.is_in(rows.column("tags"), pa.array(tags)))
        if repeats is not None:
            rows = rows.filter(repeats.first_seen(rows.column(ROW_ID_COLUMN.name)))
        if rows.num_rows:
            yield rows.select(names)


class _Repeats:
    """The ids of rows seen so far in a queue, from a window before the range on."""

    def __init__(self, options: ReadOptions, wanted: QueueRange) -> None:
        self._seen: set[str] = set()
        start = max(0, wanted.start - options.dedup_window)
        # Messages that are gone from the window are no loss: its rows are not returned.
        before = replace(wanted, start=start, end=wanted.start)
        around = replace(options, fail_on_data_loss=False)
        if before:
            for rows in _batches(around, (ROW_ID_COLUMN,), before):
                self.first_seen(rows.column(0))

    def first_seen(self, ids: pa.Array) -> pa.Array:
        """A column that is true where an id comes for the first time, and where the id is null."""
        seen = self._seen
        found = []
        for each in ids.to_pylist():
            found.append(each is None or each not in seen)
            if each is not None:
                seen.add(each)
        return pa.array(found, pa.bool_())


def _batches(
    options: ReadOptions, columns: tuple[Column, ...], wanted: "QueueRange | TablePart"
) -> Iterator[pa.RecordBatch]:
    if not isinstance(wanted, QueueRange):
        yield from wanted.rows(columns)
        return
    chunks = _pulled(options, wanted) if options.store_path is None else _stored(options, wanted)
    for chunk in chunks:
        yield decode_chunk(chunk, columns, wanted.broker_name)


def _pulled(options: ReadOptions, wanted: QueueRange) -> Iterator[Chunk]:
    how = Pulling(
        options.messages_per_pull,
        options.fail_on_data_loss,
        options.is_filtered,
        options.retries,
        options.retry_ms,
    )
    return pull_chunks(reader.Reader(options.name_server, **options.reader), wanted, how)


def _stored(options: ReadOptions, wanted: QueueRange) -> Iterator[Chunk]:
    """The same from the broker's files, which this task can see."""
    from ..store.columns.view import StoreView  # the files of a store, which few reads need

    assert options.store_path is not None
    view, start = StoreView(options.store_path, topic=wanted.topic), wanted.start
    while start < wanted.end:
        try:
            for chunk in view.chunks(wanted.topic, wanted.queue_id, start, wanted.end):
                start = chunk.end
                yield chunk
        except MessagesGone as gone:
            if options.fail_on_data_loss:
                raise DataLossError(f"reading {wanted}: {gone}") from None
            start = min(wanted.end, gone.first)
            continue
        if start < wanted.end:
            raise DataLossError(
                f"reading {wanted} from {options.store_path}: its files end at offset {start}; "
                "check that it is the folder of that broker"
            )
