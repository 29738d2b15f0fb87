"""Slots of the timer wheel: Java's bytes, rounds told apart, the next slot found."""

from pathlib import Path

import numpy as np
import pytest
from aerobee.store.base.errors import DamagedStore
from aerobee.store.files import disk
from aerobee.store.timer.timer_log import IS_RECALL, IS_TIMER, NO_UNIT, UNIT_TYPE
from aerobee.store.timer.timer_wheel import EMPTY, FILE_BYTES, SLOTS, Slot, TimerWheel

from ..conftest import Unpack
from .test_timer_log import JAVA_FILE_BYTES, opened

NOW_MS = 1_700_000_000_000
ROUND_MS = SLOTS * 1_000


@pytest.fixture
def wheel(tmp_path: Path) -> TimerWheel:
    wheel = TimerWheel(tmp_path / "timerwheel", 1_000)
    wheel.load()
    return wheel


def test_a_wheel_made_from_the_timer_log_is_javas_byte_for_byte(
    wheel: TimerWheel, unpack: Unpack
) -> None:
    root, _ = unpack("broker")
    log = opened(root / "timerlog", JAVA_FILE_BYTES)
    for position, units in log.walk(1 << 40):
        wheel.add(position + np.arange(len(units)) * 52, units)
    assert wheel.path.read_bytes() == (root / "timerwheel").read_bytes()


def test_a_wheel_of_java_is_read(unpack: Unpack) -> None:
    root, _ = unpack("broker")
    wheel = TimerWheel(root / "timerwheel", 1_000)
    wheel.load()
    assert wheel.get(1_795_227_232_000) == Slot(260, 364, 2)
    assert wheel.get(1_795_227_232_000 + ROUND_MS) == EMPTY
    assert wheel.next_used(1_795_227_233_000, 1_795_230_822_000) == 1_795_227_281_000


def test_a_new_wheel_has_its_full_length_and_takes_no_room(wheel: TimerWheel) -> None:
    found = wheel.path.stat()
    assert found.st_size == FILE_BYTES == 38_707_200
    wheel.put(NOW_MS, Slot(0, 52, 2))
    assert wheel.path.stat().st_blocks * 512 < 1 << 20
    assert wheel.get(NOW_MS) == Slot(0, 52, 2)


def test_no_hole_is_read_through_a_mapping(
    wheel: TimerWheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a full tmpfs that ends the process with SIGBUS.
    monkeypatch.delattr(disk.Disk, "map")
    times = range(NOW_MS, NOW_MS + 900_000, 90_000)
    wheel.put(times[-1], Slot(0, 52, 2))
    assert wheel.get(NOW_MS) == EMPTY
    assert wheel.next_used(NOW_MS, NOW_MS + ROUND_MS) == times[-1]
    assert wheel.count(NOW_MS, NOW_MS + ROUND_MS) == 2
    assert wheel.get_all(times) == dict.fromkeys(times, EMPTY) | {times[-1]: Slot(0, 52, 2)}
    wheel.put_all(dict.fromkeys(times, Slot(52, 52, 1)))
    assert wheel.count(NOW_MS, NOW_MS + ROUND_MS) == len(times)


def test_the_same_slot_of_another_round_is_empty(wheel: TimerWheel) -> None:
    wheel.put(NOW_MS, Slot(0, 52, 2))
    assert wheel.get(NOW_MS + ROUND_MS) == EMPTY
    wheel.put(NOW_MS + ROUND_MS, Slot(104, 104, 1))
    assert wheel.get(NOW_MS) == EMPTY
    wheel.clear(NOW_MS + ROUND_MS)
    assert wheel.get(NOW_MS + ROUND_MS) == EMPTY


@pytest.mark.parametrize(
    "ticks",
    [
        [3],
        [3, 4, 5, 6, 7],
        [9, 4, 41, 40, 7, 8, 200, 1_000, 1_030],
        [SLOTS - 2, SLOTS - 1, SLOTS, SLOTS + 3, SLOTS + 90],
    ],
)
def test_slots_are_set_and_read_together_as_one_by_one(
    wheel: TimerWheel, tmp_path: Path, ticks: list[int]
) -> None:
    other = TimerWheel(tmp_path / "other", 1_000)
    other.load()
    # What lies between them stays, and so does what is of another round.
    base = NOW_MS // ROUND_MS * ROUND_MS
    before = {base + tick * 1_000: Slot(tick, tick, 1) for tick in range(2, 300, 6)}
    slots = {base + tick * 1_000: Slot(52 * tick, 104 * tick, tick) for tick in ticks}
    for each in (wheel, other):
        for slot_ms, slot in before.items():
            each.put(slot_ms, slot)
    for slot_ms, slot in slots.items():
        other.put(slot_ms, slot)
    wheel.put_all(slots)
    assert wheel.path.read_bytes() == other.path.read_bytes()
    asked = [*slots, *before, *(slot_ms + ROUND_MS for slot_ms in slots), NOW_MS]
    assert wheel.get_all(asked) == {slot_ms: wheel.get(slot_ms) for slot_ms in asked}
    assert wheel.get_all(asked[:2]) == {slot_ms: wheel.get(slot_ms) for slot_ms in asked[:2]}
    assert wheel.get_all([]) == {}
    assert all(type(slot.last) is int for slot in wheel.get_all(asked).values())


@pytest.mark.parametrize("ahead", [0, 1, 59, 20_000, 600_000, SLOTS - 2])
def test_the_next_used_slot_is_found_across_the_end_of_the_file(
    wheel: TimerWheel, ahead: int
) -> None:
    wheel.put(NOW_MS + ahead * 1_000, Slot(0, 0, 1))
    wheel.put(NOW_MS - 1_000, Slot(0, 0, 1))
    end = NOW_MS + SLOTS * 1_000
    assert wheel.next_used(NOW_MS, end) == NOW_MS + ahead * 1_000
    assert wheel.next_used(NOW_MS, NOW_MS + ahead * 1_000) is None
    assert wheel.next_used(NOW_MS + (ahead + 1) * 1_000, end) is None


def test_units_of_one_slot_are_counted_and_recalls_taken_off(wheel: TimerWheel) -> None:
    units = np.zeros(5, UNIT_TYPE)
    units["written_ms"] = NOW_MS
    units["delay_ms"] = [3_000, 4_000, 3_000, 3_000, 4_700]
    units["magic"] = [IS_TIMER, IS_TIMER, IS_TIMER, IS_TIMER | IS_RECALL, IS_TIMER]
    assert wheel.add(np.arange(5) * 52, units) == 3
    assert wheel.get(NOW_MS + 3_000) == Slot(0, 156, 1)
    assert wheel.get(NOW_MS + 4_000) == Slot(52, 208, 2)
    more = units[:1].copy()
    wheel.add(np.array([260]), more)
    assert wheel.get(NOW_MS + 3_000) == Slot(0, 260, 2)


def test_finer_ticks_have_more_slots_a_second(tmp_path: Path) -> None:
    wheel = TimerWheel(tmp_path / "timerwheel", 100)
    wheel.load()
    wheel.put(NOW_MS + 100, Slot(0, 0, 1))
    assert wheel.get(NOW_MS) == EMPTY
    assert wheel.next_used(NOW_MS, NOW_MS + 1_000) == NOW_MS + 100
    assert wheel.get(NOW_MS).last == NO_UNIT


def test_a_file_of_another_length_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "timerwheel"
    for size in (1, FILE_BYTES - 1, FILE_BYTES + 1):
        path.write_bytes(b"")
        with path.open("r+b") as file:
            file.truncate(size)
        with pytest.raises(DamagedStore, match="38707200 bytes of a timer wheel; move it away"):
            TimerWheel(path, 1_000).load()


def test_a_file_without_length_is_made_whole(tmp_path: Path) -> None:
    path = tmp_path / "timerwheel"
    path.touch()
    wheel = TimerWheel(path, 1_000)
    wheel.load()
    assert path.stat().st_size == FILE_BYTES
    assert wheel.get(NOW_MS) == EMPTY
