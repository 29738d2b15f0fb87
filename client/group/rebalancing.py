"""The looks of a consumer at its queues: who asks for one waits for it, and they end with it."""

import asyncio
from collections.abc import Callable, Coroutine

from ...protocol.bodies.body import MessageQueue
from ..cluster import rebalance_service

# Called with a topic, all of its queues, and those that are ours from now on.
QueuesListener = Callable[[str, list[MessageQueue], list[MessageQueue]], None]


class Rebalancing:
    """Those of one consumer that are under way, each in a task of its own."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[float]] = set()
        self._closed = False

    async def run(self, look: Coroutine[None, None, float], group: str) -> float:
        """What `look` gives: seconds until the next one."""
        task = asyncio.create_task(look, name=f"rebalance-{group}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await task
        except asyncio.CancelledError:
            if self._closed and task.cancelled():
                return rebalance_service.SECONDS  # the caller rebalances other groups, too
            raise

    async def close(self) -> None:
        """Cancel them all and wait for their ends."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
