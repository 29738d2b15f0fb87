"""Units of the timer log: Java's bytes, positions that stay, files that follow each other."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aerobee.store.base.errors import StoreError
from aerobee.store.timer.timer_log import (
    BLANK,
    IS_RECALL,
    IS_TIMER,
    NO_UNIT,
    UNIT_BYTES,
    TimerLog,
    Unit,
)

from ..conftest import Unpack

JAVA_FILE_BYTES = 3_328  # of the golden store: mappedFileSizeTimerLog
JAVA_UNITS = 8
LOG_END = 1 << 40


def opened(folder: Path, file_bytes: int = 1_000) -> TimerLog:
    log = TimerLog(folder, file_bytes)
    log.load()
    return log


def reopened(folder: Path, file_bytes: int = 1_000, log_end: int = LOG_END) -> TimerLog:
    """The log as a start after a crash finds it."""
    log = opened(folder, file_bytes)
    found = units_of(log, log_end)
    log.cut(max(found) + UNIT_BYTES if found else log.end)
    return log


def units_of(log: TimerLog, log_end: int = LOG_END) -> dict[int, Unit]:
    """Every unit of a walk by its position."""
    found = {}
    for position, units in log.walk(log_end):
        for number, unit in enumerate(units.tolist()):
            found[position + number * UNIT_BYTES] = Unit(*unit)
    return found


def add(log: TimerLog, number: int, **more: Any) -> int:
    values: dict[str, Any] = {
        "previous": NO_UNIT,
        "magic": IS_TIMER,
        "written_ms": 1_000,
        "slot_ms": 5_000,
        "log_offset": number,
        "record_bytes": 100,
        "topic_hash": 7,
    }
    if not log.has_room:
        log.write()
        log.roll()
    return log.append(**(values | more))


def test_units_are_javas_byte_for_byte(tmp_path: Path, unpack: Unpack) -> None:
    root, _ = unpack("broker")
    java = reopened(root / "timerlog", JAVA_FILE_BYTES)
    ours = opened(tmp_path / "ours", JAVA_FILE_BYTES)
    units = list(units_of(java).values())
    ours.roll()
    for unit in units:
        ours.append(
            unit.previous, unit.magic, unit.written_ms, unit.slot_ms, unit.log_offset,
            unit.record_bytes, unit.topic_hash,
        )  # fmt: skip
    ours.write()
    name = f"{0:020d}"
    assert len(units) == JAVA_UNITS
    assert (tmp_path / "ours" / name).read_bytes() == (root / "timerlog" / name).read_bytes()


@pytest.mark.parametrize(
    "slots", [[5], [5, 5, 5], [5, 6, 7, 8], [9, 5, 9, 9, 6, 5, 9], [8, 7, 6, 8]]
)
def test_units_of_a_run_are_what_they_are_one_by_one(tmp_path: Path, slots: list[int]) -> None:
    single, run = opened(tmp_path / "single", 2_000), opened(tmp_path / "run", 2_000)
    lasts = {9_000: 520, 6_000: 52}
    ends: dict[int, tuple[int, int, int]] = {}
    for log in (single, run):
        log.roll()
        add(log, 77)
    for number, slot in enumerate(slots):
        slot_ms = slot * 1_000
        first, last, count = ends.get(slot_ms, (NO_UNIT, lasts.get(slot_ms, NO_UNIT), 0))
        position = add(single, number, previous=last, slot_ms=slot_ms, topic_hash=-number)
        ends[slot_ms] = (position if first == NO_UNIT else first, position, count + 1)
    times = np.array(slots) * 1_000
    numbers = np.arange(len(slots))
    found = run.append_all(
        1_000, times, numbers, np.full(len(slots), 100), (-numbers).tolist(),
        lambda asked: [lasts.get(slot_ms, NO_UNIT) for slot_ms in asked],
    )  # fmt: skip
    assert {slot_ms: tuple(rest) for slot_ms, *rest in found} == ends
    assert single.end == run.end
    for log in (single, run):
        log.write()
    name = f"{0:020d}"
    assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "single" / name).read_bytes()


def test_a_unit_is_found_at_its_position_and_only_there(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    positions = [add(log, number, magic=IS_RECALL) for number in range(3)]
    assert log.unit(positions[0]) is None, "not written yet"
    log.write()
    assert positions == [0, 52, 104]
    second = log.unit(52)
    assert second is not None
    assert (second.log_offset, second.magic, second.slot_ms) == (1, IS_RECALL, 5_000)
    assert log.unit(60) is None
    assert log.unit(156) is None
    assert log.unit(-1) is None


def test_units_of_a_slot_are_found_in_runs_as_far_as_they_lie_side_by_side(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    of_slot: list[int] = []
    for number in range(12):  # the file ends with the 11th
        is_other = number == 4
        previous = of_slot[-1] if of_slot and not is_other else NO_UNIT
        log.write()
        position = add(log, number, previous=previous)
        if not is_other:
            of_slot.append(position)
    log.write()
    runs, position = [], of_slot[-1]
    while position != NO_UNIT:
        run = log.run_to(position, 3)
        assert run is not None
        assert len(run.lengths) == len(run.written_ms) == len(run.magics) == len(run.places)
        runs.append(run.places)
        position = run.previous
    assert [number for run in runs for number in run] == [11, 10, 9, 8, 7, 6, 5, 3, 2, 1, 0]
    assert max(len(run) for run in runs) == 3
    assert log.run_to(of_slot[-1] + UNIT_BYTES, 3) is None


def test_a_full_file_ends_with_a_blank_and_the_next_begins_where_it_ends(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    positions = [add(log, number) for number in range(40)]
    log.write()
    # 18 units leave 64 bytes of 1000: too few for a unit and a blank.
    assert positions[17:20] == [17 * 52, 1_000, 1_052]
    first = (tmp_path / "log" / f"{0:020d}").read_bytes()
    assert first[18 * 52 : 18 * 52 + 16] == BLANK.pack(64, 0, 0xCBD43194)
    again = reopened(tmp_path / "log")
    assert list(units_of(again)) == positions
    assert again.end == log.end


def test_a_torn_tail_is_cut_off_and_stays_away(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    for number in range(5):
        add(log, number)
    log.write()
    path = tmp_path / "log" / f"{0:020d}"
    for torn in range(3 * 52 + 1, 5 * 52):
        whole = path.read_bytes()
        path.write_bytes(whole[:torn].ljust(1_000, b"\0"))
        again = reopened(tmp_path / "log")
        # The reserved number at the end of a unit is 0: without it the unit is whole as well.
        assert again.end in (torn // 52 * 52, -(-torn // 52) * 52)
        assert not any(path.read_bytes()[again.end :])
        again.release()
        path.write_bytes(whole)


def test_a_unit_of_a_message_that_the_commit_log_lost_ends_the_walk(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    for number in (0, 100, 200, 50):
        add(log, number)
    log.write()
    again = reopened(tmp_path / "log", log_end=200)
    assert [unit.log_offset for unit in units_of(again).values()] == [0, 100]
    position = add(again, 150)
    again.write()
    assert position == 104
    assert [unit.log_offset for unit in units_of(again).values()] == [0, 100, 150]


def test_files_leave_with_the_commit_log_but_for_the_last(tmp_path: Path) -> None:
    log = opened(tmp_path / "log")
    for number in range(60):
        add(log, number)
    log.write()
    names = [segment.path.name for segment in log.segments.items]
    log.drop_before(17)
    assert [segment.path.name for segment in log.segments.items] == names
    log.drop_before(18)
    assert [segment.path.name for segment in log.segments.items] == names[1:]
    log.drop_before(1_000)
    assert [segment.path.name for segment in log.segments.items] == names[-1:]
    assert log.unit(0) is None
    assert log.unit(3_000) is not None
    again = reopened(tmp_path / "log")
    assert again.end == log.end
    assert again.holds(log.end)
    assert not again.holds(log.segments.last.end + 1)


def test_a_write_that_fails_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path / "log")
    add(log, 0)
    log.write()

    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    add(log, 1)
    with monkeypatch.context() as patched:
        patched.setattr(log.segments.last.__class__, "write", fails)
        with pytest.raises(StoreError, match="can't write"):
            log.write()
    assert log.end == 52
    assert add(log, 2) == 52
    log.write()
    assert [unit.log_offset for unit in units_of(log).values()] == [0, 2]
