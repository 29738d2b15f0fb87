"""Base class of the blocking clients: an asyncio client on an event loop in its own thread."""

import functools
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from ..base.loop_thread import LoopThread

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class _Startable(Protocol):
    async def start(self) -> None: ...

    async def close(self) -> None: ...


AsyncClient = TypeVar("AsyncClient", bound=_Startable)


class Blocking(Generic[AsyncClient]):
    """Runs an asyncio client on its own loop. Started by the constructor, closed by `close` or
    `with`."""

    def __init__(self, name: str, client: Callable[[], AsyncClient]) -> None:
        self._closing = threading.Lock()
        self._thread = LoopThread(name)
        try:
            self._client = self._thread.run(_started(client))
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
                    self._thread.run(self._client.close())
            finally:
                self._thread.close()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._thread.run(work)


def awaited(
    method: Callable[Concatenate[Any, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Blocking[Any], Arguments], Result]:
    """The blocking version of an async method."""

    @functools.wraps(method)
    def call(
        self: Blocking[Any], /, *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Result:
        return self._run(method(self._client, *arguments, **named))

    return call


def called(
    method: Callable[Concatenate[Any, Arguments], Result],
) -> Callable[Concatenate[Blocking[Any], Arguments], Result]:
    """The blocking version of an ordinary method, which is called on the loop."""

    @functools.wraps(method)
    def call(
        self: Blocking[Any], /, *arguments: Arguments.args, **named: Arguments.kwargs
    ) -> Result:
        return self._run(value_of(lambda: method(self._client, *arguments, **named)))

    return call


async def value_of(read: Callable[[], Result]) -> Result:
    return read()


async def _started(make: Callable[[], AsyncClient]) -> AsyncClient:
    client = make()
    try:
        await client.start()
    except BaseException:
        await client.close()
        raise
    return client
