"""Values that brokers and name servers have, kept for some seconds: one request in flight per key.

A value that is older than `seconds` is still given, while a newer one is asked for; one older than
`STALE_SECONDS` is not. Errors are kept for a second, so that many callers don't ask in vain.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Generic, TypeVar

from ...client.errors import ClosedError
from ...protocol.aio.attempts import Attempts

Found = TypeVar("Found")

STALE_SECONDS = 300.0
ERROR_SECONDS = 1.0
KEYS_MAX = 50_000  # the one asked for longest ago goes first


class Cache(Generic[Found]):
    """Values by key. `load` asks for one; its errors are raised to the callers."""

    def __init__(
        self,
        load: Callable[[str], Coroutine[None, None, Found]],
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        keys_max: int = KEYS_MAX,
    ) -> None:
        self._load = load
        self._seconds = seconds
        self._clock = clock
        self._keys_max = keys_max
        self._found: dict[str, tuple[float, Found]] = {}
        self._failed: dict[str, tuple[float, Exception]] = {}
        self._attempts: Attempts[Found] = Attempts(_closed)
        self._refreshing: set[asyncio.Task[None]] = set()

    async def get(self, key: str) -> Found:
        """The value; any error of `load`."""
        kept = self._found.get(key)
        now = self._clock()
        if kept is not None:
            age = now - kept[0]
            if age < self._seconds:
                return kept[1]
            if age < STALE_SECONDS:
                self._refresh_soon(key, now)
                return kept[1]
        failed = self._failed.get(key)
        if failed is not None and now - failed[0] < ERROR_SECONDS:
            raise failed[1]
        return await self._attempts.join(key, lambda: self._ask(key))

    def known(self, key: str) -> Found | None:
        """The value if it is here and fresh."""
        kept = self._found.get(key)
        return kept[1] if kept is not None and self._clock() - kept[0] < self._seconds else None

    def forget(self, key: str) -> None:
        """Ask for it the next time."""
        self._found.pop(key, None)
        self._failed.pop(key, None)

    async def close(self) -> None:
        """Cancel what is being asked for."""
        await self._attempts.close()
        for task in self._refreshing:
            task.cancel()
        await asyncio.gather(*self._refreshing, return_exceptions=True)

    def _refresh_soon(self, key: str, now: float) -> None:
        failed = self._failed.get(key)
        if failed is not None and now - failed[0] < ERROR_SECONDS:
            return

        async def refresh() -> None:
            with suppress(Exception):  # kept in `_failed`, and the old value goes on
                await self._attempts.join(key, lambda: self._ask(key))

        task = asyncio.get_running_loop().create_task(refresh())
        self._refreshing.add(task)
        task.add_done_callback(self._refreshing.discard)

    async def _ask(self, key: str) -> Found:
        try:
            found = await self._load(key)
        except Exception as wrong:
            _put(self._failed, key, (self._clock(), wrong), self._keys_max)
            raise
        self._failed.pop(key, None)
        _put(self._found, key, (self._clock(), found), self._keys_max)
        return found


def _closed() -> Exception:
    return ClosedError("the proxy was stopped while the call was waiting")


Value = TypeVar("Value")


def _put(table: dict[str, Value], key: str, value: Value, keys_max: int) -> None:
    table.pop(key, None)
    while len(table) >= keys_max:
        del table[next(iter(table))]
    table[key] = value
