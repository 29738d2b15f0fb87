"""Checks the key index against itself and the log: every key has its entry, every entry its key.

An index is in the order of the log, so both are read side by side. Only where they differ are the
entries of a run compared one by one.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..files.listing import STRAY, Problem, entries_of
from ..files.segment import Segment
from ..index.index_file import (
    ENTRY_BYTES,
    ENTRY_TYPE,
    HEADER,
    HEADER_BYTES,
    NAME_DIGITS,
    SECONDS_MAX,
    SLOT_BYTES,
    file_bytes,
)
from ..log.records import Positions, unaligned
from ..log.run import Run
from .findings import Report

INDEX = "index"
BLOCK_ENTRIES = 1 << 18  # entries of a file that are checked together
DEFAULT_SLOTS, DEFAULT_ENTRIES = 5_000_000, 20_000_000
LAYOUT_ENTRIES = 1_000  # entries checked to find the numbers of slots and entries
LAYOUT_ENTRIES_AT_ONCE = 8  # of these, checked for many numbers of slots at once
LAYOUTS_AT_ONCE = 1 << 18
SLOTS_STEP = ENTRY_BYTES // SLOT_BYTES  # between two numbers of slots that leave whole entries
assert SLOTS_STEP * SLOT_BYTES == ENTRY_BYTES
MISSING_TOLD = 20  # keys without an entry that are reported one by one


class IndexCheck:
    """Checks the index of a store. `slots` and `capacity` are of its files, 0 if unknown."""

    def __init__(
        self, root: Path, slots: int, capacity: int, report: Report, *, is_open: bool
    ) -> None:
        self._report = report
        self._folder = root / "index"
        part = report.part(INDEX, "keys")
        self.files: list[FileCheck] = []
        for entry in entries_of(self._folder):
            path = self._folder / entry.name
            if entry.is_folder or entry.size == 0:
                continue
            if len(entry.name) != NAME_DIGITS or not entry.name.isdigit():
                report.tell(INDEX, Problem(path, STRAY, is_stray=True))
                continue
            part.files += 1
            if entry.size < HEADER_BYTES + SLOT_BYTES + 2 * ENTRY_BYTES:
                report.damage(INDEX, path, None, f"has {entry.size} bytes, too few for an index")
                continue
            segment = Segment(path, 0, entry.size, writable=False)
            # Read the header before finding the layout, which then covers all entries it counts.
            header = HEADER.unpack_from(segment.view, 0)
            layout = layout_of(segment, slots, capacity)
            if layout is None:
                text = (
                    f"has {entry.size} bytes, which {slots or DEFAULT_SLOTS} slots and "
                    f"{capacity or DEFAULT_ENTRIES} entries don't make; it was cut off, or give "
                    "maxHashSlotNum and maxIndexNum"
                )
                report.damage(INDEX, path, None, text)
                continue
            self.files.append(FileCheck(segment, header, *layout, report))
        for file in self.files:
            file.check_itself(is_growing=is_open and file is self.files[-1])
        part.checked += sum(max(0, file.count - 1) for file in self.files)
        self._number, self._at = 0, 1  # the next entry to compare: file, entry in it
        self._missing: list[int] = []
        self._missing_count = 0

    @property
    def last_offset(self) -> int:
        """The log offset of the last message with an entry; -1 without one."""
        return max((file.last_offset for file in self.files), default=-1)

    def begin(self, log_start: int) -> None:
        """Skip the entries of messages that the log no longer has."""
        for file in self.files:
            offsets = file.entries["offset"][1 : file.count]
            before = int(np.searchsorted(offsets, log_start))
            if before < len(offsets):
                self._at = 1 + before
                return
            self._number += 1
        self._at = 1

    def see(self, run: Run) -> None:
        """Compare the keys of these messages with the next entries; report entries without a key
        and note keys without an entry."""
        rows, hashes = run.keys()
        places = run.log_offsets[rows]
        times = run.store_times[rows]
        before = self._number, self._at
        found = self._take(len(rows))
        done = 0
        for file, first, entries in found:
            own = slice(done, done + len(entries))
            if not file.is_of(entries, places[own], hashes[own]):
                break
            file.check_times(first, entries, times[own])
            done += len(entries)
        if done == len(rows):
            return
        self._number, self._at = before
        held_entries, files, numbers = self._take_until(run.end)
        base = int(run.place)
        wanted = (places - base) << 32 | hashes
        held = (held_entries["offset"].astype(np.int64) - base) << 32
        held |= held_entries["hash"].astype(np.int64)
        for row in np.flatnonzero(~np.isin(held, wanted)).tolist():
            file = self.files[int(files[row])]
            at = file.entry_at(int(numbers[row]))
            place = held_entries["offset"][row]
            text = f"entry {numbers[row]} leads to {place}, where no such key is"
            self._report.damage(INDEX, file.segment.path, at, text)
        absent = places[~np.isin(wanted, held)]
        self._missing_count += len(absent)
        self._missing += absent[: MISSING_TOLD - len(self._missing)].tolist()

    def end(self, log_end: int, *, is_open: bool, is_expected: bool) -> None:
        """Report entries behind the end of the log and keys without an entry.

        `is_expected`: the store has an index, so all keys must have an entry.
        """
        report = self._report
        rest, files, numbers = self._take_until(1 << 62)
        ahead = [number for number in range(len(rest)) if int(rest["offset"][number]) >= log_end]
        if ahead:
            file = self.files[int(files[ahead[0]])]
            text = f"{len(ahead)} entries lead behind the end of the log, {log_end}"
            tell = report.note if is_open else report.damage
            tell(INDEX, file.segment.path, file.entry_at(int(numbers[ahead[0]])), text)
        if not self._missing_count:
            return
        text = f"{self._missing_count} keys of messages have no entry, the first at"
        # The writer of an open index may be between two keys of one message.
        indexed = self.last_offset - is_open
        if self._missing[0] > indexed and (is_open or not is_expected):
            report.note(INDEX, self._folder, None, f"{text} {self._missing[0]} of the log")
            return
        places = ", ".join(map(str, sorted(set(self._missing))))
        report.damage(INDEX, self._folder, None, f"{text} {places} of the log")

    def _take(self, count: int) -> "list[tuple[FileCheck, int, NDArray[np.void]]]":
        """The next `count` entries, or fewer at the end, by file: file, number of the first entry,
        entries."""
        parts = []
        while count and self._number < len(self.files):
            file = self.files[self._number]
            part = file.entries[self._at : min(self._at + count, file.count)]
            if len(part):
                parts.append((file, self._at, part))
            count -= len(part)
            self._at += len(part)
            if self._at >= file.count:
                self._number, self._at = self._number + 1, 1
        return parts

    def _take_until(self, place: int) -> tuple[NDArray[np.void], Positions, Positions]:
        """The next entries of messages before this log offset; also each one's file number and
        entry number."""
        entries = [np.empty(0, ENTRY_TYPE)]
        files: list[int] = []
        numbers: list[int] = []
        while self._number < len(self.files):
            file = self.files[self._number]
            offsets = file.entries["offset"][self._at : file.count]
            count = int(np.searchsorted(offsets, place))
            entries.append(file.entries[self._at : self._at + count])
            files += [self._number] * count
            numbers += range(self._at, self._at + count)
            self._at += count
            if self._at < file.count:
                break
            self._number, self._at = self._number + 1, 1
        return np.concatenate(entries), np.array(files, np.int64), np.array(numbers, np.int64)


class FileCheck:
    """Checks one file of the index by itself: header, slots, links, order."""

    def __init__(
        self,
        segment: Segment,
        header: tuple[int, ...],
        slots: int,
        capacity: int,
        report: Report,
    ) -> None:
        self.segment = segment
        self._slots = slots
        self._report = report
        self._begin_ms, _, self._begin_offset, self._end_offset, self._used, count = header
        self.count = max(1, min(count, capacity))
        self._entries_at = HEADER_BYTES + SLOT_BYTES * slots
        self.entries = np.frombuffer(segment.view, ENTRY_TYPE, capacity, self._entries_at)
        if count > capacity or count < 0:
            self._damage(36, f"counts {count} entries, it has room for {capacity}")
        self.last_offset = int(self.entries["offset"][self.count - 1]) if self.count > 1 else -1

    def check_itself(self, *, is_growing: bool) -> None:
        """Check header, links and order. A growing file is checked up to its count at the
        start."""
        if self.count <= 1:
            return
        if not is_growing and self._end_offset != self.last_offset:
            text = f"says that its last message lies at {self._end_offset}, it is "
            self._damage(24, text + str(self.last_offset))
        if self._begin_offset != self.entries["offset"][1]:
            text = f"says that its first message lies at {self._begin_offset}, it is "
            self._damage(16, text + str(self.entries["offset"][1]))
        self._check_links(is_growing=is_growing)
        back = np.flatnonzero(np.diff(self.entries["offset"][1 : self.count]) < 0)
        if len(back):
            number = int(back[0]) + 2
            text = f"entry {number} leads further back than the one before it"
            self._damage(self.entry_at(number), text)
        self.segment.forget()

    def entry_at(self, number: int) -> int:
        """The byte at which an entry begins."""
        return self._entries_at + ENTRY_BYTES * number

    def is_of(self, entries: NDArray[np.void], places: Positions, hashes: Positions) -> bool:
        """True if these entries have these log offsets and key hashes."""
        same = (entries["offset"] == places) & (entries["hash"] == hashes)
        return bool(same.all())

    def check_times(self, first: int, entries: NDArray[np.void], times: Positions) -> None:
        """Check that these entries, from number `first` on, have the times of their messages."""
        seconds = np.clip((times - self._begin_ms) // 1000, 0, SECONDS_MAX)
        wrong = np.flatnonzero(entries["seconds"] != seconds)
        # The first one counts from the end of the file before.
        wrong = wrong[wrong + first > 1] if self._begin_ms > 0 else wrong[:0]
        for row in wrong.tolist():
            text = f"says second {entries['seconds'][row]}, its message is of {seconds[row]}"
            self._damage(self.entry_at(first + row), f"entry {first + row} {text}")

    def _check_links(self, *, is_growing: bool) -> None:
        """Slots and the links from entry to entry are what these hashes make."""
        slots = np.zeros(self._slots, np.int32)
        for first in range(1, self.count, BLOCK_ENTRIES):
            entries = self.entries[first : min(first + BLOCK_ENTRIES, self.count)]
            own = np.arange(first, first + len(entries))
            places = entries["hash"].astype(np.int64) % self._slots
            order = np.argsort(places, kind="stable")
            ordered = places[order]
            older = np.empty(len(own), np.int64)
            older[1:] = own[order][:-1]
            is_first = np.append(True, ordered[1:] != ordered[:-1])
            older[is_first] = slots[ordered[is_first]]
            slots[places] = own  # of equal places the last one stays
            wrong = np.flatnonzero(entries["older"][order] != older)
            if len(wrong):
                number = int(own[order][wrong].min())
                text = f"entry {number} does not name the entry before it in its slot"
                self._damage(self.entry_at(number), f"{text} ({len(wrong)} such here)")
        found = np.frombuffer(self.segment.view, ">i4", self._slots, HEADER_BYTES)
        # A slot that counts too far counts as empty, as in RocketMQ.
        wrong = np.flatnonzero(np.where((found < 0) | (found > self.count), 0, found) != slots)
        if is_growing:
            wrong = wrong[[self._newest_before(int(found[slot])) for slot in wrong] != slots[wrong]]
        if len(wrong):
            text = f"slot {wrong[0]} names entry {found[wrong[0]]} and not {slots[wrong[0]]}"
            self._damage(HEADER_BYTES + SLOT_BYTES * int(wrong[0]), text)
        elif not is_growing and self._used != np.count_nonzero(slots):
            self._damage(32, f"counts {self._used} slots in use, it has {np.count_nonzero(slots)}")

    def _newest_before(self, number: int) -> int:
        """The newest entry of a slot, of the entries that existed when the check began."""
        while self.count <= number < len(self.entries):
            number = int(self.entries["older"][number])
        return number

    def _damage(self, at: int, text: str) -> None:
        self._report.damage(INDEX, self.segment.path, at, text)


def layout_of(segment: Segment, slots: int, capacity: int) -> tuple[int, int] | None:
    """The numbers of slots and entries of a file; None when no layout fits its size.

    The file doesn't record them. RocketMQ's defaults are tried first, then layouts in which the
    first entry is the one of the first message.
    """
    size = segment.size
    if slots and capacity:
        return (slots, capacity) if file_bytes(slots, capacity) == size else None
    if file_bytes(DEFAULT_SLOTS, DEFAULT_ENTRIES) == size:
        return DEFAULT_SLOTS, DEFAULT_ENTRIES
    count = HEADER.unpack_from(segment.view, 0)[5]
    for slot_count in _likely(segment):
        if _is_layout(segment, slot_count, min(count, LAYOUT_ENTRIES)):
            return slot_count, (size - HEADER_BYTES - SLOT_BYTES * slot_count) // ENTRY_BYTES
    return None


def _likely(segment: Segment) -> Iterator[int]:
    """The numbers of slots that fit the size and the first entries; many are tried at once.

    A region without data resembles an entry, so the slots must lead to all of the first entries.
    """
    size, view = segment.size, segment.view
    _, _, begin_offset, _, _, count = HEADER.unpack_from(view, 0)
    least_bytes = ENTRY_BYTES * max(count, 2)
    most, uneven = divmod(size - HEADER_BYTES - least_bytes, SLOT_BYTES)
    if uneven:
        return
    first = most % SLOTS_STEP or SLOTS_STEP  # the rest of the file must be whole entries
    for low in range(first, most + 1, SLOTS_STEP * LAYOUTS_AT_ONCE):
        tried = np.arange(low, min(low + SLOTS_STEP * LAYOUTS_AT_ONCE, most + 1), SLOTS_STEP)
        for number in range(1, min(count, LAYOUT_ENTRIES_AT_ONCE + 1)):
            at = HEADER_BYTES + SLOT_BYTES * tried + ENTRY_BYTES * number
            hashes = unaligned(view, ">i4")[at].astype(np.int64)
            newest = unaligned(view, ">i4")[HEADER_BYTES + SLOT_BYTES * (hashes % tried)]
            fits = (hashes >= 0) & (newest >= number)
            if number == 1:
                fits &= unaligned(view, ">i8")[at + 4] == begin_offset
                fits &= unaligned(view, ">i4")[at + 16] == 0
            tried = tried[fits]
        yield from tried.tolist()


def _is_layout(segment: Segment, slot_count: int, count: int) -> bool:
    """True if the entries before `count` are valid with this number of slots: in order, and each is
    reached from its slot."""
    slots = np.frombuffer(segment.view, ">i4", slot_count, HEADER_BYTES)
    entries_at = HEADER_BYTES + SLOT_BYTES * slot_count
    entries = np.frombuffer(segment.view, ENTRY_TYPE, max(count, 1), entries_at)[1:]
    numbers = np.arange(1, len(entries) + 1)
    ordered = (np.diff(entries["offset"]) >= 0).all() and (entries["older"] < numbers).all()
    hashes = entries["hash"].astype(np.int64)
    # An entry is the newest of its slot, or older than the newest.
    return bool(ordered and (hashes >= 0).all() and (slots[hashes % slot_count] >= numbers).all())
