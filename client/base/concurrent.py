"""Many requests at a time, within a limit."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

REQUESTS_AT_ONCE = 16

One = TypeVar("One")
Result = TypeVar("Result")


async def each(things: Iterable[One], ask: Callable[[One], Awaitable[Result]]) -> list[Result]:
    """The results of `ask` in the order of `things`, REQUESTS_AT_ONCE at a time."""
    room = asyncio.Semaphore(REQUESTS_AT_ONCE)

    async def one(thing: One) -> Result:
        async with room:
            return await ask(thing)

    return await asyncio.gather(*(one(thing) for thing in things))
