"""The inner loops of the store in Python and numpy."""

from collections.abc import Sequence
from functools import lru_cache
from operator import add, itemgetter
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from ..base.kernels import Buffer, Numbers
from ..files.segment import Segment
from ..index.index_file import ENTRY_TYPE, HEADER_BYTES, SLOT_BYTES
from ..queues.consume_queue import ENTRY_BYTES, LAYOUT, RUN_MAX, TAGS_AT

# The place and the size of an entry; the tags are skipped.
PLACE_ONLY = f"{LAYOUT.codes['offset']}{LAYOUT.codes['size']}{ENTRY_BYTES - TAGS_AT}x"


class InterpretedKernels:
    """`Kernels` for every platform."""

    runs = None

    def gather(
        self, queue: Segment, at: int, count: int, log: Segment, bytes_max: int
    ) -> Buffer | None:
        """Implements `Kernels.gather`."""
        flat = places_of(count).unpack_from(queue.view, at)
        return copy_records(log, flat[::2], flat[1::2], bytes_max)

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
        number = len(hashes)
        all_slots = np.frombuffer(memory, ">i4", slot_count, HEADER_BYTES)
        first_at = HEADER_BYTES + SLOT_BYTES * slot_count + ENTRY_TYPE.itemsize * count
        entries = np.frombuffer(memory, ENTRY_TYPE, number, first_at)
        entries["hash"] = hashes
        entries["offset"] = offsets
        entries["seconds"] = seconds
        slots = hashes % slot_count
        order = np.argsort(slots, kind="stable")
        sorted_slots = slots[order]
        is_first = np.empty(number, np.bool_)
        is_first[0] = True
        np.not_equal(sorted_slots[1:], sorted_slots[:-1], out=is_first[1:])
        before = all_slots[sorted_slots].astype(np.int64)
        before[(before < 0) | (before > count)] = 0
        used = int(np.count_nonzero(before[is_first] == 0))
        numbers = order + count
        older = np.empty(number, np.int64)
        older[0] = 0
        older[1:] = numbers[:-1]
        entries["older"][order] = np.where(is_first, before, older)
        is_last = np.empty(number, np.bool_)
        is_last[:-1] = is_first[1:]
        is_last[-1] = True
        all_slots[sorted_slots[is_last]] = numbers[is_last]
        return used


@lru_cache(RUN_MAX)
def places_of(count: int) -> Struct:
    """The layout of the first two fields of `count` entries in a row, flat."""
    return Struct(">" + PLACE_ONLY * count)


def copy_records(
    log: Segment, offsets: Sequence[int], sizes: Sequence[int], bytes_max: int
) -> Buffer | None:
    """Like `Kernels.gather`, for records at these places of the log with these sizes in bytes."""
    first = offsets[0]
    last = offsets[-1] + sizes[-1]
    size = sum(sizes)
    base = log.base
    if size > bytes_max or last - base > log.size:
        return None
    records: Buffer
    if last - first == size:
        records = log.memory[first - base : last - base]
    else:
        starts = [place - base for place in offsets] if base else offsets
        # No Python code runs per record, and slices of a view avoid a second copy.
        cut = itemgetter(*map(slice, starts, map(add, starts, sizes)))
        records = b"".join(cut(log.memory))
    return records if len(records) == size else None
