"""Where the fields of stored message records lie in the bytes that a pull brought.

A pull answers records one after the other, exactly as the commit log keeps them. `Records` holds
the bytes and, as numpy arrays with one element per record, the positions of all variable parts.
Once made, every position in it lies within its own record: the lengths have been added up against
each record's total size. Nothing here makes a Python object per record but its start.
"""

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..protocol.errors import Malformed
from ..protocol.record import (
    BORN_HOST_AT,
    BORN_HOST_V6,
    END,
    HEAD,
    HOST_V6_EXTRA_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    MIDDLE,
    QUEUE_OFFSET_AT,
    RECORD_BYTES_MIN,
    STORE_HOST_V6,
    SYS_FLAG_AT,
)

Positions = NDArray[np.int64]

BATCH_BYTES_MAX = (1 << 31) - 1  # Arrow's binary columns count in 32 bits

# Positions within a record beside those of `protocol.record`; the ones after a host move by
# HOST_V6_EXTRA_BYTES for each IPv6 host before them.
MAGIC_AT = 4
QUEUE_ID_AT = 12
FLAG_AT = 16
BORN_TIMESTAMP_AT = BORN_HOST_AT - 8
STORE_TIMESTAMP_AT = BORN_HOST_AT + 8
STORE_HOST_AT = STORE_TIMESTAMP_AT + MIDDLE.size
RECONSUME_TIMES_AT = STORE_HOST_AT + 8
BODY_AT = RECONSUME_TIMES_AT + END.size
assert HEAD.size == BODY_AT

_SIZE = Struct(">i")


@dataclass(slots=True)
class Records:
    """Records within `data`; positions count from its beginning, ends are exclusive."""

    data: bytes
    starts: Positions
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
        found: NDArray[np.int32] = _unaligned(self.data, ">i4")[self.starts + (at + shift)]
        return found.astype(np.int32)

    def int64(self, at: int, shift: Positions | int = 0) -> NDArray[np.int64]:
        """The 8-byte field at this position of every record, `shift` bytes further on."""
        found: NDArray[np.int64] = _unaligned(self.data, ">i8")[self.starts + (at + shift)]
        return found.astype(np.int64)

    def queue_offsets(self) -> NDArray[np.int64]:
        """Each record's offset in its queue."""
        return self.int64(QUEUE_OFFSET_AT)

    def picked(self, rows: NDArray[Any]) -> "Records":
        """Only these records (a mask or positions in rising order), over the same bytes."""
        arrays = {name: getattr(self, name)[rows] for name in self.__slots__ if name != "data"}
        return Records(self.data, **arrays)


def locate(data: bytes) -> Records:
    """Finds the fields of all records in `data`.

    Malformed, with the position, when it isn't a whole number of well-formed records.
    """
    if len(data) > BATCH_BYTES_MAX:
        raise Malformed(
            f"{len(data)} bytes of records at once, the limit is {BATCH_BYTES_MAX}; "
            "set maxMessagesPerPull lower"
        )
    starts = np.array(_chain(data), np.int64)
    ends = np.append(starts[1:], len(data))[: len(starts)]
    check = _Check(starts)
    ints, shorts = _unaligned(data, ">i4"), _unaligned(data, ">u2")
    bytes_ = np.frombuffer(data, np.uint8)

    magic = _unaligned(data, ">u4")[starts + MAGIC_AT]
    second = magic == MAGIC_V2
    check(second | (magic == MAGIC_V1), lambda row: f"has the unknown magic {magic[row]:08X}")
    sys_flags = ints[starts + SYS_FLAG_AT].astype(np.int32)
    born_v6 = np.where(sys_flags & BORN_HOST_V6, HOST_V6_EXTRA_BYTES, 0)
    all_v6 = born_v6 + np.where(sys_flags & STORE_HOST_V6, HOST_V6_EXTRA_BYTES, 0)
    least = ends - starts - RECORD_BYTES_MIN - all_v6 - second  # for body, topic, properties
    check(least >= 0, lambda row: f"is {ends[row] - starts[row]} bytes, too short for its hosts")

    body_at = starts + BODY_AT + all_v6
    bodies = ints[body_at - 4].astype(np.int64)
    check((bodies >= 0) & (bodies <= least), lambda row: f"has a body of {bodies[row]} bytes")
    body_end = body_at + bodies
    wide = shorts[body_end].astype(np.int64)
    topics = np.where(second, wide, bytes_[body_end])
    left = least - bodies
    check(topics <= left, lambda row: f"has a topic of {topics[row]} bytes")
    topic_at = body_end + 1 + second
    topic_end = topic_at + topics
    properties_at = topic_end + 2
    properties = shorts[topic_end].astype(np.int64)
    check(
        properties == left - topics,
        lambda row: (
            f"has {properties[row]} bytes of properties and room for {left[row] - topics[row]}"
        ),
    )
    return Records(
        data,
        starts,
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


def slices(data: Any, starts: Positions, ends: Positions) -> pa.BinaryArray:
    """The pieces `data[start:end]` as one Arrow array, copied by Arrow and not by Python.

    The pieces must lie in `data` in rising order. They and the gaps between them are the elements
    of one array over the same bytes, of which every second one is taken.
    """
    return _every_second(data, starts, ends).take(pa.array(np.arange(0, 2 * len(starts), 2)))


def slices_in_rows(
    data: Any, rows: NDArray[Any], starts: Positions, ends: Positions, row_count: int
) -> pa.BinaryArray:
    """As `slices`, with piece i put into row `rows[i]` and null in the rows that are left.

    Of several pieces for one row the last one stays.
    """
    places = np.zeros(row_count, np.int64)
    absent = np.ones(row_count, bool)
    places[rows] = np.arange(0, 2 * len(starts), 2)
    absent[rows] = False
    return _every_second(data, starts, ends).take(pa.array(places, mask=absent))


def _every_second(data: Any, starts: Positions, ends: Positions) -> pa.BinaryArray:
    bounds = np.zeros(2 * len(starts) + 1, np.int32)
    bounds[0:-1:2] = starts
    bounds[1::2] = ends
    bounds[-1] = bounds[-2] if len(starts) else 0
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), 2 * len(starts), buffers)


def _chain(data: bytes) -> list[int]:
    """Where each record starts: each says how long it is, so this has to go step by step."""
    starts: list[int] = []
    add, size_at, position, end = starts.append, _SIZE.unpack_from, 0, len(data)
    last = end - RECORD_BYTES_MIN
    while position <= last:
        (size,) = size_at(data, position)
        if size < RECORD_BYTES_MIN:
            raise Malformed(
                f"the record at byte {position} says it is {size} bytes; "
                f"the smallest is {RECORD_BYTES_MIN}"
            )
        add(position)
        position += size
    if position != end:
        raise Malformed(
            f"the last record runs to byte {position}, but there are {end} bytes; "
            "the answer was cut off"
            if position > end
            else f"{end - position} bytes are left after the last record, too few for another"
        )
    return starts


def _unaligned(data: bytes, kind: str) -> NDArray[Any]:
    """`data` as numbers of this kind at every byte position."""
    dtype = np.dtype(kind)
    return np.ndarray((max(0, len(data) - dtype.itemsize + 1),), dtype, data, strides=(1,))


class _Check:
    """Refuses the first record that doesn't pass."""

    def __init__(self, starts: Positions) -> None:
        self._starts = starts

    def __call__(self, passes: NDArray[np.bool_], what: Callable[[int], str]) -> None:
        if not passes.all():
            row = int(np.argmin(passes))
            raise Malformed(f"the record at byte {self._starts[row]} {what(row)}")
