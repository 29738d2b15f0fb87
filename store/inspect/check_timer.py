"""Checks the timer's files: each unit leads to its message, each slot to its newest unit.

Timer log and `config/timercheck` say which messages of the wheel's topic wait and which are done.
The wheel itself is rebuilt after an unclean stop, so it is not checked where a broker runs or has
crashed.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...protocol.message.record import MAGIC_V1, MAGIC_V2
from ..files.listing import Row
from ..files.segment import Segment
from ..log.commit_log import RECORD_START
from ..timer import timer_check
from ..timer.timer_log import (
    MAGIC_MASK,
    QUEUE,
    SIGNED_BLANK,
    UNIT_BYTES,
    UNIT_TYPE,
    UNITS_PER_READ,
    WHEEL_TOPIC,
)
from ..timer.timer_wheel import FILE_BYTES, SLOT_BYTES, SLOT_TYPE, SLOTS
from .check_queues import QueuesCheck
from .findings import Report

TIMER = "timer"
PRECISIONS_MS = (1_000, 500, 200, 100)  # what RocketMQ takes for timerPrecisionMs
SAMPLE_SLOTS = 1_000
RECORD_MAGICS = np.array((MAGIC_V1, MAGIC_V2), np.uint32).astype(np.int32)

Numbers = npt.NDArray[np.int64]
Units = npt.NDArray[np.void]


class TimerFilesCheck:
    """Checks the timer files of one store. They are opened at once; `end` compares them with the
    log."""

    def __init__(self, root: Path, report: Report, *, is_open: bool) -> None:
        self._report = report
        self._is_open = is_open
        self._note_path = root / "config" / "timercheck"
        self._wheel_path = root / "timerwheel"
        self._row = Row(root / "timerlog")
        paths = (self._note_path, self._wheel_path, self._row.folder)
        self._is_there = any(path.exists() for path in paths)
        self._noted = timer_check.load(self._note_path)
        own = None if self._noted is None else self._noted.own
        self._read_ms = 0 if self._noted is None else self._noted.read_ms
        self._promised = 0 if self._noted is None else self._noted.flushed
        self._precision_ms = 0
        if own is not None:
            self._precision_ms = own.precision_ms
            self._read_ms = max(self._read_ms, own.read_ms)
            if own.is_clean:
                self._promised = max(self._promised, own.timer_log_end)
        self._newest: dict[int, int] = {}  # tick -> position of its newest waiting unit
        self._expired = 0  # waiting units whose message was deleted by retention

    def end(self, log: Row, log_end: int, queues: QueuesCheck) -> None:
        """Compare the files with the log, which ends at `log_end`, after all of it was read."""
        if not self._is_there:
            return
        part = self._report.part(TIMER, "units")
        part.files = len(self._row.items) + self._note_path.exists() + self._wheel_path.exists()
        for problem in self._row.problems:
            self._report.tell(TIMER, problem)
        slots = self._slots()
        if not self._precision_ms:
            self._precision_ms = self._likely_precision(slots)
        self._check_units(log, log_end)
        if not self._is_open:
            self._check_slots(slots)
        self._check_note(queues.ends.get((WHEEL_TOPIC, QUEUE), 0))

    # --- units ----------------------------------------------------------------------------------

    def _check_units(self, log: Row, log_end: int) -> None:
        end = self._row.start
        for segment in self._row.items:
            count = segment.size // UNIT_BYTES
            for start in range(0, count, UNITS_PER_READ):
                size = min(UNITS_PER_READ, count - start)
                units = np.frombuffer(segment.view, UNIT_TYPE, size, start * UNIT_BYTES)
                bad = (units["size"] != UNIT_BYTES) | (units["magic"] & ~MAGIC_MASK != 0)
                good = int(bad.argmax()) if bad.any() else size
                if good and start == 0 and segment.base > end:
                    self._ends_early(end, segment)
                end = segment.base + (start + good) * UNIT_BYTES
                self._see(segment, start * UNIT_BYTES, units[:good], log, log_end)
                if good < size:
                    if units["magic"][good] == SIGNED_BLANK:
                        end = segment.end
                    elif not bad[good:].all():
                        self._ends_early(end, segment)
                    break
            else:
                end = segment.end
            segment.forget()
        if end < self._promised:
            text = f"the timer log ends at {end}, timercheck says that it reaches {self._promised}"
            self._report.damage(TIMER, self._row.folder, None, text)
        if self._expired:
            text = f"{self._expired} messages wait that retention has deleted from the log"
            self._report.note(TIMER, self._row.folder, None, text)

    def _ends_early(self, place: int, segment: Segment) -> None:
        at = max(0, place - segment.base)
        text = f"at {place} of the timer log is no unit, and others follow"
        self._report.damage(TIMER, segment.path, at, text)

    def _see(self, segment: Segment, at: int, units: Units, log: Row, log_end: int) -> None:
        """Check units that follow one another from byte `at` of the file on."""
        self._report.parts[TIMER].checked += len(units)
        positions = segment.base + at + np.arange(len(units)) * UNIT_BYTES
        places = units["log_offset"].astype(np.int64)
        sizes = units["record_bytes"].astype(np.int64)
        times = units["written_ms"] + units["delay_ms"]
        waits = times >= self._read_ms
        self._expired += int(np.count_nonzero(waits & (places < log.start)))
        behind = places + sizes > log_end
        is_right = places < log.start
        if self._is_open:
            is_right |= behind  # the message came meanwhile, or the next start cuts the unit off
        left = np.flatnonzero(~is_right & ~behind)
        is_right[left] = _has_records(log, places[left], sizes[left])
        previous = units["previous"]
        for number in np.flatnonzero(~is_right).tolist():
            text = (
                f"the unit at {positions[number]} leads to {places[number]} of the log, where no "
                f"message of {sizes[number]} bytes is"
            )
            self._report.damage(TIMER, segment.path, at + number * UNIT_BYTES, text)
        for number in np.flatnonzero((previous >= positions) | (previous < -1)).tolist():
            text = (
                f"the unit at {positions[number]} says that the one before it in its slot is at "
                f"{previous[number]}"
            )
            self._report.damage(TIMER, segment.path, at + number * UNIT_BYTES, text)
        waiting = np.flatnonzero(waits)
        ticks = (times[waiting] // self._precision_ms)[::-1]
        found, newest = np.unique(ticks, return_index=True)
        last = positions[waiting][::-1][newest]
        self._newest.update(zip(found.tolist(), last.tolist(), strict=True))

    # --- the wheel ------------------------------------------------------------------------------

    def _slots(self) -> Units:
        """All slots; none if the file is missing or has another length, which is reported."""
        none = np.empty(0, SLOT_TYPE)
        if not self._wheel_path.exists():
            return none
        size = self._wheel_path.stat().st_size
        if size != FILE_BYTES:
            text = f"has {size} bytes instead of {FILE_BYTES}"
            tell = self._report.note if self._is_open and size == 0 else self._report.damage
            tell(TIMER, self._wheel_path, None, text)
            return none
        segment = Segment(self._wheel_path, 0, size, writable=False)
        return np.frombuffer(segment.view, SLOT_TYPE, SLOTS)

    def _check_slots(self, slots: Units) -> None:
        if not len(slots):
            if self._newest:
                text = f"is missing; messages of {len(self._newest)} slots wait in it"
                self._report.damage(TIMER, self._wheel_path, None, text)
            return
        least = self._read_ms // self._precision_ms
        used = np.flatnonzero((slots["last"] >= 0) & (slots["tick"] >= max(1, least)))
        ticks, lasts = slots["tick"][used].tolist(), slots["last"][used].tolist()
        named = dict(zip(ticks, zip(used.tolist(), lasts, strict=True), strict=True))
        for tick in sorted(named.keys() | self._newest.keys()):
            number, place = named.get(tick, (tick % SLOTS, None))
            newest = self._newest.get(tick)
            moment = tick * self._precision_ms
            if place == newest and number == tick % SLOTS:
                continue
            if number != tick % SLOTS:
                text = f"slot {number} is of {moment}, whose slot is {tick % SLOTS}"
            elif newest is None:
                text = f"the slot of {moment} names the unit at {place}; none in the log is of then"
            elif place is None:
                text = f"the slot of {moment} is empty, the log has a unit for it at {newest}"
            else:
                text = f"the slot of {moment} names the unit at {place}, its newest is at {newest}"
            self._report.damage(TIMER, self._wheel_path, number * SLOT_BYTES, text)

    def _likely_precision(self, slots: Units) -> int:
        """The precision in ms on which slots and their units agree, if timercheck lacks it."""
        for slot in slots[slots["last"] >= 0][:SAMPLE_SLOTS]:
            segment = self._row.find(int(slot["last"]))
            if segment is None or int(slot["last"]) + UNIT_BYTES > segment.end:
                continue
            (unit,) = np.frombuffer(segment.view, UNIT_TYPE, 1, int(slot["last"]) - segment.base)
            moment = int(unit["written_ms"]) + int(unit["delay_ms"])
            for precision_ms in PRECISIONS_MS:
                if moment // precision_ms == slot["tick"]:
                    return precision_ms
        return PRECISIONS_MS[0]

    # --- timercheck -----------------------------------------------------------------------------

    def _check_note(self, queue_end: int) -> None:
        tell = self._report.note if self._is_open else self._report.damage
        path = self._note_path
        if self._noted is None:
            text = "is cut off" if path.exists() else "is missing"
            if path.exists() or self._newest:
                tell(TIMER, path, None, f"{text}; how far the timer has come is not known")
            return
        offsets = [self._noted.queue_offset]
        if self._noted.own is not None:
            offsets.append(self._noted.own.queue_offset)
        if max(offsets) > queue_end or min(offsets) < 0:
            text = f"the timer is at offset {max(offsets)} of topic {WHEEL_TOPIC} queue {QUEUE}"
            tell(TIMER, path, 16, f"{text}, which ends at {queue_end}")


def _has_records(log: Row, places: Numbers, sizes: Numbers) -> npt.NDArray[np.bool_]:
    """True for each of these places of the log at which a record of this size begins."""
    found = np.zeros(len(places), np.bool_)
    for segment in log.items:
        inside = (places >= segment.base) & (places + RECORD_START.size <= segment.end)
        own = np.flatnonzero(inside)
        if not len(own):
            continue
        data = np.frombuffer(segment.view, np.uint8)
        starts = (places[own] - segment.base)[:, None] + np.arange(8)
        heads = data[starts].view(">i4")
        found[own] = (heads[:, 0] == sizes[own]) & np.isin(heads[:, 1], RECORD_MAGICS)
    return found
