"""A commit that puts data files in the place of others, and merges the manifests on the way.

pyiceberg has an overwrite, which readers of changes take for changed rows, and which leaves small
manifests as they are.
"""

from collections.abc import Iterator
from typing import Any

from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _SnapshotProducer

from .commits import Prepared, prepared, transaction_of
from .errors import LakeError
from .progress import Progress

MANIFEST_ENTRIES_MAX = 5_000  # some MB
LARGE_MANIFEST_BYTES = 2 << 20  # one without replaced files stays as it is


class FilesGone(LakeError):
    """Another compaction, or a deletion, was first."""


def data_manifests(table: Table) -> Iterator[ManifestFile]:
    """The manifests of the table's snapshot. LakeError when it has delete files."""
    head = table.metadata.current_snapshot()
    for manifest in () if head is None else head.manifests(table.io):
        if manifest.content != ManifestContent.DATA:
            raise LakeError(
                f"table {'.'.join(table.name())} has delete files, so a compaction would bring "
                "deleted rows back; rewrite its data files with the engine that deleted them"
            )
        yield manifest


def prepare_replacement(
    table: Table, old: list[DataFile], new: list[DataFile], progress: Progress
) -> Prepared:
    """Write the manifests of a commit that replaces `old` files by `new` ones of the same rows.

    FilesGone when some of the old ones are in the table no more. LakeError for a table with delete
    files.
    """
    producer = _Replacement(table, old, new, progress.summary())
    try:
        return prepared(table, producer)
    except BaseException:
        producer._clean_all_uncommitted()
        raise


class _Replacement(_SnapshotProducer["_Replacement"]):
    def __init__(
        self, table: Table, old: list[DataFile], new: list[DataFile], properties: dict[str, str]
    ) -> None:
        super().__init__(
            Operation.OVERWRITE, transaction_of(table), table.io, snapshot_properties=properties
        )
        self._table = table
        self._deleted_data_files = set(old)
        self._added_data_files = list(new)

    def _manifests(self) -> list[ManifestFile]:
        """The manifests of the snapshot: first that of the new files."""
        paths = {each.file_path for each in self._deleted_data_files}
        gone: list[ManifestEntry] = []
        kept: list[ManifestFile] = []
        merged: dict[int, _Writers] = {}
        for manifest in data_manifests(self._table):
            entries = manifest.fetch_manifest_entry(self._io)
            mine = [each for each in entries if each.data_file.file_path in paths]
            gone += mine
            if manifest.manifest_length >= LARGE_MANIFEST_BYTES and not mine:
                kept.append(manifest)
                continue
            spec_id = manifest.partition_spec_id
            writers = merged.setdefault(spec_id, _Writers(self, spec_id))
            for each in entries:
                if each.data_file.file_path not in paths:
                    writers.existing(each)
        missing = paths - {each.data_file.file_path for each in gone}
        found = [written for each in merged.values() for written in each.finish()]
        if missing:
            raise FilesGone(
                f"{len(missing)} of {len(paths)} files to be replaced are in table "
                f"{'.'.join(self._table.name())} no more, first {min(missing)}: another compaction "
                "or a deletion was first"
            )
        return [*self._added(), *self._deleted(gone), *found, *kept]

    def _added(self) -> list[ManifestFile]:
        if not self._added_data_files:
            return []
        with self._writer() as writer:
            for file in self._added_data_files:
                entry = ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=self._snapshot_id,
                    sequence_number=None,
                    file_sequence_number=None,
                    data_file=file,
                )
                writer.add(entry)
        return [writer.to_manifest_file()]

    def _deleted(self, entries: list[ManifestEntry]) -> list[ManifestFile]:
        if not entries:
            return []
        with self._writer() as writer:
            for entry in entries:
                writer.delete(entry)
        return [writer.to_manifest_file()]

    def _writer(self) -> ManifestWriter:
        return self.new_manifest_writer(self._table.spec())

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        """As of an overwrite, whose sums pyiceberg knows; but it is a replacement."""
        found = super()._summary(snapshot_properties or {})
        return Summary(Operation.REPLACE, **found.additional_properties)

    def _existing_manifests(self) -> list[ManifestFile]:
        raise NotImplementedError

    def _deleted_entries(self) -> list[ManifestEntry]:
        raise NotImplementedError


class _Writers:
    """Manifests of files that stay, as many as are needed."""

    def __init__(self, producer: _Replacement, spec_id: int) -> None:
        self._producer, self._spec_id = producer, spec_id
        self._writer: ManifestWriter | None = None
        self._count = 0
        self._finished: list[ManifestFile] = []

    def existing(self, entry: Any) -> None:
        """Write the entry of a file that stays."""
        if self._writer is None:
            producer = self._producer
            self._writer = producer.new_manifest_writer(producer.spec(self._spec_id))
            self._writer.__enter__()
        self._writer.existing(entry)
        self._count += 1
        if self._count == MANIFEST_ENTRIES_MAX:
            self._close()

    def finish(self) -> list[ManifestFile]:
        """The manifests."""
        self._close()
        return self._finished

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.__exit__(None, None, None)
            self._finished.append(self._writer.to_manifest_file())
            self._writer, self._count = None, 0
