"""The open offsets of one queue: received by this consumer and not settled yet.

The offset to commit is the smallest open one, or the one after the last message if none is open: a
crash repeats messages, it never skips one. So a committed offset is that of the next message to be
read; texts that call it the last consumed one, and add 1, differ from RocketMQ's program.
"""

from collections import deque
from collections.abc import Sequence
from itertools import islice
from operator import lt


class OpenOffsets:
    """Offsets are opened in ascending order, settled in any."""

    __slots__ = ("_next", "_open", "_settled")

    def __init__(self) -> None:
        self._open: deque[int] = deque()
        self._settled: set[int] = set()  # settled behind one that is still open
        self._next = -1

    def __len__(self) -> int:
        return len(self._open) - len(self._settled)

    def open(self, offset: int) -> bool:
        """Add an offset; False if it was added before."""
        if offset < self._next:
            return False
        self._open.append(offset)
        self._next = offset + 1
        return True

    def open_all(self, offsets: Sequence[int]) -> bool:
        """Add several offsets, all or none; False also if they don't ascend."""
        if not offsets or offsets[0] < self._next or not all(map(lt, offsets, offsets[1:])):
            return False
        self._open.extend(offsets)
        self._next = offsets[-1] + 1
        return True

    def settle_all(self, offsets: Sequence[int]) -> None:
        """Mark the messages at these offsets, all of them open, as settled."""
        waiting, settled = self._open, self._settled
        if list(islice(waiting, len(offsets))) == offsets:  # the usual case: the oldest ones
            for _ in offsets:
                waiting.popleft()
            while settled and waiting[0] in settled:
                settled.remove(waiting.popleft())
        else:
            for offset in offsets:
                self.settle(offset)

    def settle(self, offset: int) -> None:
        """Mark the message at `offset` as settled."""
        waiting, settled = self._open, self._settled
        if waiting and waiting[0] == offset:
            waiting.popleft()
            while settled and waiting[0] in settled:
                settled.remove(waiting.popleft())
        else:
            settled.add(offset)

    @property
    def committed(self) -> int:
        """Everything below is settled; -1 before the first message."""
        return self._open[0] if self._open else self._next

    @property
    def span(self) -> int:
        """The distance from the smallest to the largest open offset."""
        return self._open[-1] - self._open[0] if self._open else 0
