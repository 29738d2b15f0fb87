"""Addresses in entries that lead to tag hashes, or nowhere."""

from pathlib import Path

import pytest
from aerobee.store.queue_ext import ADDRESS_BASE, UNIT, QueueExt


@pytest.fixture
def ext(tmp_path: Path) -> QueueExt:
    unit = UNIT.pack(24, -77, 1_700_000_000_000, 4) + b"bits"
    end = UNIT.pack(-1, 0, 0, 0)
    (tmp_path / f"{0:020d}").write_bytes((unit + end).ljust(100, b"\0"))
    (tmp_path / f"{100:020d}").write_bytes(unit.ljust(100, b"\0"))
    return QueueExt(tmp_path, 100)


@pytest.mark.parametrize(
    ("place", "expected"),
    [(0, -77), (100, -77), (24, None), (60, None), (81, None), (200, None), (-1, None)],
)
def test_an_address_leads_to_a_tag_hash_or_to_none(
    ext: QueueExt, place: int, expected: int | None
) -> None:
    assert ext.tags_code(place - ADDRESS_BASE) == expected
