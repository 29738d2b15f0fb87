"""Compares a table with the log, row by row: the proof that each message is there once.

Where the log has deleted messages, the table alone is looked at: each offset once, none left out.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan
from pyiceberg.table import Table

from ..client.cluster.route import MessageQueue
from . import continuity
from .bodies.decoder import BodyDecoder
from .bodies.fields import Field
from .commits import Conflict
from .dead_letters import DeadLetters
from .errors import LakeError
from .progress import Progress, progress_of, queue_key
from .rows.ranges import DataLossError, QueueRange
from .table_schema import COLUMNS, file_schema
from .topic_log import Bounds, Source

WINDOW = 250_000  # offsets of a queue that are compared at once
NAMES = tuple(column.name for column in COLUMNS)
SHOWN_MAX = 5  # offsets in a report

# pyiceberg's constructors take a column and a value by position, which their types don't say.
_equal: Callable[..., BooleanExpression] = EqualTo
_from: Callable[..., BooleanExpression] = GreaterThanOrEqual
_below: Callable[..., BooleanExpression] = LessThan


@dataclass(slots=True)
class QueueFindings:
    """What one queue's comparison found.

    `rows` of the table in the range, `compared` with the log. `missing` in the table, `twice` in
    it, `different` from the log, `beyond` the table's own offset: counts. `first_bad` has some of
    their offsets. `absent` are neither in the table nor in the log: of these, as many as the table
    counts as `gone` are not missing.
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
    absent: int = 0
    first_bad: tuple[int, ...] = ()

    @property
    def is_clean(self) -> bool:
        """True if table and log are the same in this range."""
        return not (self.missing or self.twice or self.different or self.beyond)


def verify(
    table: Table,
    source: Source,
    topic: str,
    *,
    since_ms: int | None = None,
    fields: Sequence[Field] = (),
    letters: DeadLetters | None = None,
) -> Iterator[QueueFindings]:
    """Compare each queue of the topic up to the offset in the table's snapshot.

    From the table's oldest row on, or from the first message stored at `since_ms`. Columns of JSON,
    `fields`, must be what the body gives, or null. The rows of `letters` count as the table's.
    LakeError when the table's progress can't be read.
    """
    name = ".".join(table.name())
    progress = progress_of(table.metadata, name)
    if letters is not None:
        with suppress(Conflict):  # it has more than this
            letters.follow(table)
    copy = _Copy(table, progress, fields, letters)
    bounds, failures = source.bounds(topic)
    if failures:
        raise LakeError(f"not every queue of topic {topic} can be compared: {failures[0]}")
    starts = None if since_ms is None else source.offsets_at(list(bounds), since_ms)
    for queue, each in bounds.items():
        key = queue_key(queue)
        end = progress.offsets.get(key)
        if end is None:
            continue
        if end > each.end:
            raise continuity.ends_before(queue, each.end, end, name)
        first = copy.first_row(queue) if starts is None else starts[queue]
        first = end if first is None else min(first, end)
        found = QueueFindings(key, first, end, gone=progress.gone.get(key, 0))
        for begin in range(first, end, WINDOW):
            _compare(found, copy, source, queue, begin, min(end, begin + WINDOW), each)
        found.missing += max(0, found.absent - found.gone)
        beyond = copy.offsets(queue, end)
        found.beyond = len(beyond)
        _note(found, beyond)
        yield found


def _compare(
    found: QueueFindings,
    copy: "_Copy",
    source: Source,
    queue: MessageQueue,
    begin: int,
    end: int,
    bounds: Bounds,
) -> None:
    rows, misread = copy.rows(queue, begin, end)
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
    found.different += len(misread)
    _note(found, misread)
    missing = np.setdiff1d(expected, unique)
    is_absent = missing < bounds.first
    found.absent += int(is_absent.sum())
    found.missing += int((~is_absent).sum())
    _note(found, missing[~is_absent] if found.absent <= found.gone else missing)
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
    same |= np.isin(both, misread)  # which are counted
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
    found = And(
        _equal("brokerName", queue.broker_name),
        _equal("queueId", queue.queue_id),
        _from("offset", begin),
    )
    return found if end is None else And(found, _below("offset", end))


class _Copy:
    """A table with its dead letters, at one snapshot."""

    def __init__(
        self,
        table: Table,
        progress: Progress,
        fields: Sequence[Field],
        letters: DeadLetters | None,
    ) -> None:
        self._table = table
        self._dead = None if letters is None else letters.at(progress)
        have = {each.name for each in table.schema().fields}
        self._fields = [each for each in fields if each.name in have]

    def rows(self, queue: MessageQueue, begin: int, end: int) -> tuple[pa.Table, np.ndarray]:
        """The messages of a range, sorted by offset, with the log's types; and the offsets of those
        whose columns of JSON are not what the body gives."""
        where = _filter(queue, begin, end)
        more = [each.name for each in self._fields]
        found = self._table.scan(where, selected_fields=(*NAMES, *more)).to_arrow()
        schema = file_schema(self._table.schema()).remove_metadata()
        rows = found.select(list(NAMES)).cast(schema)
        misread = self._misread(rows, found)
        if self._dead is not None:
            table, at = self._dead
            dead = table.scan(where, selected_fields=NAMES, snapshot_id=at).to_arrow()
            rows = pa.concat_tables([rows, dead.select(list(NAMES)).cast(schema)])
        return rows.sort_by("offset"), misread

    def offsets(self, queue: MessageQueue, begin: int) -> np.ndarray:
        """The offsets from `begin` on, sorted."""
        where = _filter(queue, begin, None)
        scans = [self._table.scan(where, selected_fields=("offset",))]
        if self._dead is not None:
            table, at = self._dead
            scans.append(table.scan(where, selected_fields=("offset",), snapshot_id=at))
        found = [each.to_arrow().column("offset").to_numpy() for each in scans]
        return np.sort(np.concatenate(found))

    def first_row(self, queue: MessageQueue) -> int | None:
        """The smallest offset of a queue; None without a row."""
        found = self.offsets(queue, 0)
        return int(found[0]) if len(found) else None

    def _misread(self, rows: pa.Table, found: pa.Table) -> np.ndarray:
        """The offsets of rows whose columns of JSON are not what the body gives, nor null."""
        bad = []
        if self._fields and len(rows):
            decoder = BodyDecoder(self._fields)
            (batch,) = rows.combine_chunks().to_batches()
            fit, dead = decoder.split(batch)
            is_dead = pc.is_in(rows["offset"], dead.column("offset"))
            have = found.select(decoder.schema.names).cast(decoder.schema)
            # A row without values was written before the columns were declared.
            for column in have.filter(is_dead).columns:
                pairs = zip(dead["offset"].to_pylist(), column.to_pylist(), strict=True)
                bad += [at for at, each in pairs if _comparable(each) is not None]
            have = have.filter(pc.invert(is_dead))
            for name in decoder.schema.names:
                left, right = have[name].combine_chunks(), fit.column(name)
                if left.equals(right):
                    continue
                offsets = fit.column("offset").to_pylist()
                for at, *pair in zip(offsets, left.to_pylist(), right.to_pylist(), strict=True):
                    have_it, given = map(_comparable, pair)
                    if have_it is not None and have_it != given:
                        bad.append(at)
        return np.unique(np.array(bad, np.int64))


def _comparable(value: object) -> object:
    """A value with null for each empty array: pyiceberg shows null arrays of structs as those."""
    if isinstance(value, list):
        return [_comparable(each) for each in value] or None
    if isinstance(value, dict):
        return {name: _comparable(each) for name, each in value.items()}
    return value


def _logged(source: Source, queue: MessageQueue, begin: int, end: int) -> pa.Table | None:
    """The log's rows of a range; None when it is empty or gone."""
    if begin >= end:
        return None
    wanted = QueueRange(queue.topic, queue.broker_name, queue.queue_id, begin, end)
    try:
        return pa.Table.from_batches(list(source.rows(wanted)))
    except DataLossError as gone:
        raise LakeError(
            f"messages of queue {queue_key(queue)} were deleted while they were compared; verify "
            "again"
        ) from gone
