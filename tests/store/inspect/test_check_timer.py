"""`check` looks at the timer's files: silent about clean ones, and each damage is found."""

from collections.abc import Callable
from pathlib import Path

import pytest
from aerobee.store.inspect.check import Report, check
from aerobee.store.inspect.check_timer import TIMER
from aerobee.store.timer.timer_log import UNIT_BYTES
from aerobee.store.timer.timer_wheel import FILE_BYTES, SLOT_BYTES

from ..conftest import Unpack

# Of the Java broker's store: units 0 to 7, of which 1, 2, 3 and 6 wait, in these slots.
WAITING = {1: 184_420, 6: 180_881}
LAST = 16  # in a slot
QUEUE_OFFSET = 16  # in timercheck


@pytest.fixture
def root(unpack: Unpack) -> Path:
    """A store of a Java broker that was stopped while timer messages waited."""
    return unpack("broker")[0]


def timer_damage(report: Report) -> list[tuple[Path, int | None, str]]:
    return [(f.path, f.at, f.text) for f in report.findings if f.part == TIMER and f.is_damage]


def overwrite(path: Path, at: int, number: int, size: int = 8) -> None:
    data = bytearray(path.read_bytes())
    data[at : at + size] = number.to_bytes(size, "big", signed=True)
    path.write_bytes(data)


def timer_log(root: Path) -> Path:
    return root / "timerlog" / "00000000000000000000"


def in_unit(
    number: int, byte: int, value: int, size: int = 8
) -> Callable[[Path], tuple[Path, int]]:
    def plant(root: Path) -> tuple[Path, int]:
        overwrite(timer_log(root), number * UNIT_BYTES + byte, value, size)
        return timer_log(root), number * UNIT_BYTES

    return plant


def in_slot(number: int, byte: int, value: int) -> Callable[[Path], tuple[Path, int]]:
    def plant(root: Path) -> tuple[Path, int]:
        overwrite(root / "timerwheel", number * SLOT_BYTES + byte, value)
        return root / "timerwheel", number * SLOT_BYTES

    return plant


def test_a_java_brokers_timer_is_clean_and_all_of_it_was_looked_at(root: Path) -> None:
    report = check(root)
    assert [found.line for found in report.findings] == []
    part = report.parts[TIMER]
    assert (part.files, part.checked) == (3, 8)


def test_a_store_without_a_timer_has_no_row_for_it(unpack: Unpack) -> None:
    root, _ = unpack("main")
    for path in (root / "timerwheel", root / "config" / "timercheck"):
        assert not path.exists()
    assert TIMER not in check(root).parts


@pytest.mark.parametrize(
    ("plant", "text"),
    [
        (in_unit(2, 0, 53, 4), "at 104 of the timer log is no unit, and others follow"),
        (in_unit(2, 12, 16, 4), "at 104 of the timer log is no unit, and others follow"),
        (in_unit(2, 28, 3_930), "the unit at 104 leads to 3930 of the log, where no message"),
        (in_unit(2, 28, 1 << 40), "where no message of 357 bytes is"),
        (in_unit(2, 36, 358, 4), "where no message of 358 bytes is"),
        (in_unit(2, 4, 104), "says that the one before it in its slot is at 104"),
        (in_unit(2, 4, -2), "says that the one before it in its slot is at -2"),
        (in_slot(WAITING[6], LAST, 260), "names the unit at 260, its newest is at 312"),
        (in_slot(WAITING[6], LAST, -1), "is empty, the log has a unit for it at 312"),
        (in_slot(180_900, LAST - 16, 1_795_227_300), "names the unit at 0; none in the log is"),
    ],
)
def test_a_changed_number_is_found_with_file_and_place(
    root: Path, plant: Callable[[Path], tuple[Path, int]], text: str
) -> None:
    path, at = plant(root)
    found = timer_damage(check(root))
    assert (path, at) in [(where, place) for where, place, _ in found]
    assert any(text in words for _, _, words in found), found


def test_a_time_that_was_changed_contradicts_the_wheel(root: Path) -> None:
    in_unit(1, 24, 3_600_500, 4)(root)  # half a second later: the same slot
    assert timer_damage(check(root)) == []
    in_unit(1, 24, 3_700_000, 4)(root)
    slots = {at // SLOT_BYTES for path, at, _ in timer_damage(check(root)) if at is not None}
    assert slots == {WAITING[1], WAITING[1] + 100}


@pytest.mark.parametrize(
    ("plant", "text"),
    [
        (lambda root: timer_log(root).unlink(), "ends at 0, timercheck says that it reaches 416"),
        (lambda root: (root / "timerwheel").unlink(), "messages of 4 slots wait in it"),
        (
            lambda root: (root / "timerwheel").write_bytes(bytes(FILE_BYTES - 1)),
            f"has {FILE_BYTES - 1} bytes instead of {FILE_BYTES}",
        ),
        (lambda root: (root / "config" / "timercheck").unlink(), "is missing; how far the timer"),
        (
            lambda root: (root / "config" / "timercheck").write_bytes(bytes(55)),
            "is cut off; how far the timer",
        ),
        (
            lambda root: overwrite(root / "config" / "timercheck", QUEUE_OFFSET, 9),
            "at offset 9 of topic rmq_sys_wheel_timer queue 0, which ends at 8",
        ),
        (
            lambda root: overwrite(root / "config" / "timercheck", 8, 468),
            "ends at 416, timercheck says that it reaches 468",
        ),
    ],
)
def test_files_that_are_gone_cut_off_or_strange_are_found(
    root: Path, plant: Callable[[Path], None], text: str
) -> None:
    plant(root)
    assert any(text in words for _, _, words in timer_damage(check(root)))


def test_what_is_not_the_timers_is_a_note(root: Path) -> None:
    (root / "timerlog" / ".DS_Store").write_bytes(b"x")
    report = check(root)
    assert timer_damage(report) == []
    assert any("is not the store's" in found.text for found in report.findings)


def test_messages_that_retention_took_from_the_timer_are_a_note(root: Path) -> None:
    in_unit(1, 28, -400)(root)
    report = check(root)
    assert timer_damage(report) == []
    assert "note: " in "".join(found.line for found in report.findings)
    assert any("1 messages wait that retention has deleted" in f.text for f in report.findings)


def test_where_a_broker_runs_the_wheel_and_what_came_meanwhile_are_no_damage(root: Path) -> None:
    (root / "abort").touch()
    in_unit(7, 28, 1 << 40)(root)
    in_slot(WAITING[6], LAST, -1)(root)
    overwrite(root / "config" / "timercheck", QUEUE_OFFSET, 9)
    report = check(root)
    assert timer_damage(report) == []
    assert any("which ends at 8" in found.text for found in report.findings)
    in_unit(6, 36, 1, 4)(root)
    assert [at for _, at, _ in timer_damage(check(root))] == [6 * UNIT_BYTES]
