"""A table in a catalog of SQLite, and a log in memory for it."""

from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

from aerobee.lake.catalog import LakeCatalog

from .memory_log import MemoryLog
from .tables import catalog_in


@pytest.fixture
def catalog(tmp_path: Path) -> LakeCatalog:
    found = catalog_in(tmp_path)
    found.create("orders", "orders")
    return found


@pytest.fixture
def source() -> MemoryLog:
    return MemoryLog()
