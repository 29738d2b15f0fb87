"""What clients without an event loop share: an asyncio twin on a loop in its own thread."""

import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from .loop_thread import LoopThread

Result = TypeVar("Result")


class _Startable(Protocol):
    async def start(self) -> None: ...

    async def close(self) -> None: ...


Twin = TypeVar("Twin", bound=_Startable)


class Blocking(Generic[Twin]):
    """A twin on a loop of its own, started when it is made and closed by `close` or `with`."""

    def __init__(self, name: str, twin: Callable[[], Twin]) -> None:
        self._closing = threading.Lock()
        self._thread = LoopThread(name)
        try:
            self._twin = self._thread.run(_started(twin))
        except BaseException:
            self._thread.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread. May be called twice, and by any thread."""
        with self._closing:
            try:
                if not self._thread.is_closed:
                    self._thread.run(self._twin.close())
            finally:
                self._thread.close()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._thread.run(work)


async def value_of(read: Callable[[], Result]) -> Result:
    return read()


async def _started(make: Callable[[], Twin]) -> Twin:
    twin = make()
    try:
        await twin.start()
    except BaseException:
        await twin.close()
        raise
    return twin
