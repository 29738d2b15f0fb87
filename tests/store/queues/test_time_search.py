"""Offsets by time over several queue files, and where messages are gone."""

from pathlib import Path

import pytest
from aerobee.store.queues.consume_queue import ConsumeQueue
from aerobee.store.queues.time_search import offset_at

COUNT = 40
TIMES = [1_000 + 10 * (number // 2) for number in range(COUNT)]  # two of each


@pytest.fixture
def queue(tmp_path: Path) -> ConsumeQueue:
    made = ConsumeQueue(tmp_path, "T", 0, 16 * 20)
    for number in range(COUNT):
        made.append(number * 100, 100, 0)
    return made


def store_ms(place: int) -> int:
    return TIMES[place // 100]


def test_the_first_at_or_after_and_the_last_at_or_before(queue: ConsumeQueue) -> None:
    for moment in range(995, 1_205):
        lower = next((number for number in range(COUNT) if TIMES[number] >= moment), COUNT)
        upper = max((number for number in range(COUNT) if TIMES[number] <= moment), default=0)
        assert offset_at(queue, COUNT, moment, False, 0, store_ms) == lower, moment
        assert offset_at(queue, COUNT, moment, True, 0, store_ms) == upper, moment


def test_a_queue_without_entries_has_none(tmp_path: Path) -> None:
    empty = ConsumeQueue(tmp_path, "T", 0, 320)
    assert offset_at(empty, 0, 5, False, 0, store_ms) == 0


def test_messages_before_the_start_of_the_log_are_not_looked_for(queue: ConsumeQueue) -> None:
    gone = 17

    def partly(place: int) -> int:
        return 0 if place < gone * 100 else store_ms(place)

    queue.correct_min(gone * 100)
    assert offset_at(queue, COUNT, 0, False, gone * 100, partly) <= gone
    assert offset_at(queue, COUNT, TIMES[30], False, gone * 100, partly) == 30


def test_only_what_is_readable_counts(queue: ConsumeQueue) -> None:
    assert offset_at(queue, 20, 5_000, False, 0, store_ms) == 20
    assert offset_at(queue, 20, 5_000, True, 0, store_ms) == 19


@pytest.mark.parametrize("upper", [False, True])
def test_a_queue_of_many_files_takes_few_looks(tmp_path: Path, upper: bool) -> None:
    count = 16 * 256
    queue = ConsumeQueue(tmp_path, "T", 0, 16 * 20)
    for number in range(count):
        queue.append(number * 100, 100, 0)
    looks = 0

    def stored(place: int) -> int:
        nonlocal looks
        looks += 1
        return place // 10

    for number in range(0, count, 97):
        assert offset_at(queue, count, number * 10, upper, 0, stored) == number
    assert looks / len(range(0, count, 97)) < 18
