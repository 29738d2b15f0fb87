"""The records of a pull copied into one piece: compiled.

What `Reading._take` does with views, without an object for each record.
"""

from ..protocol.compiled import compiled, wide
from ..protocol.plain_reading import Bytes, copied, uint32_at
from .consume_queue import ENTRY_BYTES


@compiled
def gather(queue: Bytes, at: int, count: int, log: Bytes, base: int, out: Bytes) -> int:
    """Copy the records that `count` entries of a queue file name, from byte `at` of it on.

    `log` is the file of the log that begins at place `base`. How many bytes they have; -1 when one
    of them lies in another file, or when they are too many for `out`.
    """
    done = wide(0)
    for entry in range(at, at + ENTRY_BYTES * count, ENTRY_BYTES):
        start = (uint32_at(queue, entry) << 32 | uint32_at(queue, entry + 4)) - base
        size = uint32_at(queue, entry + 8)
        if start < 0 or start + size > len(log) or done + size > len(out):
            return -1
        done = copied(log, start, start + size, out, done)
    return done
