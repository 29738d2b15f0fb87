"""The inner loops of reading a run of records: compiled.

What `store/log/run.py` does with numpy: to find the records, to gather their properties, and to
hash tags and keys.
"""

import numpy as np
from numpy.typing import NDArray

from ...protocol.kernels.compiled import compiled, int64
from ...protocol.kernels.parse_sends import Bytes, Numbers, copied, uint32_at
from ...protocol.message.record import (
    BODY_CRC_AT,
    BORN_HOST_V6,
    CRC_MASK,
    HEAD_BYTES,
    HOST_V6_EXTRA_BYTES,
    LOG_OFFSET_AT,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    STORE_HOST_V6,
    SYS_FLAG_AT,
)
from ..log.property_table import ENTRY_END
from .record_encoder import body_crc

BODY_LENGTH_BYTES = 4
ASCII_MAX = 0x7F


class CompiledRuns:
    """`RunKernels` in machine code."""

    def __init__(self) -> None:
        self._starts = np.empty(0, np.int64)

    def whole(self, data: bytes, place: int) -> tuple[Numbers, int]:
        """Implements `RunKernels.whole`."""
        most = len(data) // RECORD_BYTES_MIN
        if most > len(self._starts):
            self._starts = np.empty(most, np.int64)
        count, end = whole_records(np.frombuffer(data, np.uint8), place, self._starts)
        return self._starts[:count].copy(), int(end)

    def joined(
        self, data: bytes, starts: Numbers, ends: Numbers
    ) -> tuple[NDArray[np.uint8], Numbers]:
        """Implements `RunKernels.joined`."""
        out = np.empty(int((ends - starts).sum()) + len(starts), np.uint8)
        bounds = np.empty(len(starts) + 1, np.int64)
        join_texts(np.frombuffer(data, np.uint8), starts, ends, out, bounds)
        return out, bounds

    def hashes(self, data: NDArray[np.uint8], starts: Numbers, ends: Numbers, out: Numbers) -> bool:
        """Implements `RunKernels.hashes`."""
        return bool(hash_texts(data, starts, ends, out))


def prepare() -> None:
    """Compile everything here, or load it from the cache: from milliseconds to seconds."""
    runs, number = CompiledRuns(), np.zeros(1, np.int64)
    runs.whole(bytes(RECORD_BYTES_MIN), 0)
    data, _ = runs.joined(b"a", number, number + 1)
    runs.hashes(data, number, number + 1, number.copy())


@compiled
def int64_at(data: Bytes, at: int) -> int:
    """The number of 64 bits at this place, big-endian."""
    return uint32_at(data, at) << 32 | uint32_at(data, at + 4)


@compiled
def whole_records(data: Bytes, place: int, starts: Numbers) -> tuple[int, int]:
    """Note where each whole record begins whose bytes fit together up to its body.

    `data` lies at `place` of the log. Returns the number of records, and where the last one ends.
    """
    count = at = int64(0)
    while count < len(starts) and at + RECORD_BYTES_MIN <= len(data):
        size, magic = uint32_at(data, at), uint32_at(data, at + MAGIC_AT)
        is_second = magic == MAGIC_V2
        if at + size > len(data) or not (is_second or magic == MAGIC_V1):
            break
        flags = uint32_at(data, at + SYS_FLAG_AT)
        extra = HOST_V6_EXTRA_BYTES if flags & BORN_HOST_V6 else 0
        extra += HOST_V6_EXTRA_BYTES if flags & STORE_HOST_V6 else 0
        least = RECORD_BYTES_MIN + extra + (1 if is_second else 0)
        if size < least or int64_at(data, at + LOG_OFFSET_AT) != place + at:
            break
        body_at = at + HEAD_BYTES + extra
        body = uint32_at(data, body_at - BODY_LENGTH_BYTES)
        if body > size - least:
            break
        if body:
            crc = body_crc(data, body_at, body_at + body) & CRC_MASK
            if crc != uint32_at(data, at + BODY_CRC_AT):
                break
        starts[count] = at
        count += 1
        at += size
    return count, at


@compiled
def join_texts(data: Bytes, starts: Numbers, ends: Numbers, out: Bytes, bounds: Numbers) -> None:
    """Copy these texts to `out`, a separator behind each; `bounds` gets where each begins."""
    to = int64(0)
    for row in range(len(starts)):
        bounds[row] = to
        to = copied(data, starts[row], ends[row], out, to)
        out[to] = ENTRY_END
        to += 1
    bounds[len(starts)] = to


@compiled
def hash_texts(data: Bytes, starts: Numbers, ends: Numbers, out: Numbers) -> bool:
    """Go on with Java's hashes in `out` by these texts; False when one of them is not ASCII."""
    for row in range(len(starts)):
        found = out[row]
        for at in range(starts[row], ends[row]):
            unit = int64(data[at])
            if unit > ASCII_MAX:
                return False
            found = (found * 31 + unit) & 0xFFFFFFFF
        out[row] = found
    return True
