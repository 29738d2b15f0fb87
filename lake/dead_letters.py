"""The table of the messages of one topic whose bodies don't fit, `<table>__dlq`: it follows.

No commit covers two tables, so the snapshots of the main table are the only truth. One that changes
the dead letters has a number, and names their files to be added and removed. Before a writer writes
anything, and after its commit, the table of dead letters is brought up to that number: by a commit
for each one that it lacks, on condition that nobody else made one. Every commit of the main table
is based on one that was followed, so at most the last is not.

A sweep of orphans must leave the files that `changes_of` the main table names: until the table of
dead letters has followed, no snapshot of its own has them. The number up to which it has is
`followed`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from .catalog import LakeCatalog
from .commits import Conflict, Prepared, commit, prepare
from .data_files import data_file
from .errors import LakeError
from .progress import LETTERS_KEY, Progress, ancestors, progress_of
from .scan import tasks_of
from .table_schema import row_schema

SUFFIX = "__dlq"
FILES_KEY = "aerobee.dead-letter-files"  # of a snapshot of the main table
FOLLOWED_KEY = "aerobee.followed"  # of a snapshot of the table of dead letters
TRIES_MAX = 10
BATCH_ROWS = 4_096


@dataclass(frozen=True, slots=True)
class Change:
    """The paths of files that come into the table of dead letters, and of those that go."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()

    def summary(self) -> dict[str, str]:
        """The change as a property of a snapshot."""
        return {FILES_KEY: json.dumps({"add": self.add, "remove": self.remove})}


def changes_of(metadata: TableMetadata) -> dict[int, Change]:
    """The changes that the main table's snapshots name, by their numbers."""
    found = {}
    for each in ancestors(metadata):
        said = {} if each.summary is None else each.summary.additional_properties
        if FILES_KEY in said:
            files = json.loads(said[FILES_KEY])
            number = json.loads(said[LETTERS_KEY])["number"]
            found[number] = Change(tuple(files["add"]), tuple(files["remove"]))
    return found


def followed(table: Table) -> int:
    """The number of the change up to which a table of dead letters has followed."""
    if table.metadata.current_snapshot() is None:
        return 0
    for each in ancestors(table.metadata):
        said = {} if each.summary is None else each.summary.additional_properties
        if FOLLOWED_KEY in said:
            return int(said[FOLLOWED_KEY])
    raise LakeError(
        f"no snapshot of table {'.'.join(table.name())} has the property {FOLLOWED_KEY}: another "
        "writer made its rows, or expired all snapshots of aerobee; roll it back to one of them"
    )


class DeadLetters:
    """The table of dead letters beside the table `name` of a topic."""

    def __init__(self, catalog: LakeCatalog, topic: str, name: str) -> None:
        self.name, self._main = name + SUFFIX, name
        self._topic = topic
        self._catalog = catalog
        self._at = 0  # the number of the last change that it is known to have

    def follow(self, main: Table) -> None:
        """Bring the table up to this state of the main one. LakeError where it can't be; Conflict
        where the main one is further by now."""
        wanted = progress_of(main.metadata, ".".join(main.name())).letters
        if wanted != self._at:
            self._follow(main, wanted)

    def opened(self, main: Table) -> Table:
        """The table at this state of the main one; made when there never was a dead letter."""
        return self._follow(main, progress_of(main.metadata, ".".join(main.name())).letters)

    def at(self, progress: Progress) -> tuple[Table, int | None] | None:
        """The table, and its snapshot that belongs to a progress of the main one, or the newest if
        that is gone; None when there never was a dead letter."""
        if not progress.letters:
            return None
        table = self._load(progress.letters)
        for each in ancestors(table.metadata):
            said = {} if each.summary is None else each.summary.additional_properties
            if said.get(FOLLOWED_KEY) == str(progress.letters):
                return table, each.snapshot_id
        return table, None

    def files(self, main: Table) -> tuple[Table, list[str]] | None:
        """The table and its files as of this state of the main one, which it need not have followed
        yet; None when there never was a dead letter. LakeError where nobody can tell them, and for
        delete files."""
        progress = progress_of(main.metadata, ".".join(main.name()))
        found = self.at(progress)
        if found is None:
            return None
        table, snapshot_id = found
        tasks = tasks_of(table.scan(snapshot_id=snapshot_id), ".".join(table.name()))
        paths = dict.fromkeys(task.file.file_path for task in tasks)
        if snapshot_id is None:
            at, changes = followed(table), changes_of(main.metadata)
            lacking = range(at + 1, progress.letters + 1)
            if not lacking or not changes.keys() >= set(lacking):
                raise self._apart(main, at, progress.letters)
            for number in lacking:
                paths |= dict.fromkeys(changes[number].add)
                for path in changes[number].remove:
                    paths.pop(path, None)
        return table, [*paths]

    # --- inside ---------------------------------------------------------------------------------

    def _follow(self, main: Table, wanted: int) -> Table:
        changes = changes_of(main.metadata)
        tries = 0
        while True:
            table = self._load(wanted)
            at = followed(table)
            if at == wanted:
                self._at = at
                return table
            if at > wanted and at <= self._newest():
                raise Conflict(f"another writer was first at table {'.'.join(main.name())}")
            if at > wanted or at + 1 not in changes:
                raise self._apart(main, at, wanted)
            try:
                commit(table, _prepared(table, at + 1, changes[at + 1]))
            except Conflict:
                tries += 1
                if tries == TRIES_MAX:
                    raise

    def _apart(self, main: Table, at: int, wanted: int) -> LakeError:
        return LakeError(
            f"table {self._catalog.full_name(self.name)} has the dead letters up to change {at}, "
            f"table {'.'.join(main.name())} is at {wanted}: one of them was rolled back, or "
            "dropped and made again; roll the other one back, too (dead letters: to the snapshot "
            f"whose {FOLLOWED_KEY} is {wanted}), or begin new tables with --table"
        )

    def _newest(self) -> int:
        """The number of the main table's last change."""
        main = self._catalog.load(self._main, self._topic)
        return progress_of(main.metadata, ".".join(main.name())).letters

    def _load(self, wanted: int) -> Table:
        # Before the first dead letter nothing is lost by making it.
        open_ = self._catalog.load if wanted else self._catalog.create
        try:
            return open_(self.name, self._topic, of_dead_letters=True)
        except LakeError as wrong:
            raise LakeError(f"the dead letters of topic {self._topic}: {wrong}") from wrong


def letters_in(table: Table, path: str) -> Iterator[pa.RecordBatch]:
    """The messages in a file of dead letters, as rows of the log."""
    with table.io.new_input(path).open() as stream:
        file = pq.ParquetFile(stream)
        for batch in file.iter_batches(BATCH_ROWS, columns=row_schema().names):
            rows = pa.Table.from_batches([batch]).select(row_schema().names).cast(row_schema())
            yield from rows.combine_chunks().to_batches()


def _prepared(table: Table, number: int, change: Change) -> Prepared:
    removed = {}
    if change.remove:
        have = {task.file.file_path: task.file for task in table.scan().plan_files()}
        removed = {path: have[path] for path in change.remove if path in have}
        if gone := set(change.remove) - removed.keys():
            raise LakeError(
                f"table {'.'.join(table.name())} has no file {min(gone)}, whose messages were "
                "written into the main table: another writer has rewritten its files; roll it back "
                "to its last snapshot of aerobee"
            )
    files = [_data_file(table, path) for path in change.add]
    return prepare(table, files, {FOLLOWED_KEY: str(number)}, list(removed.values()))


def _data_file(table: Table, path: str) -> DataFile:
    found = table.io.new_input(path)
    with found.open() as stream:
        footer = pq.read_metadata(stream)
    return data_file(table, path, len(found), footer, Record())
