"""The inner loops of the store, compiled (numba)."""

import numpy as np
from numpy.typing import NDArray

from ...protocol.kernels.compiled import compiled, int64
from ...protocol.kernels.parse_sends import Bytes, Numbers, copied, uint32_at
from ..base.kernels import Buffer
from ..files.segment import Segment
from ..index import index_file
from ..queues.consume_queue import ENTRY_BYTES, OFFSET_AT, SIZE_AT
from . import runs
from .record_encoder import put32, put64
from .runs import CompiledRuns, int64_at

# Compiled code takes numbers of the module only.
HEADER_BYTES, SLOT_BYTES = index_file.HEADER_BYTES, index_file.SLOT_BYTES
INDEX_ENTRY_BYTES = index_file.ENTRY_BYTES
HASH_AT, PLACE_AT = index_file.HASH_AT, index_file.OFFSET_AT
SECONDS_AT, OLDER_AT = index_file.SECONDS_AT, index_file.OLDER_AT


class CompiledKernels:
    """`Kernels` in machine code. The first call of each may compile for seconds: see `prepare`."""

    def __init__(self) -> None:
        self.runs = CompiledRuns()
        self._copy = np.empty(0, np.uint8)

    def gather(
        self, queue: Segment, at: int, count: int, log: Segment, bytes_max: int
    ) -> Buffer | None:
        """Implements `Kernels.gather`."""
        if bytes_max > len(self._copy):
            self._copy = np.empty(bytes_max, np.uint8)
        out = self._copy[:bytes_max]
        start, size = gather(queue.array, at, count, log.array, log.base, out)
        if size < 0:
            return None
        return log.memory[start : start + size] if start >= 0 else out[:size].tobytes()

    def index_insert(
        self,
        memory: NDArray[np.uint8],
        slot_count: int,
        count: int,
        hashes: Numbers,
        offsets: Numbers,
        seconds: Numbers,
    ) -> int:
        """Implements `Kernels.index_insert`."""
        room = np.empty((2, len(hashes)), np.int64)
        return index_insert(memory, slot_count, count, hashes, offsets, seconds, *room)


def prepare() -> None:
    """Compile everything here, or load it from the cache: from milliseconds to seconds."""
    runs.prepare()
    numbers = np.zeros(1, np.int64)
    index_insert(np.zeros(1 << 10, np.uint8), 1, 1, numbers, numbers, numbers, numbers, numbers)
    file = np.frombuffer(bytes(ENTRY_BYTES), np.uint8)
    gather(file, 0, 1, file, 0, np.empty(1, np.uint8))


@compiled
def gather(queue: Bytes, at: int, count: int, log: Bytes, base: int, out: Bytes) -> tuple[int, int]:
    """Copy the records that `count` entries name to `out`, unless they are neighbours.

    `log` is the log file that begins at place `base`. Returns where they begin in `log` if they
    are neighbours, else -1; and their size in bytes. The size is -1 when a record lies outside of
    `log`, or when `out` is too small.
    """
    total = behind = first = int64(0)
    is_row = True
    for entry in range(at, at + ENTRY_BYTES * count, ENTRY_BYTES):
        start = int64_at(queue, entry + OFFSET_AT) - base
        size = uint32_at(queue, entry + SIZE_AT)
        total += size
        if start < 0 or start + size > len(log) or total > len(out):
            return int64(-1), int64(-1)
        if entry == at:
            first = start
        is_row = is_row and (entry == at or start == behind)
        behind = start + size
    if is_row:
        return first, total
    done = int64(0)
    for entry in range(at, at + ENTRY_BYTES * count, ENTRY_BYTES):
        start = int64_at(queue, entry + OFFSET_AT) - base
        done = copied(log, start, start + uint32_at(queue, entry + SIZE_AT), out, done)
    return int64(-1), done


@compiled
def index_insert(
    memory: Bytes,
    slot_count: int,
    count: int,
    hashes: Numbers,
    offsets: Numbers,
    seconds: Numbers,
    slots: Numbers,
    near: Numbers,
) -> int:
    """Like `Kernels.index_insert`. `slots` and `near` are scratch room, one number per key."""
    entries_at = HEADER_BYTES + SLOT_BYTES * slot_count
    used = 0
    # The slots lie all over the file. This loop only touches them, so that the processor fetches
    # many at a time; the loop that changes them then finds them in its cache.
    for place in range(len(hashes)):
        slots[place] = HEADER_BYTES + SLOT_BYTES * (hashes[place] % slot_count)
        near[place] = memory[slots[place]]
    for place in range(len(hashes)):
        number = count + place
        slot = slots[place]
        older = uint32_at(memory, slot)  # a negative one would be beyond all numbers
        if older == 0 or older > number:
            older = int64(0)
            used += 1
        entry = entries_at + INDEX_ENTRY_BYTES * number
        put32(memory, entry + HASH_AT, hashes[place])
        put64(memory, entry + PLACE_AT, offsets[place])
        put32(memory, entry + SECONDS_AT, seconds[place])
        put32(memory, entry + OLDER_AT, older)
        put32(memory, slot, number)
    return used
