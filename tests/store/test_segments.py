"""Rows of files: names, gaps, wrong sizes."""

from pathlib import Path

import pytest
from aerobee.store.errors import DamagedStore, NotWritable
from aerobee.store.segments import Segments


def row(folder: Path, *bases: int) -> Segments:
    segments = Segments(folder, 100, "someSize", writable=True)
    for base in bases:
        segments.add(base, reserve=100)
    return segments


def test_names_are_twenty_digits_and_come_back_in_order(tmp_path: Path) -> None:
    row(tmp_path, 1000, 1100, 1200)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "00000000000000001000",
        "00000000000000001100",
        "00000000000000001200",
    ]
    again = row(tmp_path)
    again.load()
    assert [segment.base for segment in again.items] == [1000, 1100, 1200]
    assert again.start == 1000


def test_a_place_is_found_in_its_file(tmp_path: Path) -> None:
    segments = row(tmp_path, 1000, 1100)
    found = {place: segments.find(place) for place in (999, 1000, 1099, 1100, 1199, 1200, -1)}
    assert [segment and segment.base for segment in found.values()] == [
        None, 1000, 1000, 1100, 1100, None, None,
    ]  # fmt: skip
    assert row(tmp_path / "empty").find(0) is None


def test_a_file_of_another_size_is_refused_with_both_sizes(tmp_path: Path) -> None:
    row(tmp_path, 0, 100)
    (tmp_path / f"{0:020d}").write_bytes(bytes(99))
    with pytest.raises(DamagedStore, match=r"has 99 bytes, someSize is 100"):
        row(tmp_path).load()


def test_an_empty_last_file_is_a_crash_while_making_it(tmp_path: Path) -> None:
    row(tmp_path, 0)
    (tmp_path / f"{100:020d}").touch()
    segments = row(tmp_path)
    segments.load()
    assert [segment.base for segment in segments.items] == [0]
    assert not (tmp_path / f"{100:020d}").exists()


def test_an_empty_file_before_the_last_is_damage(tmp_path: Path) -> None:
    row(tmp_path, 0, 100)
    (tmp_path / f"{0:020d}").write_bytes(b"")
    with pytest.raises(DamagedStore, match="has 0 bytes"):
        row(tmp_path).load()


def test_a_missing_file_in_between_is_named(tmp_path: Path) -> None:
    row(tmp_path, 0, 100, 200)
    (tmp_path / f"{100:020d}").unlink()
    with pytest.raises(DamagedStore, match="one between them is missing"):
        row(tmp_path).load()


def test_a_stray_file_is_named_and_folders_are_passed_over(tmp_path: Path) -> None:
    row(tmp_path, 0)
    (tmp_path / "folder").mkdir()
    row(tmp_path).load()
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(DamagedStore, match=r"notes.txt has no business here"):
        row(tmp_path).load()


def test_cutting_deletes_what_begins_there_or_behind(tmp_path: Path) -> None:
    segments = row(tmp_path, 0, 100, 200)
    segments.cut(101)
    assert [segment.base for segment in segments.items] == [0, 100]
    segments.cut(100)
    assert [path.name for path in tmp_path.iterdir()] == [f"{0:020d}"]


def test_a_folder_that_can_not_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*args: object, **kwargs: object) -> int:
        raise PermissionError(13, "no")

    monkeypatch.setattr("aerobee.store.disk.current.open", denied)
    with pytest.raises(NotWritable, match="choose another folder with storePathRootDir"):
        row(tmp_path, 0)
