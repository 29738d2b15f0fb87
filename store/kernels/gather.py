"""The records of a pull copied into one piece: compiled.

What `Reading._take` does with views, without an object for each record.
"""

from ...protocol.kernels.compiled import compiled, wide
from ...protocol.kernels.plain_reading import Bytes, copied, uint32_at
from ..queues.consume_queue import ENTRY_BYTES


@compiled
def gather(
    queue: Bytes, at: int, count: int, log: Bytes, base: int, out: Bytes
) -> tuple[int, bool]:
    """Copy the records that `count` entries of a queue file name, from byte `at` of it on, unless
    they lie side by side.

    `log` is the file of the log that begins at place `base`. How many bytes they have, and whether
    they lie so; -1 when one of them lies in another file, or when they are too many for `out`.
    """
    total = behind = wide(0)
    is_row = True
    for entry in range(at, at + ENTRY_BYTES * count, ENTRY_BYTES):
        start = (uint32_at(queue, entry) << 32 | uint32_at(queue, entry + 4)) - base
        size = uint32_at(queue, entry + 8)
        total += size
        if start < 0 or start + size > len(log) or total > len(out):
            return -1, False
        is_row = is_row and (entry == at or start == behind)
        behind = start + size
    if is_row:
        return total, True
    done = wide(0)
    for entry in range(at, at + ENTRY_BYTES * count, ENTRY_BYTES):
        start = (uint32_at(queue, entry) << 32 | uint32_at(queue, entry + 4)) - base
        done = copied(log, start, start + uint32_at(queue, entry + 8), out, done)
    return done, False
