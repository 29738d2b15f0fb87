"""Upkeep whose files or catalog fail: the rows stay, whatever goes wrong at which call."""

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyiceberg")

from aerobee.lake.catalog import LakeCatalog
from aerobee.lake.compaction import DAY_MS
from aerobee.lake.errors import LakeError
from aerobee.lake.materializer import Materializer
from aerobee.lake.progress import progress_of
from aerobee.lake.upkeep import Upkeep
from pyiceberg.expressions import AlwaysTrue

from ..spark.stored import STORE_MS
from .doors import Doors
from .memory_log import MemoryLog
from .tables import catalog_in, contents
from .test_unsteady_catalog import (
    ANSWERS,
    DENIED,
    FATES,
    LATE,
    MADE,
    MADE_DENIED,
    MADE_UNANSWERED,
    STALE,
    UNANSWERED,
    UnsteadyCatalog,
    fates,
)

NOW = STORE_MS + 30 * DAY_MS
COMMITS = 3


def filled(folder: Path) -> tuple[LakeCatalog, MemoryLog, Materializer, Upkeep]:
    catalog = catalog_in(folder)
    catalog.create("orders", "orders")
    source = MemoryLog()
    copier = Materializer(catalog, source, "orders", "orders")
    for _ in range(COMMITS):
        source.send(4)
        copier.copy()
    return catalog, source, copier, Upkeep(catalog, "orders", "orders")


def files(catalog: LakeCatalog) -> tuple[set[str], set[str]]:
    """The data files of the table, and those that are there."""
    table = catalog.load("orders", "orders")
    found = {task.file.file_path for task in table.scan().plan_files()}
    folder = Path(table.location().removeprefix("file://"))
    return found, {f"file://{each}" for each in folder.rglob("*.parquet")}


# --- expiry ---------------------------------------------------------------------------------------


def test_expiry_keeps_the_newest_the_tagged_and_the_one_that_tells_the_offsets(
    tmp_path: Path,
) -> None:
    catalog, source, copier, upkeep = filled(tmp_path)
    table = catalog.load("orders", "orders")
    first = table.snapshots()[0].snapshot_id
    table.manage_snapshots().create_tag(first, "first").commit()
    for _ in range(4):
        source.send(1)
        copier.copy()
    told = catalog.load("orders", "orders").current_snapshot()
    assert told is not None
    # Another engine deletes a file's rows: its snapshot tells no offsets.
    with catalog.load("orders", "orders").transaction() as transaction:
        path = next(iter(transaction._table.scan().plan_files())).file
        with transaction.update_snapshot().delete() as snapshot:
            snapshot._planned_delete_files = {path}
            snapshot.delete_by_predicate(AlwaysTrue())
    before = progress_of(catalog.load("orders", "orders").metadata, "orders")
    assert upkeep.expire(1, now_ms=NOW) == 5
    metadata = catalog.load("orders", "orders").metadata
    head = metadata.current_snapshot()
    assert head is not None
    assert {each.snapshot_id for each in metadata.snapshots} == {
        first,
        told.snapshot_id,
        head.snapshot_id,
    }
    assert progress_of(metadata, "orders") == before
    assert upkeep.expire(1, now_ms=NOW) == 0


def test_expiry_drops_what_is_older(tmp_path: Path) -> None:
    catalog, source, copier, upkeep = filled(tmp_path)
    times = [each.timestamp_ms for each in catalog.load("orders", "orders").snapshots()]
    assert upkeep.expire(older_ms=DAY_MS, now_ms=times[1] + DAY_MS) == 1
    assert upkeep.expire(older_ms=DAY_MS, now_ms=times[-1] + 2 * DAY_MS) == 1
    assert len(catalog.load("orders", "orders").snapshots()) == 1
    source.send(1)
    copier.copy()
    assert contents(catalog.load("orders", "orders")) == source.ledger()


# --- files that fail ------------------------------------------------------------------------------


def full() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def story(folder: Path, doors: Doors, patch: pytest.MonkeyPatch) -> bool:
    """One call of a compaction, an expiry and a sweep goes wrong; whether one of them failed."""
    catalog, source, copier, upkeep = filled(folder)
    source.send(3)
    failed = False
    with patch.context() as patched:
        doors.install(patched.setattr)
        for work in (
            lambda: upkeep.compact(now_ms=NOW),
            lambda: upkeep.expire(1, now_ms=NOW),
            lambda: upkeep.sweep(now_ms=NOW),
        ):
            try:
                work()
            except (LakeError, OSError):
                failed = True
    copier.copy()
    upkeep.compact(now_ms=NOW)
    assert contents(catalog.load("orders", "orders")) == source.ledger()
    for snapshot in catalog.load("orders", "orders").snapshots():
        catalog.load("orders", "orders").scan(snapshot_id=snapshot.snapshot_id).to_arrow()
    return failed


@pytest.mark.parametrize("after", [False, True], ids=["before its effect", "after its effect"])
@pytest.mark.usefixtures("files_stay_open")
def test_each_kind_of_call_may_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    quiet = Doors(-1, full, after=after)
    assert not story(tmp_path / "without", quiet, monkeypatch)
    names = sorted(set(quiet.names))
    assert {"commit_table", "new_input .parquet", "create .parquet", "create snap-.avro"} <= {
        *names
    }
    failed = 0
    for number, name in enumerate(names):
        doors = Doors(quiet.names.count(name) // 2, full, after=after, name=name)
        failed += story(tmp_path / str(number), doors, monkeypatch)
    assert failed > len(names) // 2  # one that was not confirmed is tried again


@pytest.mark.soak
@pytest.mark.parametrize("after", [False, True], ids=["before its effect", "after its effect"])
@pytest.mark.usefixtures("files_stay_open")
def test_any_call_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
    at, count = 0, 1
    while at < count:
        doors = Doors(at, full, after=after)
        story(tmp_path / str(at), doors, monkeypatch)
        count, at = len(doors.names), at + 1
    assert count > 40


# --- a catalog that is unsteady -------------------------------------------------------------------


def unsteady_of(catalog: LakeCatalog) -> UnsteadyCatalog:
    found = UnsteadyCatalog(catalog._catalog)
    catalog._catalog = found  # type: ignore[assignment]
    return found


@pytest.mark.parametrize("fate", [UNANSWERED, LATE, DENIED, MADE_DENIED, MADE_UNANSWERED])
def test_a_commit_of_a_compaction_without_a_true_answer_is_made_once(
    tmp_path: Path, fate: str
) -> None:
    catalog, source, copier, upkeep = filled(tmp_path)
    unsteady = unsteady_of(catalog)
    unsteady.fate = fates(fate)
    upkeep.compact(now_ms=NOW)
    while unsteady.late:
        unsteady.arrive()
    live, there = files(catalog)
    assert len(live) == 1
    assert len(there) == COMMITS + 1
    source.send(2)
    copier.copy()
    assert contents(catalog.load("orders", "orders")) == source.ledger()


def test_files_of_a_commit_that_may_still_be_made_stay(tmp_path: Path) -> None:
    catalog, source, _, upkeep = filled(tmp_path)
    unsteady = unsteady_of(catalog)
    unsteady.fate = lambda: LATE
    with pytest.raises(LakeError, match="gives up after 30 commits"):
        upkeep.compact(now_ms=NOW)
    unsteady.arrive()
    live, there = files(catalog)
    assert len(live) == 1
    assert live < there
    assert contents(catalog.load("orders", "orders")) == source.ledger()


def test_a_catalog_that_refuses_each_commit_lets_the_files_go_with_the_next_one(
    tmp_path: Path,
) -> None:
    catalog, source, copier, upkeep = filled(tmp_path)
    unsteady = unsteady_of(catalog)
    refused = 0

    def fate() -> str:
        nonlocal refused
        refused += 1
        if refused == 30:  # another writer's, behind which none of the others can be made
            unsteady.fate = lambda: MADE
            source.send(1)
            copier.copy()
            unsteady.fate = fate
        return DENIED

    unsteady.fate = fate
    with pytest.raises(LakeError, match="gives up after 30 commits"):
        upkeep.compact(now_ms=NOW)
    live, there = files(catalog)
    assert live == there
    assert len(live) == COMMITS + 1


def wander(
    catalog: LakeCatalog, unsteady: UnsteadyCatalog, source: MemoryLog, draw: Random
) -> None:
    """Two writers and two upkeeps at a catalog that does what it likes."""
    unsteady.fate = lambda: draw.choice(FATES)
    unsteady.answer = lambda: draw.choice(ANSWERS)
    unsteady.age = lambda: draw.choice((0, 0, 0, draw.randrange(STALE)))
    writers = [Materializer(catalog, source, "orders", "orders") for _ in range(2)]
    upkeep = Upkeep(catalog, "orders", "orders")
    works: list[Callable[[], object]] = [
        *(each.copy for each in writers),
        lambda: upkeep.compact(now_ms=NOW),
        lambda: upkeep.expire(draw.randrange(1, 6), now_ms=NOW),
        lambda: upkeep.sweep(now_ms=NOW),
    ]
    for _ in range(12):
        source.send(draw.randrange(1, 8), draw.randrange(2))
        for work in draw.sample(works, len(works)):
            with suppress(LakeError):
                work()
            while unsteady.late and draw.random() < 0.4:
                draw.shuffle(unsteady.late)
                with suppress(ValueError):  # its snapshots are dropped since
                    unsteady.arrive()
    unsteady.fate, unsteady.age = lambda: MADE, lambda: 0
    while unsteady.late:
        with suppress(ValueError):
            unsteady.arrive()
    for _ in range(2):
        for each in writers:
            each.copy()
        upkeep.compact(now_ms=NOW)


@pytest.mark.parametrize(
    "seeds", [range(2), pytest.param(range(2, 40), marks=pytest.mark.soak)], ids=["few", "many"]
)
def test_whatever_the_catalog_does_the_rows_stay(tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        catalog, source = catalog_in(tmp_path / str(seed)), MemoryLog()
        catalog.create("orders", "orders")
        wander(catalog, unsteady_of(catalog), source, Random(seed))
        assert contents(catalog.load("orders", "orders")) == source.ledger(), f"seed {seed}"
