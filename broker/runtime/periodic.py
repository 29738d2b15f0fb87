"""Periodic tasks of a broker, between requests.

A job that fails is tried again after its period. A long one comes in parts, between which requests
are served: nothing here may block the loop.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from enum import Enum, auto
from functools import partial
from types import CoroutineType
from typing import Any, NamedTuple

from ...protocol.aio.scheduler import Scheduler
from ...protocol.aio.slices import OnePerTick
from ...store.base.errors import StoreError
from .throttle import Throttle

log = logging.getLogger(__name__)

STEP_SECONDS = 0.05  # how late a delayed message may be
FAILED_SECONDS = 1.0  # the pause before a failed step is tried again

Work = Callable[[], object]
OnChange = Callable[[Callable[[], None], str], None]

_END = object()


class Cut(Enum):
    """The way in which the work of a job is cut, so that requests are served in between."""

    WHOLE = auto()  # `work()` is short, or a coroutine function
    PARTS = auto()  # `work()` returns an iterator, each of whose items is a part
    STEPS = auto()  # `work(messages_max)` is a part; it returns whether there is more


class DynamicPeriod(NamedTuple):
    """A period that is a dynamic setting: its key, and what reads its value in ms."""

    key: str
    ms: Callable[[], int]


class Job(NamedTuple):
    """Periodic work: a row of the table in `upkeep`, or of a role.

    `period` is in seconds; a function is called for the length of each wait. That of steps is
    `STEP_SECONDS`.
    """

    period: float | Callable[[], float] | DynamicPeriod
    work: Callable[..., Any]
    cut: Cut = Cut.WHOLE


class Periodic:
    """The tasks of one broker. At most one task runs one part per loop iteration, since requests
    wait for all parts of an iteration: `async with periodic.part` lets a task run its next one."""

    def __init__(self) -> None:
        self.part = OnePerTick()
        self._tasks: list[asyncio.Task[None]] = []
        self._work: list[Work] = []

    async def stop(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def catch_up(self) -> None:
        """Run all periodic work once, now."""
        for work in self._work:
            await _once(work)

    def start(self, run: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Run this beside the jobs until `stop`. A failure is logged, and it is run again."""
        self._tasks.append(asyncio.create_task(_going_on(run, name), name=name))

    def run(self, jobs: Iterable[Job], scheduler: Scheduler, on_change: OnChange) -> None:
        """Do these jobs until `stop`; a failure is logged and doesn't end them.

        `scheduler` knows how busy the broker is: then a step moves few messages.
        `on_change(effect, key)` has an effect called at a change of a dynamic setting, which starts
        a new wait where that is the period.
        """
        for job in jobs:
            self._tasks.append(asyncio.create_task(self._repeated(job, scheduler, on_change)))

    def _repeated(
        self, job: Job, scheduler: Scheduler, on_change: OnChange
    ) -> Coroutine[Any, Any, None]:
        period, work = job.period, job.work
        if job.cut is Cut.STEPS:
            work = partial(self._all_steps, work, Throttle(scheduler))
        elif job.cut is Cut.PARTS:
            work = partial(self._all_parts, work)
        self._work.append(work)
        if job.cut is Cut.STEPS:
            return _steps(work)
        if isinstance(period, DynamicPeriod):
            changed = asyncio.Event()
            on_change(changed.set, period.key)
            return _repeat_dynamic(period.ms, changed, work)
        return _repeat(period if callable(period) else lambda: period, work)

    async def _all_parts(self, work: Callable[[], Iterable[object]]) -> None:
        await self.in_turns(work())

    async def in_turns(self, parts: Iterable[object]) -> None:
        """Work through these parts; requests are served after each."""
        waiting = iter(parts)
        while True:
            async with self.part:
                if next(waiting, _END) is _END:
                    return

    async def _all_steps(self, step: Callable[[int], bool], throttle: Throttle) -> None:
        while True:
            async with self.part:
                if not step(throttle.quota()):
                    return
            for _ in range(1, throttle.ticks):
                await asyncio.sleep(0)


async def _going_on(run: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
    while True:
        try:
            return await run()
        except Exception:
            log.exception("%s failed; it goes on in %g s", name, FAILED_SECONDS)
            await asyncio.sleep(FAILED_SECONDS)


async def _steps(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    while True:
        await asyncio.sleep(STEP_SECONDS)
        try:
            await work()
        except StoreError as wrong:
            log.warning("delayed messages wait, it goes on in %g s: %s", FAILED_SECONDS, wrong)
            await asyncio.sleep(FAILED_SECONDS)
        except Exception:
            log.exception("a periodic task failed; it goes on in %g s", FAILED_SECONDS)
            await asyncio.sleep(FAILED_SECONDS)


async def _repeat(period: Callable[[], float], work: Callable[[], object]) -> None:
    fault = ""
    while True:
        seconds = period()
        await asyncio.sleep(seconds)
        fault = await _try(work, seconds, fault)


async def _repeat_dynamic(
    period_ms: Callable[[], int], changed: asyncio.Event, work: Callable[[], object]
) -> None:
    fault = ""
    while True:
        try:
            async with asyncio.timeout(period_ms() / 1000):
                await changed.wait()
        except TimeoutError:
            fault = await _try(work, period_ms() / 1000, fault)
        else:
            changed.clear()


async def _try(work: Callable[[], object], seconds: float, before: str) -> str:
    """Run a task; returns the name of the exception's type, "" without an exception. A fault equal
    to `before` isn't logged again: some tasks run many times a second."""
    try:
        await _once(work)
    except Exception as wrong:
        fault = type(wrong).__name__
        if fault != before:
            # A full disk is no fault of the program, so a traceback would not help.
            where = None if isinstance(wrong, StoreError | OSError) else wrong
            log.error(
                "a periodic task failed: %s; it is tried every %g s", wrong, seconds, exc_info=where
            )
        return fault
    if before:
        log.warning("a periodic task that failed works again")
    return ""


async def _once(work: Callable[[], object]) -> None:
    waits = work()
    if isinstance(waits, CoroutineType):
        await waits
