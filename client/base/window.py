"""A window: at most so many pieces of work under way, the others wait their turn in order.

Like a semaphore, but entering a window that has room is a comparison and an addition.
"""

import asyncio
from collections import deque


class Window:
    """`await window.room()` if it `is_full`, else `enter()`; and `leave()` in the end."""

    __slots__ = ("_waiters", "size", "under_way")

    def __init__(self, size: int) -> None:
        self.size = size
        self.under_way = 0
        self._waiters: deque[asyncio.Future[None]] = deque()

    @property
    def is_full(self) -> bool:
        """There is no room. Others wait only then: who leaves gives them the place."""
        return self.under_way >= self.size

    async def room(self) -> None:
        """Wait for one's turn; the place is taken when this returns, so don't `enter`."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.leave()  # the place was ours already
            raise

    def enter(self) -> None:
        """Take a place; only when the window is not full."""
        self.under_way += 1

    def leave(self) -> None:
        """Give the place to whoever waits longest, or back."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self.under_way -= 1
