"""The commit log: places, file ends, and what a failing disk leaves."""

import os
import struct
from pathlib import Path
from typing import Any

import pytest
from aerobee.protocol.message.record import MAGIC_BLANK, Record, encode_record
from aerobee.store.base.errors import DiskFull, MessageTooLarge, StoreError, WritesRefused
from aerobee.store.files import disk
from aerobee.store.log import commit_log
from aerobee.store.log.commit_log import CommitLog

FILE_BYTES = 4096


def opened(folder: Path) -> CommitLog:
    log = CommitLog(folder, FILE_BYTES)
    log.set_end(0)
    return log


def append(log: CommitLog, size: int) -> int:
    """A record of `size` bytes; returns its place."""
    if log.end + size > log.room_end:
        log.roll(size)
    record = Record(
        0, 0, 0, 0, 0, 0, log.end, 0, 0, bytes(8), 0, bytes(8), 0, 0, bytes(size - 92), "T", b""
    )
    data = encode_record(record)
    assert len(data) == size
    place = log.end
    log.staged.append(data)
    log.end += size
    return place


def test_records_are_in_the_file_only_once_they_are_written(tmp_path: Path) -> None:
    log = opened(tmp_path)
    first, second = append(log, 100), append(log, 200)
    assert (first, second, log.end, log.written) == (0, 100, 300, 0)
    assert log.record(0) is None
    log.write_staged()
    assert log.written == 300
    assert len(log.record(0) or b"") == 100
    assert len(log.record(100) or b"") == 200
    assert log.record(100, 299) is None
    assert log.record(50) is None
    assert log.record(300) is None


def test_a_record_that_leaves_eight_bytes_fits_and_one_more_byte_does_not(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, FILE_BYTES - 8)
    assert append(log, 100) == FILE_BYTES
    append(log, FILE_BYTES - 100 - 7)
    log.write_staged()
    blanks = []
    for path in sorted(tmp_path.iterdir())[:2]:
        data = path.read_bytes()
        blanks.append([at for at in range(FILE_BYTES - 7) if data[at + 4 : at + 8] == BLANK])
    assert blanks == [[FILE_BYTES - 8], [100]]
    data = sorted(tmp_path.iterdir())[1].read_bytes()
    assert struct.unpack_from(">iI", data, 100) == (FILE_BYTES - 100, MAGIC_BLANK)


BLANK = MAGIC_BLANK.to_bytes(4, "big")


def test_what_fits_no_file_is_refused_with_the_limit(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, FILE_BYTES - 8)
    with pytest.raises(MessageTooLarge, match=f"{FILE_BYTES - 7} bytes don't fit .*{FILE_BYTES}"):
        append(log, FILE_BYTES - 7)
    assert len(log.segments.items) == 1


def test_no_room_for_another_file_takes_nothing_and_goes_on_when_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path)
    append(log, 3000)

    def full(fd: int, at: int, size: int) -> None:
        raise OSError(28, "full")

    with monkeypatch.context() as patched:
        patched.setattr("aerobee.store.files.disk.current.allocate", full)
        with pytest.raises(DiskFull):
            append(log, 2000)
        assert append(log, 500) == 3000
    assert append(log, 2000) == FILE_BYTES
    log.write_staged()
    assert len(log.record(3000) or b"") == 500


def test_a_failed_write_keeps_nothing_and_takes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path)
    append(log, 100)
    log.write_staged()
    append(log, 200)

    def broken(fd: int, data: bytes, at: int) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr("aerobee.store.files.disk.current.pwrite", broken)
        with pytest.raises(StoreError, match="did not take a write"):
            log.write_staged()
    assert (log.end, log.written, log.staged) == (100, 100, [])
    with pytest.raises(WritesRefused, match="Input/output error"):
        append(log, 100)
    log.resume("index")
    with pytest.raises(WritesRefused):
        append(log, 100)


def test_a_pause_ends(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, 100)
    log.pause("index", "the index can't follow")
    with pytest.raises(WritesRefused, match="index"):
        append(log, 100)
    log.resume("index")
    assert append(log, 100) == 100


def test_a_pause_ends_only_when_each_of_its_causes_is_over(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, 100)
    log.pause("index", "the index can't follow")
    log.pause("disk", "the disk is full")
    log.resume("index")
    log.resume("index")
    with pytest.raises(WritesRefused, match="the disk is full"):
        append(log, 100)
    log.resume("disk")
    assert append(log, 100) == 100


def test_the_log_goes_on_in_the_file_it_ended_in(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, 3000)
    append(log, 3000)
    log.write_staged()
    again = CommitLog(tmp_path, FILE_BYTES)
    again.segments.load()
    again.set_end(FILE_BYTES + 3000)
    assert append(again, 1000) == FILE_BYTES + 3000
    assert len(again.segments.items) == 2


def test_zeros_are_written_ahead_of_records_and_never_over_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[int, bytes]] = []

    class Spy(disk.Disk):
        def pwrite(self, fd: int, data: Any, at: int) -> int:
            written.append((at, bytes(data)))
            return os.pwrite(fd, data, at)

    monkeypatch.setattr(disk, "current", Spy())
    monkeypatch.setattr(commit_log, "ZEROS_BYTES", 1_000)
    log = CommitLog(tmp_path, FILE_BYTES, zeros_ahead=True)
    log.set_end(0)
    places = []
    for size in (300, 500, 400, 2_800, 200):
        places.append(append(log, size))
        log.write_staged()
    zeros = [(at, len(data)) for at, data in written if not any(data)]
    assert zeros == [(0, 1_300), (1_300, 1_796 + 1_000), (0, 1_200)]
    for place, size in zip(places, (300, 500, 400, 2_800, 200), strict=True):
        assert len(log.record(place) or b"") == size
