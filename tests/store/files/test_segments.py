"""Rows of files: names, gaps, wrong sizes."""

from pathlib import Path

import pytest
from aerobee.store.base.errors import DamagedStore, NotWritable
from aerobee.store.files.segments import Segments


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
    row(tmp_path, 0)
    (tmp_path / f"{0:020d}").write_bytes(bytes(99))
    with pytest.raises(DamagedStore, match=r"has 99 bytes, someSize is 100"):
        row(tmp_path).load()
    (tmp_path / f"{0:020d}").write_bytes(bytes(101))
    with pytest.raises(DamagedStore, match=r"has 101 bytes, someSize is 100"):
        row(tmp_path).load(sure=True)


@pytest.mark.parametrize("sure", [False, True])
def test_a_file_that_was_cut_off_keeps_what_it_has(
    tmp_path: Path, sure: bool, caplog: pytest.LogCaptureFixture
) -> None:
    # That the size is right, the caller knows, or two neighbours say.
    row(tmp_path, *((0,) if sure else (0, 100)))
    (tmp_path / f"{0:020d}").write_bytes(b"x" * 99)
    segments = row(tmp_path)
    segments.load(sure=sure)
    assert segments.items[0].memory[:] == b"x" * 99 + b"\0"
    assert "was cut off after 99 bytes" in caplog.text


def test_an_empty_last_file_is_a_crash_while_making_it(tmp_path: Path) -> None:
    row(tmp_path, 0)
    (tmp_path / f"{100:020d}").touch()
    segments = row(tmp_path)
    segments.load()
    assert [segment.base for segment in segments.items] == [0]
    assert not (tmp_path / f"{100:020d}").exists()


def test_an_empty_file_before_the_last_becomes_zeros(tmp_path: Path) -> None:
    row(tmp_path, 0, 100)
    (tmp_path / f"{0:020d}").write_bytes(b"")
    segments = row(tmp_path)
    segments.load()
    assert [bytes(segment.memory) for segment in segments.items] == [bytes(100)] * 2


def test_zeros_stand_for_missing_files_in_between(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    row(tmp_path, 0, 100, 200, 300)
    for base in (100, 200):
        (tmp_path / f"{base:020d}").unlink()
    segments = row(tmp_path)
    segments.load()
    assert [segment.base for segment in segments.items] == [0, 100, 200, 300]
    assert bytes(segments.items[1].memory) == bytes(100)
    assert f"{200:020d} was missing" in caplog.text


@pytest.mark.parametrize("base", [250, 100_000_000])
def test_a_gap_that_no_files_explain_is_refused(tmp_path: Path, base: int) -> None:
    row(tmp_path, 0, 100, base)
    with pytest.raises(DamagedStore, match="set someSize to what the store was made with"):
        row(tmp_path).load()
    assert len(list(tmp_path.iterdir())) == 3


def test_what_is_no_file_of_the_row_is_passed_over(tmp_path: Path) -> None:
    row(tmp_path, 0, 100)
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "00000000000000000200").mkdir()  # a folder with a number is no file either
    for name in (".DS_Store", "notes.txt", "\u0661\u0662"):  # digits, but not ours
        (tmp_path / name).write_text("x")
    segments = row(tmp_path)
    segments.load()
    assert [segment.base for segment in segments.items] == [0, 100]
    assert {path.name for path in segments.strays} == {
        "lost+found", "00000000000000000200", ".DS_Store", "notes.txt", "\u0661\u0662",
    }  # fmt: skip
    segments.delete()
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in segments.strays}


def test_an_empty_file_at_the_end_goes_also_before_a_stray_one(tmp_path: Path) -> None:
    row(tmp_path, 0)
    (tmp_path / f"{100:020d}").touch()  # a crash between making it and giving it its size
    (tmp_path / "zzz").touch()
    segments = row(tmp_path)
    segments.load()
    assert [segment.base for segment in segments.items] == [0]
    assert {path.name for path in tmp_path.iterdir()} == {f"{0:020d}", "zzz"}


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

    monkeypatch.setattr("aerobee.store.files.disk.current.open", denied)
    with pytest.raises(NotWritable, match="choose another folder with storePathRootDir"):
        row(tmp_path, 0)
