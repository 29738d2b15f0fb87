"""Recent timer messages, known from their sends, so that the timer need not read them again.

They are in the order of the queue of the wheel's topic. At most `FRESH_MAX` are kept; the timer
reads any more from the log.
"""

from array import array
from bisect import bisect_left
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FRESH_MAX = 20_000  # messages kept
NUMBERS = 4  # per message: queue offset, log offset, bytes of the record, slot in ms

Column = npt.NDArray[np.int64]


class Run(NamedTuple):
    """Consecutive messages of the queue; each field has one item per message."""

    places: Column
    lengths: Column
    slots_ms: Column
    topics: list[str]


class Fresh:
    """The recent messages that are not in the wheel yet."""

    def __init__(self) -> None:
        self._numbers = array("q")
        self._topics: list[str] = []  # the real topics

    def tell(self, numbers: list[int], topics: list[str]) -> None:
        """Add stored messages, in their order: `NUMBERS` numbers in a row for each, and its real
        topic."""
        room = FRESH_MAX - len(self._topics)
        self._numbers.fromlist(numbers[: room * NUMBERS])
        self._topics += topics[:room]

    def run(self, offset: int, most: int, from_ms: int, until_ms: int) -> Run | None:
        """Up to `most` known messages from this queue offset on, each for a slot in
        [from_ms, until_ms); None when the first message is not known, or not for such a slot."""
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
        """Forget the messages before this queue offset; returns whether its message is known."""
        numbers = self._numbers
        if numbers and numbers[0] < offset:
            each = range(len(self._topics))
            passed = bisect_left(each, offset, key=lambda at: numbers[at * NUMBERS])
            del numbers[: passed * NUMBERS], self._topics[:passed]
        return bool(numbers) and numbers[0] == offset
