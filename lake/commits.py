"""A commit: files are appended and offsets are moved, both or none.

Not by `Transaction.commit_transaction`. After a conflict that appends once more by itself, unless a
property of the table forbids it, with offsets that are not its own. And it deletes the manifests of
a commit that was made where a catalog says that it was not, as one does that got a request twice.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotsUpdate
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import IcebergType

from .errors import LakeError

SNAPSHOTS_MAX = 100  # of a table: each commit reads and writes all of them


class Conflict(LakeError):
    """Another writer was first. The next pass begins at its offsets."""


class Unconfirmed(LakeError):
    """It is not known whether the commit is made. The snapshot that the next pass loads tells."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A commit whose manifests are written, with what the catalog is asked for; id 0 where it
    makes no snapshot."""

    snapshot_id: int
    updates: tuple[Any, ...]
    requirements: tuple[Any, ...]


def prepare(
    table: Table,
    files: Sequence[DataFile],
    summary: dict[str, str],
    removed: Sequence[DataFile] = (),
) -> Prepared:
    """Write the manifests of a commit that appends `files` to this state of the table, and takes
    those `removed` away. `summary` goes into the snapshot."""
    update = _Transaction(table).update_snapshot(summary)
    producer = update.overwrite() if removed else update.merge_append()
    for file in files:
        producer.append_data_file(file)
    for file in removed:
        producer.delete_data_file(file)
    updates, requirements = producer._commit()
    same_table = AssertTableUUID(uuid=table.metadata.table_uuid)
    if old := _old_snapshots(table):
        updates = (*updates, RemoveSnapshotsUpdate.model_validate({"snapshot-ids": old}))
    return Prepared(producer.snapshot_id, updates, (*requirements, same_table))


def prepare_columns(table: Table, columns: Sequence[tuple[str, IcebergType]]) -> Prepared:
    """A commit that adds optional columns to this state of the table."""
    update = UpdateSchema(_Transaction(table))
    for name, kind in columns:
        update.add_column((name,), kind)
    updates, requirements = update._commit()
    same_table = AssertTableUUID(uuid=table.metadata.table_uuid)
    return Prepared(0, updates, (*requirements, same_table))


def _old_snapshots(table: Table) -> list[int]:
    """The snapshots that leave room for one more, the oldest first. Their rows stay: every later
    snapshot has them. The last one and those with a tag or branch stay."""
    metadata = table.metadata
    kept = {each.snapshot_id for each in metadata.refs.values()} | {metadata.current_snapshot_id}
    found = [each for each in metadata.snapshots if each.snapshot_id not in kept]
    found.sort(key=lambda each: each.sequence_number or 0)
    too_many = max(0, len(metadata.snapshots) + 1 - SNAPSHOTS_MAX)
    return [each.snapshot_id for each in found[:too_many]]


def commit(table: Table, prepared: Prepared) -> None:
    """Ask the catalog for the commit, once. Conflict or Unconfirmed unless it says it is made."""
    name = ".".join(table.name())
    try:
        made = table.catalog.commit_table(table, prepared.requirements, prepared.updates)
    except CommitFailedException as wrong:
        raise Conflict(f"another writer was first at table {name}: {wrong}") from wrong
    except Exception as wrong:
        kind = type(wrong).__name__
        raise Unconfirmed(
            f"the catalog did not confirm a commit to table {name}: {kind}: {wrong}"
        ) from wrong
    with suppress(Exception):  # what stays is an orphan
        # As the table's property write.metadata.delete-after-commit.enabled wants.
        table.catalog._delete_old_metadata(table.io, table.metadata, made.metadata)


class _Transaction(Transaction):
    """A transaction of one update. pyiceberg's copies the whole metadata at each look at it, to
    make the updates before it: a commit would cost twice as much, and more with each snapshot."""

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata before the update."""
        return self._table.metadata
