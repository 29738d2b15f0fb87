"""Sweep: what no snapshot has goes a day after it was noted, and nothing else ever."""

import os
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyiceberg")

from aerobee.lake import sweep
from aerobee.lake.commits import commit, prepare
from aerobee.lake.compaction import DAY_MS
from aerobee.lake.data_files import DataFiles
from aerobee.lake.errors import LakeError
from aerobee.lake.materializer import Materializer
from aerobee.lake.progress import progress_of
from aerobee.lake.sweep import NOTES, Swept
from aerobee.lake.upkeep import Upkeep
from pyiceberg.table import Table

from ..spark.stored import STORE_MS
from .memory_log import MemoryLog
from .tables import catalog_in, contents

NOW = STORE_MS + 30 * DAY_MS
ORPHAN = "0b0e7d3c-8a55-4c59-b6a5-0d5d4f4e6a01"


class Place:
    """A table with its writer and upkeep; `age` makes files old."""

    def __init__(self, folder: Path) -> None:
        self.catalog = catalog_in(folder)
        self.catalog.create("orders", "orders")
        self.source = MemoryLog()
        self.copier = Materializer(self.catalog, self.source, "orders", "orders")
        self.upkeep = Upkeep(self.catalog, "orders", "orders")
        self.folder = Path(self.table().location().removeprefix("file://"))

    def table(self) -> Table:
        return self.catalog.load("orders", "orders")

    def fill(self, commits: int = 5) -> None:
        for _ in range(commits):
            self.source.send(4, 0)
            self.source.send(4, 1, day=1)
            self.copier.copy()

    def orphan(self, path: str = f"data/timestamp_day=2026-01-01/{ORPHAN}-0.parquet") -> Path:
        found = self.folder / path
        found.parent.mkdir(parents=True, exist_ok=True)
        found.write_bytes(b"never committed")
        return found

    def age(self) -> None:
        """Let all files be those of STORE_MS, and one of now."""
        for path in self.folder.rglob("*"):
            if path.is_file() and not path.is_symlink():
                os.utime(path, (STORE_MS / 1000, STORE_MS / 1000))
        beside = self.folder / "beside"
        beside.touch()
        os.utime(beside, (NOW / 1000, NOW / 1000))

    def sweep(self, now_ms: int = NOW, *, is_dry: bool = False) -> Swept:
        return self.upkeep.sweep(now_ms=now_ms, is_dry=is_dry)

    def sweep_twice(self) -> Swept:
        """Note, and delete a day later."""
        self.age()
        assert self.sweep(NOW - DAY_MS).deleted == ()
        self.age()
        return self.sweep()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_an_orphan_goes_a_day_after_it_was_noted(place: Place) -> None:
    place.fill()
    orphan = place.orphan()
    manifest = place.orphan(f"metadata/{ORPHAN}-m0.avro")
    listed = place.orphan(f"metadata/snap-12-0-{ORPHAN}.avro")
    torn = place.orphan(f"metadata/00007-{ORPHAN}.metadata.json")
    early = place.orphan(f"data/day=2026-01-01/{ORPHAN}-0.parquet")  # a partition of before
    place.age()
    assert place.sweep() == Swept((), 0, 5)
    place.age()
    assert place.sweep(NOW + DAY_MS - 1) == Swept((), 0, 5)
    gone = place.sweep(NOW + DAY_MS)
    assert {place.folder / each for each in gone.deleted} == {orphan, manifest, listed, torn, early}
    assert gone.bytes == 5 * len(b"never committed")
    assert not any(each.exists() for each in (orphan, manifest, listed, torn, early))
    assert place.sweep(NOW + 2 * DAY_MS) == Swept()
    assert contents(place.table()) == place.source.ledger()


def test_a_dry_sweep_names_the_files_and_changes_nothing(place: Place) -> None:
    orphan = place.orphan()
    place.fill()
    place.age()
    assert place.sweep(NOW - DAY_MS, is_dry=True).noted == 1
    assert not (place.folder / NOTES).exists()
    place.sweep(NOW - DAY_MS)
    place.age()
    assert place.sweep(is_dry=True).deleted == (str(orphan.relative_to(place.folder)),)
    assert orphan.exists()


def test_files_that_a_compaction_replaced_stay_for_a_day_behind_the_expiry(place: Place) -> None:
    place.fill()
    reader = place.table()
    rows = contents(reader)
    assert place.upkeep.compact(now_ms=NOW).before == 10
    place.age()
    assert place.sweep(NOW - 3 * DAY_MS).noted == 0  # the snapshots have them
    assert place.upkeep.expire(1, now_ms=NOW) == 6
    place.age()
    noted = place.sweep(NOW - DAY_MS)
    assert noted.deleted == ()
    assert noted.noted >= 10
    assert contents(reader) == rows
    place.age()
    deleted = place.sweep().deleted
    assert len([each for each in deleted if each.endswith(".parquet")]) == 10
    assert contents(place.table()) == place.source.ledger()


def test_a_file_of_an_unfinished_commit_stays(place: Place) -> None:
    place.fill(1)
    table = place.table()
    files = DataFiles(table)
    place.source.send(5)
    for batch in table.scan().to_arrow().to_batches():
        files.write(batch.cast(files._schema))
    finished = files.finish()
    place.age()
    assert place.sweep(NOW - DAY_MS + 1).deleted == ()
    place.age()
    assert place.sweep().deleted == ()
    assert all(Path(each.file_path.removeprefix("file://")).exists() for each in finished)


@pytest.mark.parametrize(
    "path",
    [
        "data/timestamp_day=2026-01-01/mine.parquet",
        f"data/{ORPHAN}-0.parquet",
        f"data/timestamp_day=2026-01-01/more/{ORPHAN}-0.parquet",
        f"other/data/timestamp_day=2026-01-01/{ORPHAN}-0.parquet",
        "metadata/notes.txt",
        f"metadata/{ORPHAN}.stats",
    ],
)
def test_files_of_other_names_stay(place: Place, path: str) -> None:
    place.fill(1)
    other = place.orphan(path)
    assert place.sweep_twice() == Swept()
    assert other.exists()


def test_links_are_not_followed_and_stay(place: Place, tmp_path: Path) -> None:
    place.fill(1)
    outside = tmp_path / "outside"
    outside.mkdir()
    kept = outside / f"{ORPHAN}-0.parquet"
    kept.write_bytes(b"")
    (place.folder / "data/timestamp_day=2020-01-01").symlink_to(outside)
    link = place.folder / f"data/timestamp_day=2020-01-02/{ORPHAN}-1.parquet"
    link.parent.mkdir()
    link.symlink_to(kept)
    assert place.sweep_twice() == Swept()
    assert kept.exists()
    assert link.is_symlink()


def test_a_place_that_another_table_shares_is_not_swept(place: Place, tmp_path: Path) -> None:
    """As after a catalog was lost and made again."""
    place.fill()
    other = catalog_in(tmp_path / "second")
    other._place = place.catalog._place
    other.create("orders", "orders")
    assert Materializer(other, place.source, "orders", "orders").copy().rows
    upkeep = Upkeep(other, "orders", "orders")
    place.age()
    for each in (upkeep, place.upkeep):
        with pytest.raises(LakeError, match="is the metadata of another table"):
            each.sweep(now_ms=NOW)
    assert contents(place.table()) == place.source.ledger()


def test_making_a_table_again_leaves_no_file(place: Place) -> None:
    before = set(place.folder.rglob("*"))
    place.catalog.create("orders", "orders")
    assert set(place.folder.rglob("*")) == before


def test_the_state_of_a_table_that_another_made_first_stays_and_the_sweep_goes_on(
    place: Place,
) -> None:
    """SQLite's catalog writes it before it looks whether the table is there."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(place.catalog._catalog, "table_exists", lambda _: False)
        place.catalog.create("orders", "orders")
    (beaten,) = {*place.folder.glob("metadata/*.json")} - {
        Path(place.table().metadata_location.removeprefix("file://"))
    }
    place.fill()
    orphan = place.orphan()
    assert place.sweep_twice().deleted == (str(orphan.relative_to(place.folder)),)
    assert beaten.exists()


def test_clocks_that_are_wrong_delete_nothing_early(place: Place) -> None:
    place.fill()
    orphan = place.orphan()
    assert place.sweep(NOW - 3 * DAY_MS).noted == 1
    # The sweeper's clock jumps ahead: the newest file is as old as the orphan.
    assert place.sweep(NOW + 1_000 * DAY_MS).deleted == ()
    # It was noted in a future that was none.
    notes = place.folder / NOTES
    notes.write_text(notes.read_text().replace(str(NOW - 3 * DAY_MS), str(NOW + 9 * DAY_MS)))
    place.age()
    assert place.sweep().deleted == ()
    place.age()
    assert place.sweep(NOW + DAY_MS).deleted == (str(orphan.relative_to(place.folder)),)


def test_torn_notes_begin_anew(place: Place) -> None:
    place.orphan()
    place.fill()
    place.age()
    place.sweep(NOW - DAY_MS)
    (place.folder / NOTES).write_bytes(b'{"table":"')
    place.age()
    assert place.sweep().noted == 1
    place.age()
    assert len(place.sweep(NOW + DAY_MS).deleted) == 1


def test_less_than_a_day_is_refused(place: Place) -> None:
    with pytest.raises(LakeError, match="files of 23 hours can't be swept: a commit may"):
        place.upkeep.sweep(23 * 3_600_000, now_ms=NOW)


def test_a_manifest_that_cant_be_read_lets_nothing_be_deleted(place: Place) -> None:
    place.fill()
    orphan = place.orphan()
    place.age()
    place.sweep(NOW - DAY_MS)
    manifest = next(place.folder.glob("metadata/*-m0.avro"))
    manifest.rename(manifest.with_suffix(".away"))
    place.age()
    with pytest.raises(FileNotFoundError):
        place.sweep()
    assert orphan.exists()


@pytest.mark.parametrize("seed", range(3))
def test_whatever_comes_before_a_sweep_no_file_of_a_snapshot_is_deleted(
    tmp_path: Path, seed: int
) -> None:
    draw = Random(seed)
    place = Place(tmp_path)
    place.fill(2)
    now, deleted = NOW, 0
    for _ in range(16):
        kind = draw.randrange(6)
        if kind == 0:
            place.fill(draw.randrange(1, 4))
        elif kind == 1:
            place.upkeep.compact(now_ms=now)
        elif kind == 2:
            place.upkeep.expire(draw.randrange(1, 20), now_ms=now)
        elif kind == 3:
            head = place.table().current_snapshot()
            assert head is not None
            tag = place.table().manage_snapshots()
            tag.create_tag(head.snapshot_id, f"tag-{now}").commit()
        elif kind == 4:
            place.orphan(f"data/timestamp_day=2026-01-01/{ORPHAN}-{draw.randrange(99)}.parquet")
        now += draw.randrange(2 * DAY_MS)
        place.age()
        os.utime(place.folder / "beside", (now / 1000, now / 1000))
        deleted += len(place.sweep(now).deleted)
        table = place.table()
        assert contents(table) == place.source.ledger()
        for snapshot in table.snapshots():
            rows = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
            assert snapshot.summary is not None
            assert len(rows) == int(snapshot.summary["total-records"] or 0)
    assert deleted


def test_more_orphans_than_are_noted_go_in_turns(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "NOTED_MAX", 2)
    place.fill(1)
    for number in range(5):
        place.orphan(f"data/timestamp_day=2026-01-01/{ORPHAN}-{number}.parquet")
    for day, deleted in enumerate((0, 2, 0, 2, 0, 1, 0)):
        place.age()
        os.utime(place.folder / "beside", times=((NOW + day * DAY_MS) / 1000,) * 2)
        assert len(place.sweep(NOW + day * DAY_MS).deleted) == deleted


def test_a_file_that_is_committed_while_files_are_listed_stays(place: Place) -> None:
    place.fill(1)
    place.source.send(5)
    table = place.table()
    files = DataFiles(table)
    rows = table.scan().to_arrow().cast(files._schema)
    for batch in rows.combine_chunks().to_batches():
        files.write(batch)
    finished = files.finish()
    place.age()
    assert place.sweep(NOW - DAY_MS).noted == len(finished)
    place.age()
    loads = 0

    def load() -> Table:
        nonlocal loads
        loads += 1
        if loads == 2:
            found = place.table()
            progress = progress_of(found.metadata, "orders")
            commit(found, prepare(found, finished, progress.summary()))
        return place.table()

    assert sweep.sweep(load, now_ms=NOW).deleted == ()
    assert len(place.table().scan().to_arrow()) == 2 * len(rows)
