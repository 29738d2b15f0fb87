"""A window limits concurrent operations; others wait in FIFO order.

Like a semaphore, but entering a window with room is one comparison and one addition.
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
        """True if the window is full. Waiters exist only then: `leave` passes the slot on to
        one."""
        return self.under_way >= self.size

    async def room(self) -> None:
        """Wait for a slot. The caller owns it when this returns, so don't call `enter` too."""
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
        """Pass the slot to the longest waiter, or free it."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self.under_way -= 1
