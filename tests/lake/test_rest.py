"""A catalog over HTTP: refusals, errors and silence, before a commit is made and after it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

from aerobee.lake import rest
from aerobee.lake.catalog import LakeCatalog
from aerobee.lake.commits import Conflict, Unconfirmed
from aerobee.lake.errors import LakeError
from aerobee.lake.materializer import Materializer
from pyiceberg.table import Table

from .memory_log import MemoryLog
from .rest_catalog import SILENT, TOKEN, RestDouble, serving
from .tables import contents


@pytest.fixture
def double() -> RestDouble:
    return RestDouble()


@pytest.fixture
def address(double: RestDouble) -> Iterator[str]:
    with serving(double) as address:
        yield address


@pytest.fixture
def source() -> MemoryLog:
    found = MemoryLog()
    found.send(10)
    return found


@pytest.fixture
def catalog(address: str, tmp_path: Path) -> LakeCatalog:
    found = opened(address, tmp_path)
    found.create("orders", "orders")
    return found


def opened(address: str, folder: Path, token: str = TOKEN) -> LakeCatalog:
    given = {"type": "rest", "uri": address, "token": token}
    return LakeCatalog(given, place=str(folder / "tables"), namespace="shop.raw")


def writer(catalog: LakeCatalog, source: MemoryLog) -> Materializer:
    return Materializer(catalog, source, "orders", "orders")


def parquet_files(table: Table) -> set[str]:
    folder = Path(table.location().removeprefix("file://"))
    return {f"file://{path}" for path in folder.rglob("*.parquet")}


def test_a_table_is_made_and_filled_by_two_writers(
    catalog: LakeCatalog, address: str, tmp_path: Path, source: MemoryLog
) -> None:
    first, second = writer(catalog, source), writer(opened(address, tmp_path), source)
    assert first.copy().rows == 10
    source.send(5)
    assert second.copy().rows == 5
    assert first.copy().rows == 0
    assert contents(catalog.load("orders", "orders")) == source.ledger()


def test_the_second_of_two_commits_to_one_state_is_a_conflict(
    catalog: LakeCatalog, double: RestDouble, source: MemoryLog
) -> None:
    before = double.tables["orders"]
    assert writer(catalog, source).copy().rows == 10
    after, double.tables["orders"] = double.tables["orders"], before
    late = writer(catalog, source)
    load = late._load

    def overtaken() -> Table:
        found = load()
        double.tables["orders"] = after
        return found

    late._load = overtaken  # type: ignore[method-assign]
    with pytest.raises(Conflict):
        late.copy()
    late._load = load  # type: ignore[method-assign]
    assert late.copy().rows == 0
    table = catalog.load("orders", "orders")
    assert contents(table) == source.ledger()
    assert {task.file.file_path for task in table.scan().plan_files()} == parquet_files(table)


@pytest.mark.parametrize("is_made", [False, True], ids=["not made", "made"])
@pytest.mark.parametrize("fault", ["403", "429", "500", "502", "503", "504", SILENT])
def test_an_error_of_a_commit_makes_no_row_twice_and_loses_none(
    catalog: LakeCatalog,
    double: RestDouble,
    source: MemoryLog,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    is_made: bool,
) -> None:
    copier = writer(catalog, source)
    double.fault, double.is_made = fault, is_made
    if fault == SILENT:
        monkeypatch.setattr(rest, "REQUEST_SECONDS", 0.2)
    with pytest.raises(Unconfirmed, match=r"did not confirm a commit to table shop\.raw\.orders"):
        copier.copy()
    monkeypatch.undo()
    source.send(3)
    assert copier.copy().rows == (3 if is_made else 13)
    table = catalog.load("orders", "orders")
    assert contents(table) == source.ledger()
    assert {task.file.file_path for task in table.scan().plan_files()} == parquet_files(table)
    assert double.commits == 1 + is_made


@pytest.mark.parametrize("is_made", [False, True], ids=["not made", "made"])
def test_a_commit_that_is_sent_again_with_a_new_token_is_made_once(
    catalog: LakeCatalog, double: RestDouble, source: MemoryLog, is_made: bool
) -> None:
    """pyiceberg does that after a 401. The catalog denies the second of two that it has made."""
    copier = writer(catalog, source)
    double.fault, double.is_made = "401", is_made
    if is_made:
        with pytest.raises(Conflict):
            copier.copy()
    else:
        assert copier.copy().rows == 10
    assert copier.copy().rows == 0
    table = catalog.load("orders", "orders")
    assert contents(table) == source.ledger()
    assert {task.file.file_path for task in table.scan().plan_files()} == parquet_files(table)
    assert double.commits == 1


def test_a_catalog_that_never_answers_is_given_up(
    address: str, double: RestDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "REQUEST_SECONDS", 0.2)
    double.is_silent = True
    with pytest.raises(
        LakeError, match=f"could not open the catalog aerobee .{address}.: ReadTimeout: .*0.2"
    ):
        opened(address, tmp_path)


def test_a_wrong_token_is_said(address: str, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=r"could not open the catalog .*Unauthorized.*who are you"):
        opened(address, tmp_path, token="wrong")


def test_a_catalog_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=r"could not open the catalog aerobee .*ConnectionError"):
        opened("http://127.0.0.1:1", tmp_path)
