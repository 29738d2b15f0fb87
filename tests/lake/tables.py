"""Tables for tests: a catalog in a folder, and what is in a table."""

from collections import Counter
from pathlib import Path

from aerobee.lake.catalog import LakeCatalog
from pyiceberg.table import Table


def catalog_in(folder: Path, **properties: str) -> LakeCatalog:
    """A catalog of SQLite with its tables, in this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    given = {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}", **properties}
    return LakeCatalog(given, place=str(folder / "tables"), namespace="rocketmq")


def contents(table: Table) -> dict[tuple[str, int, int], bytes]:
    """The bodies of a table by broker, queue and offset; AssertionError if a row is there twice."""
    rows = table.scan(selected_fields=("brokerName", "queueId", "offset", "value")).to_arrow()
    columns = [rows.column(name).to_pylist() for name in ("brokerName", "queueId", "offset")]
    keys = list(zip(*columns, strict=True))
    twice = [key for key, count in Counter(keys).items() if count > 1]
    assert not twice, f"{len(twice)} rows are there twice, first {twice[0]}"
    return dict(zip(keys, rows.column("value").to_pylist(), strict=True))
