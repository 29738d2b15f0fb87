"""config/timercheck: RocketMQ's seven numbers, and a section of our own that Java leaves alone."""

from pathlib import Path

from aerobee.store.timer import timer_check
from aerobee.store.timer.timer_check import Progress, TimerCheck, TimerCheckFile

from ..conftest import Unpack

OWN = Progress(9_000, 3, 12, 624, 5_000, 1_000, 8, True)


def saved(path: Path, check: TimerCheck) -> None:
    file = TimerCheckFile(path)
    file.save(check)
    file.sync()
    file.release()


def test_javas_file_is_read(unpack: Unpack) -> None:
    root, _ = unpack("broker")
    assert timer_check.load(root / "config" / "timercheck") == TimerCheck(
        1_795_227_254_000, 416, 8, 8, 0, 1_795_227_254_713, 34
    )


def test_the_first_56_bytes_are_written_as_java_writes_them(tmp_path: Path, unpack: Unpack) -> None:
    root, _ = unpack("broker")
    java = (root / "config" / "timercheck").read_bytes()
    check = timer_check.load(root / "config" / "timercheck")
    assert check is not None
    check.own = OWN
    saved(tmp_path / "config" / "timercheck", check)
    ours = (tmp_path / "config" / "timercheck").read_bytes()
    assert (ours[:512], len(ours)) == (java[:512], len(java))
    assert check.numbers() == java[:56]


def test_our_own_section_comes_back_until_java_has_written(tmp_path: Path) -> None:
    path = tmp_path / "timercheck"
    saved(path, TimerCheck(8_000, 52, 10, 10, own=OWN))
    assert timer_check.load(path) == TimerCheck(8_000, 52, 10, 10, own=OWN)
    data = bytearray(path.read_bytes())
    data[7] += 1  # a second later, say
    path.write_bytes(data)
    found = timer_check.load(path)
    assert found is not None
    assert found.own is None


def test_a_damaged_section_does_not_hold(tmp_path: Path) -> None:
    path = tmp_path / "timercheck"
    saved(path, TimerCheck(8_000, 52, 10, 10, own=OWN))
    whole = path.read_bytes()
    for place in range(512, 512 + timer_check.OWN.size + 4):
        data = bytearray(whole)
        data[place] ^= 4
        path.write_bytes(data)
        assert timer_check.load(path) == TimerCheck(8_000, 52, 10, 10)


def test_no_file_and_a_cut_off_one_say_nothing(tmp_path: Path) -> None:
    path = tmp_path / "timercheck"
    assert timer_check.load(path) is None
    path.write_bytes(bytes(55))
    assert timer_check.load(path) is None
    path.write_bytes(bytes(56))
    assert timer_check.load(path) == TimerCheck()
