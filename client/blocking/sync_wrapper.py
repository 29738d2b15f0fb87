"""What clients without an event loop share: an asyncio twin on a loop in its own thread."""

import functools
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from .loop_thread import LoopThread

Arguments = ParamSpec("Arguments")
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


def awaited(
    method: Callable[Concatenate[Any, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Blocking[Any], Arguments], Result]:
    """The same method of a blocking client: it waits for that of the twin."""

    @functools.wraps(method)
    def call(
        self: Blocking[Any], /, *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Result:
        return self._run(method(self._twin, *arguments, **named))

    return call


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
