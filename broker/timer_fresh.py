"""Timer messages that are known from their sends, so that they need not be read again.

They are kept in the order in which they lie in the queue of the wheel's topic. What is told while
`FRESH_MAX` are known already is left to be read in the log.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FRESH_MAX = 20_000  # messages of the queue that are known from their sends
# Offset in the queue of the wheel's topic, place in the commit log, length of the record, slot in
# ms, real topic.
Told = tuple[int, int, int, int, str]


class Run(NamedTuple):
    """Messages that follow one another in the queue; one item for each in all of its fields."""

    places: Sequence[int]
    lengths: Sequence[int]
    slots_ms: npt.NDArray[np.int64]
    topics: Sequence[str]


class Fresh:
    """What the sends told, of messages not in the wheel yet."""

    def __init__(self) -> None:
        self._told: list[Told] = []

    def tell(self, told: list[Told]) -> None:
        """What is known of messages that were stored, in their order."""
        self._told += told[: FRESH_MAX - len(self._told)]

    def run(self, offset: int, most: int, from_ms: int, until_ms: int) -> Run | None:
        """Up to `most` messages from this offset of the queue on that are known and for a slot from
        `from_ms` on and before `until_ms`; None when the first is not."""
        told = self._from(offset)[:most]
        if not told:
            return None
        offsets, places, lengths, times, topics = zip(*told, strict=True)
        slots_ms = np.array(times, np.int64)
        good = (slots_ms >= from_ms) & (slots_ms < until_ms)
        if offsets[-1] - offset >= len(told):
            good &= np.array(offsets) - offset == np.arange(len(told))
        count = len(told) if good.all() else int(good.argmin())
        if not count:
            return None
        return Run(places[:count], lengths[:count], slots_ms[:count], topics[:count])

    def one(self, offset: int) -> tuple[int, str] | None:
        """Slot in ms and real topic of the message at this offset; None when it isn't known."""
        told = self._from(offset)
        return told[0][3:] if told else None

    def _from(self, offset: int) -> list[Told]:
        """What is known from this offset on, without what is before; nothing when it is not."""
        told = self._told
        if told and told[0][0] < offset:
            del told[: bisect_left(told, (offset,))]
        return told if told and told[0][0] == offset else []
