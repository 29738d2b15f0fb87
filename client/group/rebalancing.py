"""Running rebalances of a consumer: callers wait for theirs, `close` cancels them."""

import asyncio
from collections.abc import Callable, Coroutine

from ...protocol.bodies.body import MessageQueue
from ..cluster import rebalance_service

# Called with a topic, all of its queues, and those now assigned to this member.
QueuesListener = Callable[[str, list[MessageQueue], list[MessageQueue]], None]


class Rebalancing:
    """The running rebalances of one consumer, each in its own task."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[float], None] = {}
        self._closed = False

    async def run(self, rebalance: Coroutine[None, None, float], group: str) -> float:
        """Run a rebalance; returns the seconds until the next one."""
        task = asyncio.create_task(rebalance, name=f"rebalance-{group}")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        try:
            return await task
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if self._closed and task.cancelled() and not (caller and caller.cancelling()):
                return rebalance_service.SECONDS  # the caller rebalances other groups, too
            raise

    async def close(self) -> None:
        """Cancel them all and wait for their ends."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
