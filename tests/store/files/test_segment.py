"""Files of a fixed size: room before bytes, and errors one can read."""

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from aerobee.store.base.errors import DiskFull, StoreError
from aerobee.store.files import disk
from aerobee.store.files.segment import Segment, make_folder


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Segment]:
    segment = Segment.create(tmp_path / "0", 0, 8192, reserve=8192, writable=True)
    yield segment
    segment.release()


def test_a_new_file_has_its_size_and_room_on_the_disk_at_once(made: Segment) -> None:
    found = made.path.stat()
    assert found.st_size == 8192
    assert found.st_blocks * 512 >= 8192
    assert made.view[:] == bytes(8192)


def test_only_the_room_asked_for_is_taken(tmp_path: Path) -> None:
    size = 64 << 20
    segment = Segment.create(tmp_path / "0", 0, size, reserve=4096, writable=True)
    assert segment.path.stat().st_blocks * 512 < size // 2
    segment.reserve(4096, 1 << 20)
    assert segment.path.stat().st_blocks * 512 >= 1 << 20
    assert segment.path.stat().st_size == size


def test_what_is_written_is_seen_through_the_mapping(made: Segment) -> None:
    before = made.memory[10:14]
    made.write(10, b"here")
    assert bytes(before) == b"here"
    made.view[20:25] = b"there"
    assert os.pread(made.fd, 5, 20) == b"there"


def test_a_short_write_goes_on_until_all_is_written(
    made: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite
    monkeypatch.setattr(disk.current, "pwrite", lambda fd, data, at: real(fd, bytes(data)[:3], at))
    made.write(5, b"a longer text")
    assert made.view[5:18] == b"a longer text"


def test_zeroing_wipes_to_the_end_and_says_whether_there_was_anything(made: Segment) -> None:
    made.write(0, b"kept")
    assert made.zero(4) is False
    made.write(4, b"old")
    made.write(8000, b"garbage")
    assert made.zero(4) is True
    assert made.view[:] == b"kept".ljust(8192, b"\0")
    assert made.zero(8192) is False


def test_zeroing_passes_over_holes(tmp_path: Path) -> None:
    segment = Segment.create(tmp_path / "0", 0, 1 << 40, reserve=4096, writable=False)
    segment.write(100, b"x")
    assert segment.zero(50) is True
    assert segment.zero(50) is False
    segment.release()


def test_zeroing_reads_no_room_that_was_reserved_and_never_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 64 << 20
    segment = Segment.create(tmp_path / "0", 0, size, reserve=size, writable=False)
    segment.write(0, b"x" * (3 << 20))
    segment.sync()
    not_holes = sum(end - start for start, end in disk.current.data(segment.fd, 0, size))
    real, read = os.pread, list[int]()

    def pread(fd: int, wanted: int, at: int) -> bytes:
        read.append(wanted)
        return real(fd, wanted, at)

    monkeypatch.setattr(disk.current, "pread", pread)
    assert segment.zero(1 << 20) is True
    assert sum(read) == not_holes - (1 << 20)
    segment.release()


def test_views_stay_good_when_the_file_is_deleted(made: Segment) -> None:
    made.write(0, b"still read")
    view = made.memory[:10]
    made.delete()
    assert not made.path.exists()
    assert bytes(view) == b"still read"
    made.delete()


def test_memory_given_back_comes_again(made: Segment) -> None:
    made.write(0, b"text")
    view = made.memory[:4]
    made.forget()
    assert bytes(view) == b"text"


def test_a_full_disk_is_an_error_that_names_the_file_and_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, at: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(disk.current, "allocate", full)
    path = tmp_path / "00000000000000000000"
    with pytest.raises(DiskFull, match=r"reserve 4096 bytes for .*0000.*free some space"):
        Segment.create(path, 0, 4096, reserve=4096, writable=True)
    assert not path.exists()


def test_a_limit_of_the_system_on_file_sizes_is_an_error_too(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(DiskFull, match="File too large"):
            Segment.create(tmp_path / "0", 0, 2 << 20, reserve=2 << 20, writable=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_a_folder_belongs_is_named(tmp_path: Path) -> None:
    (tmp_path / "commitlog").write_text("")
    with pytest.raises(StoreError, match="is a file, a folder is needed"):
        make_folder(tmp_path / "commitlog")


def test_a_sync_of_a_deleted_file_is_nothing(made: Segment) -> None:
    made.sync()
    made.release()
    made.path.unlink()
    made.sync()


def test_a_retired_file_has_no_name_but_stays_for_those_who_read_it(tmp_path: Path) -> None:
    segment = Segment.create(tmp_path / "0", 0, 8192, reserve=8192, writable=True)
    segment.write(0, b"still read")
    view = segment.memory[:10]
    held = segment.retire()
    assert held is not None
    assert not segment.path.exists()
    assert segment.status is None
    assert bytes(view) == b"still read"
    assert held() is not None
    del view
    assert held() is None
    segment.release()


def test_a_file_that_can_not_be_retired_stays_as_it_was(
    made: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.write(0, b"kept")
    kept = made.memory[:4]

    def broken(path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(disk.current, "unlink", broken)
        with pytest.raises(StoreError, match=r"can't delete .*/0: Input/output error"):
            made.retire()
    assert bytes(made.memory[:4]) == bytes(kept) == b"kept"
    assert made.status is not None
    made.path.unlink()
    assert made.retire() is not None  # gone already: nothing more to do
    assert made.retire() is None
