"""The end of a task, awaited by another one.

`suppress(CancelledError)` around `await task` would also swallow the cancellation of the task that
waits, which then goes on for ever.
"""

import asyncio
from typing import Any


async def end(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end; raises the error it failed with, if any."""
    task.cancel()
    await ended(task)


async def ended(task: asyncio.Task[Any]) -> None:
    """Wait until a task is done or cancelled; raises the error it failed with, if any."""
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
