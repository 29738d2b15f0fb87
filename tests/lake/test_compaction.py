"""Compaction: the same rows in fewer files, whoever writes, reads or compacts beside it."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg")

import pyarrow as pa
import pyarrow.parquet as pq
from aerobee.lake import compaction, replacement
from aerobee.lake.bodies.fields import parse
from aerobee.lake.catalog import LakeCatalog
from aerobee.lake.compaction import CLOSED_AFTER_MS, DAY_MS, Compacted, Stopped, compact
from aerobee.lake.data_files import DataFiles
from aerobee.lake.errors import LakeError
from aerobee.lake.materializer import Materializer
from aerobee.lake.progress import ACCEPTED_KEY, OFFSETS_KEY, progress_of
from aerobee.lake.replacement import FilesGone
from aerobee.lake.verify import verify
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import ListType, LongType, StringType

from ..spark.stored import STORE_MS
from .memory_log import MemoryLog
from .tables import contents, rewrite

MIDNIGHT = STORE_MS // DAY_MS * DAY_MS
LATER = MIDNIGHT + 30 * DAY_MS
KEYS = ("brokerName", "queueId", "offset")
KEY = [(name, "ascending") for name in KEYS]


@pytest.fixture
def copier(catalog: LakeCatalog, source: MemoryLog) -> Materializer:
    return Materializer(catalog, source, "orders", "orders")


def fill(copier: Materializer, source: MemoryLog, commits: int = 5, days: int = 2) -> None:
    """Commits with rows of two queues and two brokers, on each of the days."""
    for _ in range(commits):
        for day in range(days):
            for broker in ("broker-b", "broker-a"):
                for queue in (1, 0):
                    source.send(3, queue, broker=broker, day=day)
        while copier.copy().is_behind:
            pass


def load(catalog: LakeCatalog) -> Table:
    return catalog.load("orders", "orders")


def run(catalog: LakeCatalog, now_ms: int = LATER, **more: Any) -> Compacted:
    return compact(lambda: load(catalog), now_ms=now_ms, **more)


def everything(table: Table) -> pa.Table:
    return table.scan().to_arrow().sort_by(KEY)


def files(table: Table) -> list[str]:
    return sorted(task.file.file_path for task in table.scan().plan_files())


def on_disk(table: Table) -> set[str]:
    folder = Path(table.location().removeprefix("file://"))
    return {f"file://{each}" for each in folder.rglob("*.parquet")}


def test_each_closed_day_becomes_one_sorted_file_with_the_same_rows(
    catalog: LakeCatalog, source: MemoryLog, copier: Materializer
) -> None:
    fill(copier, source)
    before = load(catalog)
    rows = everything(before)
    done = run(catalog)
    assert (done.days, done.before, done.after, done.rows) == (2, 10, 2, 120)
    table = load(catalog)
    assert everything(table).equals(rows)
    assert len(files(table)) == 2
    for file in files(table):
        found = pq.read_table(file.removeprefix("file://"))
        assert found.equals(found.sort_by(KEY))
    head = table.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary.operation.value == "replace"
    assert head.summary[OFFSETS_KEY] is not None
    assert head.summary["total-records"] == "120"
    assert head.summary["total-data-files"] == "2"
    assert progress_of(table.metadata, "orders") == progress_of(before.metadata, "orders")
    assert run(catalog) == Compacted()
    fill(copier, source, 1)  # the writer goes on
    assert contents(load(catalog)) == source.ledger()


def test_a_day_is_closed_when_it_and_the_time_of_late_commits_have_passed(
    catalog: LakeCatalog, source: MemoryLog, copier: Materializer
) -> None:
    fill(copier, source, 2, days=2)
    end = MIDNIGHT + DAY_MS + CLOSED_AFTER_MS
    assert run(catalog, end - 1).days == 0
    assert run(catalog, end).days == 1
    assert run(catalog, end + DAY_MS).days == 1


def test_what_comes_late_is_compacted_with_the_smallest_file_and_no_large_one(
    catalog: LakeCatalog, source: MemoryLog, copier: Materializer
) -> None:
    fill(copier, source, 6, days=1)
    done = run(catalog, file_bytes=5_000)
    assert 2 < done.after < done.before == 6
    before = files(load(catalog))
    assert run(catalog, file_bytes=5_000) == Compacted()
    fill(copier, source, 1, days=1)
    done = run(catalog)
    assert (done.before, done.after) == (2, 1)
    assert len(set(files(load(catalog))) - set(before)) == 1
    assert contents(load(catalog)) == source.ledger()


def test_memory_holds_a_run_of_rows_and_never_a_whole_day(
    catalog: LakeCatalog,
    source: MemoryLog,
    copier: Materializer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(copier, source, 8, days=1)
    largest = 0
    write = compaction._write_run

    def counted(run: list[pa.RecordBatch], files: Any) -> None:
        nonlocal largest
        largest = max(largest, sum(each.nbytes for each in run))
        write(run, files)

    monkeypatch.setattr(compaction, "_write_run", counted)
    monkeypatch.setattr(compaction, "BATCH_ROWS", 2)
    assert run(catalog, file_bytes=4_000).rows == 96
    assert 4_000 <= largest < 6_000


def test_columns_that_a_user_added_keep_their_values(
    catalog: LakeCatalog, source: MemoryLog, copier: Materializer
) -> None:
    fill(copier, source, 2, days=1)
    with load(catalog).update_schema() as update:
        update.add_column("note", StringType())
        update.add_column("marks", ListType(1, LongType(), element_required=False))
    table = load(catalog)
    schema = schema_to_pyarrow(table.schema())
    old = [task.file for task in table.scan().plan_files()]
    rows = table.scan().to_arrow().cast(schema)
    filled = rows.set_column(
        18, schema.field("note"), pa.array(["größe"] * len(rows), pa.large_string())
    )
    files_ = DataFiles(table, schema=schema)
    for batch in filled.cast(schema).to_batches():
        files_.write(batch)
    new = files_.finish()
    compaction._replace(lambda: load(catalog), old, files_, new, Compacted())
    fill(copier, source, 2, days=1)
    before = everything(load(catalog))
    assert sorted(set(before.column("note").to_pylist()), key=str) == [None, "größe"]
    done = run(catalog)
    assert (done.before, done.after) == (3, 1)
    assert everything(load(catalog)).cast(before.schema).equals(before)


def test_a_writer_that_commits_in_between_makes_the_work_no_vain(
    catalog: LakeCatalog, source: MemoryLog, copier: Materializer
) -> None:
    fill(copier, source)
    states = 0

    def loaded() -> Table:
        nonlocal states
        states += 1
        found = load(catalog)
        if 1 < states < 5:  # behind what the compaction has loaded
            fill(copier, source, 1)
        return found

    done = compact(loaded, now_ms=LATER)
    assert done.conflicts == 3
    table = load(catalog)
    assert contents(table) == source.ledger()
    assert progress_of(table.metadata, "orders").offsets["broker-a:0"] == 3 * 2 * 8
    assert copier.copy().rows == 0


def test_after_many_conflicts_it_gives_up_and_deletes_its_files(
    catalog: LakeCatalog, source: MemoryLog, copier: Materializer
) -> None:
    fill(copier, source, 2)

    def loaded() -> Table:
        found = load(catalog)
        fill(copier, source, 1, days=3)
        return found

    with pytest.raises(LakeError, match="gives up after 30 commits that were not made"):
        compact(loaded, now_ms=LATER)
    table = load(catalog)
    assert contents(table) == source.ledger()
    assert on_disk(table) == set(files(table))


def test_of_two_compactions_the_second_drops_its_work(
    catalog: LakeCatalog, source: MemoryLog, copier: Materializer
) -> None:
    fill(copier, source, days=1)
    rivals: list[Compacted] = []

    def loaded() -> Table:
        if rivals == [Compacted()]:
            rivals.append(run(catalog))
        if not rivals:
            rivals.append(Compacted())
        return load(catalog)

    with pytest.raises(FilesGone, match="5 of 5 files to be replaced are in table"):
        compact(loaded, now_ms=LATER)
    assert rivals[1].after == 1
    table = load(catalog)
    assert contents(table) == source.ledger()
    # Its own file is gone; those that were replaced stay for readers.
    assert len(on_disk(table)) == 5 + 1


def test_a_reader_that_planned_before_reads_the_files_of_then(
    catalog: LakeCatalog, source: MemoryLog, copier: Materializer
) -> None:
    fill(copier, source)
    before = load(catalog)
    tasks = list(before.scan().plan_files())
    rows = everything(before)
    run(catalog)
    assert everything(before).equals(rows)
    assert all(Path(each.file.file_path.removeprefix("file://")).exists() for each in tasks)


def test_a_lake_that_ends_stops_a_compaction_and_its_files_go(
    catalog: LakeCatalog, source: MemoryLog, copier: Materializer
) -> None:
    fill(copier, source)
    asked = iter([False, False, True])
    with pytest.raises(Stopped):
        run(catalog, is_stopping=lambda: next(asked))
    table = load(catalog)
    assert len(files(table)) == 10
    assert on_disk(table) == set(files(table))


def test_many_manifests_become_few_though_no_file_is_replaced(
    catalog: LakeCatalog, source: MemoryLog, copier: Materializer
) -> None:
    fill(copier, source, 30, days=1)
    rows = everything(load(catalog))
    done = run(catalog, now_ms=MIDNIGHT)  # no day is closed
    assert (done.days, done.manifests) == (0, 30)
    table = load(catalog)
    head = table.current_snapshot()
    assert head is not None
    assert len(head.manifests(table.io)) == 1
    assert everything(table).equals(rows)
    fill(copier, source, 1)
    assert contents(load(catalog)) == source.ledger()


def test_a_table_whose_rows_another_engine_deleted_by_delete_files_is_refused(
    catalog: LakeCatalog,
    source: MemoryLog,
    copier: Materializer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(copier, source)
    manifests = Snapshot.manifests

    def with_deletes(self: Snapshot, io: Any) -> list[Any]:
        found = manifests(self, io)
        found[0]._data[3] = ManifestContent.DELETES
        return found

    monkeypatch.setattr(Snapshot, "manifests", with_deletes)
    assert load(catalog).current_snapshot().manifests(load(catalog).io)[0].content == (  # type: ignore[union-attr]
        ManifestContent.DELETES
    )
    with pytest.raises(LakeError, match=r"rocketmq\.orders has delete files"):
        run(catalog)


def test_a_file_with_fewer_rows_than_its_manifest_says_replaces_nothing(
    catalog: LakeCatalog, source: MemoryLog, copier: Materializer
) -> None:
    fill(copier, source, 2, days=1)
    table = load(catalog)
    path = files(table)[0].removeprefix("file://")
    short = pq.ParquetFile(path).read().slice(1)
    pq.write_table(short, path)
    with pytest.raises(LakeError, match="have 23 rows where its manifests say 24"):
        run(catalog)
    assert on_disk(table) == set(files(load(catalog)))


def test_rows_of_another_writer_stop_it(
    catalog: LakeCatalog, source: MemoryLog, copier: Materializer
) -> None:
    fill(copier, source)
    rewrite(load(catalog), lambda rows: rows)
    with load(catalog).transaction() as transaction:
        transaction.remove_properties(ACCEPTED_KEY)
    fill_again = load(catalog)
    with pytest.raises(LakeError, match="is no commit of aerobee"):
        run(catalog)
    assert files(load(catalog)) == files(fill_again)


@pytest.mark.parametrize(("large_bytes", "entries"), [(1, 5_000), (1 << 20, 2)])
def test_large_manifests_stay_and_merged_ones_have_a_limit(
    catalog: LakeCatalog,
    source: MemoryLog,
    copier: Materializer,
    monkeypatch: pytest.MonkeyPatch,
    large_bytes: int,
    entries: int,
) -> None:
    monkeypatch.setattr(replacement, "LARGE_MANIFEST_BYTES", large_bytes)
    monkeypatch.setattr(replacement, "MANIFEST_ENTRIES_MAX", entries)
    fill(copier, source, 3, days=1)
    for _ in range(5):
        source.send(3, day=1)
        copier.copy()
    before = load(catalog)
    rows = everything(before)
    end = MIDNIGHT + DAY_MS + CLOSED_AFTER_MS
    assert run(catalog, end).before == 3  # the other day is not closed
    table = load(catalog)
    assert everything(table).equals(rows)
    old, new = (
        {each.manifest_path: each for each in found.current_snapshot().manifests(found.io)}  # type: ignore[union-attr]
        for found in (before, table)
    )
    kept = [new[path] for path in old.keys() & new.keys()]
    written = [each for path, each in new.items() if path not in old and each.existing_files_count]
    if entries == 2:
        assert not kept
        assert sorted(each.existing_files_count or 0 for each in written) == [1, 2, 2]
    else:
        assert len(kept) == 5
        assert not written


def test_columns_of_json_stay_as_they_are_and_are_null_in_older_rows(
    catalog: LakeCatalog, source: MemoryLog, copier: Materializer
) -> None:
    fill(copier, source, 1, days=1)
    declared = parse("items array<struct<n:int>>, o struct<a:array<struct<n:int>>,s:string>")
    later = Materializer(catalog, source, "orders", "orders", fields=declared)
    bodies = [
        b'{"items": [], "o": {"a": []}}',
        b'{"items": [{"n": 1}, null], "o": {"s": "x"}}',
        b"{}",
        b'{"items": null, "o": {"a": null}}',
    ]
    for body in bodies:
        source.send(1, body=body)
    later.copy()
    names = ["items", "o"]

    def values() -> list[dict[str, Any]]:
        """As they are in the files: pyiceberg's scan has [] for a null array of structs."""
        found = []
        for file in files(load(catalog)):
            rows = pq.read_table(file.removeprefix("file://"))
            found += rows.select(
                [*KEYS, *(name for name in names if name in rows.schema.names)]
            ).to_pylist()
        return sorted(found, key=lambda row: tuple(row[key] for key in KEYS))

    before = [dict.fromkeys(names) | row for row in values()]
    assert run(catalog).after == 1
    assert values() == before
    assert [row["items"] for row in before if row["items"] is not None] == [[], [{"n": 1}, None]]
    found = verify(load(catalog), source, "orders", fields=declared)
    assert [each for each in found if not each.is_clean] == []
