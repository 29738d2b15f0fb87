"""A table in a catalog of SQLite, and a log in memory for it."""

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

from aerobee.lake.catalog import LakeCatalog
from aerobee.testing.cluster import LocalCluster

from .memory_log import MemoryLog
from .tables import catalog_in


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """One for all tests of a file, each with topics of its own."""
    with LocalCluster() as one:
        yield one


@pytest.fixture
def catalog(tmp_path: Path) -> LakeCatalog:
    found = catalog_in(tmp_path)
    found.create("orders", "orders")
    return found


@pytest.fixture
def source() -> MemoryLog:
    return MemoryLog()


@pytest.fixture
def files_stay_open() -> Iterator[None]:
    """For faults of writes: pyiceberg leaves a file open whose last write failed, and the garbage
    collector closes it, within this test."""
    warnings.filterwarnings("ignore", "unclosed file", ResourceWarning)  # pytest takes it back
    yield
    gc.collect()
