"""The checkpoint: RocketMQ's numbers in RocketMQ's places, and ours only while they hold."""

import struct
from pathlib import Path

import pytest
from aerobee.store.files.checkpoint import Checkpoint, load, save

WHOLE = Checkpoint(1, 2, 3, 4, 5, 600, 7, "20260101000000000", 8, 9)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    save(tmp_path / "checkpoint", WHOLE, sync=True)
    assert load(tmp_path / "checkpoint") == WHOLE


def test_the_file_has_a_page_and_five_numbers_as_java_reads_them(tmp_path: Path) -> None:
    save(tmp_path / "checkpoint", WHOLE)
    data = (tmp_path / "checkpoint").read_bytes()
    assert len(data) == 4096
    assert struct.unpack_from(">5q", data) == (1, 2, 3, 4, 5)


def test_our_own_part_is_void_once_java_has_written_its_numbers(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    save(path, WHOLE)
    data = bytearray(path.read_bytes())
    struct.pack_into(">q", data, 8, 20)
    path.write_bytes(data)
    assert load(path) == Checkpoint(1, 20, 3, 4, 5)


@pytest.mark.parametrize("at", [64, 80, 120, 140, 150])
def test_our_own_part_is_void_with_any_byte_changed(tmp_path: Path, at: int) -> None:
    path = tmp_path / "checkpoint"
    save(path, WHOLE)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    assert load(path) == Checkpoint(1, 2, 3, 4, 5)


@pytest.mark.parametrize("data", [None, b"", bytes(39)])
def test_a_missing_or_short_file_says_nothing(tmp_path: Path, data: bytes | None) -> None:
    if data is not None:
        (tmp_path / "checkpoint").write_bytes(data)
    assert load(tmp_path / "checkpoint") == Checkpoint()


def test_what_is_safe_leaves_three_seconds() -> None:
    assert Checkpoint(10_000, 9_000).safe_ms == 6_000
    assert Checkpoint(10_000, 0).safe_ms == 0
