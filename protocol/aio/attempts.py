"""Single flight: concurrent callers that need the same result wait for one attempt."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Generic, TypeVar

Found = TypeVar("Found")


class Attempts(Generic[Found]):
    """Running attempts by key. After `close` callers get the error that `closed` makes."""

    def __init__(self, closed: Callable[[], Exception]) -> None:
        self._error = closed
        self._tasks: dict[str, asyncio.Task[Found]] = {}
        self._closed = False

    async def join(self, key: str, begin: Callable[[], Coroutine[None, None, Found]]) -> Found:
        """The result or exception of the attempt for `key`; starts it if none is running.

        Cancelling a caller does not cancel the attempt.
        """
        task = self._tasks.get(key)
        if task is None:
            task = asyncio.create_task(begin(), name=f"shared-{key}")
            self._tasks[key] = task
            task.add_done_callback(lambda done: self._forget(key, done))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and self._closed and not (caller and caller.cancelling()):
                raise self._error() from None
            raise

    async def close(self) -> None:
        """Cancel all attempts."""
        self._closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, key: str, done: asyncio.Task[Found]) -> None:
        if self._tasks.get(key) is done:
            del self._tasks[key]
        if not done.cancelled():
            done.exception()  # mark as retrieved: every caller may have been cancelled
