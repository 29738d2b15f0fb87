"""How an application gets the messages of a push consumer: it takes them, or gives a listener.

True at all times: a message that was handed out is known to whoever settles it, before the
application has it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Self, overload

from ..errors import ClientError
from ..group.received import ReceivedMessage
from .listening import CONCURRENCY, Function, Listener
from .member import PushMember
from .service import PushParts


class Receiving(PushMember):
    """Hands messages out; the consumer itself adds its life and its topics.

    `_taken` is told of each; before the start there is none to be taken.
    """

    _parts: PushParts | None
    _taken: Callable[[ReceivedMessage], None]

    @overload
    def listener(self, function: Function) -> Function: ...

    @overload
    def listener(
        self, *, batch_max: int | None = None, concurrency: int = CONCURRENCY
    ) -> Callable[[Function], Function]: ...

    def listener(
        self,
        function: Function | None = None,
        *,
        batch_max: int | None = None,
        concurrency: int = CONCURRENCY,
    ) -> Function | Callable[[Function], Function]:
        """Have `function` called with the messages, instead of iterating; before the start.

        It gets one message, or with `batch_max` a list of at most so many, of one queue, and a
        `Context`. At most `concurrency` calls run at the same time; a plain function runs in a
        thread. Returning means done, raising (or returning `Outcome.LATER`) that the messages come
        again. Works as `@consumer.listener` and as `@consumer.listener(concurrency=5)`.
        """

        def register(function: Function) -> Function:
            if self._parts is not None or self._settings.listener is not None:
                raise ClientError("give a consumer one listener, before its start")
            listener = Listener(function, batch_max, concurrency)
            self._settings = replace(self._settings, listener=listener)
            return function

        return register if function is None else register(function)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        message = self._inbox.take_now()
        if message is None:
            self._iterable()
            message = await self._inbox.take()
        if message is None:
            raise StopAsyncIteration
        self._taken(message)
        return message

    async def receive(
        self,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> ReceivedMessage | None:
        """The next message; None after `timeout` seconds without one, or once closed."""
        message = self._inbox.take_now()
        if message is None:
            self._iterable()
            try:
                async with asyncio.timeout(timeout):
                    message = await self._inbox.take()
            except TimeoutError:
                return None
        if message is not None:
            self._taken(message)
        return message

    async def receive_batch(
        self,
        messages_max: int = 32,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> list[ReceivedMessage]:
        """The next messages, at least one and at most so many; none as `receive` gives None."""
        first = await self.receive(timeout)
        found = [] if first is None else [first]
        while found and len(found) < messages_max:
            message = self._inbox.take_now()
            if message is None:
                break
            self._taken(message)
            found.append(message)
        return found

    def pause(self) -> None:
        """Begin no more pulls; what is here already is still handed out."""
        self._open().loop.pause()

    def resume(self) -> None:
        """Pull again."""
        self._open().loop.resume()

    def _iterable(self) -> None:
        if self._open().workers is not None:
            raise ClientError("this consumer has a listener, which gets the messages")
