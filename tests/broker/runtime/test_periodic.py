"""Periodic tasks: one slice of one task per loop iteration; a failed task is tried again."""

import asyncio
import errno
import logging
from collections.abc import Callable, Iterator

import pytest
from aerobee.broker.runtime import periodic as runtime_periodic
from aerobee.broker.runtime.periodic import STEP_SECONDS, Cut, Job, Periodic
from aerobee.protocol.aio.scheduler import Scheduler
from aerobee.store.base.errors import DiskFull

from ...waiting import LONG


def no_settings(effect: Callable[[], None], key: str) -> None:
    """No dynamic setting ever changes."""


async def test_a_repeated_failure_is_logged_once_and_so_is_the_recovery(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done = asyncio.Event()
    faults: list[Exception | None] = [
        DiskFull("no room"),
        DiskFull("still no room"),
        OSError(errno.EIO, "bad disk"),
        None,
        RuntimeError("ours"),
        RuntimeError("ours"),
    ]

    def work() -> None:
        if not faults:
            done.set()
        elif (fault := faults.pop(0)) is not None:
            raise fault

    with caplog.at_level(logging.WARNING):
        periodic = Periodic()
        periodic.run([Job(0.001, work)], Scheduler(), no_settings)
        async with asyncio.timeout(LONG):
            await done.wait()
        await periodic.stop()
    told = [(one.getMessage(), one.exc_info is not None) for one in caplog.records]
    end = "; it is tried every 0.001 s"
    assert told == [
        (f"a periodic task failed: no room{end}", False),
        (f"a periodic task failed: [Errno 5] bad disk{end}", False),
        ("a periodic task that failed works again", False),
        (f"a periodic task failed: ours{end}", True),
        ("a periodic task that failed works again", False),
    ]


async def test_slices_of_different_tasks_run_in_different_loop_iterations() -> None:
    loop = asyncio.get_running_loop()
    number = 0
    parts: dict[str, list[int]] = {}  # the loop iteration of each slice, by task
    done = asyncio.Event()

    def next_tick() -> None:  # the first callback of each loop iteration
        nonlocal number
        number += 1
        if not done.is_set():
            loop.call_soon(next_tick)

    def work(name: str) -> Iterator[None]:
        for _ in range(10):
            parts.setdefault(name, []).append(number)
            yield

    def step(most: int) -> bool:
        parts.setdefault("steps", []).append(number)
        return len(parts["steps"]) < 10

    periodic = Periodic()
    loop.call_soon(next_tick)
    periodic.run([Job(STEP_SECONDS, step, Cut.STEPS)], Scheduler(), no_settings)
    await asyncio.gather(
        periodic.in_turns(work("one")), periodic.in_turns(work("other")), periodic.catch_up()
    )
    done.set()
    await periodic.stop()
    assert all(len(parts[name]) >= 10 for name in ("one", "other", "steps"))
    ticks = [tick for of_task in parts.values() for tick in of_task]
    assert len(set(ticks)) == len(ticks)


async def test_a_failed_slice_does_not_stop_other_tasks() -> None:
    periodic = Periodic()

    def fails() -> Iterator[None]:
        yield
        raise DiskFull("no room")

    with pytest.raises(DiskFull):
        await periodic.in_turns(fails())
    went: list[int] = []
    async with asyncio.timeout(LONG):
        await periodic.in_turns(map(went.append, range(3)))
    assert went == [0, 1, 2]


async def test_a_task_that_fails_is_run_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_periodic, "FAILED_SECONDS", 0.001)
    again = asyncio.Event()
    faults: list[Exception] = [DiskFull("no room")]

    async def run() -> None:
        if faults:
            raise faults.pop()
        again.set()

    periodic = Periodic()
    periodic.start(run, "acting master")
    async with asyncio.timeout(LONG):
        await again.wait()
    await periodic.stop()
    assert [one.getMessage() for one in caplog.records] == [
        "acting master failed; it goes on in 0.001 s"
    ]
