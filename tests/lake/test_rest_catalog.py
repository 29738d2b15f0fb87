"""A catalog over HTTP that answers with errors, or not at all: each message is a row once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg")

from aerobee.lake.catalog import REQUEST_SECONDS, LakeCatalog
from aerobee.lake.commits import Conflict, Unconfirmed
from aerobee.lake.materializer import Materializer
from pyiceberg.catalog.sql import SqlCatalog
from requests.adapters import HTTPAdapter

from ..waiting import SHORT
from .memory_log import MemoryLog
from .rest_catalog import BEHIND, CUT, SILENT, WITHOUT, RestCatalog, served
from .tables import contents

STATUSES = (409, 429, 500, 502, 503, 504, CUT, SILENT)
ANSWER_SECONDS = 0.2  # until a silent catalog is given up


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[RestCatalog, str]]:
    inner = SqlCatalog("inner", uri=f"sqlite:///{tmp_path / 'catalog.db'}")
    with served(inner) as found:
        yield found


def give_up_soon(patch: pytest.MonkeyPatch) -> None:
    """Commits get no time; whether the catalog was asked already is open then."""
    send = HTTPAdapter.send

    def impatient(self: HTTPAdapter, request: Any, **options: Any) -> Any:
        if request.method == "POST":
            assert options["timeout"] == REQUEST_SECONDS
            options["timeout"] = ANSWER_SECONDS
        return send(self, request, **options)

    patch.setattr(HTTPAdapter, "send", impatient)


@pytest.mark.parametrize("when", [WITHOUT, BEHIND])
@pytest.mark.parametrize("status", STATUSES)
def test_an_error_of_the_catalog_makes_no_row_twice_and_loses_none(
    server: tuple[RestCatalog, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    when: str,
) -> None:
    rest, address = server
    place = str(tmp_path / "tables")
    catalog = LakeCatalog({"type": "rest", "uri": address}, place=place, namespace="rocketmq")
    catalog.create("orders", "orders")
    source = MemoryLog()
    copiers = [
        Materializer(catalog, source, "orders", "orders")  # type: ignore[arg-type]
        for _ in range(2)
    ]
    source.send(20)
    copiers[0].copy()
    source.send(5)
    if status == SILENT:
        give_up_soon(monkeypatch)
    rest.faults = [(status, when)]
    with pytest.raises(Conflict if status == 409 else Unconfirmed):
        copiers[0].copy()
    monkeypatch.undo()
    assert status != SILENT or rest.is_silent.wait(SHORT)
    assert rest.commits == (2 if when == BEHIND else 1)  # nothing between here and there repeats it
    for each in copiers:
        each.copy()
    source.send(1)
    for each in copiers:
        each.copy()
    assert rest.commits == 3
    table = catalog.load("orders", "orders")
    assert contents(table) == source.ledger()
    files = {task.file.file_path for task in table.scan().plan_files()}
    assert {f"file://{path}" for path in Path(place).rglob("*.parquet")} == files
