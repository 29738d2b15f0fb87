"""The queue between received messages and the application's tasks.

A message leaves the inbox without an await before it is returned, so a caller that is cancelled
while waiting never loses one.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar


class Voidable(Protocol):
    """An item that is dropped when `is_void` has become true while it waited."""

    @property
    def is_void(self) -> bool: ...


Item = TypeVar("Item", bound=Voidable)


class Inbox(Generic[Item]):
    """First in, first out; several tasks may take from it. Void items are passed over."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self.is_closed = False

    def __len__(self) -> int:
        return len(self._items)

    def put(self, items: Iterable[Item]) -> None:
        """Add items, in this order."""
        before = len(self._items)
        self._items.extend(items)
        for _ in range(len(self._items) - before):
            if not self._wake():
                break

    def put_first(self, item: Item) -> None:
        """Add an item that is taken next."""
        self._items.appendleft(item)
        self._wake()

    def take_now(self) -> Item | None:
        """The next item, None when there is none."""
        while self._items:
            item = self._items.popleft()
            if not item.is_void:
                return item
        return None

    async def take(self) -> Item | None:
        """The next item as soon as there is one; None once the inbox is closed."""
        while not self.is_closed:
            item = self.take_now()
            if item is not None:
                return item
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()  # this waiter was chosen: wake another one
                raise
        return None

    def close(self) -> None:
        """Drop the waiting items; all current and later calls of `take` return None."""
        self.is_closed = True
        self._items.clear()
        while self._wake():
            pass

    def _wake(self) -> bool:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return True
        return False
