"""A consume queue: entry i says where message i of one queue of a topic is in the commit log.

An entry has 20 bytes, and entry i is at byte 20·i of a row of files, so the number of an entry is
the queue offset of its message. The log offsets of entries ascend. Behind the last entry there are
zeros. A queue that can't begin at 0 begins with fillers up to its first entry.

Room on the disk is reserved in steps: a thousand topics with four queues would otherwise take 24 GB
before their first message.
"""

import mmap
from pathlib import Path
from struct import Struct

import numpy as np
import numpy.typing as npt

from ...protocol.message.layout import Layout
from ...protocol.message.record import HEAD_BYTES, PROPERTIES_LENGTH, topic_field
from ...protocol.message.tags import string_hash
from ..files.segment import Segment
from ..files.segments import Segments

LAYOUT = Layout(
    {
        "offset": "q",  # of the message in the commit log
        "size": "i",  # of the record, bytes
        "tags": "q",  # tag hash; the delivery time in SCHEDULE_TOPIC_XXXX
    }
)
ENTRY = LAYOUT.struct
ENTRY_BYTES = LAYOUT.size
OFFSET_AT, SIZE_AT, TAGS_AT = LAYOUT.at.values()
ENTRY_TYPE: np.dtype[np.void] = np.dtype(LAYOUT.dtype())

Entry = tuple[int, int, int]
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
FILLER: Entry = (0, 0x7FFFFFFF, 0)  # before the first entry of a queue that doesn't begin at 0
NOT_SYNCED = -1  # unlike each number of entries: the next sync has the queue
RESERVE_BYTES = 16 << 10
FILL_CHUNK = 100_000  # fillers written at once
SEARCH_CHUNK_BYTES = ENTRY_BYTES * 3_200
EXT_ADDRESS_MAX = -(1 << 31) - 1  # a tag hash up to here is an address in consumequeue_ext

# The bytes of a record besides topic, body and properties.
RECORD_FIXED_BYTES = HEAD_BYTES + PROPERTIES_LENGTH.size

RUN_MAX = 1_024  # entries handled at once as one struct
_RUNS: dict[int, Struct] = {}


def run_of(count: int) -> Struct:
    """The struct of `count` entries in a row, at most `RUN_MAX`: three numbers for each."""
    found = _RUNS.get(count)
    if found is None:
        found = _RUNS[count] = Struct(">" + LAYOUT.format * count)
    return found


class ConsumeQueue:
    """One queue of a topic. `next` is the offset of the entry to be written next.

    `view`, `at` and `limit` are the mapped file, the byte for that entry and the end of the
    reserved room. `magic`, `topic_field` and `fixed_bytes` are of this queue's records. The
    appender uses all six directly.
    """

    __slots__ = (
        "at",
        "fixed_bytes",
        "is_schedule",
        "is_special",
        "limit",
        "magic",
        "min_offset",
        "new_files",
        "next",
        "opened",
        "queue_id",
        "segments",
        "synced",
        "topic",
        "topic_field",
        "topic_hash",
        "view",
    )
    is_batch = False
    view: mmap.mmap

    def __init__(self, folder: Path, topic: str, queue_id: int, file_bytes: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.magic, self.topic_field = topic_field(topic)
        self.topic_hash = (
            string_hash(f"{topic}#") & 0xFFFFFFFF
        )  # the index continues the hash from there
        self.fixed_bytes = RECORD_FIXED_BYTES + len(self.topic_field)
        self.segments = Segments(folder, file_bytes, "mappedFileSizeConsumeQueue", writable=True)
        self.next = 0
        self.opened = 0  # entries before this one were written by an earlier run
        self.min_offset = 0
        self.at = file_bytes
        self.limit = 0
        self.is_schedule = topic == SCHEDULE_TOPIC
        self.is_special = False  # whether its records need the slow path of encoding
        self.new_files = False  # made since the folder was synced
        self.synced = 0  # entries before this one are on disk

    # ---- writing

    def append(self, log_offset: int, size: int, tags_code: int) -> int:
        """Write the next entry and return its offset. DiskFull when there is no room."""
        at = self.at
        if at >= self.limit:
            self.make_room()
            at = self.at
        ENTRY.pack_into(self.view, at, log_offset, size, tags_code)
        self.at = at + ENTRY_BYTES
        offset = self.next
        self.next = offset + 1
        return offset

    def append_all(self, entries: npt.NDArray[np.void]) -> None:
        """Write these as the next entries (`ENTRY_TYPE`). DiskFull when there is no room."""
        done = 0
        while done < len(entries):
            if self.at >= self.limit:
                self.make_room(len(entries) - done)
            count = min((self.limit - self.at) // ENTRY_BYTES, len(entries) - done)
            end = self.at + count * ENTRY_BYTES
            self.view[self.at : end] = entries[done : done + count].tobytes()
            self.at = end
            self.next += count
            done += count

    def make_room(self, count: int = 1) -> int:
        """Reserve room for the next `count` entries, in a new file if the last one is full.

        At least `RESERVE_BYTES`, and no more than the file takes. Returns the place of the first.
        """
        segments = self.segments
        size = segments.size
        place = self.next * ENTRY_BYTES
        wanted = max(RESERVE_BYTES, count * ENTRY_BYTES)
        if not segments.items or place >= segments.last.end:
            reserve = min(place % size + wanted, size)
            segment = segments.add(place - place % size, reserve=reserve)
            self.new_files = True
            limit = reserve - reserve % ENTRY_BYTES
        else:
            segment = segments.last
            step = place - segment.base
            room = min(wanted, size - step)
            segment.reserve(step, room)
            # Pages written since the last call would stay in memory as long as the process runs.
            segment.forget()
            limit = step + room - room % ENTRY_BYTES
        self.view = segment.view  # may fail; nothing has changed until then
        self.at = place - segment.base
        self.limit = limit
        return self.at

    def begin_at(self, offset: int) -> None:
        """Let an empty queue begin at `offset`, because earlier messages are not in the log."""
        assert self.next == 0
        assert not self.segments.items
        size = self.segments.size
        place = offset * ENTRY_BYTES
        start = place - place % size
        self.next = start // ENTRY_BYTES
        self.fill(offset)
        self.min_offset = offset

    def fill(self, offset: int) -> None:
        """Write fillers until the next entry is the one at `offset`."""
        filler = np.array([FILLER] * min(FILL_CHUNK, max(0, offset - self.next)), ENTRY_TYPE)
        while self.next < offset:
            self.append_all(filler[: offset - self.next])

    def cut(self, offset: int) -> None:
        """Replace the entries from `offset` on by zeros."""
        segments = self.segments
        place = offset * ENTRY_BYTES
        if place <= segments.start:
            offset = 0
        # Set the numbers first: they hold even if the zeros can't be written.
        self.next = offset
        self.limit = 0
        self.synced = NOT_SYNCED  # the zeros are not on the disk, also those of an earlier cut
        self.min_offset = min(self.min_offset, offset)
        segments.cut(place)
        if segments.items and place < segments.last.end:
            segments.last.zero(place - segments.last.base)

    def cut_at_log(self, log_end: int) -> None:
        """Drop the entries of messages that end behind `log_end`."""
        offset = self.next
        while offset > self.first_offset:
            log_offset, size, _ = self.entry(offset - 1)
            if log_offset + size <= log_end or (log_offset, size) == FILLER[:2]:
                break
            offset -= 1
        if offset < self.next:
            self.cut(offset)

    def unsynced(self) -> list[Segment]:
        """The files with entries that may not be on the disk yet."""
        place = min(self.synced, self.next) * ENTRY_BYTES
        return [segment for segment in self.segments.items if segment.end > place]

    # ---- opening

    def load(self, *, is_clean: bool, sure: bool = False) -> None:
        """Find the files and the last entry; `sure` as in `Segments.load`.

        After a clean stop all entries before the last are valid, so it is found by binary search.
        After a crash every entry of the last three files is read, and everything behind the first
        invalid one is dropped.
        """
        segments = self.segments
        segments.load(sure=sure)
        start = max(0, len(segments.items) - 3)
        count = 0
        for number in range(start, len(segments.items)):
            segment = segments.items[number]
            found = _count_by_halving(segment) if is_clean else _count_by_reading(segment)
            count = segment.base // ENTRY_BYTES + found
            if found < segment.size // ENTRY_BYTES:
                break
        self.next = count
        self.min_offset = self.first_offset
        self.synced = count if is_clean else 0
        # A crash may have come before the names were synced.
        self.new_files = not is_clean and bool(segments.items)
        if segments.items:
            if is_clean:
                segments.cut(max(count * ENTRY_BYTES, segments.start + 1))
            else:
                self.cut(count)
        self.limit = 0

    @property
    def first_offset(self) -> int:
        """The offset of the first entry in a file, which may be a filler."""
        return self.segments.start // ENTRY_BYTES

    def correct_min(self, log_start: int) -> None:
        """Move `min_offset` to the first entry whose message is in the log, which begins at
        `log_start`."""
        low, high = max(self.min_offset, self.first_offset), self.next
        if low < high and log_start > 0 and not self._is_before(low, log_start):
            high = low  # nothing was deleted since the last time
        while low < high:
            middle = (low + high) // 2
            real = self._real(middle, self.next)
            if real == self.next or self._is_before(real, log_start):
                low = min(real + 1, high)
            else:
                high = middle
        self.min_offset = self._real(low, self.next)

    def _is_before(self, offset: int, log_start: int) -> bool:
        """True if the entry's message was deleted. A damaged entry with a negative position does
        not count: its reader gets an error."""
        return 0 <= self.entry(offset)[0] < log_start

    def _real(self, offset: int, end: int) -> int:
        """The offset of the first entry from `offset` on that is no filler; `end` without one.

        Fillers are at the beginning, and where messages were lost with a file of the log.
        """
        while offset < end and self.entry(offset)[:2] == FILLER[:2]:
            segment, at, room = self.locate(offset)
            entries = read_array(segment, at, min(room, end - offset))
            others = np.flatnonzero((entries["size"] != FILLER[1]) | (entries["offset"] != 0))
            offset += int(others[0]) if others.size else len(entries)
        return offset

    def place_from(self, offset: int) -> int | None:
        """The place in the log of the first message from `offset` on; None without one."""
        offset = self._real(max(offset, self.min_offset, self.first_offset), self.next)
        return self.entry(offset)[0] if offset < self.next else None

    def first_file_before(self, log_start: int) -> Segment | None:
        """The first file, if no message of its entries is left in the log; never the last one."""
        items = self.segments.items
        if len(items) < 2:
            return None
        last = items[0].end // ENTRY_BYTES - 1
        return items[0] if self._is_before(last, log_start) else None

    @property
    def can_spare_first_file(self) -> bool:
        """True if a later file has entries on the disk: after a power cut, offsets continue behind
        them."""
        items = self.segments.items
        return len(items) > 1 and self.synced * ENTRY_BYTES > items[1].base

    # ---- reading

    def entry(self, offset: int) -> Entry:
        """The entry at this offset, which must be between `first_offset` and `next`."""
        place = offset * ENTRY_BYTES
        segment = self.segments.find(place)
        assert segment is not None
        if segment.is_mapped:
            return ENTRY.unpack_from(segment.view, place - segment.base)
        with segment.reader() as read:
            return ENTRY.unpack(read(place - segment.base, ENTRY_BYTES))

    def entries(self, offset: int, count: int, end: int) -> list[Entry]:
        """Up to `count` entries with offsets from `offset` on and before `end`."""
        offset = max(offset, self.first_offset)
        count = min(count, end - offset)
        found: list[Entry] = []
        while len(found) < count:
            segment, at, room = self.locate(offset + len(found))
            run = min(room, count - len(found))
            found += ENTRY.iter_unpack(segment.view[at : at + run * ENTRY_BYTES])
        return found

    def count_equal(self, offset: int, entries: npt.NDArray[np.void]) -> int:
        """The number of these entries that equal the written ones from `offset` on, up to the first
        difference.

        The comparison ends at the end of a file. An entry that leads into consumequeue_ext has no
        tag hash to compare.
        """
        segment, at, room = self.locate(offset)
        count = min(room, len(entries), self.next - offset)
        with segment.reader() as read:
            found = np.frombuffer(read(at, count * ENTRY_BYTES), ENTRY_TYPE)
        wanted = entries[:count]
        same = (found["offset"] == wanted["offset"]) & (found["size"] == wanted["size"])
        same &= (found["tags"] == wanted["tags"]) | (found["tags"] <= EXT_ADDRESS_MAX)
        return count if same.all() else int(np.argmin(same))

    def locate(self, offset: int) -> tuple[Segment, int, int]:
        """The place of an entry: file, byte in it, and the number of entries from there on."""
        segments = self.segments
        number, at = divmod(offset * ENTRY_BYTES - segments.items[0].base, segments.size)
        assert number >= 0
        return segments.items[number], at, (segments.size - at) // ENTRY_BYTES

    def readable_end(self, log_end: int) -> int:
        """The offset behind the last entry whose message lies before `log_end`."""
        low, high = self.min_offset, self.next
        if high <= low:
            return high
        log_offset, size, _ = self.entry(high - 1)
        if log_offset + size <= log_end:
            return high
        high -= 1
        while low < high:
            middle = (low + high) // 2
            log_offset, size, _ = self.entry(middle)
            if log_offset + size <= log_end or (log_offset, size) == FILLER[:2]:
                low = middle + 1
            else:
                high = middle
        return low

    @property
    def log_end(self) -> int:
        """The log offset behind the message of the last entry; 0 without entries."""
        if self.next <= self.first_offset:
            return 0
        log_offset, size, _ = self.entry(self.next - 1)
        return 0 if (log_offset, size) == FILLER[:2] else log_offset + size

    def release(self) -> None:
        """Drop the mappings; they are made again when the queue is used."""
        self.limit = 0
        if hasattr(self, "view"):
            del self.view
        self.segments.release()


def read_array(segment: Segment, at: int, count: int) -> npt.NDArray[np.void]:
    """`count` entries from byte `at` of a file, as an array over its mapping (`ENTRY_TYPE`)."""
    return np.frombuffer(segment.view, ENTRY_TYPE, count, at)


def _count_by_halving(segment: Segment) -> int:
    """The number of entries in a file, by binary search: all entries are before all zeros."""
    low, high = 0, segment.size // ENTRY_BYTES
    with segment.reader() as read:
        while low < high:
            middle = (low + high) // 2
            log_offset, size, _ = ENTRY.unpack(read(middle * ENTRY_BYTES, ENTRY_BYTES))
            if log_offset >= 0 and size > 0:
                low = middle + 1
            else:
                high = middle
    return low


def _count_by_reading(segment: Segment) -> int:
    """The number of entries in a file before the first invalid one."""
    done = 0
    with segment.reader() as read:
        for at in range(0, segment.size, SEARCH_CHUNK_BYTES):
            data = read(at, min(SEARCH_CHUNK_BYTES, segment.size - at))
            entries = np.frombuffer(data, ENTRY_TYPE)
            bad = np.flatnonzero((entries["offset"] < 0) | (entries["size"] <= 0))
            if bad.size:
                return done + int(bad[0])
            done += len(entries)
    return done
