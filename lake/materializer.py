"""Copies the messages of one topic into its table: each once, in one commit for all queues.

A pass reads from the offsets in the table's snapshot to the ends of the queues, at most
`commit_bytes`, and commits. If another writer was first, the next pass begins at its offsets.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from ..client.cluster.route import MessageQueue
from . import continuity
from .bodies.decoder import BodyDecoder
from .bodies.fields import Field, ddl
from .catalog import LakeCatalog, missing_columns
from .commits import commit, prepare, prepare_columns, was_made
from .data_files import DataFiles
from .dead_letters import Change, DeadLetters, letters_in
from .errors import LakeError
from .progress import NO_TOTALS, Progress, Totals, progress_of, queue_key, totals_of
from .rows.ranges import DataLossError, QueueRange
from .table_schema import REASON
from .topic_log import Bounds, Source

log = logging.getLogger(__name__)

COMMIT_BYTES = 64 << 20
REASONS_MAX = 1_000  # that are counted apart
OTHERS = "others"
DOUBTS_MAX = 16  # commits without an answer whose files are remembered
Start = int | Literal["earliest", "latest"]  # or ms since the epoch


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass did.

    `bytes` are those of the rows in memory. `is_behind`: there was more than one commit takes;
    `lag` counts those messages. `dead` of the rows are dead letters.
    `failures` names the queues whose brokers did not answer; the others were copied.
    `group_failures` tells where the group's offset could not be moved. `totals` are those of the
    table, as it was last seen.
    """

    rows: int = 0
    bytes: int = 0
    snapshot_id: int | None = None
    is_behind: bool = False
    lag: int = 0
    failures: tuple[str, ...] = ()
    dead: int = 0
    group_failures: tuple[str, ...] = ()
    totals: Totals = NO_TOTALS


@dataclass(frozen=True, slots=True)
class Retried:
    """What one commit of dead letters that are read again did: how many fit now, and how many stay,
    by their reasons. `written` is the file with those that stay."""

    fit: int
    stay: Counter[str]
    read: tuple[str, ...]
    written: tuple[str, ...] = ()


class Materializer:
    """Keeps the table `name` a copy of `topic`.

    `start` says where the queues begin that are there at the first commit; later ones begin at
    their oldest message. `on_gone` is what happens when messages are deleted before they are read:
    stop with an error, or skip them and count them in the snapshot. `fields` are columns of JSON
    bodies; a message whose body does not fit them is a row of the table of dead letters instead.
    The table's offsets are committed as those of consumer `group` at the brokers, if it is named.
    """

    def __init__(
        self,
        catalog: LakeCatalog,
        source: Source,
        topic: str,
        name: str,
        *,
        commit_bytes: int = COMMIT_BYTES,
        start: Start = "earliest",
        on_gone: Literal["stop", "skip"] = "stop",
        fields: Sequence[Field] = (),
        group: str = "",
    ) -> None:
        self.topic, self.name = topic, name
        self._catalog = catalog
        self._log = source
        self._commit_bytes = commit_bytes
        self._start = start
        self._skips = on_gone == "skip"
        self._decoder = BodyDecoder(fields) if fields else None
        self._letters = DeadLetters(catalog, topic, name)
        self._group = group
        self._moved: dict[MessageQueue, int] = {}  # where the group is, as far as known
        self._is_burst = False  # of dead letters
        self._uuid: object = None
        self._known: Progress | None = None  # as the table was last seen, if that is certain
        self._totals = NO_TOTALS
        self._doubts: list[_Doubt] = []

    def copy(self) -> Pass:
        """One pass, with one commit or none.

        LakeError when the table or the log does not allow one; its subclasses Conflict and
        Unconfirmed after a commit that was not made, or perhaps. Also the errors of the client,
        and of the table's file system. A group's offset that can't be moved is none: the next pass
        tries again.
        """
        bounds, failures = self._log.bounds(self.topic)
        done = self._copied(bounds, failures)
        return replace(done, group_failures=self._move_group(bounds), totals=self._totals)

    def retry(self, limit: int, skip: Collection[str] = ()) -> Retried | None:
        """Read up to `limit` files of dead letters again, all but those in `skip`: what fits now
        becomes rows of the table, in one commit. None when there are no more files.

        Raises what `copy` does.
        """
        if self._decoder is None:
            raise LakeError(f"table {self._full_name} has no columns of JSON; set json")
        self._known = None
        table = self._load()
        after = progress_of(table.metadata, self._full_name).copy()
        if not after.letters:
            return None
        letters = self._letters.opened(table)
        paths = sorted(task.file.file_path for task in letters.scan().plan_files())
        paths = [path for path in paths if path not in skip][:limit]
        if not paths:
            return None
        files = _Files(table, self._decoder, self._letters)
        rows = 0
        try:
            for path in paths:
                for batch in letters_in(letters, path):
                    rows += batch.num_rows
                    files.write(batch)
            finished, left = files.finish()
        except BaseException:
            files.discard()
            raise
        fit = rows - sum(files.reasons.values())
        if not fit:
            files.discard()
            return Retried(0, files.reasons, tuple(paths))
        self._commit(table, files, finished, after, Change(left, tuple(paths)), -fit)
        return Retried(fit, files.reasons, tuple(paths), left)

    # --- inside ---------------------------------------------------------------------------------

    def _copied(self, bounds: Mapping[MessageQueue, Bounds], failures: tuple[str, ...]) -> Pass:
        if self._known is not None and not self._has_news(self._known, bounds):
            return Pass(failures=failures)
        self._known = None
        table = self._load()
        before = progress_of(table.metadata, self._full_name)
        self._totals = totals_of(table.metadata, before)
        after = before.copy()
        if not before.offsets:
            after.offsets = self._first_offsets(bounds)
        self._check_ends(after, bounds)
        files = _Files(table, self._decoder, self._letters)
        try:
            rows, size = self._write(files, after, bounds)
            finished, letters = files.finish()
        except BaseException:
            files.discard()
            raise
        if after == before:
            self._known = before
            return Pass(failures=failures)
        dead = sum(files.reasons.values())
        snapshot_id = self._commit(table, files, finished, after, Change(letters), dead)
        self._known = after
        self._note_dead(dead, rows, files.first)
        lag = sum(each.end - after.offsets[queue_key(queue)] for queue, each in bounds.items())
        return Pass(rows, size, snapshot_id, lag > 0, lag, failures, dead)

    def _move_group(self, bounds: Mapping[MessageQueue, Bounds]) -> tuple[str, ...]:
        """Move the group's offsets to those that the table has now; where that fails, why."""
        if not self._group or self._known is None:
            return ()
        offsets = {queue: self._known.offsets[queue_key(queue)] for queue in bounds}
        news = {queue: at for queue, at in offsets.items() if self._moved.get(queue) != at}
        if not news:
            return ()
        failures = self._log.move_group(self._group, news)
        self._moved |= {queue: at for queue, at in news.items() if queue not in failures}
        return tuple(failures.values())

    @property
    def _full_name(self) -> str:
        return self._catalog.full_name(self.name)

    def _load(self) -> Table:
        table = self._catalog.load(self.name, self.topic)
        if self._uuid not in (None, table.metadata.table_uuid):
            raise LakeError(
                f"table {self._full_name} was dropped and made again while aerobee wrote it (its "
                f"id was {self._uuid}, it is {table.metadata.table_uuid}); aerobee lake add "
                f"{self.topic} lets it fill the new one from the oldest message on"
            )
        self._uuid = table.metadata.table_uuid
        self._settle(table)
        if self._decoder is not None:
            table = self._with_columns(table, self._decoder.fields)
        self._letters.follow(table)
        return table

    def _with_columns(self, table: Table, fields: Sequence[Field]) -> Table:
        """The table with all declared columns: those that it lacks are added by a commit."""
        missing = missing_columns(table, self._full_name, fields)
        if not missing:
            return table
        commit(
            table, prepare_columns(table, [(each.name, each.kind.iceberg()) for each in missing])
        )
        log.info("table %s: added %s", self._full_name, ddl(missing))
        table = self._catalog.load(self.name, self.topic)
        missing_columns(table, self._full_name, fields)
        return table

    def _note_dead(self, dead: int, rows: int, first: str) -> None:
        """Warn of the first pass of a row of passes with dead letters."""
        if dead and not self._is_burst:
            log.warning(
                "%d of %d bodies don't fit table %s and go to %s; first %s",
                *(dead, rows, self._full_name, self._letters.name, first),
            )
        self._is_burst = bool(dead)

    def _settle(self, table: Table) -> None:
        """Delete the files of commits that were in doubt, once they can't be made any more: only
        one snapshot follows another."""
        at = table.metadata.current_snapshot()
        for doubt in list(self._doubts):
            if at is None or at.snapshot_id == doubt.base:
                continue  # the request may still be on its way
            self._doubts.remove(doubt)
            if was_made(table.metadata, doubt.base, doubt.snapshot_id) is False:
                doubt.files.discard()

    @staticmethod
    def _has_news(known: Progress, bounds: Mapping[MessageQueue, Bounds]) -> bool:
        return any(
            known.offsets.get(queue_key(queue)) != each.end for queue, each in bounds.items()
        )

    def _first_offsets(self, bounds: Mapping[MessageQueue, Bounds]) -> dict[str, int]:
        if self._start == "earliest":
            return {queue_key(queue): each.first for queue, each in bounds.items()}
        if self._start == "latest":
            return {queue_key(queue): each.end for queue, each in bounds.items()}
        found = self._log.offsets_at(list(bounds), self._start)
        return {
            queue_key(queue): min(each.end, max(each.first, found[queue]))
            for queue, each in bounds.items()
        }

    def _check_ends(self, progress: Progress, bounds: Mapping[MessageQueue, Bounds]) -> None:
        """Bring the progress up to what the queues have; LakeError where that may not be."""
        for queue, each in bounds.items():
            at = progress.offsets.setdefault(queue_key(queue), each.first)
            if at > each.end:
                raise continuity.ends_before(queue, each.end, at, self._full_name)
            if at < each.first:
                self._pass_gone(progress, queue, at, each.first)

    def _pass_gone(self, progress: Progress, queue: MessageQueue, at: int, first: int) -> None:
        key, gone = queue_key(queue), continuity.gone(queue, at, first)
        if not self._skips:
            raise LakeError(
                f"{gone}; to go on without them set onGone: skip (they are counted in the "
                "table's snapshots), and keep messages longer at the broker (fileReservedTime)"
            )
        log.warning("%s; they are missing in table %s", gone, self._full_name)
        progress.gone[key] = progress.gone.get(key, 0) + first - at
        progress.offsets[key] = first
        progress.marks.pop(key, None)

    def _write(
        self, files: "_Files", progress: Progress, bounds: Mapping[MessageQueue, Bounds]
    ) -> tuple[int, int]:
        """Write what is new, and move the offsets; the number of rows, and their bytes."""
        behind = [
            (queue, each)
            for queue, each in bounds.items()
            if progress.offsets[queue_key(queue)] < each.end
        ]
        rows = size = 0
        for number, (queue, each) in enumerate(behind):
            quota = (self._commit_bytes - size) // (len(behind) - number)
            passed = 0
            for batch in self._new_rows(queue, each, progress):
                files.write(batch)
                rows += batch.num_rows
                passed += batch.nbytes
                if passed >= quota:
                    break
            size += passed
        return rows, size

    def _new_rows(
        self, queue: MessageQueue, bounds: Bounds, progress: Progress
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a queue from its offset on; each moves the offset when it is taken."""
        key = queue_key(queue)
        start, mark = progress.offsets[key], progress.marks.get(key)
        # The message before is read again: if it is another one now, the log is another one.
        sees_last = mark is not None and start - 1 >= bounds.first
        whole = QueueRange(queue.topic, queue.broker_name, queue.queue_id, start, bounds.end)
        try:
            for batch in self._log.rows(replace(whole, start=start - sees_last)):
                if sees_last:
                    batch, sees_last = self._checked(batch, queue, start, mark), False
                if batch.num_rows:
                    last = batch.slice(batch.num_rows - 1)
                    progress.offsets[key] = last.column("offset")[0].as_py() + 1
                    progress.marks[key] = continuity.mark_of_row(last)
                    yield batch
            progress.offsets[key] = bounds.end  # also where a topic's compaction left nothing
        except DataLossError as gone:
            raise LakeError(f"table {self._full_name}: {gone}") from gone

    def _checked(
        self, batch: pa.RecordBatch, queue: MessageQueue, start: int, mark: str | None
    ) -> pa.RecordBatch:
        """The rows behind the message before `start`; LakeError if that is not the one that the
        table has."""
        if not batch.num_rows or batch.column("offset")[0].as_py() != start - 1:
            return batch
        if continuity.mark_of_row(batch) != mark:
            raise continuity.differs(queue, start - 1, self._full_name)
        return batch.slice(1)

    def _commit(
        self,
        table: Table,
        files: "_Files",
        finished: list[DataFile],
        progress: Progress,
        change: Change,
        dead: int,
    ) -> int:
        """Make the commit, and let the dead letters follow; `dead` is how many more they are."""
        summary: dict[str, str] = {}
        if change != Change():
            progress.letters += 1
            progress.dead += dead
            summary = change.summary()
        try:
            prepared = prepare(table, finished, progress.summary() | summary)
        except BaseException:
            files.discard()
            raise
        head = table.metadata.current_snapshot()
        base = None if head is None else head.snapshot_id
        doubt = _Doubt(base, prepared.snapshot_id, files)
        self._doubts = [*self._doubts[1 - DOUBTS_MAX :], doubt]
        self._totals = totals_of(commit(table, prepared), progress)
        for each in self._doubts:
            if each is not doubt and each.base == doubt.base:
                each.files.discard()
        self._doubts = [each for each in self._doubts if each.base != doubt.base]
        if summary:
            self._letters.follow(self._catalog.load(self.name, self.topic))
        return prepared.snapshot_id


class _Files:
    """The new files of a commit: those of the table, and one of dead letters if there are any.

    `reasons` counts the dead letters, `first` has the first one's place and reason.
    """

    def __init__(self, table: Table, decoder: BodyDecoder | None, letters: DeadLetters) -> None:
        self.reasons: Counter[str] = Counter()
        self.first = ""
        self._table, self._decoder, self._letters = table, decoder, letters
        self._fit = DataFiles(table, () if decoder is None else decoder.schema)
        self._dead: DataFiles | None = None

    def write(self, rows: pa.RecordBatch) -> None:
        """Append rows of the log."""
        if self._decoder is not None:
            rows, dead = self._decoder.split(rows)
            if dead.num_rows:
                self._bury(dead)
        self._fit.write(rows)

    def finish(self) -> tuple[list[DataFile], tuple[str, ...]]:
        """Close the files; those of the table, and the path of the one with dead letters."""
        dead = [] if self._dead is None else self._dead.finish()
        return self._fit.finish(), tuple(each.file_path for each in dead)

    def discard(self) -> None:
        """Delete the files."""
        self._fit.discard()
        if self._dead is not None:
            self._dead.discard()

    def _bury(self, rows: pa.RecordBatch) -> None:
        if self._dead is None:
            column = pa.field(REASON, pa.string())
            self._dead = DataFiles(self._letters.opened(self._table), [column])
        self._dead.write(rows)
        for reason, count in Counter(rows.column(REASON).to_pylist()).items():
            known = reason in self.reasons or len(self.reasons) < REASONS_MAX
            self.reasons[reason if known else OTHERS] += count
        if not self.first:
            broker, queue, offset, why = (
                rows.column(name)[0].as_py() for name in ("brokerName", "queueId", "offset", REASON)
            )
            self.first = f"{broker}:{queue} offset {offset}: {why}"


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A commit that was sent: the snapshot that it follows, its own, and its files."""

    base: int | None
    snapshot_id: int
    files: _Files
