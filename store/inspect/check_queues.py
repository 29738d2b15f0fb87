"""Checks consume queues against the log: every message has its entry, every entry its message.

The log is read once. Each message is looked up in its queue, and its entry is ticked off; entries
left without a tick lead nowhere. The ends of the queues are noted before, so that entries which a
running broker adds meanwhile don't matter.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...protocol.message.properties import INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET
from ...protocol.message.record import INNER_BATCH
from ...protocol.names import LMQ_PREFIX
from ..engine.derive_runs import by_queue, queued_rows
from ..files.listing import Row, queue_folders
from ..log.records import Positions
from ..log.run import Run
from ..queues.batch_queue import UNIT_BYTES, UNIT_TYPE
from ..queues.consume_queue import ENTRY_BYTES, ENTRY_TYPE, EXT_ADDRESS_MAX, FILLER, SCHEDULE_TOPIC
from ..queues.queue_ext import ADDRESS_BASE, UNIT, UNIT_BYTES_MIN
from .findings import Report

QUEUES = "consume queues"
BATCHES = "batch queues"
EXT = "queue extensions"
Entries = NDArray[np.void]


class QueuesCheck:
    """Checks all queues of a store."""

    def __init__(self, root: Path, sizes: tuple[int, int], report: Report) -> None:
        """`sizes`: the file sizes of consume queues and of batch queues in bytes, 0 if unknown."""
        self._report = report
        self._root = root
        self.simple: dict[tuple[str, int], SimpleQueueCheck] = {}
        self.batch: dict[tuple[str, int], BatchCheck] = {}
        self._absent: dict[tuple[str, int], list[int]] = {}  # queue -> places of its messages
        report.part(QUEUES, "entries")
        for topic, queue_id, folder in queue_folders(root / "consumequeue"):
            row = Row(folder, sizes[0], ENTRY_BYTES)
            ext = Row(root / "consumequeue_ext" / topic / str(queue_id))
            self.simple[topic, queue_id] = SimpleQueueCheck(topic, row, ext, report)
        for topic, queue_id, folder in queue_folders(root / "batchconsumequeue"):
            report.part(BATCHES, "entries")
            self.batch[topic, queue_id] = BatchCheck(Row(folder, sizes[1], UNIT_BYTES), report)
        self._has_light = any(topic.startswith(LMQ_PREFIX) for topic, _ in self.simple)

    @property
    def last_entries(self) -> list[tuple[int, int]]:
        """Log offset and size of the last message of each queue."""
        simple = [check.last for check in self.simple.values()]
        batch = [check.last for check in self.batch.values()]
        return [last for last in (*simple, *batch) if last is not None]

    @property
    def ends(self) -> dict[tuple[str, int], int]:
        """The offset behind the last message of each queue, messages without an entry included."""
        found = {key: check.count + check.missing_count for key, check in self.simple.items()}
        return found | {key: check.end_offset for key, check in self.batch.items()}

    def see(self, run: Run) -> None:
        """Tick off the entries of these messages."""
        rows = queued_rows(run)
        inner = (run.records.sys_flags[rows] & INNER_BATCH) != 0
        for row in rows[inner].tolist():
            found = self.batch.get((run.topics[int(run.topic_of[row])], int(run.queue_ids[row])))
            if found is not None:
                found.see(run, row)
        for topic, queue_id, own, entries in by_queue(run, rows[~inner]):
            queue = self.simple.get((topic, queue_id))
            if queue is None:
                places = self._absent.setdefault((topic, queue_id), [])
                places += [int(entries["offset"][0]), int(entries["offset"][-1])]
                del places[1:-1]
            else:
                queue.see(run.queue_offsets[own], entries)
        if self._has_light:
            self._see_light(run)

    def end(self, log_start: int, log_end: int, *, is_open: bool, deleted: dict[str, int]) -> None:
        """Report entries that were not ticked off, after all of the log was read.

        `deleted` has where the log ended when a topic was deleted, by topic.
        """
        for (topic, queue_id), places in self._absent.items():
            folder = self._root / "consumequeue" / topic / str(queue_id)
            text = f"there is no queue {queue_id} of topic {topic}, the log has messages of it"
            if places[-1] < deleted.get(topic, 0):
                continue
            if is_open or topic not in {name for name, _ in self.simple}:
                self._report.note(QUEUES, folder, None, f"{text}; was the topic deleted?")
            else:
                self._report.damage(QUEUES, folder, None, text)
        for (topic, _), check in self.simple.items():
            check.end(log_start, log_end, is_open=is_open, deleted_end=deleted.get(topic, 0))
        for batch in self.batch.values():
            batch.end(log_start, log_end, is_open=is_open)

    def _see_light(self, run: Run) -> None:
        """Tick off the entries in the light queues (%LMQ%) that messages name."""
        table = run.properties
        rows, starts, ends = table.find(INNER_MULTI_DISPATCH)
        offsets = {
            row: table.data[start:end].tobytes()
            for row, start, end in zip(
                *(values.tolist() for values in table.find(INNER_MULTI_QUEUE_OFFSET)), strict=True
            )
        }
        codes = run.tags_codes() if len(rows) else None
        for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
            names = table.data[start:end].tobytes().decode(errors="replace").split(",")
            for name, text in zip(names, offsets.get(row, b"").split(b","), strict=False):
                light = self.simple.get((name, 0))
                if light is None or not text.isdigit() or codes is None:
                    continue
                entry = (int(run.log_offsets[row]), int(run.sizes[row]), int(codes[row]))
                light.see(np.array([int(text)]), np.array([entry], ENTRY_TYPE))


class SimpleQueueCheck:
    """Checks one consume queue. The numbers of its entries are [first, count)."""

    def __init__(self, topic: str, row: Row, ext: Row, report: Report) -> None:
        self.row = row
        self._topic = topic
        self._ext = ext
        self._report = report
        self._missing: list[int] = []  # first and last place of messages behind the last entry
        self._earlier: list[int] = []  # … before the first entry
        self.missing_count = 0
        part = report.part(QUEUES, "entries")
        part.files += len(row.items)
        for problem in row.problems:
            report.tell(QUEUES, problem)
        self.first = row.start // ENTRY_BYTES
        self.count = self._count_entries()
        self._seen = np.zeros(self.count - self.first, np.bool_)
        part.checked += len(self._seen)
        last = self._last_entry()
        self.last = None if last is None else last[:2]

    def see(self, offsets: Positions, entries: Entries) -> None:
        """Compare the entries at these offsets with the ones that the messages should have."""
        inside = (offsets >= self.first) & (offsets < self.count)
        if not inside.all():
            self._note_outside(offsets, entries["offset"], ~inside)
            offsets, entries = offsets[inside], entries[inside]
        if not len(offsets):
            return
        low, high = int(offsets.min()), int(offsets.max()) + 1
        found = self._read(low, high)[offsets - low]
        same = (found["offset"] == entries["offset"]) & (found["size"] == entries["size"])
        right = same & ((found["tags"] == entries["tags"]) | (found["tags"] <= EXT_ADDRESS_MAX))
        if self._topic == SCHEDULE_TOPIC:
            right = same  # there an entry has the time of delivery instead of the tags
        else:
            self._check_ext(offsets, found, entries)
        here = found["offset"] == entries["offset"]
        self._seen[offsets[here] - self.first] = True
        # An entry that leads further on belongs to a message sent after the topic was recreated.
        for row in np.flatnonzero(~right & (here | (found["offset"] < entries["offset"]))).tolist():
            text = f"leads to {_show(found[row])}, the message with this offset is "
            self._damage(int(offsets[row]), text + _show(entries[row]))
            self._seen[offsets[row] - self.first] = True

    def end(self, log_start: int, log_end: int, *, is_open: bool, deleted_end: int) -> None:
        """Report entries without a message, and messages without an entry."""
        report = self._report
        left = np.flatnonzero(~self._seen) + self.first
        for low, high in _stretches(left):
            entries = self._read(low, high)
            places = entries["offset"].astype(np.int64)
            gone = (places >= 0) & (places < log_start)
            gone |= (places == FILLER[0]) & (entries["size"] == FILLER[1])
            ahead = (places >= log_end) if is_open else np.zeros(len(places), np.bool_)
            if ahead.any():
                segment, at = self._where(low + int(np.argmax(ahead)))
                text = "the last entries lead behind the end of the log; the next start cuts them"
                report.note(QUEUES, segment, at, text)
            for first, end in _stretches(np.flatnonzero(~gone & ~ahead) + low):
                what = _show(self._read(first, first + 1)[0])
                others = f", and so do the entries up to {end - 1}" if end - first > 1 else ""
                self._damage(first, f"leads to {what}, where no message of it begins{others}")
        if self._earlier and self._earlier[-1] >= deleted_end:
            text = f"lacks the entries before {self.first}, whose messages the log still has"
            report.damage(QUEUES, self.row.folder, None, text)
        if self._missing and self._missing[-1] >= deleted_end:
            last = self._last_entry()
            if last is not None and self._missing[-1] < last[0]:
                return  # messages from before the topic was deleted and recreated
            text = (
                f"ends at entry {self.count}, the log has {self.missing_count} more messages of "
                f"it, from {self._missing[0]} on"
            )
            tell = report.note if is_open else report.damage
            tell(QUEUES, self.row.folder, None, text)

    def _note_outside(
        self, offsets: Positions, places: Positions, outside: NDArray[np.bool_]
    ) -> None:
        for row in np.flatnonzero(outside).tolist():
            kept = self._earlier if offsets[row] < self.first else self._missing
            kept.append(int(places[row]))
            del kept[1:-1]
        self.missing_count += int(np.count_nonzero(offsets[outside] >= self.count))

    def _check_ext(self, offsets: Positions, found: Entries, entries: Entries) -> None:
        for row in np.flatnonzero(found["tags"] <= EXT_ADDRESS_MAX).tolist():
            part = self._report.part(EXT, "units")
            part.files = max(part.files, len(self._ext.items))
            part.checked += 1
            place = int(found["tags"][row]) + ADDRESS_BASE
            segment = self._ext.find(place)
            code = None
            if segment is not None and place - segment.base + UNIT_BYTES_MIN <= segment.size:
                size, tags_code, _, _ = UNIT.unpack_from(segment.view, place - segment.base)
                code = tags_code if size >= UNIT_BYTES_MIN else None
            if code != int(entries["tags"][row]):
                path = self._ext.folder if segment is None else segment.path
                at = None if segment is None else place - segment.base
                text = f"entry {offsets[row]} of its queue leads here, where its tags are not"
                self._report.damage(EXT, path, at, text)

    def _count_entries(self) -> int:
        """The number behind the last entry; reports invalid entries among or behind them."""
        count = self.first
        for number, segment in enumerate(self.row.items):
            units = np.frombuffer(segment.view, ENTRY_TYPE, segment.size // ENTRY_BYTES)
            bad = np.flatnonzero((units["offset"] < 0) | (units["size"] <= 0))
            count = segment.base // ENTRY_BYTES + len(units)
            if len(bad) and (number < len(self.row.items) - 1 or self._is_inside(units, bad)):
                for low, high in _stretches(bad):
                    if high < len(units) or number < len(self.row.items) - 1:
                        first = segment.base // ENTRY_BYTES + low
                        text = f"entries {first} to {first + high - low - 1} are none"
                        self._report.damage(QUEUES, segment.path, low * ENTRY_BYTES, text)
                    else:
                        count = segment.base // ENTRY_BYTES + low
            elif len(bad):
                count = segment.base // ENTRY_BYTES + int(bad[0])
            segment.release()
        return count

    def _is_inside(self, units: Entries, bad: Positions) -> bool:
        """True if entries follow the first bad one, so that it is damage and not the end."""
        return int(bad[-1]) - int(bad[0]) + 1 != len(bad) or int(bad[-1]) != len(units) - 1

    def _read(self, first: int, end: int) -> Entries:
        parts = []
        at, stop = first * ENTRY_BYTES, end * ENTRY_BYTES
        while at < stop:
            segment = self.row.find(at)
            size = 0 if segment is None else (min(stop, segment.end) - at) // ENTRY_BYTES
            size *= ENTRY_BYTES
            if segment is None or not size:  # a file that is missing or cut off: reported already
                parts.append(bytes(ENTRY_BYTES))
                at += ENTRY_BYTES
                continue
            with segment.reader() as read:
                parts.append(read(at - segment.base, size))
            at += size
        return np.frombuffer(b"".join(parts), ENTRY_TYPE)

    def _last_entry(self) -> tuple[int, int, int] | None:
        if self.count <= self.first:
            return None
        entry: tuple[int, int, int] = self._read(self.count - 1, self.count)[0].tolist()
        return None if entry[:2] == FILLER[:2] else entry

    def _where(self, number: int) -> tuple[Path, int | None]:
        segment = self.row.find(number * ENTRY_BYTES)
        if segment is None:
            return self.row.folder, None
        return segment.path, number * ENTRY_BYTES - segment.base

    def _damage(self, number: int, text: str) -> None:
        path, at = self._where(number)
        self._report.damage(QUEUES, path, at, f"entry {number} {text}")


class BatchCheck:
    """Checks one batch queue, which has an entry for each record with an inner batch."""

    def __init__(self, row: Row, report: Report) -> None:
        self.row = row
        self._report = report
        part = report.part(BATCHES, "entries")
        part.files += len(row.items)
        for problem in row.problems:
            report.tell(BATCHES, problem)
        self.end_offset = 0
        self._units: dict[
            int, tuple[int, Path, int]
        ] = {}  # by log offset: size, file and byte in it
        for segment in row.items:
            units = np.frombuffer(segment.view, UNIT_TYPE, segment.size // UNIT_BYTES)
            valid = (units["offset"] >= 0) & (units["size"] > 0) & (units["number"] > 0)
            for number in np.flatnonzero(valid).tolist():
                place, size = int(units["offset"][number]), int(units["size"][number])
                self._units[place] = (size, segment.path, number * UNIT_BYTES)
                self.end_offset = int(units["base"][number]) + int(units["number"][number])
        part.checked += len(self._units)
        self._last = max(self._units, default=-1)
        self.last = (self._last, self._units[self._last][0]) if self._units else None
        self._missing: list[int] = []

    def see(self, run: Run, row: int) -> None:
        """Tick off the entry of a record."""
        place, size = int(run.log_offsets[row]), int(run.sizes[row])
        found = self._units.pop(place, None)
        if found is None:
            self._missing.append(place)
            del self._missing[1:-1]
        elif found[0] != size:
            text = f"says {found[0]} bytes of the record at {place}, which has {size}"
            self._report.damage(BATCHES, found[1], found[2], text)

    def end(self, log_start: int, log_end: int, *, is_open: bool) -> None:
        """Report entries without a record, and records without an entry."""
        for place, (_, path, at) in self._units.items():
            if place >= log_start and not (is_open and place >= log_end):
                text = f"leads to {place}, where no record of it begins"
                self._report.damage(BATCHES, path, at, text)
        if self._missing:
            is_tail = is_open and self._missing[0] > self._last
            tell = self._report.note if is_tail else self._report.damage
            text = f"lacks entries of records from {self._missing[0]} to {self._missing[-1]}"
            tell(BATCHES, self.row.folder, None, text)


def _stretches(numbers: Positions) -> Iterable[tuple[int, int]]:
    """The runs of consecutive numbers, each as [first, end)."""
    if not len(numbers):
        return
    breaks = np.flatnonzero(np.diff(numbers) != 1)
    firsts = [0, *(breaks + 1).tolist()]
    for first, last in zip(firsts, [*breaks.tolist(), len(numbers) - 1], strict=True):
        yield int(numbers[first]), int(numbers[last]) + 1


def _show(entry: np.void) -> str:
    place, size, tags = entry.tolist()
    return f"{place} ({size} bytes, tags {tags})"
