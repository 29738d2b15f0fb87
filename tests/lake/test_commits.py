"""What a commit leaves behind."""

from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

from aerobee.lake.materializer import Materializer
from aerobee.lake.table_schema import PROPERTIES

from .memory_log import MemoryLog
from .tables import catalog_in, contents


def test_old_files_of_metadata_go_with_later_commits(tmp_path: Path) -> None:
    catalog, source = catalog_in(tmp_path), MemoryLog()
    catalog.create("orders", "orders")
    copier = Materializer(catalog, source, "orders", "orders")
    kept = int(PROPERTIES["write.metadata.previous-versions-max"])
    for _ in range(kept + 5):
        source.send(1)
        copier.copy()
    assert len(list(tmp_path.rglob("*.metadata.json"))) == kept + 1
    assert contents(catalog.load("orders", "orders")) == source.ledger()
