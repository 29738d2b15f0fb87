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
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID, RemoveSnapshotsUpdate
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import IcebergType

from .errors import LakeError
from .progress import described_by

SNAPSHOTS_MAX = 100  # of a table: each commit reads and writes all of them
TRIES_MAX = 30  # of one commit of upkeep beside writers that are faster


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
    update = transaction_of(table).update_snapshot(summary)
    producer = update.overwrite() if removed else update.merge_append()
    for file in files:
        producer.append_data_file(file)
    for file in removed:
        producer.delete_data_file(file)
    return prepared(table, producer)


def prepared(table: Table, producer: Any) -> Prepared:
    """Write the manifests of a producer of pyiceberg; the commit with what all commits have."""
    updates, requirements = producer._commit()
    same_table = AssertTableUUID(uuid=table.metadata.table_uuid)
    if old := _old_snapshots(table.metadata, SNAPSHOTS_MAX - 1):
        updates = (*updates, RemoveSnapshotsUpdate.model_validate({"snapshot-ids": old}))
    return Prepared(producer.snapshot_id, updates, (*requirements, same_table))


def prepare_columns(table: Table, columns: Sequence[tuple[str, IcebergType]]) -> Prepared:
    """A commit that adds optional columns to this state of the table."""
    update = UpdateSchema(transaction_of(table))
    for name, kind in columns:
        update.add_column((name,), kind)
    updates, requirements = update._commit()
    same_table = AssertTableUUID(uuid=table.metadata.table_uuid)
    return Prepared(0, updates, (*requirements, same_table))


def prepare_expiry(table: Table, *, keep: int, before_ms: int) -> tuple[Prepared, int]:
    """A commit that drops the snapshots beyond the newest `keep`, and those made before
    `before_ms`; with their number.

    The last one, those with a tag or branch, and the one that tells the table's progress stay.
    """
    metadata = table.metadata
    old = _old_snapshots(metadata, keep, before_ms)
    head = metadata.current_snapshot()
    requirements = (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertRefSnapshotId.model_validate(
            {"ref": "main", "snapshot-id": None if head is None else head.snapshot_id}
        ),
    )
    updates = (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": old}),)
    return Prepared(0, updates, requirements), len(old)


def _old_snapshots(metadata: TableMetadata, keep: int, before_ms: int = 0) -> list[int]:
    """The snapshots that go, the oldest first. Their rows stay: every later snapshot has them."""
    kept = {each.snapshot_id for each in metadata.refs.values()} | described_by(metadata)
    found = [each for each in metadata.snapshots if each.snapshot_id not in kept]
    found.sort(key=lambda each: each.sequence_number or 0)
    too_many = max(0, len(metadata.snapshots) - keep)
    return [
        each.snapshot_id
        for number, each in enumerate(found)
        if number < too_many or each.timestamp_ms < before_ms
    ]


def was_made(metadata: TableMetadata, base: int | None, snapshot_id: int) -> bool | None:
    """True if a commit that was sent behind snapshot `base` is made, even if the table was rolled
    back since; False if it can't be any more, because only one snapshot follows another. None while
    nobody knows: it may be on its way, or what followed `base` is expired."""
    if metadata.snapshot_by_id(snapshot_id) is not None:
        return True
    at = metadata.current_snapshot()
    if at is None or at.snapshot_id == base:
        return None
    while at is not None and at.parent_snapshot_id != base:
        parent = at.parent_snapshot_id
        at = None if parent is None else metadata.snapshot_by_id(parent)
    # The oldest that is left has no parent, too.
    return False if at is not None and (base is not None or at.sequence_number == 1) else None


def commit(table: Table, prepared: Prepared) -> TableMetadata:
    """Ask the catalog for the commit, once; the table behind it. Conflict or Unconfirmed unless the
    catalog says it is made."""
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
    return made.metadata


def transaction_of(table: Table) -> Transaction:
    """A transaction of one update of this state of the table."""
    return _Transaction(table)


class _Transaction(Transaction):
    """A transaction of one update. pyiceberg's copies the whole metadata at each look at it, to
    make the updates before it: a commit would cost twice as much, and more with each snapshot."""

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata before the update."""
        return self._table.metadata
