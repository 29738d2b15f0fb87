"""consumequeue_ext: tag hashes and more about messages, where enableConsumeQueueExt was on.

An entry of the consume queue then has the address of a unit here instead of the tag hash. This
module only reads: aerobee never writes a unit, and an address without a unit means unknown tags.
"""

from pathlib import Path
from struct import Struct

from ..files.segment import Segment
from ..files.segments import Segments
from .consume_queue import EXT_ADDRESS_MAX

UNIT = Struct(
    ">"
    "h"  # size of the unit, -1 at the end of a file
    "q"  # tag hash
    "q"  # store time, ms
    "h"  # size of the bitmap that follows
)
UNIT_BYTES_MIN = UNIT.size
assert UNIT_BYTES_MIN == 20
ADDRESS_BASE = 1 << 63  # an address is the place of the unit minus this


class QueueExt:
    """The extension of one consume queue."""

    __slots__ = ("segments",)

    def __init__(self, folder: Path, file_bytes: int) -> None:
        self.segments = Segments(
            folder, file_bytes, "mappedFileSizeConsumeQueueExt", writable=False
        )
        self.segments.load()

    def tags_code(self, address: int) -> int | None:
        """The tag hash that an address leads to; None when there is no unit."""
        place = address + ADDRESS_BASE
        segment = self.segments.find(place)
        if segment is None or place - segment.base + UNIT_BYTES_MIN > segment.size:
            return None
        size, tags_code, _, _ = UNIT.unpack_from(segment.view, place - segment.base)
        return int(tags_code) if size >= UNIT_BYTES_MIN else None

    def first_file_before(self, address: int) -> Segment | None:
        """The first file, if this address is behind it; never the last one."""
        items = self.segments.items
        is_behind = len(items) > 1 and items[0].end <= address + ADDRESS_BASE
        return items[0] if is_behind and address <= EXT_ADDRESS_MAX else None
