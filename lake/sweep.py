"""Sweep: files that no snapshot of a table has are deleted, a day after a sweep first saw them so.

A file without a snapshot may belong to a commit under way, or be read by somebody who planned
before its snapshot expired. So a first sweep only notes it, in the table's folder, and one at least
`older_ms` later deletes it. Each name has a UUID, so a name that any snapshot has protects a file,
however the place before it is spelled. Files with names of another form stay.
"""

import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from .errors import LakeError
from .local_files import LocalFileIO, path_of

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

log = logging.getLogger(__name__)

OLDER_MS_MIN = 86_400_000  # the longest commit, compaction or query that is thought of
NOTES = "metadata/aerobee-orphans.json"
NOTED_MAX = 100_000  # files; the others come in later sweeps
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_DATA = re.compile(rf"data/(?:timestamp_)?day=\d{{4,}}-\d\d-\d\d/{_UUID}-\d+\.parquet")
_STATE = re.compile(rf"metadata/\d{{5,}}-{_UUID}\.metadata\.json")
_MANIFEST = re.compile(rf"metadata/(?:{_UUID}-m\d+|snap-\d+-\d+-{_UUID})\.avro")
_KINDS = (_DATA, _STATE, _MANIFEST)

Load = Callable[[], Table]


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep found. `deleted` are the files that went, or would go, below the table's place;
    `noted` counts those that go later."""

    deleted: tuple[str, ...] = ()
    bytes: int = 0
    noted: int = 0


@dataclass(frozen=True, slots=True)
class _File:
    """A file by its path below the table's place."""

    path: str
    bytes: int
    changed_ms: int


class _Notes(msgspec.Struct):
    """When files were first seen without a snapshot, in ms, by their path."""

    table: str = ""  # its UUID
    seen: dict[str, int] = {}


def sweep(load: Load, *, now_ms: int, older_ms: int = OLDER_MS_MIN, is_dry: bool = False) -> Swept:
    """Delete the orphans of a table that were noted `older_ms` ago; note the new ones.

    Dry, it changes nothing. LakeError where another table's metadata lies in the same place, or
    `older_ms` is less than a day. Also the errors of the table's file system.
    """
    if older_ms < OLDER_MS_MIN:
        raise LakeError(
            f"files of {older_ms / 3_600_000:g} hours can't be swept: a commit may still be under "
            "way, or a query may read the files of a snapshot that is expired; give at least 1d"
        )
    # First the files, then the table: what is committed in between has a snapshot then.
    before = load()
    there = list(_files(before))
    table = load()
    if (table.metadata.table_uuid, table.location()) != (
        before.metadata.table_uuid,
        before.location(),
    ):
        raise LakeError(f"table {'.'.join(table.name())} was made anew meanwhile; sweep again")
    live = _live_names(table)
    unnamed = [each for each in there if each.path.rpartition("/")[2] not in live]
    others = _empty_others(table, [each.path for each in unnamed])
    orphans = [
        each
        for each in unnamed
        if each.path not in others and any(kind.fullmatch(each.path) for kind in _KINDS)
    ]
    notes = _read_notes(table)
    # By the store's clock where that is behind ours. Both must say that a file is old.
    store_now_ms = min(now_ms, max((each.changed_ms for each in there), default=0))
    old = [
        each
        for each in orphans
        if notes.seen.get(each.path, now_ms) <= now_ms - older_ms
        and each.changed_ms <= store_now_ms - older_ms
    ]
    found = Swept(
        tuple(each.path for each in old), sum(each.bytes for each in old), len(orphans) - len(old)
    )
    if is_dry:
        return found
    # A time in the future is that of a clock that was wrong.
    kept = sorted(orphans, key=lambda each: (each.path not in notes.seen, each.path))[:NOTED_MAX]
    seen = {each.path: min(now_ms, notes.seen.get(each.path, now_ms)) for each in kept}
    for each in old:
        with suppress(FileNotFoundError):  # another sweep was first
            table.io.delete(f"{table.location()}/{each.path}")
        seen.pop(each.path, None)
    _write_notes(table, _Notes(str(table.metadata.table_uuid), seen), notes)
    if old:
        log.info(
            "table %s: %d files that no snapshot has are deleted", ".".join(table.name()), len(old)
        )
    return found


def _live_names(table: Table) -> set[str]:
    """The names of all files that the table's present state needs."""
    metadata: TableMetadata = table.metadata
    found = {table.metadata_location, *(each.metadata_file for each in metadata.metadata_log)}
    found |= {each.statistics_path for each in metadata.statistics}
    found |= {each.statistics_path for each in metadata.partition_statistics}
    manifests = {}
    for snapshot in metadata.snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            manifests[manifest.manifest_path] = manifest
    found |= manifests.keys()
    for manifest in manifests.values():
        entries = manifest.fetch_manifest_entry(table.io)
        found |= {each.data_file.file_path for each in entries}
    return {each.rpartition("/")[2] for each in found}


def _empty_others(table: Table, unnamed: list[str]) -> set[str]:
    """The states of other tables here that have no rows: who makes a table while another does may
    leave one. They stay. LakeError for a state with rows: its files would be taken for orphans."""
    mine = str(table.metadata.table_uuid)
    empty = set()
    for path in unnamed:
        if not path.endswith(".metadata.json"):
            continue
        try:
            with table.io.new_input(f"{table.location()}/{path}").open() as stream:
                found = msgspec.json.decode(stream.read())
            other = found["table-uuid"]
            if other != mine and not found.get("snapshots"):
                empty.add(path)
                continue
        except FileNotFoundError:
            continue  # a commit deleted it
        except (ValueError, TypeError, KeyError):
            if _STATE.fullmatch(path):
                continue  # a writer was killed while it wrote
            other = "unknown"
        if other != mine:
            raise LakeError(
                f"{table.location()}/{path} is the metadata of another table (its id is "
                f"{other}, that of {'.'.join(table.name())} is {mine}): both would have their "
                "files in one place, so nothing is swept. If no catalog has the other one, delete "
                "that file, and its files are orphans; else give one of them another place"
            )
    return empty


# --- files of a place -----------------------------------------------------------------------------


def _files(table: Table) -> Iterator[_File]:
    """All files below the table's place."""
    is_local = isinstance(table.io, LocalFileIO)
    location = table.location().rstrip("/")
    return _local(path_of(location)) if is_local else _stored(table, location)


def _local(root: Path) -> Iterator[_File]:
    """Links are not followed, and are no files."""
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            with suppress(FileNotFoundError):
                found = path.lstat()
                if not path.is_symlink():
                    below = path.relative_to(root).as_posix()
                    yield _File(below, found.st_size, found.st_mtime_ns // 1_000_000)


def _stored(table: Table, location: str) -> Iterator[_File]:
    from pyarrow.fs import FileSelector
    from pyiceberg.io.pyarrow import PyArrowFileIO

    opened = PyArrowFileIO(table.io.properties)
    scheme, place, root = PyArrowFileIO.parse_location(location, table.io.properties)
    system: FileSystem = opened.fs_by_scheme(scheme, place)
    for part in ("data", "metadata"):
        selector = FileSelector(f"{root}/{part}", allow_not_found=True, recursive=True)
        for each in system.get_file_info(selector):
            if each.is_file and each.mtime_ns is not None:
                below = each.path.removeprefix(f"{root}/")
                yield _File(below, each.size or 0, each.mtime_ns // 1_000_000)


def _read_notes(table: Table) -> _Notes:
    """The notes of the sweep before; none where they are torn or of another table."""
    mine = str(table.metadata.table_uuid)
    try:
        with table.io.new_input(f"{table.location()}/{NOTES}").open() as stream:
            found = msgspec.json.decode(stream.read(), type=_Notes)
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
        return _Notes(mine)
    return found if found.table == mine else _Notes(mine)


def _write_notes(table: Table, notes: _Notes, before: _Notes) -> None:
    if notes == before:
        return
    output = table.io.new_output(f"{table.location()}/{NOTES}")
    with output.create(overwrite=True) as stream:
        stream.write(msgspec.json.encode(notes))
