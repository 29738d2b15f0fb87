"""Receiving from a push consumer: by iteration, or with a listener.

Invariant: a message is registered with its settler before the application gets it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Self, overload

from ..errors import ClientError
from ..group.received import ReceivedMessage
from .listening import CONCURRENCY, Function, Listener
from .member import PushMember
from .service import PushService


class Receiving(PushMember):
    """Hands out messages; the subclass adds life cycle and topics."""

    _service: PushService | None

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
        """Call `function` with the messages, instead of iterating; before the start.

        It gets one message, or with `batch_max` a list of at most that many, of one queue, and a
        `Context`. At most `concurrency` calls run at the same time; an ordinary function runs in
        a thread. Returning acknowledges; raising (or returning `Outcome.LATER`) means redelivery.
        Works as `@consumer.listener` and as `@consumer.listener(concurrency=5)`.
        """

        def register(function: Function) -> Function:
            if self._service is not None or self._settings.listener is not None:
                raise ClientError("give a consumer one listener, before its start")
            listener = Listener(function, batch_max, concurrency)
            self._settings = replace(self._settings, listener=listener)
            return function

        return register if function is None else register(function)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        self._iterable()
        message = self._inbox.take_now()
        if message is None:
            message = await self._inbox.take()
        if message is None:
            raise StopAsyncIteration
        message.settler.taken(message)
        return message

    async def receive(
        self,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> ReceivedMessage | None:
        """The next message; None after `timeout` seconds without one, or once closed."""
        self._iterable()
        message = self._inbox.take_now()
        if message is None:
            try:
                async with asyncio.timeout(timeout):
                    message = await self._inbox.take()
            except TimeoutError:
                return None
        if message is not None:
            message.settler.taken(message)
        return message

    async def receive_batch(
        self,
        messages_max: int = 32,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> list[ReceivedMessage]:
        """The next messages, one at least; an empty list where `receive` returns None."""
        first = await self.receive(timeout)
        found = [] if first is None else [first]
        while found and len(found) < messages_max:
            message = self._inbox.take_now()
            if message is None:
                break
            message.settler.taken(message)
            found.append(message)
        return found

    def pause(self) -> None:
        """Start no more pulls; messages already received are still handed out."""
        self._open().loop.pause()

    def resume(self) -> None:
        """Pull again."""
        self._open().loop.resume()

    def _iterable(self) -> None:
        if self._open().workers is not None:
            raise ClientError("this consumer has a listener, which gets the messages")
