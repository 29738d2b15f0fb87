"""The threads of a broker besides its event loop: one for syncs, and executors of one thread.

A broker gets them as an argument, so that a simulation can run their work in its own loop.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from time import perf_counter
from typing import Protocol

from ...store.engine.sync import SyncPlan

QUICK_SECONDS = 0.001  # how long the loop may block for a sync

SyncResult = tuple[SyncPlan, Exception | None]


class SyncThread(Protocol):
    """Runs plans, one at a time. `ended` is called in the loop when a plan without a waiter
    has ended; then, and after `begin` with `is_watched`, `result` gives it."""

    def begin(self, plan: SyncPlan) -> None:
        """Run the plan; the loop goes on."""

    def begin_watched(self, plan: SyncPlan) -> SyncResult | None:
        """Run the plan, and return its result if the disk is quick enough to wait for it."""

    def result(self) -> SyncResult | None:
        """The result of a plan that has ended; None when it was taken already."""

    def stop(self) -> None:
        """End the thread. No plan is running."""


class RealSyncThread:
    """A thread of the system."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
        self._loop = loop
        self._ended = ended
        self._plans: SimpleQueue[SyncPlan | None] = SimpleQueue()
        self._results: SimpleQueue[SyncResult] = SimpleQueue()
        self._is_watched = False  # the loop's thread waits for the result
        self._is_quick = False  # the last sync took less than QUICK_SECONDS
        self._thread = Thread(target=self._work, name="aerobee-syncer", daemon=True)
        self._thread.start()

    def begin(self, plan: SyncPlan) -> None:
        self._plans.put(plan)

    def begin_watched(self, plan: SyncPlan) -> SyncResult | None:
        self._is_watched = self._is_quick
        self._plans.put(plan)
        if not self._is_watched:
            return None
        try:
            return self._results.get(timeout=QUICK_SECONDS)
        except Empty:
            self._is_watched = False
            return self.result()  # it may have come just now
        finally:
            self._is_watched = False

    def result(self) -> SyncResult | None:
        with suppress(Empty):
            return self._results.get_nowait()
        return None

    def stop(self) -> None:
        self._plans.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (plan := self._plans.get()) is not None:
            wrong: Exception | None = None
            begin = perf_counter()
            try:
                plan.run()
            except Exception as found:
                wrong = found
            self._is_quick = perf_counter() - begin < QUICK_SECONDS
            self._results.put((plan, wrong))
            if not self._is_watched:
                with suppress(RuntimeError):  # the loop is closed: nothing waits in it
                    self._loop.call_soon_threadsafe(self._ended)


class Threads:
    """Makes the threads of one broker."""

    def syncs(self, loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> SyncThread:
        """The thread of a syncer; `ended` as in `SyncThread`."""
        return RealSyncThread(loop, ended)

    def executor(self, name: str) -> Executor:
        """An executor of one thread with this name."""
        return ThreadPoolExecutor(1, thread_name_prefix=name)
