"""Copies the messages of one topic into its table: each once, in one commit for all queues.

A pass reads from the offsets in the table's snapshot to the ends of the queues, at most
`commit_bytes`, and commits. If another writer was first, the next pass begins at its offsets.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from ..client.cluster.route import MessageQueue
from .catalog import LakeCatalog
from .commits import commit, prepare, was_made
from .data_files import DataFiles
from .errors import LakeError
from .progress import Progress, mark_of, progress_of, queue_key
from .rows.ranges import DataLossError, QueueRange
from .table_schema import STORE_TIME
from .topic_log import Bounds, Source

log = logging.getLogger(__name__)

COMMIT_BYTES = 64 << 20
DOUBTS_MAX = 16  # commits without an answer whose files are remembered
Start = int | Literal["earliest", "latest"]  # or ms since the epoch


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass did.

    `bytes` are those of the rows in memory. `is_behind`: there was more than one commit takes;
    `lag` counts those messages.
    `failures` names the queues whose brokers did not answer; the others were copied.
    """

    rows: int = 0
    bytes: int = 0
    snapshot_id: int | None = None
    is_behind: bool = False
    lag: int = 0
    failures: tuple[str, ...] = ()


class Materializer:
    """Keeps the table `name` a copy of `topic`.

    `start` says where the queues begin that are there at the first commit; later ones begin at
    their oldest message. `on_gone` is what happens when messages are deleted before they are read:
    stop with an error, or skip them and count them in the snapshot.
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
    ) -> None:
        self.topic, self.name = topic, name
        self._catalog = catalog
        self._log = source
        self._commit_bytes = commit_bytes
        self._start = start
        self._skips = on_gone == "skip"
        self._uuid: object = None
        self._known: Progress | None = None  # as the table was last seen, if that is certain
        self._doubts: list[_Doubt] = []

    def copy(self) -> Pass:
        """One pass, with one commit or none.

        LakeError when the table or the log does not allow one; its subclasses Conflict and
        Unconfirmed after a commit that was not made, or perhaps. Also the errors of the client,
        and of the table's file system.
        """
        bounds, failures = self._log.bounds(self.topic)
        if self._known is not None and not self._has_news(self._known, bounds):
            return Pass(failures=failures)
        self._known = None
        table = self._load()
        before = progress_of(table.metadata, self._full_name)
        after = before.copy()
        if not before.offsets:
            after.offsets = self._first_offsets(bounds)
        self._check_ends(after, bounds)
        files = DataFiles(table)
        try:
            rows, size = self._write(files, after, bounds)
            finished = files.finish()
        except BaseException:
            files.discard()
            raise
        if after == before:
            self._known = before
            return Pass(failures=failures)
        snapshot_id = self._commit(table, files, finished, after)
        self._known = after
        lag = sum(each.end - after.offsets[queue_key(queue)] for queue, each in bounds.items())
        return Pass(rows, size, snapshot_id, lag > 0, lag, failures)

    # --- inside ---------------------------------------------------------------------------------

    @property
    def _full_name(self) -> str:
        return self._catalog.full_name(self.name)

    def _load(self) -> Table:
        table = self._catalog.load(self.name, self.topic)
        if self._uuid not in (None, table.metadata.table_uuid):
            raise LakeError(
                f"table {self._full_name} was dropped and made again while aerobee wrote it (its "
                f"id was {self._uuid}, it is {table.metadata.table_uuid}); start aerobee lake run "
                "again to fill the new one from the oldest message"
            )
        self._uuid = table.metadata.table_uuid
        self._settle(table)
        return table

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
            key = queue_key(queue)
            at = progress.offsets.setdefault(key, each.first)
            if at > each.end:
                raise LakeError(
                    f"queue {key} of topic {self.topic} ends at offset {each.end}, and table "
                    f"{self._full_name} has its messages up to {at}: the topic was deleted and "
                    "made again, or a broker lost messages that it had shown; both are kept as "
                    f"they are. For the new messages: aerobee lake add {self.topic} --table NAME"
                )
            if at < each.first:
                self._pass_gone(progress, key, at, each.first)

    def _pass_gone(self, progress: Progress, key: str, at: int, first: int) -> None:
        gone = (
            f"{first - at} messages of queue {key} of topic {self.topic}, offsets {at} to "
            f"{first - 1}, were deleted at the broker before they were read"
        )
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
        self, files: DataFiles, progress: Progress, bounds: Mapping[MessageQueue, Bounds]
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
                    batch, sees_last = self._checked(batch, key, start, mark), False
                if batch.num_rows:
                    last = batch.slice(batch.num_rows - 1)
                    progress.offsets[key] = last.column("offset")[0].as_py() + 1
                    progress.marks[key] = _mark(last)
                    yield batch
            progress.offsets[key] = bounds.end  # also where a topic's compaction left nothing
        except DataLossError as gone:
            raise LakeError(f"table {self._full_name}: {gone}") from gone

    def _checked(
        self, batch: pa.RecordBatch, key: str, start: int, mark: str | None
    ) -> pa.RecordBatch:
        """The rows behind the message before `start`; LakeError if that is not the one that the
        table has."""
        if not batch.num_rows or batch.column("offset")[0].as_py() != start - 1:
            return batch
        if _mark(batch) != mark:
            raise LakeError(
                f"the message at offset {start - 1} of queue {key} of topic {self.topic} is "
                f"another one than in table {self._full_name}: the topic was deleted and made "
                "again, or a broker lost messages that it had shown; both are kept as they are. "
                f"For the new messages: aerobee lake add {self.topic} --table NAME"
            )
        return batch.slice(1)

    def _commit(
        self, table: Table, files: DataFiles, finished: list[DataFile], progress: Progress
    ) -> int:
        try:
            prepared = prepare(table, finished, progress)
        except BaseException:
            files.discard()
            raise
        head = table.metadata.current_snapshot()
        base = None if head is None else head.snapshot_id
        doubt = _Doubt(base, prepared.snapshot_id, files)
        self._doubts = [*self._doubts[1 - DOUBTS_MAX :], doubt]
        commit(table, prepared)
        for each in self._doubts:
            if each is not doubt and each.base == doubt.base:
                each.files.discard()
        self._doubts = [each for each in self._doubts if each.base != doubt.base]
        return prepared.snapshot_id


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A commit that was sent: the snapshot that it follows, its own, and its files."""

    base: int | None
    snapshot_id: int
    files: DataFiles


def _mark(row: pa.RecordBatch) -> str:
    """The mark of the first row."""
    store_us = row.column(STORE_TIME).slice(0, 1).cast(pa.int64())[0].as_py()
    return mark_of(row.column("msgId")[0].as_py(), store_us)
