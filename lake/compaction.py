"""Compaction: the small files of closed days become few sorted ones, in a snapshot `replace`.

The rows stay the same, and so does the table's progress. A file of the result is one sorted run of
rows: in memory are `file_bytes` of rows twice, before and after they are sorted, and a row group.
The table's sort order is noted at each such file, so it is not read again by the next compaction.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import _to_requested_schema, pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection

from .commits import TRIES_MAX, Conflict, Unconfirmed, commit, was_made
from .data_files import ROW_GROUP_BYTES, DataFiles
from .errors import LakeError
from .progress import progress_of
from .replacement import data_manifests, prepare_replacement
from .table_schema import FIELD_ID, SORTED_BY

log = logging.getLogger(__name__)

FILE_BYTES = 256 << 20  # of rows in memory
LARGE_FILE_BYTES = 128 << 20  # as stored: a file that another engine made large stays
MANIFESTS_MAX = 20  # each costs a reader's planning a request
DAY_MS = 86_400_000
# A writer commits at least each hour (commitSeconds): what is late comes in the next two.
CLOSED_AFTER_MS = 2 * 3_600_000
BATCH_ROWS = 8_192

_ASCENDING = ("identity", SortDirection.ASC, NullOrder.NULLS_FIRST)

Load = Callable[[], Table]


class Stopped(LakeError):
    """The lake ends; what was compacted is kept, the rest comes next time."""


@dataclass(slots=True)
class Compacted:
    """What a compaction did: `before` files of `days` days became `after` files."""

    days: int = 0
    before: int = 0
    after: int = 0
    rows: int = 0
    conflicts: int = 0
    manifests: int = 0  # that were merged without a change of files


def compact(
    load: Load,
    *,
    now_ms: int,
    file_bytes: int = FILE_BYTES,
    is_stopping: Callable[[], bool] = lambda: False,
) -> Compacted:
    """Compact each closed day of a table, with a commit for each. `load` gives its newest state.

    LakeError where that is not allowed, or writers were faster each time: the days before are
    compacted then. Also the errors of the table's file system.
    """
    found = Compacted()
    table = load()
    progress_of(table.metadata, ".".join(table.name()))  # no rows of others
    order = _order_id(table)
    for day, old in sorted(_small_files(table, now_ms).items()):
        files = DataFiles(table, schema=schema_to_pyarrow(table.schema()), sort_order_id=order)
        try:
            new = _rewrite(table, old, files, file_bytes, is_stopping)
        except BaseException:
            files.discard()
            raise
        _replace(load, old, files, new, found)
        found.days += 1
        found.before += len(old)
        found.after += len(new)
        found.rows += sum(each.record_count for each in new)
        log.info("table %s: %d files of day %s are %d now", *_named(table, len(old), day, len(new)))
    table = load()
    head = table.metadata.current_snapshot()
    if head is not None and len(manifests := head.manifests(table.io)) > MANIFESTS_MAX:
        _replace(load, [], DataFiles(table), [], found)
        found.manifests = len(manifests)
    return found


def _named(table: Table, old: int, day: int, new: int) -> tuple[object, ...]:
    name = ".".join(table.name())
    return name, old, str(pa.scalar(day, pa.date32())), new


def _order_id(table: Table) -> int:
    schema = table.schema()
    for number, order in table.sort_orders().items():
        names = [schema.find_column_name(each.source_id) for each in order.fields]
        kinds = {(str(each.transform), each.direction, each.null_order) for each in order.fields}
        if names == list(SORTED_BY) and kinds == {_ASCENDING}:
            return number
    raise LakeError(
        f"table {'.'.join(table.name())} has no sort order by {', '.join(SORTED_BY)}, which tells "
        "compacted files from others; add it to the table's sort orders"
    )


def _small_files(table: Table, now_ms: int) -> dict[int, list[DataFile]]:
    """The files to be replaced, by day and in the order in which they were committed.

    Those of a day that are not sorted by us, and the smallest one that is; no single file.
    """
    found: dict[int, list[tuple[int, DataFile]]] = {}
    ordered: dict[int, tuple[int, DataFile]] = {}
    metadata = table.metadata
    last_day = (now_ms - CLOSED_AFTER_MS) // DAY_MS - 1
    for manifest in data_manifests(table):
        if manifest.partition_spec_id != metadata.default_spec_id:
            continue
        for entry in manifest.fetch_manifest_entry(table.io):
            file = entry.data_file
            day = file.partition[0]
            if day is None or day > last_day or file.file_format != FileFormat.PARQUET:
                continue
            each = (entry.sequence_number or 0, file)
            if file.sort_order_id:
                smallest = ordered.get(day)
                if smallest is None or file.file_size_in_bytes < smallest[1].file_size_in_bytes:
                    ordered[day] = each
            elif file.file_size_in_bytes < LARGE_FILE_BYTES:
                found.setdefault(day, []).append(each)
    for day, some in found.items():
        if day in ordered:
            some.append(ordered[day])
        some.sort(key=lambda each: (each[0], each[1].file_path))
    return {day: [file for _, file in some] for day, some in found.items() if len(some) > 1}


def _rewrite(
    table: Table,
    old: list[DataFile],
    files: DataFiles,
    file_bytes: int,
    is_stopping: Callable[[], bool],
) -> list[DataFile]:
    """Write the rows of the files anew, as sorted runs of `file_bytes`."""
    run: list[pa.RecordBatch] = []
    size = 0
    for file in old:
        for batch in _rows(table, file):
            if is_stopping():
                raise Stopped(f"compaction of table {'.'.join(table.name())} was stopped")
            run.append(batch)
            size += batch.nbytes
            if size >= file_bytes:
                _write_run(run, files)
                size = 0
    _write_run(run, files)
    new = files.finish()
    before, after = (sum(each.record_count for each in some) for some in (old, new))
    if before != after:
        raise LakeError(
            f"files of table {'.'.join(table.name())} have {after} rows where its manifests say "
            f"{before}, first {old[0].file_path}; nothing is replaced. Look after that file"
        )
    return new


def _rows(table: Table, file: DataFile) -> Iterator[pa.RecordBatch]:
    """The rows of a file with the table's columns of today, by field id."""
    wanted = schema_to_pyarrow(table.schema())
    with table.io.new_input(file.file_path).open() as stream, pq.ParquetFile(stream) as parquet:
        schema = pyarrow_to_schema(parquet.schema_arrow)
        names = {each.field_id: each.name for each in schema.fields}
        for batch in parquet.iter_batches(BATCH_ROWS):
            try:
                yield pa.RecordBatch.from_arrays(
                    [
                        batch.column(names[field_id]).cast(field.type)
                        if (field_id := int(field.metadata[FIELD_ID])) in names
                        else pa.nulls(len(batch), field.type)
                        for field in wanted
                    ],
                    schema=wanted,
                )
            except pa.ArrowException:  # a field within a column was added or renamed
                # pyiceberg makes an empty array of a null one, if it is one of structs.
                yield _to_requested_schema(table.schema(), schema, batch).cast(wanted)


def _write_run(run: list[pa.RecordBatch], files: DataFiles) -> None:
    """Sort the rows, write them to a file, and forget them."""
    if not run:
        return
    rows = pa.Table.from_batches(run).combine_chunks()
    run.clear()
    keys = [(name, "ascending") for name in SORTED_BY]  # none is null
    order = pc.sort_indices(rows.select(SORTED_BY), sort_keys=keys)
    step = max(1, rows.num_rows * ROW_GROUP_BYTES // 4 // max(1, rows.nbytes))
    for start in range(0, len(order), step):
        for batch in rows.take(order.slice(start, step)).combine_chunks().to_batches():
            files.write(batch)
    files.finish()


def _replace(
    load: Load, old: list[DataFile], files: DataFiles, new: list[DataFile], found: Compacted
) -> None:
    """Commit that `new` files stand for the `old` ones, once, whoever commits in between."""
    sent: list[tuple[int | None, int]] = []
    try:
        for _ in range(TRIES_MAX):
            table = load()
            if any(was_made(table.metadata, *each) for each in sent):
                return
            progress = progress_of(table.metadata, ".".join(table.name()))
            prepared = prepare_replacement(table, old, new, progress)
            head = table.metadata.current_snapshot()
            sent.append((None if head is None else head.snapshot_id, prepared.snapshot_id))
            try:
                commit(table, prepared)
            except (Conflict, Unconfirmed) as wrong:
                log.info("%s", wrong)
                found.conflicts += 1
                last = wrong
            else:
                return
        raise LakeError(f"compaction gives up after {TRIES_MAX} commits that were not made: {last}")
    except BaseException:
        if _none_is_made(load, sent):
            files.discard()
        raise


def _none_is_made(load: Load, sent: list[tuple[int | None, int]]) -> bool:
    """True only if no commit that was sent is made, or can still be."""
    if not sent:
        return True
    try:
        metadata = load().metadata
    except Exception:  # what stays is an orphan
        return False
    return all(was_made(metadata, *each) is False for each in sent)
