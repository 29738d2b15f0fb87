"""Keys into a file of the index, one after the other: compiled.

What `IndexFile` does for a batch with numpy, for as few keys as come at once.
"""

from ...protocol.kernels.compiled import compiled, wide
from ...protocol.kernels.plain_reading import Bytes, Numbers, uint32_at
from ..index.index_file import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES
from .plain_records import put32, put64


@compiled
def link(
    memory: Bytes,
    slot_count: int,
    count: int,
    hashes: Numbers,
    offsets: Numbers,
    seconds: Numbers,
    slots: Numbers,
    near: Numbers,
) -> int:
    """Write the entries of these keys, from number `count` on, each the first of its slot; how many
    slots had none before. `memory` is the file, `slots` and `near` have room for a number a key."""
    entries_at = HEADER_BYTES + SLOT_BYTES * slot_count
    used = 0
    # The slots lie all over the file. Asked for without waiting in between, they come from memory
    # many at a time; the loop that changes them then finds them near.
    for place in range(len(hashes)):
        slots[place] = HEADER_BYTES + SLOT_BYTES * (hashes[place] % slot_count)
        near[place] = memory[slots[place]]
    for place in range(len(hashes)):
        number = count + place
        slot = slots[place]
        older = uint32_at(memory, slot)  # a negative one would be beyond all numbers
        if older == 0 or older > number:
            older = wide(0)
            used += 1
        entry = entries_at + ENTRY_BYTES * number
        put32(memory, entry, hashes[place])
        put64(memory, entry + 4, offsets[place])
        put32(memory, entry + 12, seconds[place])
        put32(memory, entry + 16, older)
        put32(memory, slot, number)
    return used
