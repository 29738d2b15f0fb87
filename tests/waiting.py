"""Waiting for a state that other tasks or processes bring about.

A wait ends with its event. Its deadline only ends a test that would never end, so it is chosen by
what is waited for, not by taste: SHORT within this process, LONG for work on disks and sockets,
PROCESS for the start or the work of another process. AEROBEE_TEST_SLOWNESS multiplies them all.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable

SLOWNESS = float(os.environ.get("AEROBEE_TEST_SLOWNESS", "1"))
SHORT = 30.0 * SLOWNESS  # seconds of the real clock
LONG = 60.0 * SLOWNESS
PROCESS = 180.0 * SLOWNESS


async def until(
    holds: Callable[[], object | Awaitable[object]],
    what: str | Callable[[], object] = "",
    *,
    seconds: float = LONG,
    pause: float = 0.002,
) -> None:
    """Returns as soon as `holds()` is true; it may be a coroutine function.

    TimeoutError with `what`, which may be a function that tells the state, if that takes too long.
    Where a test moves the loop's time, which a pause would wait for, the loop runs on without
    pauses.
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


def wait_until(
    holds: Callable[[], object],
    what: str | Callable[[], object] = "",
    *,
    seconds: float = PROCESS,
    pause: float = 0.1,
) -> None:
    """The same without an event loop, for what another process brings about."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} s: {what() if callable(what) else what}")
        time.sleep(pause)
