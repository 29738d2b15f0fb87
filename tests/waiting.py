"""Waiting for a state that other tasks or processes bring about."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable

SECONDS = 180.0  # of the real clock; a deadline, generous for a busy machine


async def until(
    holds: Callable[[], object | Awaitable[object]],
    what: str | Callable[[], object] = "",
    *,
    seconds: float = SECONDS,
    pause: float = 0.002,
) -> None:
    """Returns as soon as `holds()` is true; it may be a coroutine function.

    TimeoutError with `what` if that takes too long. Where a test moves the loop's time, which a
    pause would wait for, the loop runs on without pauses.
    """
    moved_by_the_test = "time" in vars(asyncio.get_running_loop())
    deadline = time.monotonic() + seconds
    while True:
        found = holds()
        if isawaitable(found):
            found = await found
        if found:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what() if callable(what) else what}")
        await asyncio.sleep(0 if moved_by_the_test else pause)
