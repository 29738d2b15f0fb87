"""How often one broker is asked: one request at a time, and at most a twentieth of its time.

A request without an answer cost the broker nothing, so the rest after it has a limit.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

REST_TIMES = 19  # after an answer that took t, nothing is asked for 19 t
UNANSWERED_SECONDS = 10.0  # the longest rest after a request without an answer

Result = TypeVar("Result")


class Pace:
    """The requests to one broker, in order. `clock` gives seconds. No rest is longer than
    `rest_max` seconds: an answer may be slow for other reasons than the broker's work."""

    def __init__(
        self,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        rest_max: float = float("inf"),
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._rest_max = rest_max
        self._one = asyncio.Lock()
        self._rest_until = float("-inf")

    async def ask(self, request: Callable[[], Awaitable[Result]]) -> Result:
        """The answer to a request, which is made when the broker has rested from those before."""
        async with self._one:
            rest_s = self._rest_until - self._clock()
            if rest_s > 0:
                await self._sleep(rest_s)
            began, rest_max = self._clock(), self._rest_max
            try:
                return await request()
            except (ConnectionError, TimeoutError):
                rest_max = min(rest_max, UNANSWERED_SECONDS)
                raise
            finally:
                ended = self._clock()
                self._rest_until = ended + min(REST_TIMES * (ended - began), rest_max)
