import os
import random
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest
from aerobee.store import disk, zeros_ahead
from aerobee.store.commit_log import CommitLog

from .test_commit_log import FILE_BYTES, append, opened

Written = list[tuple[int, bytes]]


class Later(Future[None]):
    """What another thread will do: at `run`, or when somebody waits for it."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self._work = work

    def run(self) -> None:
        if self.set_running_or_notify_cancel():
            try:
                self._work()
            except OSError as wrong:
                self.set_exception(wrong)
            else:
                self.set_result(None)

    def cancel(self) -> bool:
        return False  # it began already

    def result(self, timeout: float | None = None) -> None:
        if not self.done():
            self.run()
        super().result(timeout)


class Thread:
    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.work: list[Later] = []

    def submit(self, work: Callable[[int, int], None], at: int, end: int) -> Later:
        assert all(one.done() for one in self.work)  # one at a time
        self.asked.append((at, end))
        self.work.append(Later(lambda: work(at, end)))
        return self.work[-1]


@pytest.fixture(name="written")
def fixture_written(monkeypatch: pytest.MonkeyPatch) -> Written:
    """What is written to the disk, with small pieces of zeros."""
    written: Written = []

    class Spy(disk.Disk):
        def pwrite(self, fd: int, data: bytes | memoryview, at: int) -> int:
            written.append((at, bytes(data)))
            return os.pwrite(fd, data, at)

    monkeypatch.setattr(disk, "current", Spy())
    monkeypatch.setattr(zeros_ahead, "ZEROS_BYTES", 1_000)
    monkeypatch.setattr(zeros_ahead, "AHEAD_BYTES", 2_000)
    return written


def fill(log: CommitLog, sizes: list[int]) -> list[int]:
    places = []
    for size in sizes:
        places.append(append(log, size))
        log.write_staged()
    return places


def zeros(written: Written) -> list[tuple[int, int]]:
    return [(at, len(data)) for at, data in written if not any(data)]


def test_zeros_are_written_ahead_of_records_and_never_over_them(
    tmp_path: Path, written: Written
) -> None:
    sizes = [300, 500, 400, 2_800, 200]
    log = opened(tmp_path)
    places = fill(log, sizes)
    assert zeros(written) == [(0, 1_000), (1_000, 1_000), (3_096, 1_000), (0, 904)]
    assert [len(log.record(place) or b"") for place in places] == sizes


def test_where_much_comes_another_thread_writes_them(tmp_path: Path, written: Written) -> None:
    log, thread = opened(tmp_path), Thread()
    log.zeros.submit = thread.submit
    fill(log, [500] * 2)
    assert not thread.asked  # not before the log wrote as many by itself
    fill(log, [500])
    assert thread.asked == [(2_000, 4_000)]
    del written[:]
    fill(log, [500])
    assert not zeros(written)  # there is room before those
    thread.work[0].run()
    fill(log, [500] * 3)
    assert zeros(written) == [(2_000, 2_000)]
    assert thread.asked[1:] == [(4_000, FILE_BYTES)]
    thread.work[1].run()
    del written[:]
    fill(log, [500] * 2)
    assert zeros(written) == [(0, 5_000 - FILE_BYTES)]  # of a new file the first are the log's own
    assert thread.asked[2:] == [(5_000 - FILE_BYTES, 7_000 - FILE_BYTES)]


@pytest.mark.parametrize("seed", range(8))
def test_whenever_the_thread_comes_to_it_no_record_is_lost(
    tmp_path: Path, written: Written, seed: int
) -> None:
    chance = random.Random(seed)
    log, thread = opened(tmp_path), Thread()
    log.zeros.submit = thread.submit
    sizes = [chance.choice((100, 150, 700, 1_900)) for _ in range(300)]
    places = []
    for size in sizes:
        places += fill(log, [size])
        for work in thread.work:
            if not work.done() and chance.random() < 0.3:
                work.run()
    for work in thread.work:
        if not work.done():
            work.run()
    assert len(thread.asked) > 20
    assert [len(log.record(place) or b"") for place in places] == sizes


def test_a_disk_that_takes_no_zeros_from_the_thread_holds_nothing_up(
    tmp_path: Path, written: Written
) -> None:
    log, thread = opened(tmp_path), Thread()
    log.zeros.submit = thread.submit
    fill(log, [500] * 3)
    log.segments.last.path.rename(tmp_path / "away")
    thread.work[0].run()
    (tmp_path / "away").rename(log.segments.last.path)
    (place,) = fill(log, [1_500])
    assert len(log.record(place) or b"") == 1_500
