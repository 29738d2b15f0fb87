"""Event loops with virtual time: one for each machine, run in an order that a seed decides.

`World` has the clock, the timers and the loops. When no loop has a callback, the time jumps to the
next timer. Timers that are due together, and machines that are busy together, run in a drawn order;
within a machine `call_soon` keeps its order, as in asyncio. Work for threads runs in the loop,
after a drawn delay. The same seed gives the same history in every process.
"""

import asyncio
import gc
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import Context
from random import Random
from typing import Any, TypeVar

from aerobee.broker.runtime.threads import SyncResult, SyncThread, Threads
from aerobee.store.engine.sync import SyncPlan

TICK_SECONDS = 0.000_02  # what an iteration of all loops takes, so that no busy loop lasts for ever
LATE_SECONDS = 0.001  # how late a timer may be
JOB_SECONDS = 0.002  # how long a job of a thread takes, at most, on a disk that is not slow

Result = TypeVar("Result")


class Stuck(AssertionError):
    """Raised when nothing is left to run, but the awaited work has not ended."""


class World:
    """The clock and the loops. `now` is in seconds, `draw` the only source of chance."""

    def __init__(self, seed: int) -> None:
        self.draw = Random(seed)
        self.now = 1_000.0
        self.errors: list[str] = []  # unhandled exceptions
        self._loops: list[Loop] = []
        self._dead: list[Loop] = []
        self._timers: list[tuple[float, float, int, Loop, asyncio.TimerHandle]] = []
        self._count = 0

    def add_loop(self, loop: "Loop") -> None:
        """Have a loop run beside the others."""
        self._loops.append(loop)

    def run(self, loop: "Loop", work: Coroutine[Any, Any, Result]) -> Result:
        """The result of this work in a loop of this world; every other loop runs beside it."""
        task = loop.create_task(work)
        was_enabled = gc.isenabled()
        gc.disable()  # a collection would end objects at a moment that no seed decides
        try:
            while not task.done():
                if loop.is_closed():
                    raise Stuck(f"machine {loop.name} was killed")
                self._step()
        finally:
            asyncio._set_running_loop(None)
            if was_enabled:
                gc.enable()
        return task.result()

    def kill(self, loop: "Loop") -> None:
        """Kill a loop: nothing of it runs any more, not even a `finally`."""
        if not loop.is_closed():
            loop.end()
            self._loops.remove(loop)
            self._dead.append(loop)

    def close(self) -> None:
        """Kill all loops, and close what their tasks have left. Call it before the disk goes."""
        for loop in self._loops.copy():
            self.kill(loop)
        for loop in self._dead:
            loop.bury()

    def add(self, when: float, loop: "Loop", handle: asyncio.TimerHandle) -> None:
        """Have this handle run at this time, or a little later."""
        self._count += 1
        when += self.draw.random() * LATE_SECONDS
        heapq.heappush(self._timers, (when, self.draw.random(), self._count, loop, handle))

    def _step(self) -> None:
        """An iteration of every loop that has something to run."""
        timers = self._timers
        busy = [loop for loop in self._loops if loop.ready]
        if not busy:
            while timers and (timers[0][4].cancelled() or timers[0][3].is_closed()):
                heapq.heappop(timers)
            if not timers:
                raise Stuck("nothing is left to run")
            self.now = max(self.now, timers[0][0])
        self.now += TICK_SECONDS
        if timers and timers[0][0] <= self.now:
            while timers and timers[0][0] <= self.now:
                *_, loop, handle = heapq.heappop(timers)
                if not handle.cancelled() and not loop.is_closed():
                    loop.ready.append(handle)
            busy = [loop for loop in self._loops if loop.ready]
        if len(busy) > 1:
            self.draw.shuffle(busy)
        for loop in busy:
            loop.iterate()


class Loop(asyncio.AbstractEventLoop):
    """The loop of one machine, until the machine is killed. `slow` multiplies what jobs take."""

    def __init__(self, world: World, name: str, enter: Callable[[], None] = lambda: None) -> None:
        """`enter` is called before each iteration."""
        self.world = world
        self.name = name
        self.slow = 1.0
        self.ready: deque[asyncio.Handle] = deque()
        self._enter = enter
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._is_closed = False

    def iterate(self) -> None:
        """Run what is ready now; what becomes ready meanwhile is for the next iteration."""
        asyncio._set_running_loop(self)
        self._enter()
        for _ in range(len(self.ready)):
            if not self.ready:
                return  # killed by one of its own callbacks
            handle = self.ready.popleft()
            if not handle.cancelled():
                handle._run()

    def end(self) -> None:
        """Called by `World.kill`."""
        self._is_closed = True
        self.ready.clear()

    def bury(self) -> None:
        """Close what the tasks were doing; whatever they still say is not heard."""
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with suppress(BaseException):
                task.get_coro().close()
        self._tasks.clear()

    # ---- asyncio's names

    def time(self) -> float:
        return self.world.now

    def is_running(self) -> bool:
        return not self._is_closed

    def is_closed(self) -> bool:
        return self._is_closed

    def get_debug(self) -> bool:
        return False

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self._is_closed:
            self.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self._is_closed:
            self.world.add(when, self, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, Result] | Coroutine[Any, Any, Result],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Result]:
        task = asyncio.Task(coro, loop=self, name=name or "task", context=context)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._is_closed:
            self.world.errors.append(
                f"{self.name}: {context['message']}: {context.get('exception')!r}"
            )

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Result], *args: Any
    ) -> asyncio.Future[Result]:
        future: asyncio.Future[Result] = self.create_future()

        def job() -> None:
            if future.cancelled():
                return  # it had not begun
            try:
                future.set_result(func(*args))
            except Exception as wrong:
                future.set_exception(wrong)

        if isinstance(executor, OneThread):
            executor.add(job)
        else:
            self.call_later(self.job_seconds(), job)
        return future

    def job_seconds(self) -> float:
        """The time that the next job of a thread takes."""
        return self.slow * JOB_SECONDS * self.world.draw.random() ** 2


class OneThread(Executor):
    """An executor whose jobs run in the loop, one after the other."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._jobs: deque[Callable[[], None]] = deque()

    def add(self, job: Callable[[], None]) -> None:
        """Have a job run behind the others."""
        self._jobs.append(job)
        if len(self._jobs) == 1:
            self._loop.call_later(self._loop.job_seconds(), self._next)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        while self._jobs:
            self._jobs.popleft()()

    def _next(self) -> None:
        if self._jobs:
            self._jobs.popleft()()
        if self._jobs:
            self._loop.call_later(self._loop.job_seconds(), self._next)


class Syncs(SyncThread):
    """Runs plans in the loop."""

    def __init__(self, loop: Loop, ended: Callable[[], None]) -> None:
        self._loop = loop
        self._ended = ended
        self._result: SyncResult | None = None

    def begin(self, plan: SyncPlan) -> None:
        self._loop.call_later(self._loop.job_seconds(), self._run, plan)

    def begin_watched(self, plan: SyncPlan) -> SyncResult | None:
        if self._loop.slow > 1 or self._loop.world.draw.random() < 0.5:
            self.begin(plan)
            return None
        self._work(plan)
        return self.result()

    def result(self) -> SyncResult | None:
        result, self._result = self._result, None
        return result

    def stop(self) -> None:
        pass

    def _run(self, plan: SyncPlan) -> None:
        self._work(plan)
        self._ended()

    def _work(self, plan: SyncPlan) -> None:
        try:
            plan.run()
        except Exception as wrong:
            self._result = plan, wrong
        else:
            self._result = plan, None


class SimulatedThreads(Threads):
    """The threads of a broker on this loop."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def syncs(self, loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> SyncThread:
        return Syncs(self._loop, ended)

    def executor(self, name: str) -> Executor:
        return OneThread(self._loop)
