"""The timer log: one unit for each message in the timer wheel, in files of one size.

A unit leads to its message in the commit log and to the unit before it in the same slot of the
wheel, so a slot has its last unit only. The position of a unit never changes. Units are staged and
written together; behind the last one there are zeros. The wheel can be rebuilt from the timer log,
and the timer log from the queue of the wheel's topic.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...protocol.message.layout import Layout
from ...protocol.message.record import MAGIC_BLANK
from ..base.errors import readable_errors
from ..files.segment import Segment, sync_folder
from ..files.segments import Segments, warn_of

WHEEL_TOPIC = "rmq_sys_wheel_timer"  # has the messages that the units lead to
QUEUE = 0  # of it, the only one
LAYOUT = Layout(
    {
        "size": "i",  # of the unit
        "previous": "q",  # position of the unit before it in the slot, or NO_UNIT
        "magic": "i",  # IS_TIMER, with IS_ROLLED and IS_RECALL
        "written_ms": "q",  # when it was added to the wheel, a multiple of the precision
        "delay_ms": "i",  # the time of the slot minus written_ms
        "log_offset": "q",  # of the message
        "record_bytes": "i",  # of the message
        "topic_hash": "i",  # Java hash of its real topic
        "reserved": "q",
    }
)
UNIT = LAYOUT.struct
UNIT_BYTES = LAYOUT.size
UNIT_TYPE: np.dtype[np.void] = np.dtype(LAYOUT.dtype())
BLANK = Struct(
    ">"
    "i"  # bytes left in the file
    "q"  # nothing
    "I"  # magic
)
BLANK_BYTES = BLANK.size
assert BLANK_BYTES == 16
NO_UNIT = -1
IS_TIMER = 1
IS_ROLLED = 2  # goes around once more: its time is further away than the wheel reaches
IS_RECALL = 4  # recalls another message of its slot
MAGIC_MASK = 0xF
SIGNED_BLANK = MAGIC_BLANK - (1 << 32)
UNITS_PER_READ = 1 << 16


class Unit(NamedTuple):
    """One unit. Times in ms."""

    size: int
    previous: int
    magic: int
    written_ms: int
    delay_ms: int
    log_offset: int
    record_bytes: int
    topic_hash: int
    reserved: int

    @property
    def slot_ms(self) -> int:
        """The time of the slot that it is in."""
        return self.written_ms + self.delay_ms


class Run(NamedTuple):
    """Adjacent units of one slot, newest first: log offsets, record bytes, times in ms, magics.

    `previous` is the position of the unit before the oldest of them.
    """

    previous: int
    places: list[int]
    lengths: list[int]
    written_ms: list[int]
    magics: list[int]


RUN_FIELDS = ("log_offset", "record_bytes", "written_ms", "magic")


class TimerLog:
    """The files of the timer log. `end` is the position of the next unit, behind staged ones."""

    def __init__(self, folder: Path, file_bytes: int) -> None:
        self.segments = Segments(folder, file_bytes, "mappedFileSizeTimerLog", writable=False)
        self.end = 0
        self._staged: list[bytes] = []
        self._written = 0
        self._synced = 0
        self._new_files = False  # made since the folder was synced

    def load(self) -> None:
        """Find the files. DamagedStore for a wrong one. After that, set the end with `cut`."""
        self.segments.load()
        warn_of(self.segments.strays)
        self.end = self._written = self.segments.start

    def holds(self, end: int) -> bool:
        """True if the files contain the position `end`, which was recorded before."""
        items = self.segments.items
        return items[0].base <= end <= items[-1].end if items else end == 0

    def reaches(self, end: int) -> bool:
        """True if the units go as far as the position `end`, which was recorded before."""
        size = self.segments.size
        if (end - self.segments.start) % size == 0:  # a new file, without a unit yet
            end += (size - BLANK_BYTES) // UNIT_BYTES * UNIT_BYTES - size
        return self.end >= end

    @property
    def has_room(self) -> bool:
        """True if one more unit fits into the last file."""
        items = self.segments.items
        return bool(items) and self.end + UNIT_BYTES + BLANK_BYTES <= items[-1].end

    @property
    def room(self) -> int:
        """The number of units that still fit into the last file."""
        items = self.segments.items
        return max(0, items[-1].end - BLANK_BYTES - self.end) // UNIT_BYTES if items else 0

    def append_all(
        self,
        written_ms: int,
        slots_ms: npt.NDArray[np.int64],
        places: npt.NDArray[np.int64],
        record_bytes: npt.NDArray[np.int64],
        topic_hashes: Sequence[int] | int,
        lasts_of: Callable[[list[int]], list[int]],
    ) -> list[tuple[int, int, int, int]]:
        """Stage units of ordinary timer messages, one for each item; one hash may stand for all.

        There must be `room`. `lasts_of(slot_times_ms)` returns the position of the current last
        unit of each slot. Returns, for each slot, its time in ms, the positions of the first and
        the last of the new units in it, and their number.
        """
        count = len(places)
        units = np.zeros(count, UNIT_TYPE)
        units["size"] = UNIT_BYTES
        units["magic"] = IS_TIMER
        units["written_ms"] = written_ms
        units["delay_ms"] = slots_ms - written_ms
        units["log_offset"] = places
        units["record_bytes"] = record_bytes
        units["topic_hash"] = topic_hashes
        first, slot_ms = self.end, int(slots_ms[0])
        self.end += count * UNIT_BYTES
        if (slots_ms == slot_ms).all():
            units["previous"] = np.arange(first - UNIT_BYTES, self.end - UNIT_BYTES, UNIT_BYTES)
            units["previous"][0] = lasts_of([slot_ms])[0]
            self._staged.append(units.tobytes())
            return [(slot_ms, first, self.end - UNIT_BYTES, count)]
        order = slots_ms.argsort(kind="stable")
        ordered = slots_ms[order]
        positions = order * UNIT_BYTES + first
        is_first = np.empty(count, np.bool_)
        is_first[0] = True
        np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
        starts = is_first.nonzero()[0]
        ends = np.empty_like(starts)
        ends[:-1], ends[-1] = starts[1:], count
        slots = ordered[starts].tolist()
        previous = np.empty(count, np.int64)
        previous[1:] = positions[:-1]
        previous[starts] = lasts_of(slots)
        units["previous"][order] = previous
        self._staged.append(units.tobytes())
        lasts = positions[ends - 1].tolist()
        firsts, counts = positions[starts].tolist(), (ends - starts).tolist()
        return list(zip(slots, firsts, lasts, counts, strict=True))

    def append(
        self,
        previous: int,
        magic: int,
        written_ms: int,
        slot_ms: int,
        log_offset: int,
        record_bytes: int,
        topic_hash: int,
    ) -> int:
        """Stage a unit and return its position. There must be room."""
        assert self.has_room
        position = self.end
        self._staged.append(
            UNIT.pack(
                UNIT_BYTES,
                previous,
                magic,
                written_ms,
                slot_ms - written_ms,
                log_offset,
                record_bytes,
                topic_hash,
                0,
            )
        )
        self.end = position + UNIT_BYTES
        return position

    def write(self) -> None:
        """Write the staged units. StoreError when the disk fails: then all of them are dropped."""
        staged = self._staged
        if not staged:
            return
        segment = self.segments.last
        try:
            with readable_errors(segment.path, "write"):
                segment.write(self._written - segment.base, b"".join(staged))
        except BaseException:
            self.drop_staged()
            raise
        staged.clear()
        self._written = self.end

    def drop_staged(self) -> None:
        """Forget the units that are not written."""
        self._staged.clear()
        self.end = self._written

    def roll(self) -> None:
        """Continue in a new file, with a blank unit at the end of the current one.

        Nothing may be staged. StoreError when there is no room for a file.
        """
        assert not self._staged
        segments = self.segments
        base = segments.last.end if segments.items else self.end
        if base > self.end:
            closed = segments.last
            blank = BLANK.pack(base - self.end, 0, MAGIC_BLANK)
            with readable_errors(closed.path, "write"):
                closed.write(self.end - closed.base, blank)
        segments.add(base, reserve=segments.size)
        self._new_files = True
        self.end = self._written = base

    def unit(self, position: int) -> Unit | None:
        """The unit at this position; None if no unit is written there."""
        segment = self.segments.find(position)
        if segment is None or position + UNIT_BYTES > min(self._written, segment.end):
            return None
        found = Unit(*UNIT.unpack_from(segment.view, position - segment.base))
        return found if found.size == UNIT_BYTES and not found.magic & ~MAGIC_MASK else None

    def run_to(self, position: int, most: int) -> Run | None:
        """The run of adjacent units that ends with the unit at this position; at most `most` units.

        In their slot, each unit of a run precedes the next. None if there is no unit here.
        """
        if self.unit(position) is None:
            return None
        segment = self.segments.find(position)
        assert segment is not None
        at = position - segment.base
        count = min(most, at // UNIT_BYTES + 1)
        at -= (count - 1) * UNIT_BYTES
        units = np.frombuffer(segment.view, UNIT_TYPE, count, at)
        before = segment.base + at + np.arange(count - 1) * UNIT_BYTES
        others = np.flatnonzero(
            (units["previous"][1:] != before)
            | (units["size"][:-1] != UNIT_BYTES)
            | (units["magic"][:-1] & ~MAGIC_MASK != 0)
        )
        if len(others):
            units = units[int(others[-1]) + 1 :]
        newest_first = units[::-1]
        return Run(int(units["previous"][0]), *(newest_first[name].tolist() for name in RUN_FIELDS))

    def walk(self, log_end: int) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
        """All units in order, in blocks: the position of the first unit, and an array of them.

        The walk ends at the first invalid unit: its size or magic is wrong, or its message is not
        before `log_end`, the end of the commit log.
        """
        for segment in self.segments.items:
            count = segment.size // UNIT_BYTES
            for start in range(0, count, UNITS_PER_READ):
                size = min(UNITS_PER_READ, count - start)
                units = np.frombuffer(segment.view, UNIT_TYPE, size, start * UNIT_BYTES)
                good = _count_good(units, log_end)
                if good:
                    yield segment.base + start * UNIT_BYTES, units[:good]
                if good < size:
                    if units["magic"][good] != SIGNED_BLANK:
                        return
                    break
            segment.forget()

    def cut(self, end: int) -> None:
        """Cut the timer log at the position `end`, with zeros behind it. Drops staged units."""
        segments = self.segments
        segments.cut(max(end, segments.start + 1))
        if segments.items and end < segments.last.end:
            segments.last.zero(end - segments.last.base)
        self._staged.clear()
        self.end = self._written = end
        self._synced = min(self._synced, end)

    def drop_before(self, log_start: int) -> None:
        """Delete the files whose messages are all before `log_start`, but never the last file."""
        items = self.segments.items
        while len(items) > 1:
            last = self.unit(_last_position(items[0]))
            if last is None or last.log_offset >= log_start:
                return
            items.pop(0).delete()

    def sync(self) -> None:
        """Wait until the disk has what was written. OSError as the system gives it.

        May run in another thread.
        """
        written, folder = self._written, self.segments.folder
        if self._new_files:
            self._new_files = False
            try:
                sync_folder(folder)
                sync_folder(folder.parent)
            except BaseException:
                self._new_files = True
                raise
        if written != self._synced:
            for segment in list(self.segments.items):
                if segment.end > self._synced:
                    segment.sync()
            self._synced = written

    def forget(self) -> None:
        """Give the memory of pages that were read back to the system."""
        for segment in self.segments.items:
            segment.forget()

    def release(self) -> None:
        """Close all files."""
        self.segments.release()


def _last_position(segment: Segment) -> int:
    """The position of the last unit in a full file, behind which there is room for a blank."""
    units = (segment.size - BLANK_BYTES) // UNIT_BYTES
    return segment.base + (units - 1) * UNIT_BYTES


def _count_good(units: npt.NDArray[np.void], log_end: int) -> int:
    bad = (units["size"] != UNIT_BYTES) | (units["magic"] & ~MAGIC_MASK != 0)
    bad |= units["log_offset"] + units["record_bytes"] > log_end
    first = int(bad.argmax())
    return first if bad[first] else len(units)
