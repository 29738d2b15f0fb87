"""The properties of many messages at once, found without a Python object per message.

Each message carries one text, `name \\x01 value \\x02 name \\x01 value \\x02 ...`. A table holds
all of them behind one another and knows where each entry lies; to look a name up is to compare the
words at these places. Read as RocketMQ reads: the first \\x01 splits, an entry without name or
without value is none, of two with one name the last counts.
"""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .records import Positions

NAME_END = 1
ENTRY_END = 2
_WORD_BYTES = 8


class PropertyTable:
    """The property texts of a batch of messages; row i belongs to message i."""

    def __init__(self, texts: bytes | NDArray[np.uint8], bounds: NDArray[Any]) -> None:
        """Text i is `texts[bounds[i]:bounds[i + 1]]` and ends with a separator, or is empty."""
        self.bounds = bounds
        first, end = (int(bounds[0]), int(bounds[-1])) if len(bounds) else (0, 0)
        held = texts if isinstance(texts, np.ndarray) else np.frombuffer(texts, np.uint8)
        # Some room behind, so that a name is compared in words at the very end too.
        self.data = np.zeros(end + 2 * _WORD_BYTES, np.uint8)
        self.data[first:end] = held[first:end]
        self.ends: Positions = np.flatnonzero(self.data == ENTRY_END)
        self.starts = np.full_like(self.ends, first)
        self.starts[1:] = self.ends[:-1] + 1

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def find(self, name: str) -> tuple[Positions, Positions, Positions]:
        """The messages that have this property, ascending, and where each one's value lies."""
        wanted = name.encode() + bytes((NAME_END,))
        found = self.starts
        for at in range(0, len(wanted), _WORD_BYTES):
            part = wanted[at : at + _WORD_BYTES]
            mask = np.uint64((1 << 8 * len(part)) - 1)
            words = self._heads if at == 0 else self._words()[found + at]
            found = found[words & mask == np.uint64(int.from_bytes(part, "little"))]
        # The name holds no separator, so a match lies within one entry.
        ends = self.ends[np.searchsorted(self.starts, found)]
        starts = found + len(wanted)
        full = ends > starts
        starts, ends = starts[full], ends[full]
        rows = self.rows(starts)
        last = np.append(rows[1:] != rows[:-1], True)[: len(rows)]
        return rows[last], starts[last], ends[last]

    def rows(self, positions: Positions) -> Positions:
        """The message that each of these positions lies in."""
        found: Positions = np.searchsorted(self.bounds, positions, side="right") - 1
        return found

    def entry_rows(self) -> Positions:
        """The message of each entry."""
        counts = np.diff(np.searchsorted(self.ends, self.bounds))
        return np.repeat(np.arange(len(counts)), counts)

    @cached_property
    def splits(self) -> Positions:
        """The end of each entry's name, or a place behind the entry that has none."""
        found: Positions = np.flatnonzero(self.data == NAME_END)
        if len(found) == len(self.ends) and ((found >= self.starts) & (found < self.ends)).all():
            return found
        found = np.append(found, len(self.data))
        return found[np.searchsorted(found, self.starts)]

    @cached_property
    def _heads(self) -> NDArray[np.uint64]:
        """The first 8 bytes of each entry."""
        return self._words()[self.starts]

    def _words(self) -> NDArray[np.uint64]:
        """The 8 bytes from each position on, as a little-endian number."""
        count = len(self.data) - _WORD_BYTES + 1
        return np.ndarray((count,), np.dtype("<u8"), self.data, strides=(1,))
