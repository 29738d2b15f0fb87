"""Where the fields of many stored message records lie, in bytes that hold them one behind another.

So a pull answers records, and so the commit log keeps them. `Records` holds the bytes and, as numpy
arrays with one element per record, the positions of all variable parts. Once made, every position
in it lies within its own record: the lengths have been added up against each record's total
size. Nothing here makes a Python object per record but its start.
"""

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...protocol.errors import Malformed
from ...protocol.message.record import (
    BORN_HOST_V6,
    HEAD_BYTES,
    HOST_V6_EXTRA_BYTES,
    LOG_OFFSET_AT,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    QUEUE_OFFSET_AT,
    RECORD_BYTES_MIN,
    STORE_HOST_V6,
    STORE_MS_AT,
    SYS_FLAG_AT,
)

Positions = NDArray[np.int64]

_SIZE = Struct(">i")


@dataclass(slots=True)
class Records:
    """Records within `data`; positions count from its beginning, ends are exclusive."""

    data: bytes
    starts: Positions
    sizes: Positions
    sys_flags: NDArray[np.int32]
    born_v6: Positions  # HOST_V6_EXTRA_BYTES where the born host is IPv6, else 0
    all_v6: Positions  # the same of both hosts together
    body_at: Positions
    body_end: Positions
    topic_at: Positions
    topic_end: Positions
    properties_at: Positions
    properties_end: Positions

    def __len__(self) -> int:
        return len(self.starts)

    def int32(self, at: int, shift: Positions | int = 0) -> NDArray[np.int32]:
        """The 4-byte field at this position of every record, `shift` bytes further on."""
        found: NDArray[np.int32] = unaligned(self.data, ">i4")[self.starts + (at + shift)]
        return found.astype(np.int32)

    def int64(self, at: int, shift: Positions | int = 0) -> NDArray[np.int64]:
        """The 8-byte field at this position of every record, `shift` bytes further on."""
        found: NDArray[np.int64] = unaligned(self.data, ">i8")[self.starts + (at + shift)]
        return found.astype(np.int64)

    def queue_offsets(self) -> NDArray[np.int64]:
        """Each record's offset in its queue."""
        return self.int64(QUEUE_OFFSET_AT)

    def log_offsets(self) -> NDArray[np.int64]:
        """The offset in the log that each record has in its header."""
        return self.int64(LOG_OFFSET_AT)

    def store_times(self) -> NDArray[np.int64]:
        """The time when each record was stored, ms."""
        return self.int64(STORE_MS_AT, self.born_v6)

    def picked(self, rows: NDArray[Any] | slice) -> "Records":
        """Only these records (a mask or positions in rising order), over the same bytes."""
        arrays = {name: getattr(self, name)[rows] for name in self.__slots__ if name != "data"}
        return Records(self.data, **arrays)


def locate(data: bytes, starts: Positions | None = None) -> Records:
    """Finds the fields of all records in `data`; their first bytes too, unless `starts` has them.

    Malformed, with the position, when it isn't a whole number of well-formed records.
    """
    places: list[int] | Positions
    if starts is None:
        places, end = chain(data)
        if end != len(data):
            raise Malformed(_why_it_ends(data, end))
    else:
        places, end = starts, len(data)
    records, wrong = survey(data, places, end)
    if wrong is not None:
        raise Malformed(f"the record at byte {places[len(records)]} {wrong}")
    return records


def chain(data: bytes) -> tuple[list[int], int]:
    """The start of each record, and the end of the last.

    Each record has its own length, so the loop goes record by record. It ends before bytes that are
    too few for a record, and before a record that runs over the end of the data.
    """
    starts: list[int] = []
    add, size_at, position, end = starts.append, _SIZE.unpack_from, 0, len(data)
    last = end - RECORD_BYTES_MIN
    while position <= last:
        (size,) = size_at(data, position)
        if size < RECORD_BYTES_MIN or position + size > end:
            break
        add(position)
        position += size
    return starts, position


def survey(data: bytes, starts: list[int] | Positions, end: int) -> tuple[Records, str | None]:
    """The records that begin at `starts` and lie side by side up to `end`.

    They end before the first record that is not well-formed; then the text names its error.
    """
    try:
        return _located(data, starts, end), None
    except _Wrong as wrong:
        records, earlier = survey(data, starts[: wrong.row], int(starts[wrong.row]))
        return records, earlier or wrong.what


def unaligned(data: Any, kind: str) -> NDArray[Any]:
    """`data` as numbers of this kind at every byte position."""
    dtype = np.dtype(kind)
    return np.ndarray((max(0, len(data) - dtype.itemsize + 1),), dtype, data, strides=(1,))


def _located(data: bytes, begins: list[int] | Positions, end: int) -> Records:
    starts = np.array(begins, np.int64)
    ends = np.append(starts[1:], end)[: len(starts)]
    sizes = ends - starts
    ints, shorts = unaligned(data, ">i4"), unaligned(data, ">u2")
    bytes_ = np.frombuffer(data, np.uint8)

    magic = unaligned(data, ">u4")[starts + MAGIC_AT]
    second = magic == MAGIC_V2
    _check(second | (magic == MAGIC_V1), lambda row: f"has the unknown magic {magic[row]:08X}")
    sys_flags = ints[starts + SYS_FLAG_AT].astype(np.int32)
    born_v6 = np.where(sys_flags & BORN_HOST_V6, HOST_V6_EXTRA_BYTES, 0)
    all_v6 = born_v6 + np.where(sys_flags & STORE_HOST_V6, HOST_V6_EXTRA_BYTES, 0)
    least = sizes - RECORD_BYTES_MIN - all_v6 - second  # for body, topic, properties
    _check(least >= 0, lambda row: f"is {sizes[row]} bytes, too short for its hosts")

    body_at = starts + HEAD_BYTES + all_v6
    bodies = ints[body_at - 4].astype(np.int64)
    _check((bodies >= 0) & (bodies <= least), lambda row: f"has a body of {bodies[row]} bytes")
    body_end = body_at + bodies
    int64 = shorts[body_end].astype(np.int64)
    topics = np.where(second, int64, bytes_[body_end])
    left = least - bodies
    _check(topics <= left, lambda row: f"has a topic of {topics[row]} bytes")
    topic_at = body_end + 1 + second
    topic_end = topic_at + topics
    properties_at = topic_end + 2
    properties = shorts[topic_end].astype(np.int64)
    _check(
        properties == left - topics,
        lambda row: (
            f"has {properties[row]} bytes of properties and room for {left[row] - topics[row]}"
        ),
    )
    return Records(
        data,
        starts,
        sizes,
        sys_flags,
        born_v6,
        all_v6,
        body_at,
        body_end,
        topic_at,
        topic_end,
        properties_at,
        properties_at + properties,
    )


class _Wrong(Exception):
    """A record doesn't pass: its row, and what is wrong with it."""

    def __init__(self, row: int, what: str) -> None:
        super().__init__(what)
        self.row = row
        self.what = what


def _check(passes: NDArray[np.bool_], what: Callable[[int], str]) -> None:
    """_Wrong with the first record that doesn't pass."""
    if not passes.all():
        row = int(np.argmin(passes))
        raise _Wrong(row, what(row))


def _why_it_ends(data: bytes, at: int) -> str:
    """The reason why no record begins at this byte."""
    left = len(data) - at
    if left < RECORD_BYTES_MIN:
        return f"{left} bytes are left after the last record, too few for another"
    (size,) = _SIZE.unpack_from(data, at)
    if size < RECORD_BYTES_MIN:
        return (
            f"the record at byte {at} says it is {size} bytes; the smallest is {RECORD_BYTES_MIN}"
        )
    return (
        f"the last record runs to byte {at + size}, but there are {len(data)} bytes; "
        "the answer was cut off"
    )
