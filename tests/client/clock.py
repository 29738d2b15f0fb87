"""A clock that a test moves: timers of the loop fire when the test advances it.

Only the loop's clock moves. Sockets work in real time, so after each step the loop runs a few
iterations to receive what was sent. Otherwise the clock advances slowly, so that a busy machine
makes no difference. What `asyncio.to_thread` would run in a thread runs at once, so that the clock
can't overtake it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from aerobee.testing import LocalCluster

T = TypeVar("T")
RATE = 0.02  # of the time that passes for real
TURNS = 30  # of the loop after each step: several questions and answers
EXCHANGES = 5  # with the loop of a cluster


class AtOnce(ThreadPoolExecutor):
    """Runs each function before `submit` returns."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


class Clock:
    """Moves the time of the running loop; make it inside of that."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._real = loop.time
        self._begin = self._start = loop.time()
        self._rate = RATE
        self._ahead = 0.0
        loop.time = self.time  # type: ignore[method-assign]
        loop.set_default_executor(AtOnce())
        loop.slow_callback_duration = float("inf")  # a step would be taken for a slow callback

    def time(self) -> float:
        """What the loop takes for the time, in seconds."""
        return self._start + (self._real() - self._begin) * self._rate + self._ahead

    def run(self) -> None:
        """Let the time go by as for everybody from now on."""
        self._start, self._begin = self.time() - self._ahead, self._real()
        self._rate = 1.0

    async def advance(self, seconds: float, step: float = 0.5) -> None:
        """Move on, a step at a time, and let everything that is due happen."""
        end = self._ahead + seconds
        while self._ahead < end:
            self._ahead = min(end, self._ahead + step)
            await self.run_ready()

    async def run_ready(self) -> None:
        """Let what is under way arrive, without moving."""
        for _ in range(TURNS):
            await asyncio.sleep(0)


async def answered(cluster: LocalCluster, pause: float) -> None:
    """Let this loop and the cluster's answer one another, some questions deep; at least `pause` s.

    A test that moves the cluster's clock calls it after each step, so that a client on a busy
    machine is not overtaken by the time.
    """
    await asyncio.sleep(pause)
    for _ in range(EXCHANGES):
        await asyncio.to_thread(cluster.call, lambda: None)
        for _ in range(TURNS):
            await asyncio.sleep(0)
