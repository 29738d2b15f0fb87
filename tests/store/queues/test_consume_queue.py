"""Consume queues: entries in their places, across files, restarts, crashes."""

import struct
from pathlib import Path

import pytest
from aerobee.store.base.errors import DiskFull
from aerobee.store.queues.consume_queue import FILLER, ConsumeQueue

FILE_ENTRIES = 16


def opened(folder: Path, *, is_clean: bool = True) -> ConsumeQueue:
    queue = ConsumeQueue(folder, "T", 0, FILE_ENTRIES * 20)
    queue.load(is_clean=is_clean)
    return queue


def filled(folder: Path, count: int) -> ConsumeQueue:
    queue = opened(folder)
    for number in range(count):
        assert queue.append(number * 100, 100, number % 3) == number
    return queue


def expected(start: int, end: int) -> list[tuple[int, int, int]]:
    return [(number * 100, 100, number % 3) for number in range(start, end)]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 32, 50, 100])
def test_entries_come_back_after_a_restart(tmp_path: Path, count: int, is_clean: bool) -> None:
    filled(tmp_path, count).release()
    again = opened(tmp_path, is_clean=is_clean)
    assert (again.next, again.min_offset) == (count, 0)
    assert again.entries(0, 1000, count) == expected(0, count)
    assert again.append(count * 100, 100, count % 3) == count
    assert again.entries(0, 1000, count + 1) == expected(0, count + 1)


def test_an_entry_is_twenty_bytes_at_its_offset(tmp_path: Path) -> None:
    queue = filled(tmp_path, 20)
    queue.append(1 << 40, 77, -5)
    data = b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))
    assert struct.unpack_from(">qiq", data, 400) == (1 << 40, 77, -5)
    assert len(data) == 2 * FILE_ENTRIES * 20
    assert data[420:] == bytes(220)


def test_a_part_is_read_within_its_bounds(tmp_path: Path) -> None:
    queue = filled(tmp_path, 40)
    assert queue.entries(10, 20, 40) == expected(10, 30)
    assert queue.entries(30, 20, 35) == expected(30, 35)
    assert queue.entries(40, 20, 40) == []


def test_after_a_crash_the_queue_ends_at_the_first_bad_entry(tmp_path: Path) -> None:
    queue = filled(tmp_path, 40)
    segment = queue.segments.items[2]
    struct.pack_into(">qiq", segment.view, 3 * 20, 5, 0, 5)
    again = opened(tmp_path, is_clean=False)
    assert again.next == 35
    assert again.segments.last.view[3 * 20 :] == bytes((FILE_ENTRIES - 3) * 20)


def test_cutting_leaves_zeros_and_no_further_files(tmp_path: Path) -> None:
    queue = filled(tmp_path, 40)
    queue.cut(17)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{0:020d}", f"{320:020d}"]
    assert queue.append(1700, 100, 2) == 17
    assert queue.entries(0, 100, 18) == expected(0, 18)
    assert (tmp_path / f"{320:020d}").read_bytes()[40:] == bytes(280)


@pytest.mark.parametrize(("log_end", "left"), [(4000, 40), (3999, 39), (1700, 17), (1, 0)])
def test_entries_of_messages_behind_the_end_of_the_log_go(
    tmp_path: Path, log_end: int, left: int
) -> None:
    queue = filled(tmp_path, 40)
    assert queue.readable_end(log_end) == left
    queue.cut_at_log(log_end)
    assert queue.next == left
    assert queue.log_end == left * 100


@pytest.mark.parametrize(
    ("log_start", "least"), [(0, 0), (100, 1), (101, 2), (3900, 39), (9999, 40)]
)
def test_the_least_offset_follows_the_start_of_the_log(
    tmp_path: Path, log_start: int, least: int
) -> None:
    queue = filled(tmp_path, 40)
    queue.correct_min(log_start)
    assert queue.min_offset == least
    assert queue.next == 40


@pytest.mark.parametrize("start", [5, 16, 17, 100])
def test_a_queue_that_begins_late_has_fillers_before(tmp_path: Path, start: int) -> None:
    queue = opened(tmp_path)
    queue.begin_at(start)
    queue.append(7000, 70, 1)
    assert (queue.min_offset, queue.next) == (start, start + 1)
    base = start - start % FILE_ENTRIES
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{base * 20:020d}"]
    assert queue.entries(base, 99, start + 1) == [FILLER] * (start - base) + [(7000, 70, 1)]
    queue.release()
    again = opened(tmp_path, is_clean=False)
    again.correct_min(0)
    assert (again.min_offset, again.next) == (start, start + 1)


def test_a_released_queue_goes_on(tmp_path: Path) -> None:
    queue = filled(tmp_path, 5)
    queue.release()
    assert queue.entry(4) == (400, 100, 1)
    queue.append(500, 100, 2)
    assert queue.entries(0, 9, 6) == expected(0, 6)


@pytest.mark.parametrize("log_start", [0, 1, 250, 300, 450, 10_000])
def test_fillers_inside_a_queue_hide_nothing(tmp_path: Path, log_start: int) -> None:
    queue = ConsumeQueue(tmp_path, "T", 0, 320)
    queue.begin_at(3)
    for place in range(0, 500, 100):
        queue.append(place, 100, 0)
    queue.fill(200)  # a file of the log was lost
    queue.append(1_000, 100, 0)
    queue.correct_min(log_start)
    expected = [3 + place // 100 for place in range(0, 500, 100) if place >= log_start]
    expected += [200] if log_start <= 1_000 else []
    assert queue.min_offset == (expected or [201])[0]


def test_a_full_disk_refuses_the_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = filled(tmp_path, FILE_ENTRIES)

    def full(fd: int, at: int, size: int) -> None:
        raise OSError(28, "full")

    with monkeypatch.context() as patched:
        patched.setattr("aerobee.store.files.disk.current.allocate", full)
        with pytest.raises(DiskFull):
            queue.append(1600, 100, 1)
    assert queue.next == FILE_ENTRIES
    assert queue.append(1600, 100, 1) == FILE_ENTRIES
    assert queue.entries(0, 99, queue.next) == expected(0, 17)


def test_only_unsynced_files_are_named(tmp_path: Path) -> None:
    queue = filled(tmp_path, 40)
    assert len(queue.unsynced()) == 3
    queue.synced = 33
    assert [segment.base for segment in queue.unsynced()] == [640]
    queue.synced = 40
    queue.cut(10)
    assert [segment.base for segment in queue.unsynced()] == [0]
