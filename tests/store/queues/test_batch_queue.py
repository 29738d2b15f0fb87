"""Batch queues: entries that cover several messages."""

from pathlib import Path

import pytest
from aerobee.store.queues.batch_queue import NOT_COMPACTED, UNIT, BatchQueue

NUMBERS = [1, 4, 2, 1, 3, 5]  # messages in each record
ENDS = [1, 5, 7, 8, 11, 16]


def opened(folder: Path) -> BatchQueue:
    queue = BatchQueue(folder, "T", 0, 46 * 4)
    queue.load(is_clean=False)
    return queue


@pytest.fixture
def queue(tmp_path: Path) -> BatchQueue:
    made = opened(tmp_path)
    for number, count in enumerate(NUMBERS):
        made.append(number * 100, 100, 9, 1_000 + number, ENDS[number] - count, count)
    return made


def test_a_unit_is_46_bytes(queue: BatchQueue) -> None:
    data = queue.segments.items[0].view[:]
    assert len(data) == 184
    assert UNIT.unpack_from(data, 46) == (100, 100, 9, 1_001, 1, 4, NOT_COMPACTED, 0)


def test_units_come_back_after_a_restart(queue: BatchQueue, tmp_path: Path) -> None:
    again = opened(tmp_path)
    assert (again.min_offset, again.next, again.log_end) == (0, 16, 600)
    assert [unit.number for unit in again.units(0, 99, 600)] == NUMBERS


@pytest.mark.parametrize(("offset", "base"), [(0, 0), (1, 1), (4, 1), (5, 5), (7, 7), (15, 11)])
def test_the_unit_that_holds_a_message_is_found(queue: BatchQueue, offset: int, base: int) -> None:
    assert queue.units(offset, 1, 600)[0].base == base


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize(
    ("field", "value"), [(0, -1), (0, 1 << 40), (1, -5), (4, 1 << 40), (4, -1), (5, -1)]
)
def test_a_damaged_unit_is_left_out_and_none_behind_it(
    queue: BatchQueue, number: int, field: int, value: int
) -> None:
    segment = queue.segments.items[number * 46 // 184]
    numbers = list(UNIT.unpack_from(segment.view, number * 46 % 184))
    numbers[field] = value
    UNIT.pack_into(segment.view, number * 46 % 184, *numbers)
    bases = [0, 1, 5, 7, 8, 11]
    sound = [each for at, each in enumerate(zip(bases, ENDS, strict=True)) if at != number]
    assert queue.readable_end(600) == 16
    for offset in range(16):
        found = [unit.base for unit in queue.units(offset, 99, 600)]
        assert found == [base for base, end in sound if end > offset], offset


def test_beyond_the_last_message_there_is_no_unit(queue: BatchQueue) -> None:
    assert queue.units(16, 1, 600) == []
    assert [unit.base for unit in queue.units(0, 99, 250)] == [0, 1]


@pytest.mark.parametrize(("log_end", "left"), [(600, 16), (599, 11), (400, 8), (50, 0)])
def test_units_of_records_behind_the_end_of_the_log_go(
    queue: BatchQueue, tmp_path: Path, log_end: int, left: int
) -> None:
    assert queue.readable_end(log_end) == left
    queue.cut_at_log(log_end)
    assert queue.next == left
    assert opened(tmp_path).next == left


def test_the_least_offset_follows_the_start_of_the_log(queue: BatchQueue) -> None:
    queue.correct_min(250)
    assert queue.min_offset == 7
    queue.correct_min(9_999)
    assert queue.min_offset == 16


def test_the_first_file_goes_once_the_log_begins_behind_its_last_record(tmp_path: Path) -> None:
    queue = BatchQueue(tmp_path, "T", 0, 2 * UNIT.size)
    for number in range(5):
        queue.append(number * 100, 100, 0, 1, number * 3, 3)
    assert not queue.can_spare_first_file  # the numbers of the others are not on the disk yet
    queue.synced = queue.next
    assert queue.can_spare_first_file
    assert queue.first_file_before(100) is None
    found = queue.first_file_before(101)
    assert found is not None
    assert found.base == 0
    del queue.segments.items[:2]
    assert queue.first_file_before(1 << 40) is None
    queue.correct_min(400)
    assert (queue.min_offset, queue.next) == (12, 15)


def test_the_record_of_a_moment_is_found_as_java_finds_it(tmp_path: Path) -> None:
    queue = BatchQueue(tmp_path, "T", 0, 4 * UNIT.size)
    assert queue.offset_at(5, upper=False) == queue.offset_at(5, upper=True) == 0
    times = [10, 20, 20, 20, 30, 40]
    for number, stored in enumerate(times):
        queue.append(number * 100, 100, 0, stored, number * 3, 3)
    expected = {
        5: (0, 0), 10: (0, 0), 15: (3, 3), 20: (3, 9), 25: (12, 12), 40: (15, 15), 99: (15, 15),
    }  # fmt: skip
    for moment, offsets in expected.items():
        found = queue.offset_at(moment, upper=False), queue.offset_at(moment, upper=True)
        assert found == offsets, moment
