"""The timer wheel: for each tick of time the first and the last unit of it in the timer log.

The file `timerwheel` has two weeks of slots (with ticks of a second), of which one week may be in
use. A slot has its tick, so a slot from another round counts as empty. Slots are read and written
with `pread` and `pwrite`, not through a mapping: most of the file is a hole, and where a full disk
has no page for a mapped hole (tmpfs), the system ends the process.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...protocol.message.layout import Layout
from ..base.errors import DamagedStore, readable_errors
from ..files import disk
from ..files.segment import Segment, sync_folder
from .timer_log import IS_RECALL, NO_UNIT

LAYOUT = Layout(
    {
        "tick": "q",  # time of the slot, in ticks
        "first": "q",  # position of its first unit in the timer log
        "last": "q",  # position of its last unit
        "number": "i",  # of messages in it; a recall counts -1
        "magic": "i",  # 0
    }
)
SLOT = LAYOUT.struct
SLOT_BYTES = LAYOUT.size
SLOT_TYPE: np.dtype[np.void] = np.dtype(LAYOUT.dtype())
ROUND_SLOTS = 7 * 86_400
SLOTS = 2 * ROUND_SLOTS
FILE_BYTES = SLOTS * SLOT_BYTES
assert FILE_BYTES == 38_707_200
SLOTS_PER_READ = 1 << 14
NEAR_SLOTS = 32  # slots no further apart than this are written at once
FEW = 4  # fewer slots than this are quicker one by one


class Slot(NamedTuple):
    """The positions of a slot's first and last unit, and its number of messages; a recall counts
    -1."""

    first: int
    last: int
    number: int


EMPTY = Slot(NO_UNIT, NO_UNIT, 0)


class TimerWheel:
    """The wheel with ticks of `precision_ms`. All times are multiples of it, in ms."""

    def __init__(self, path: Path, precision_ms: int) -> None:
        self.path = path
        self._precision_ms = precision_ms
        self._segment = Segment(path, 0, FILE_BYTES, writable=False)
        self._changed = False  # since the last sync
        self._is_new = False

    def load(self) -> None:
        """Find the file, or make it. DamagedStore when it has another length."""
        try:
            with self._segment.reader() as read:
                is_whole = len(read(FILE_BYTES - 1, 2)) == 1
                is_empty = not read(0, 1)
        except Exception as wrong:
            if not isinstance(wrong.__cause__, FileNotFoundError):
                raise
            is_whole = is_empty = False
            self._make()
        else:
            if is_empty:  # a crash came after the file was made and before it had its length
                self._segment.delete()
                self._make()
            elif not is_whole:
                raise DamagedStore(
                    f"{self.path} has not the {FILE_BYTES} bytes of a timer wheel; move it away, "
                    "and it is made again from the timer log"
                )

    def get(self, slot_ms: int) -> Slot:
        """The slot of this time; EMPTY if it has no unit."""
        tick, first, last, number, _ = SLOT.unpack(self._read(self._at(slot_ms), SLOT_BYTES))
        return Slot(first, last, number) if tick == slot_ms // self._precision_ms else EMPTY

    def get_all(self, slots_ms: Collection[int]) -> dict[int, Slot]:
        """The slots of these times, by time in ms."""
        if len(slots_ms) < FEW:
            return {slot_ms: self.get(slot_ms) for slot_ms in slots_ms}
        times = np.fromiter(slots_ms, np.int64, len(slots_ms))
        ticks = times // self._precision_ms
        numbers = ticks % SLOTS
        order = numbers.argsort()
        found = np.empty(len(times), SLOT_TYPE)
        for start, end in _runs(numbers[order]):
            places = order[start:end]
            first = int(numbers[places[0]])
            near = self._slots(first, int(numbers[places[-1]]) + 1 - first)
            found[places] = near[numbers[places] - first]
        is_used = found["tick"] == ticks
        columns = (
            np.where(is_used, found[name], empty).tolist()
            for name, empty in zip(Slot._fields, EMPTY, strict=True)
        )
        return dict(zip(slots_ms, map(Slot, *columns), strict=True))

    def put(self, slot_ms: int, slot: Slot) -> None:
        """Set a slot. StoreError when the disk fails."""
        self._write(slot_ms, SLOT.pack(slot_ms // self._precision_ms, *slot, 0))

    def put_all(self, slots: Mapping[int, Slot]) -> None:
        """Set slots, by their times. StoreError when the disk fails: then some may be set."""
        if len(slots) < FEW:
            for slot_ms, slot in slots.items():
                self.put(slot_ms, slot)
            return
        rows = np.zeros(len(slots), SLOT_TYPE)
        ticks = np.fromiter(slots, np.int64, len(slots)) // self._precision_ms
        rows["tick"] = ticks
        values = np.array(list(slots.values()), np.int64)
        for column, name in enumerate(Slot._fields):
            rows[name] = values[:, column]
        numbers = ticks % SLOTS
        order = numbers.argsort()
        numbers, rows = numbers[order], rows[order]
        # One write for slots near to one another; the slots between them stay as they are.
        for start, end in _runs(numbers):
            first, last = int(numbers[start]), int(numbers[end - 1])
            data = self._slots(first, last + 1 - first).copy()
            data[numbers[start:end] - first] = rows[start:end]
            self._write_at(first * SLOT_BYTES, data.tobytes())

    def clear(self, slot_ms: int) -> None:
        """Empty a slot, because all its messages are delivered."""
        self._write(slot_ms, bytes(SLOT_BYTES))

    def next_used(self, from_ms: int, until_ms: int) -> int | None:
        """The time of the first slot with a unit, from `from_ms` on and before `until_ms`."""
        tick, until = from_ms // self._precision_ms, until_ms // self._precision_ms
        until = min(until, tick + SLOTS)
        if tick < until and self.get(from_ms).last >= 0:  # usually it is the very next slot
            return from_ms
        while tick < until:
            at = tick % SLOTS
            count = min(SLOTS_PER_READ, SLOTS - at, until - tick)
            slots = self._slots(at, count)
            used = slots["tick"] == np.arange(tick, tick + count)
            used &= slots["last"] >= 0
            first = int(used.argmax())
            if used[first]:
                return (tick + first) * self._precision_ms
            tick += count
        return None

    def count(self, from_ms: int, until_ms: int) -> int:
        """The number of messages in the slots from `from_ms` on and before `until_ms`."""
        tick, until = from_ms // self._precision_ms, until_ms // self._precision_ms
        until = min(until, tick + SLOTS)
        total = 0
        while tick < until:
            at = tick % SLOTS
            count = min(SLOTS_PER_READ, SLOTS - at, until - tick)
            slots = self._slots(at, count)
            used = slots["tick"] == np.arange(tick, tick + count)
            total += int(slots["number"][used].sum())
            tick += count
        return total

    def rebuild(self) -> None:
        """Empty all slots: replace the file by a new one."""
        self._segment.delete()
        self._make()

    def add(self, positions: npt.NDArray[np.int64], units: npt.NDArray[np.void]) -> int:
        """Add units of the timer log, in their order, to their slots; returns how many messages."""
        times = units["written_ms"] + units["delay_ms"]
        times -= times % self._precision_ms
        numbers = np.where(units["magic"] & IS_RECALL != 0, -1, 1)
        order = np.argsort(times, kind="stable")
        times = times[order]
        starts = np.flatnonzero(np.r_[True, times[1:] != times[:-1]])
        sums = np.add.reduceat(numbers[order], starts)
        ends = np.r_[starts[1:], len(times)] - 1
        for start, end, number in zip(starts, ends, sums, strict=True):
            slot_ms = int(times[start])
            found = self.get(slot_ms)
            first = int(positions[order[start]]) if found.first < 0 else found.first
            last = int(positions[order[end]])
            self.put(slot_ms, Slot(first, last, found.number + int(number)))
        return int(sums.sum())

    def sync(self) -> None:
        """Wait until the disk has what was written. OSError as the system gives it.

        May run in another thread.
        """
        is_new, self._is_new = self._is_new, False
        changed, self._changed = self._changed, False
        try:
            if is_new:
                sync_folder(self.path.parent)
            if changed:
                self._segment.sync()
        except BaseException:
            self._is_new = self._is_new or is_new
            self._changed = self._changed or changed
            raise

    def release(self) -> None:
        """Close the file."""
        self._segment.release()

    def _make(self) -> None:
        # Not reserved: nearly all of it stays a hole, and a write is no store through a mapping.
        self._segment = Segment.create(self.path, 0, FILE_BYTES, reserve=0, writable=False)
        self._is_new = True

    def _at(self, slot_ms: int) -> int:
        return slot_ms // self._precision_ms % SLOTS * SLOT_BYTES

    def _write(self, slot_ms: int, data: bytes) -> None:
        self._write_at(self._at(slot_ms), data)

    def _write_at(self, at: int, data: bytes) -> None:
        with readable_errors(self.path, "write"):
            self._segment.write(at, data)
        self._changed = True

    def _slots(self, at: int, count: int) -> npt.NDArray[np.void]:
        return np.frombuffer(self._read(at * SLOT_BYTES, count * SLOT_BYTES), SLOT_TYPE)

    def _read(self, at: int, size: int) -> bytes:
        with readable_errors(self.path, "read"):
            return disk.current.pread(self._segment.fd, size, at)


def _runs(numbers: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Start and end of the parts of sorted slot numbers that are near to one another."""
    cuts = ((numbers[1:] - numbers[:-1] > NEAR_SLOTS).nonzero()[0] + 1).tolist()
    return pairwise((0, *cuts, len(numbers)))
