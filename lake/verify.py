"""Compares a table with the log, row by row: the proof that each message is there once.

Where the log has deleted messages, the table alone is looked at: each offset once, none left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan
from pyiceberg.table import Table

from ..client.cluster.route import MessageQueue
from .errors import LakeError
from .progress import progress_of, queue_key
from .rows.ranges import DataLossError, QueueRange
from .table_schema import COLUMNS
from .topic_log import Bounds, TopicLog

WINDOW = 250_000  # offsets of a queue that are compared at once
SHOWN_MAX = 5  # offsets of each kind in a report


@dataclass(slots=True)
class QueueFindings:
    """What one queue's comparison found.

    `rows` of the table in the range, `compared` with the log. `missing` in the table, `twice` in
    it, `different` from the log, `beyond` the table's own offset: counts. `first_bad` has some of
    their offsets.
    """

    queue: str
    first: int
    end: int
    rows: int = 0
    compared: int = 0
    missing: int = 0
    twice: int = 0
    different: int = 0
    beyond: int = 0
    gone: int = 0
    first_bad: tuple[int, ...] = ()

    @property
    def is_clean(self) -> bool:
        """True if table and log are the same in this range."""
        return not (self.missing or self.twice or self.different or self.beyond)


def verify(
    table: Table,
    source: TopicLog,
    topic: str,
    *,
    since_ms: int | None = None,
) -> Iterator[QueueFindings]:
    """Compare each queue of the topic up to the offset in the table's snapshot.

    From the table's oldest row on, or from the first message stored at `since_ms`. LakeError when
    the table's progress can't be read.
    """
    name = ".".join(table.name())
    progress = progress_of(table.metadata, name)
    bounds, failures = source.bounds(topic)
    if failures:
        raise LakeError(f"not every queue of topic {topic} can be compared: {failures[0]}")
    starts = None if since_ms is None else source.offsets_at(list(bounds), since_ms)
    for queue, each in bounds.items():
        key = queue_key(queue)
        end = progress.offsets.get(key)
        if end is None:
            continue
        first = _first_row(table, queue) if starts is None else starts[queue]
        first = end if first is None else min(first, end)
        found = QueueFindings(key, first, end, gone=progress.gone.get(key, 0))
        for begin in range(first, end, WINDOW):
            _compare(found, table, source, queue, begin, min(end, begin + WINDOW), each)
        beyond = _offsets(table, queue, end, None)
        found.beyond = len(beyond)
        _note(found, beyond)
        yield found


def _compare(
    found: QueueFindings,
    table: Table,
    source: TopicLog,
    queue: MessageQueue,
    begin: int,
    end: int,
    bounds: Bounds,
) -> None:
    rows = _rows(table, queue, begin, end)
    offsets = rows.column("offset").to_numpy()
    found.rows += len(offsets)
    unique, counts = np.unique(offsets, return_counts=True)
    twice = unique[counts > 1]
    found.twice += int((counts - 1).sum())
    _note(found, twice)
    logged = _logged(source, queue, max(begin, bounds.first), end)
    if logged is None:
        expected = np.arange(begin, end)
    else:
        in_log = logged.column("offset").to_numpy()
        expected = np.concatenate([np.arange(begin, max(begin, min(end, bounds.first))), in_log])
    missing = np.setdiff1d(expected, unique)
    found.missing += len(missing)
    _note(found, missing)
    if logged is None or len(twice):
        return
    both = np.intersect1d(unique, in_log)
    mine = rows.filter(pc.is_in(rows.column("offset"), pa.array(both)))
    theirs = logged.filter(pc.is_in(logged.column("offset"), pa.array(both)))
    found.compared += len(both)
    same = np.ones(len(both), bool)
    for column in COLUMNS:
        a, b = _plain(mine, column.name), _plain(theirs, column.name)
        if a.equals(b):
            continue
        pairs = zip(a.to_pylist(), b.to_pylist(), strict=True)
        same &= np.array([left == right for left, right in pairs], bool)
    found.different += int((~same).sum())
    _note(found, both[~same])


def _plain(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return column


def _note(found: QueueFindings, offsets: np.ndarray) -> None:
    room = SHOWN_MAX - len(found.first_bad)
    if room > 0 and len(offsets):
        found.first_bad += tuple(int(each) for each in offsets[:room])


def _filter(queue: MessageQueue, begin: int, end: int | None) -> BooleanExpression:
    # Models, whose arguments by position mypy does not know.
    equal: Any = EqualTo
    at_least: Any = GreaterThanOrEqual
    below: Any = LessThan
    found = And(
        equal("brokerName", queue.broker_name),
        equal("queueId", queue.queue_id),
        at_least("offset", begin),
    )
    return found if end is None else And(found, below("offset", end))


def _rows(table: Table, queue: MessageQueue, begin: int, end: int) -> pa.Table:
    """The table's rows of a range, sorted by offset, with the log's types."""
    from .table_schema import file_schema

    names = tuple(column.name for column in COLUMNS)
    found = table.scan(_filter(queue, begin, end), selected_fields=names).to_arrow()
    schema = file_schema(table.schema()).remove_metadata()
    return found.select(list(names)).cast(schema).sort_by("offset")


def _offsets(table: Table, queue: MessageQueue, begin: int, end: int | None) -> np.ndarray:
    found = table.scan(_filter(queue, begin, end), selected_fields=("offset",)).to_arrow()
    return np.sort(found.column("offset").to_numpy())


def _first_row(table: Table, queue: MessageQueue) -> int | None:
    """The smallest offset of a queue in the table; None without a row."""
    lowest = pc.min(
        table.scan(_filter(queue, 0, None), selected_fields=("offset",)).to_arrow().column("offset")
    )
    return None if not lowest.is_valid else int(lowest.as_py())


def _logged(source: TopicLog, queue: MessageQueue, begin: int, end: int) -> pa.Table | None:
    """The log's rows of a range; None when it is empty or gone."""
    if begin >= end:
        return None
    wanted = QueueRange(queue.topic, queue.broker_name, queue.queue_id, begin, end)
    try:
        return pa.Table.from_batches(list(source.rows(wanted)))
    except DataLossError as gone:
        raise LakeError(f"{gone}; verify again") from gone
