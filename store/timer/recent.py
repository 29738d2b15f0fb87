"""Timer messages that are known from their sends, so that they need not be read again.

They are kept in the order in which they lie in the queue of the wheel's topic. What is told while
`FRESH_MAX` are known already is left to be read in the log.
"""

from array import array
from bisect import bisect_left
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FRESH_MAX = 20_000  # messages of the queue that are known from their sends
NUMBERS = 4  # of each: offset in the queue, place in the commit log, its length there, slot in ms

Column = npt.NDArray[np.int64]


class Run(NamedTuple):
    """Messages that follow one another in the queue; one item for each in all of its fields."""

    places: Column
    lengths: Column
    slots_ms: Column
    topics: list[str]


class Fresh:
    """What the sends told, of messages not in the wheel yet."""

    def __init__(self) -> None:
        self._numbers = array("q")
        self._topics: list[str] = []  # where they belong

    def tell(self, numbers: list[int], topics: list[str]) -> None:
        """What is known of messages that were stored, in their order: `NUMBERS` in a row for each,
        and the topic where it belongs."""
        room = FRESH_MAX - len(self._topics)
        self._numbers.fromlist(numbers[: room * NUMBERS])
        self._topics += topics[:room]

    def run(self, offset: int, most: int, from_ms: int, until_ms: int) -> Run | None:
        """Up to `most` messages from this offset of the queue on that are known and for a slot from
        `from_ms` on and before `until_ms`; None when the first is not."""
        if most <= 0 or not self._knows(offset):
            return None
        numbers = np.frombuffer(self._numbers[: most * NUMBERS], np.int64)
        offsets, places, lengths, slots_ms = numbers.reshape(-1, NUMBERS).T
        count = len(offsets)
        good = (slots_ms >= from_ms) & (slots_ms < until_ms)
        if offsets[-1] - offset >= count:
            good &= offsets == np.arange(offset, offset + count)
        if not good.all():
            count = int(good.argmin())
        if not count:
            return None
        return Run(places[:count], lengths[:count], slots_ms[:count], self._topics[:count])

    def one(self, offset: int) -> tuple[int, str] | None:
        """Slot in ms and real topic of the message at this offset; None when it isn't known."""
        return (self._numbers[3], self._topics[0]) if self._knows(offset) else None

    def _knows(self, offset: int) -> bool:
        """Whether this message is known; it is the first one then. Those before are forgotten."""
        numbers = self._numbers
        if numbers and numbers[0] < offset:
            each = range(len(self._topics))
            passed = bisect_left(each, offset, key=lambda at: numbers[at * NUMBERS])
            del numbers[: passed * NUMBERS], self._topics[:passed]
        return bool(numbers) and numbers[0] == offset
