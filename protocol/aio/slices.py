"""Work that grows with a server's tables, done in slices between which requests are served.

An answer about every topic or every group takes up to seconds of processor time. The handler of
such a request gives `Slices.respond` a generator, which yields after each small piece of work and
returns the reply. What is ready within one slice is answered at once. For the rest a task works
through the generator, one slice in an iteration of the event loop, and answers at its end.

Tables may change between two slices, so a generator takes a copy of the names first and skips the
names that are gone when it comes to them. The task ends with its connection.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from typing import Any, TypeVar

from .. import codes
from ..codec.frame import FRAME_BYTES_MAX, too_large
from ..command import Response
from ..errors import Refusal
from .scheduler import Scheduler

SLICE_SECONDS = 0.0001  # of work in one tick, while others are served
QUIET_SLICE_SECONDS = 0.001  # the same while no other request comes
QUIET_SLICES = 16  # slices without another request, from which on it is quiet
RESPONSES_MAX = 16  # long answers in the making at a time

work_clock: Callable[[], float] = time.perf_counter  # seconds; a simulation has its own
BLOCK_BYTES = 64 << 10  # small pieces of a body are put together to so much

LongResponse = Response | Coroutine[Any, Any, Response]
Result = TypeVar("Result")

_MORE: Any = object()


class OnePerTick:
    """A lock for work beside the requests: its holder is alone with it until the next tick;
    the others wait in order."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> None:
        await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        try:
            await asyncio.sleep(0)
        finally:
            self._lock.release()


class Slices:
    """Runs generators in slices. Slices of different generators, and whatever else enters `part`,
    never run in the same tick. `clock` gives seconds, by default `work_clock`."""

    def __init__(
        self,
        scheduler: Scheduler,
        part: OnePerTick | None = None,
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._part = part or OnePerTick()
        self._clock = clock or work_clock
        self._answers = 0

    def respond(
        self, steps: Generator[object, None, Response], *, counted: bool = True
    ) -> LongResponse:
        """The value for a handler to return whose response these steps make. The request is refused
        (SYSTEM_BUSY) while `RESPONSES_MAX` others are being made. A response whose size grows with
        no table need not be `counted`."""
        reply = self._slice(steps, SLICE_SECONDS)
        if reply is not _MORE:
            return reply
        return self._answer(steps) if counted else self.run(steps)

    async def run(self, steps: Generator[object, None, Result]) -> Result:
        """Run these steps in as many slices as they need, and return their result."""
        scheduler, served, quiet = self._scheduler, self._scheduler.served, 0
        try:
            while True:
                async with self._part:
                    seconds = QUIET_SLICE_SECONDS if quiet >= QUIET_SLICES else SLICE_SECONDS
                    found: Result = self._slice(steps, seconds)
                    if found is not _MORE:
                        return found
                    if quiet < QUIET_SLICES:
                        await asyncio.sleep(0)  # every other tick is for requests alone
                quiet = quiet + 1 if scheduler.served == served else 0
                served = scheduler.served
        finally:
            steps.close()

    async def _answer(self, steps: Generator[object, None, Response]) -> Response:
        if self._answers >= RESPONSES_MAX:
            raise Refusal(
                codes.SYSTEM_BUSY,
                f"[OVERLOAD]{self._answers} answers about whole tables are in the making, the "
                f"limit is {RESPONSES_MAX}; try again later",
            )
        self._answers += 1
        try:
            return await self.run(steps)
        finally:
            self._answers -= 1

    def _slice(self, steps: Generator[object, None, Result], seconds: float) -> Result:
        """Work for so long; `_MORE` when that was not the end."""
        clock = self._clock
        end = clock() + seconds
        try:
            while True:
                next(steps)
                if clock() >= end:
                    return _MORE  # type: ignore[no-any-return]
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


def collected(pieces: Iterable[bytes]) -> Generator[None, None, list[bytes]]:
    """The steps of making these pieces, put together to blocks of `BLOCK_BYTES`."""
    blocks: list[bytes] = []
    block: list[bytes] = []
    size = 0
    for piece in pieces:
        block.append(piece)
        size += len(piece)
        if size > BLOCK_BYTES:
            blocks.append(b"".join(block))
            block.clear()
            size = 0
        yield
    if block:
        blocks.append(b"".join(block))
    return blocks


def reply_of(
    pieces: Iterable[bytes], fields: dict[str, str] | None = None
) -> Generator[None, None, Response]:
    """The steps of an answer whose body is these pieces, one after the other. Refusal as soon as
    they are more than a frame may hold."""
    return Response(codes.SUCCESS, fields, body=(yield from collected(_checked(pieces))))


def _checked(pieces: Iterable[bytes]) -> Iterator[bytes]:
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > FRAME_BYTES_MAX:
            raise too_large(size)
        yield piece


async def step_per_tick(steps: Generator[object, None, Result]) -> Result:
    """Run these steps, one in each iteration of the event loop, and return their result: for a
    process that serves no requests in that loop."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        await asyncio.sleep(0)
