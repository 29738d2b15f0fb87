"""Periodic tasks of a broker, between requests.

A task that fails is tried again after its period. A long task comes in parts, between which
requests are served: nothing here may block the loop.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from types import CoroutineType
from typing import Any

from ...protocol.aio.scheduler import Scheduler
from ...protocol.aio.slices import OnePerTick
from ...store.base.errors import StoreError
from ..settings.dynamic import DynamicSettings
from .throttle import Throttle

log = logging.getLogger(__name__)

STEP_SECONDS = 0.05  # how late a delayed message may be
FAILED_SECONDS = 1.0  # the pause before a failed step is tried again

Work = Callable[[], object]

_END = object()


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

    def start(self, task: Coroutine[Any, Any, None], name: str) -> None:
        """Run this beside the others until `stop`."""
        self._tasks.append(asyncio.create_task(task, name=name))

    def every(self, seconds: float | Callable[[], float], work: Work) -> None:
        """Run `work` every `seconds`; a failure is logged and doesn't end it.

        If `seconds` is a function, it is called for the length of each wait.
        """
        self._work.append(work)
        period = seconds if callable(seconds) else lambda: seconds
        self._tasks.append(asyncio.create_task(_repeat(period, work)))

    def every_dynamic(
        self, dynamic_settings: DynamicSettings, key: str, period_ms: Callable[[], int], work: Work
    ) -> None:
        """`every` with a dynamic setting as its period; a change of the setting starts a new
        wait."""
        changed = asyncio.Event()
        self._work.append(work)
        self._tasks.append(asyncio.create_task(_repeat_dynamic(period_ms, changed, work)))
        dynamic_settings.on_change(changed.set, key)

    def in_steps(self, scheduler: Scheduler, step: Callable[[int], bool]) -> None:
        """Every `STEP_SECONDS`, call `step(messages_max)` until it returns False.

        Requests are served between the calls. `messages_max` is how many messages one call may
        move.
        """
        work = partial(self._all_steps, step, Throttle(scheduler))
        self._work.append(work)
        self._tasks.append(asyncio.create_task(_steps(work)))

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
