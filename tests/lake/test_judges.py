"""Other engines read the same rows from a table: pyiceberg, DuckDB, polars, and Spark."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg")

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from aerobee.lake.bodies.fields import parse
from aerobee.lake.materializer import Materializer
from aerobee.lake.table_schema import COLUMNS
from aerobee.lake.upkeep import Upkeep
from pyiceberg.table import Table

from ..spark.conftest import driver, spark_is_here
from ..spark.programs import Driver
from ..spark.stored import STORE_MS, stored
from .memory_log import DAY_MS, MemoryLog
from .tables import catalog_in

__all__ = ["driver", "spark_is_here"]  # fixtures

KEY = ("brokerName", "queueId", "offset")
NAMES = [column.name for column in COLUMNS]

Row = dict[str, Any]


@pytest.fixture(scope="module", params=["as committed", "compacted"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Several commits, queues, brokers and days, with texts and bodies that are unusual; and the
    same table, compacted."""
    catalog = catalog_in(tmp_path_factory.mktemp("judges"))
    catalog.create("orders", "orders")
    source = MemoryLog()
    copier = Materializer(catalog, source, "orders", "orders", commit_bytes=4_000)
    for round_ in range(4):
        for broker in ("broker-a", "broker-b"):
            source.send(10, round_ % 2, broker=broker, day=round_)
    odd = next(each for queue, each in source.queues.items() if queue.broker_name == "broker-b")
    for body, properties in (
        (b"", b""),
        (
            b"\x00\xff" * 5_000,
            "KEYS\x01größe 日本\x02TAGS\x01\x02leer\x01\x02🐝\x01\x00\x02".encode(),
        ),
        (bytes(range(256)), b"n\xfeme\x01v\xff\x02" * 3),
    ):
        at = odd.end
        odd.records.append(
            stored(at, body, properties, queue_id=0, store_ms=STORE_MS + 9 * DAY_MS, flag=-1)
        )
    while copier.copy().is_behind:
        pass
    if request.param == "compacted":
        before = catalog.load("orders", "orders")
        done = Upkeep(catalog, "orders", "orders").compact(2_000, now_ms=STORE_MS + 99 * DAY_MS)
        assert done.after < done.before
        assert rows_of(by_pyiceberg(catalog.load("orders", "orders"))) == rows_of(
            by_pyiceberg(before)
        )
    return catalog.load("orders", "orders")


def files(table: Table) -> list[str]:
    return [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]


def rows_of(found: pa.Table) -> list[Row]:
    """The rows by their key, with maps and times as every engine has them."""
    rows = []
    for row in found.to_pylist():
        row["properties"] = sorted(dict(row["properties"]).items())
        for name in ("timestamp", "bornTimestamp"):
            row[name] = row[name].timestamp()
        rows.append(row)
    return sorted(rows, key=lambda row: [row[name] for name in KEY])


def by_pyiceberg(table: Table) -> pa.Table:
    return table.scan().to_arrow()


def by_duckdb(table: Table) -> pa.Table:
    return duckdb.read_parquet(files(table)).to_arrow_table()


def by_polars(table: Table) -> pa.Table:
    return pl.read_parquet(files(table)).to_arrow()


def by_polars_iceberg(table: Table) -> pa.Table:
    return pl.scan_iceberg(table).collect().to_arrow()


@pytest.fixture(scope="module")
def expected(table: Table) -> list[Row]:
    found = rows_of(by_pyiceberg(table))
    assert len(found) == 83
    assert len(files(table)) > 5
    assert list(found[0]) == NAMES
    assert len({tuple(row[name] for name in KEY) for row in found}) == len(found)
    assert any(row["value"] == b"\x00\xff" * 5_000 for row in found)
    return found


@pytest.mark.parametrize("engine", [by_duckdb, by_polars, by_polars_iceberg])
def test_an_engine_reads_the_same_rows(
    table: Table,
    expected: list[Row],
    engine: Callable[[Table], pa.Table],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # it has a package of its own, too
    assert rows_of(engine(table).select(NAMES)) == expected


def test_engines_read_columns_of_json_that_were_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    catalog, source = catalog_in(tmp_path), MemoryLog()
    catalog.create("orders", "orders")
    body = b'{"id": 7, "seen": "2026-01-01T00:00:00Z", "items": [{"sku": "a"}, null]}'
    for day, ddl in enumerate(
        ("", "id bigint", "id bigint, items array<struct<sku:string,n:int>>")
    ):
        source.send(1, day=day, body=body)
        fields = parse(ddl) if ddl else ()
        Materializer(catalog, source, "orders", "orders", fields=fields).copy()
    table = catalog.load("orders", "orders")
    items = [{"sku": "a", "n": None}, None]
    expected = [(0, None, None), (1, 7, None), (2, 7, items)]
    with_duckdb = duckdb.read_parquet(files(table), union_by_name=True).to_arrow_table()
    for found in (by_pyiceberg(table), by_polars_iceberg(table), with_duckdb):
        rows = found.select(["offset", "id", "items"]).sort_by("offset").to_pylist()
        assert [tuple(row.values()) for row in rows] == expected


def test_a_filter_by_queue_offset_or_time_reads_the_files_that_may_have_rows(
    table: Table, expected: list[Row]
) -> None:
    """The bounds in the manifests are those of the rows."""
    everything = len(files(table))
    day = f"timestamp >= '{_iso(STORE_MS + 8 * DAY_MS)}'"
    for condition, some in (
        (day, [row for row in expected if row["flag"] == -1]),
        ("offset < 5", [row for row in expected if row["offset"] < 5]),
        (
            "brokerName = 'broker-b' and queueId = 1",
            [row for row in expected if (row["brokerName"], row["queueId"]) == ("broker-b", 1)],
        ),
        ("key = 'k3 all'", [row for row in expected if row["key"] == "k3 all"]),
    ):
        scan = table.scan(row_filter=condition)
        assert rows_of(scan.to_arrow()) == some, condition
        assert 0 < len(list(scan.plan_files())) < everything, condition


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


@pytest.mark.spark
@pytest.mark.usefixtures("spark_is_here")
def test_spark_reads_the_same_rows(
    table: Table, expected: list[Row], driver: Driver, tmp_path: Path
) -> None:
    out = tmp_path / "rows"
    program = Path(__file__).with_name("spark_files_program.py")
    driver.run(program, str(out), *files(table))
    assert rows_of(pq.read_table(out).select(NAMES)) == expected
