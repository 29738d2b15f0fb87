"""A batch consume queue: one entry for each record that holds an inner batch.

RocketMQ keeps one instead of a consume queue for topics with the attribute queue.type=BatchCQ. An
entry has 46 bytes. Offsets count inner messages, so an entry covers [base, base + number), and is
found by binary search.
"""

from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...protocol.message.layout import Layout
from ..files.segment import Segment
from ..files.segments import Segments
from .consume_queue import NOT_SYNCED

LAYOUT = Layout(
    {
        "offset": "q",  # of the record in the commit log
        "size": "i",  # of the record, bytes
        "tags": "q",  # tag hash
        "time": "q",  # store time, ms
        "base": "q",  # offset of the first inner message
        "number": "h",  # of inner messages
        "compacted": "i",  # offset, -1
        "reserved": "i",  # 0
    }
)
UNIT = LAYOUT.struct
UNIT_BYTES = LAYOUT.size
UNIT_TYPE: np.dtype[np.void] = np.dtype(LAYOUT.dtype())
NOT_COMPACTED = -1
NO_END = 1 << 64


class Unit(NamedTuple):
    """One entry, of `number` messages from offset `base` on."""

    log_offset: int
    size: int
    tags_code: int
    store_ms: int
    base: int
    number: int

    def has(self, offset: int) -> bool:
        """True if the unit has the message at this offset."""
        return self.base <= offset < self.base + self.number

    def is_sound(self, log_end: int) -> bool:
        """True if the values are possible for a record before `log_end`."""
        is_valid = self.log_offset >= 0 and self.size > 0 and self.base >= 0 and self.number > 0
        return is_valid and self.log_offset + self.size <= log_end


class BatchQueue:
    """One batch queue of a topic. `next` is the offset behind the last inner message."""

    __slots__ = (
        "_count",
        "min_offset",
        "new_files",
        "next",
        "queue_id",
        "segments",
        "synced",
        "topic",
    )
    is_batch = True

    def __init__(self, folder: Path, topic: str, queue_id: int, file_bytes: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.segments = Segments(
            folder, file_bytes, "mapperFileSizeBatchConsumeQueue", writable=True
        )
        self.next = 0
        self.min_offset = 0
        self.synced = 0
        self.new_files = False  # made since the folder was synced
        self._count = 0  # units from position 0 on, the ones in deleted files included

    def load(self, *, is_clean: bool, sure: bool = False) -> None:
        """Find the files and the last unit; `sure` as in `Segments.load`."""
        self.segments.load(sure=sure)
        count = self._first
        while self._has_place(count) and self._unit(count).is_sound(NO_END):
            count += 1
        self.cut(count)
        if is_clean:
            self.synced = self.next
        self.new_files = not is_clean and bool(self.segments.items)
        self.min_offset = self._unit(self._first).base if count > self._first else 0

    def append(
        self, log_offset: int, size: int, tags_code: int, store_ms: int, base: int, number: int
    ) -> None:
        """Write the next unit. DiskFull when there is no room."""
        place = self._count * UNIT_BYTES
        if not self._has_place(self._count):
            self.segments.add(place, reserve=self.segments.size)
            self.new_files = True
        segment = self.segments.last
        UNIT.pack_into(
            segment.view,
            place - segment.base,
            log_offset,
            size,
            tags_code,
            store_ms,
            base,
            number,
            NOT_COMPACTED,
            0,
        )
        if self._count == self._first:
            self.min_offset = base
        self._count += 1
        self.next = base + number

    def unsynced(self) -> list[Segment]:
        """The files with units that may not be on the disk yet."""
        return self.segments.items[-2:]

    def cut(self, count: int) -> None:
        """Drop the units from number `count` on."""
        place = count * UNIT_BYTES
        self.synced = NOT_SYNCED  # the zeros are not on the disk, also those of an earlier cut
        self.segments.cut(place)
        items = self.segments.items
        if items and place < items[-1].end:
            items[-1].zero(place - items[-1].base)
        self._count = count if items else 0
        self.next = 0
        if self._count > self._first:
            last = self._unit(self._count - 1)
            self.next = last.base + last.number

    def cut_at_log(self, log_end: int) -> None:
        """Drop the units of records that end behind `log_end`."""
        count = self._count
        while count > self._first:
            unit = self._unit(count - 1)
            if unit.log_offset + unit.size <= log_end:
                break
            count -= 1
        if count < self._count:
            self.cut(count)

    def correct_min(self, log_start: int) -> None:
        """Move `min_offset` to the first unit whose record is in the log, which begins at
        `log_start`."""
        for number in range(self._first, self._count):
            unit = self._unit(number)
            if self._is_sound(unit, NO_END) and unit.log_offset >= log_start:
                self.min_offset = unit.base
                return
        self.min_offset = self.next

    def place_from(self, offset: int) -> int | None:
        """The place in the log of the first record with a message from `offset` on; None without
        one."""
        units = self.units(max(offset, self.min_offset), 1, NO_END)
        return units[0].log_offset if units else None

    def first_file_before(self, log_start: int) -> Segment | None:
        """The first file, if no record of its units is left in the log; never the last one."""
        items = self.segments.items
        if len(items) < 2:
            return None
        last = self._unit(items[0].end // UNIT_BYTES - 1)
        return items[0] if 0 <= last.log_offset < log_start else None

    @property
    def can_spare_first_file(self) -> bool:
        """True if all units are on the disk: after a power cut, offsets continue behind the last
        unit on the disk."""
        return self.synced >= self.next

    def units(self, offset: int, count: int, log_end: int) -> list[Unit]:
        """Up to `count` units from that with message `offset` on. Units that are damaged, or whose
        records end behind `log_end`, are left out."""
        low, high = self._first, self._count
        while low < high:
            middle = (low + high) // 2
            unit = self._unit(middle)
            if unit.base + unit.number <= offset:
                low = middle + 1
            else:
                high = middle
        if low < self._count and not self._unit(low).has(offset):
            low = self._searched(offset, log_end)
        units = map(self._unit, range(low, self._count))
        return list(islice((unit for unit in units if self._is_sound(unit, log_end)), count))

    def _searched(self, offset: int, log_end: int) -> int:
        """The number of the first sound unit that ends behind message `offset`, one by one: a
        damaged unit leads a binary search astray."""
        for number in range(self._first, self._count):
            unit = self._unit(number)
            if self._is_sound(unit, log_end) and unit.base + unit.number > offset:
                return number
        return self._count

    def _is_sound(self, unit: Unit, log_end: int) -> bool:
        return unit.is_sound(log_end) and unit.base + unit.number <= self.next

    def offset_at(self, moment_ms: int, upper: bool) -> int:
        """The offset of the first message of the first record stored at this moment, with `upper`
        of the last such record.

        As in RocketMQ, it is the next later record if there is none, else the last record.
        """
        low, high = self._first, self._count
        while low < high:
            middle = (low + high) // 2
            stored = self._unit(middle).store_ms
            if stored < moment_ms or (upper and stored == moment_ms):
                low = middle + 1
            else:
                high = middle
        if upper and low > self._first and self._unit(low - 1).store_ms == moment_ms:
            low -= 1
        return self._unit(min(low, self._count - 1)).base if self._count > self._first else 0

    def readable_end(self, log_end: int) -> int:
        """The offset behind the last message whose record lies before `log_end`."""
        for number in range(self._count - 1, self._first - 1, -1):
            unit = self._unit(number)
            if self._is_sound(unit, log_end):
                return unit.base + unit.number
        return self.min_offset

    @property
    def log_end(self) -> int:
        """The log offset behind the record of the last unit; 0 without units."""
        if self._count == self._first:
            return 0
        last = self._unit(self._count - 1)
        return last.log_offset + last.size

    def release(self) -> None:
        """Drop the mappings; they are made again when the queue is used."""
        self.segments.release()

    @property
    def _first(self) -> int:
        return self.segments.start // UNIT_BYTES

    def _has_place(self, number: int) -> bool:
        return self.segments.find(number * UNIT_BYTES) is not None

    def _unit(self, number: int) -> Unit:
        place = number * UNIT_BYTES
        segment = self.segments.find(place)
        assert segment is not None
        return Unit(*UNIT.unpack_from(segment.view, place - segment.base)[:6])
