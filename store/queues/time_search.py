"""Finds the message of a queue that was stored at a given moment.

RocketMQ searches for the file first and then inside that file only, which decides its results at
the edges. The results here are the same, so a consumer reset by time gets the same offset.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable

from .consume_queue import ENTRY_BYTES, ConsumeQueue

StoreTime = Callable[[int], int]


def offset_at(
    queue: ConsumeQueue,
    end: int,
    moment_ms: int,
    upper: bool,
    log_start: int,
    store_ms: StoreTime,
) -> int:
    """The offset of the first message stored at `moment_ms` or later; not yet clamped to the queue.

    With `upper` the last one stored at that moment or earlier. `store_ms(log offset)` returns the
    store time of the record there, 0 without one.
    """
    spans = _spans(queue, end)
    if not spans:
        return 0

    def time_of(offset: int) -> int:
        return store_ms(queue.entry(offset)[0])

    start, stop = _file(spans, moment_ms, upper, time_of)
    low = max(start, queue.min_offset)
    if time_of(stop - 1) < moment_ms:
        return stop - 1 if upper else stop
    if low < stop and time_of(low) > moment_ms:
        return 0 if upper else start
    high = stop
    # The first offset at `moment_ms` or later; with `upper` the first one later.
    while low < high:
        middle = (low + high) // 2
        place = queue.entry(middle)[0]
        moment = store_ms(place)
        if place < log_start or moment < moment_ms or (upper and moment == moment_ms):
            low = middle + 1
        else:
            high = middle
    return low - 1 if upper else low


def _spans(queue: ConsumeQueue, end: int) -> list[tuple[int, int]]:
    """The offsets [first, end) of the entries in each file."""
    spans = []
    for segment in queue.segments.items:
        start = segment.base // ENTRY_BYTES
        stop = min(segment.end // ENTRY_BYTES, end)
        if start < stop:
            spans.append((start, stop))
    return spans


def _file(
    spans: list[tuple[int, int]], moment_ms: int, upper: bool, time_of: StoreTime
) -> tuple[int, int]:
    """The span of the file to search: the file that RocketMQ finds by reading one after the other.

    With `upper` the last file that begins at the moment or earlier, else the first one that ends at
    the moment or later. Binary search, so a thousand files cost little more than ten.
    """
    if upper:
        number = bisect_right(spans, moment_ms, key=lambda span: time_of(span[0])) - 1
        return spans[max(0, number)]
    number = bisect_left(spans, moment_ms, key=lambda span: time_of(span[1] - 1))
    return spans[min(number, len(spans) - 1)]
