"""One file of the key index: a hash table on disk, from the hash of `topic#key` to log offsets.

The file has a header of 40 bytes, the slots and the entries. A slot has the number of the newest
entry whose hash, modulo the number of slots, is the slot's number; 0 for none. Entries count from
1, and entry 0 is never used. Each entry names the next older one of its slot, so a lookup walks
from new to old. Keys are added in batches; a batch changes the file as its keys one by one would.

Slot n is at byte 40 + 4 n, n from 0, and entry m at 40 + 4 slots + 20 m. RocketMQ's texts count
both from 1: 40 + (n - 1) * 4 and 40 + 5M * 4 + (m - 1) * 20; its program does as here.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

import numpy as np

from ...protocol.message.layout import Layout
from ..base.errors import StoreError
from ..base.kernels import Kernels, Numbers
from ..files.segment import Segment
from ..log.key_hash import Hashes

HEADER = Struct(
    ">"
    "q"  # store time of the first message, ms
    "q"  # store time of the last message, ms
    "q"  # log offset of the first message
    "q"  # log offset of the last message
    "i"  # slots in use
    "i"  # number of the next entry; 0 in a new file stands for 1
)
HEADER_BYTES = HEADER.size
SLOT_BYTES = 4
LAYOUT = Layout(
    {
        "hash": "i",
        "offset": "q",  # of the message in the commit log
        "seconds": "i",  # store time, in seconds since that of the file
        "older": "i",  # the next older entry of the slot; 0 at the end
    }
)
ENTRY = LAYOUT.struct
ENTRY_BYTES = LAYOUT.size
HASH_AT, OFFSET_AT, SECONDS_AT, OLDER_AT = LAYOUT.at.values()
ENTRY_TYPE: np.dtype[np.void] = np.dtype(LAYOUT.dtype())
assert HEADER_BYTES == 40
SECONDS_MAX = 0x7FFFFFFF
RESERVE_BYTES = 1 << 20
NAME_DIGITS = 17
CHAIN_STEPS_MAX = 10_000  # entries of a slot that are followed before all entries are scanned
SCAN_ENTRIES = 1 << 18  # entries scanned at once


class IndexFile:
    """A file of the index. `count` is the number that the next entry gets."""

    __slots__ = (
        "_entries",
        "_entries_at",
        "_memory",
        "_reserved",
        "_slots",
        "begin_ms",
        "begin_offset",
        "capacity",
        "count",
        "end_ms",
        "end_offset",
        "segment",
        "slot_count",
        "synced_count",
        "used_slots",
    )

    begin_ms: int
    end_ms: int
    begin_offset: int
    end_offset: int
    used_slots: int

    def __init__(self, segment: Segment, slots: int, capacity: int) -> None:
        """An existing file; `capacity` is its number of entries, the unused one included."""
        self.segment = segment
        self.slot_count = slots
        self.capacity = capacity
        self._entries_at = HEADER_BYTES + SLOT_BYTES * slots
        view = segment.view
        self._memory = np.frombuffer(view, np.uint8)
        self._slots = np.frombuffer(view, ">i4", slots, HEADER_BYTES)
        self._entries = np.frombuffer(view, ENTRY_TYPE, capacity, self._entries_at)
        (
            self.begin_ms,
            self.end_ms,
            self.begin_offset,
            self.end_offset,
            self.used_slots,
            count,
        ) = HEADER.unpack_from(view, 0)
        self.count: int = max(1, count)
        self.synced_count = 0
        self._reserved = 0

    @classmethod
    def create(
        cls,
        path: Path,
        slots: int,
        capacity: int,
        previous: "IndexFile | None" = None,
    ) -> "IndexFile":
        """A new file. As in RocketMQ, it begins with the end of the full file before it.

        Shortage when there is no room for it; no file is left then.
        """
        size = file_bytes(slots, capacity)
        entries_at = HEADER_BYTES + SLOT_BYTES * slots
        segment = Segment.create(path, 0, size, reserve=entries_at, writable=True)
        try:
            made = cls(segment, slots, capacity)
        except StoreError:
            segment.delete()  # in the way of the next try
            raise
        if previous is not None:
            made.begin_ms = made.end_ms = previous.end_ms
            made.begin_offset = made.end_offset = previous.end_offset
            made._write_header(first=True)
        return made

    @property
    def is_sound(self) -> bool:
        """True if the numbers in the header are possible."""
        return (
            self.count <= self.capacity
            and 0 <= self.used_slots <= self.slot_count
            and 0 <= self.begin_offset <= self.end_offset
        )

    @property
    def is_full(self) -> bool:
        return self.count >= self.capacity

    def insert(self, hashes: Hashes, offsets: Numbers, store_ms: Numbers, kernels: Kernels) -> int:
        """Add as many of these keys as fit, in order; returns how many.

        DiskFull when there is no room on the disk for them.
        """
        number = min(len(hashes), self.capacity - self.count)
        if number <= 0:
            return 0
        hashes, offsets, store_ms = hashes[:number], offsets[:number], store_ms[:number]
        self._reserve(self._entries_at + ENTRY_BYTES * (self.count + number))
        seconds = self._seconds(store_ms)
        self.used_slots += kernels.index_insert(
            self._memory, self.slot_count, self.count, hashes, offsets, seconds
        )
        if self.count <= 1:
            self.begin_offset = int(offsets[0])
            self.begin_ms = int(store_ms[0])
        self.count += number
        self.end_offset = int(offsets[-1])
        self.end_ms = int(store_ms[-1])
        self._write_header()
        return number

    def find(self, key: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Log offsets of the messages with this key hash in a time range, newest first.

        The file has times in seconds, so they may be up to a second too early.
        """
        view = self.segment.view
        number = int(self._slots[key % self.slot_count])
        for _ in range(CHAIN_STEPS_MAX):
            if not 0 < number < self.count:
                return
            at = self._entries_at + ENTRY_BYTES * number
            entry_hash, offset, seconds, older = ENTRY.unpack_from(view, at)
            if seconds < 0:
                return
            # The first entry is counted from the end of the file before.
            store_ms = self.begin_ms + (seconds * 1000 if number > 1 else 0)
            if entry_hash == key and begin_ms <= store_ms <= end_ms:
                yield offset
            if older >= number or store_ms < begin_ms:
                return
            number = older
        yield from self._scan(key, number, begin_ms, end_ms)

    def _scan(self, key: int, number: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """`find` from entry `number` down, without following the slot's chain.

        Where millions of messages have one key, scanning all entries is a hundred times as fast as
        following the chain.
        """
        low = (begin_ms - self.begin_ms) / 1000
        high = (end_ms - self.begin_ms) / 1000
        stop = min(number + 1, self.count)
        while stop > 1:
            start = max(1, stop - SCAN_ENTRIES)
            entries = self._entries[start:stop]
            hits = np.flatnonzero(entries["hash"] == key)
            seconds = entries["seconds"][hits].astype(np.int64)
            if start == 1 and hits.size and hits[0] == 0:
                seconds[0] = 0
            hits = hits[(seconds >= low) & (seconds <= high)]
            yield from entries["offset"][hits[::-1]].tolist()
            stop = start

    def covers(self, begin_ms: int, end_ms: int) -> bool:
        """True if the time range overlaps the file's."""
        return self.count > 1 and begin_ms <= self.end_ms and end_ms >= self.begin_ms

    def count_before(self, log_end: int) -> int:
        """The number of the first entry of a message at `log_end` or behind it."""
        offsets = self._entries["offset"][1 : self.count]
        return 1 + int(np.searchsorted(offsets, log_end))

    def cut(self, count: int) -> None:
        """Drop the entries from number `count` on; the slots then name the newest ones left."""
        self._slots[:] = 0
        kept = self._entries[1:count]
        self._slots[kept["hash"] % self.slot_count] = np.arange(1, count)
        self.used_slots = int(np.count_nonzero(self._slots))
        self.count = count
        self.segment.zero(self._entries_at + ENTRY_BYTES * count)
        self._reserved = 0
        if count > 1:
            last = kept[-1]
            self.end_offset = int(last["offset"])
            self.end_ms = self.begin_ms + int(last["seconds"]) * 1000
        self._write_header()

    def _seconds(self, store_ms: Numbers) -> Numbers:
        begins = np.full(len(store_ms), self.begin_ms)
        if self.count <= 1:
            # Only the first key of a file is counted from the end of the file before.
            begins[1:] = store_ms[0]
        # Java divides towards zero, but what is below zero becomes 0 either way.
        found = np.clip((store_ms - begins) // 1000, 0, SECONDS_MAX)
        return np.where(begins <= 0, 0, found)

    def _write_header(self, *, first: bool = False) -> None:
        HEADER.pack_into(
            self.segment.view,
            0,
            self.begin_ms,
            self.end_ms,
            self.begin_offset,
            self.end_offset,
            self.used_slots,
            0 if first else self.count,
        )

    def _reserve(self, end: int) -> None:
        if end <= self._reserved:
            return
        start = max(self._reserved, self._entries_at + ENTRY_BYTES * self.count)
        stop = min(self.segment.size, end + RESERVE_BYTES)
        self.segment.reserve(start, stop - start)
        self._reserved = stop
        self.segment.forget()


def file_bytes(slots: int, capacity: int) -> int:
    """The size of an index file."""
    return HEADER_BYTES + SLOT_BYTES * slots + ENTRY_BYTES * capacity


def file_name(moment_ms: int) -> str:
    """The name of a file made at this moment: local time as yyyyMMddHHmmssSSS."""
    local = time.localtime(moment_ms // 1000)
    return time.strftime("%Y%m%d%H%M%S", local) + f"{moment_ms % 1000:03d}"
