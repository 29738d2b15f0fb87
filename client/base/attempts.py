"""Callers that want the same thing at the same time wait for one attempt to get it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Generic, TypeVar

from ..errors import ClosedError

Found = TypeVar("Found")


class Attempts(Generic[Found]):
    """The attempts under way, by what they are to get."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Found]] = {}
        self._closed = False

    async def join(self, key: str, begin: Callable[[], Coroutine[None, None, Found]]) -> Found:
        """What the attempt at `key` gives or raises; it is begun now if there is none.

        A caller that is cancelled leaves the attempt to the others. ClosedError after `close`.
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
                raise ClosedError("the client was closed while the call was waiting") from None
            raise

    async def close(self) -> None:
        """Cancel them all; whoever waits gets ClosedError."""
        self._closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, key: str, done: asyncio.Task[Found]) -> None:
        if self._tasks.get(key) is done:
            del self._tasks[key]
        if not done.cancelled():
            done.exception()  # whoever waited has it; nobody may be left to ask
