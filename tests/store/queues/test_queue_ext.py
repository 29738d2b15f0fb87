"""Addresses in entries that lead to tag hashes, or nowhere."""

from pathlib import Path

import pytest
from aerobee.store.queues.queue_ext import ADDRESS_BASE, UNIT, QueueExt


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


def test_files_before_an_address_go_but_not_the_last(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number * 40:020d}").write_bytes(bytes(40))
    ext = QueueExt(tmp_path, 40)

    def first(place: int) -> str | None:
        found = ext.first_file_before(place - ADDRESS_BASE)
        return None if found is None else found.path.name

    assert first(39) is None
    assert first(40) == first(1 << 40) == "0" * 20
    assert ext.first_file_before(5) is None  # a plain tag hash leads nowhere
    del ext.segments.items[:2]
    assert first(1 << 40) is None
