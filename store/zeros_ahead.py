"""Zeros where the log will write records, many pages at once.

The system then finds memory for them in large pieces: that and the writes of the records together
cost half of what small writes alone do. And a sync finds blocks that are in use, and takes half as
long as one that has the file system note for each that it is now.

On a virtual machine the memory itself may come slowly. So where much comes another thread writes
the zeros, far enough ahead: never where records have been written, which the log makes sure of by
asking (`reach`) before it writes behind `next`.
"""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from .segment import ZEROS, ZEROS_BYTES, Segment

AHEAD_BYTES = 1 << 20  # of zeros that the other thread is asked for, once so many were written

Submit = Callable[[Callable[[int, int], None], int, int], "Future[None]"]


class ZerosAhead:
    """The zeros ahead of a log. All places are those of the log. `submit` is that of an executor
    with one thread, if there is one to be asked."""

    def __init__(self) -> None:
        self.next = 0  # records that end behind it may be written after `reach` only
        self.submit: Submit | None = None
        self._end = 0  # nobody else writes before that
        self._asked_end = 0  # where what the other thread is at ends
        self._work: Future[None] | None = None
        self._own = 0  # bytes of zeros written without another thread

    def reach(self, segment: Segment, written: int, end: int) -> None:
        """Records will be written from `written` to `end`. OSError when the disk takes no zeros."""
        work, self._work = self._work, None
        if work is not None and not work.cancel():
            with suppress(OSError):  # the log finds what is wrong, too
                work.result()
            self._end = self._asked_end
        if end > self._end:
            stop = min(end - end % ZEROS_BYTES + ZEROS_BYTES, segment.end)
            # What comes in much larger pieces needs none: only behind it there are some.
            start = max(self._end, written, stop - ZEROS_BYTES)
            segment.write(start - segment.base, ZEROS[: stop - start])
            self._own += stop - start
            self._end = stop
        self.next = self._end
        if self.submit is not None and self._own >= AHEAD_BYTES:
            if end < self._end - AHEAD_BYTES // 2:
                self.next = self._end - AHEAD_BYTES // 2
            elif self._end < segment.end:
                self._asked_end = min(self._end + AHEAD_BYTES, segment.end)
                start, stop = self._end - segment.base, self._asked_end - segment.base
                self._work = self.submit(segment.write_zeros, start, stop)
