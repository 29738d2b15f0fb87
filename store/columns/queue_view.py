"""The queues of a store as numpy arrays of entries: which offsets a queue has, where they lead."""

import numpy as np
from numpy.typing import NDArray

from ...protocol.names import LMQ_PREFIX
from ..files.listing import Row
from ..log.records import Positions
from ..log.run import Passed
from ..log.walk import whole_record
from ..queues.batch_queue import UNIT_BYTES, UNIT_TYPE
from ..queues.consume_queue import ENTRY_BYTES, ENTRY_TYPE, FILLER


class QueueView:
    """One queue of a topic, read only."""

    folder: str
    unit_bytes: int
    unit_type: np.dtype[np.void]

    def __init__(self, topic: str, queue_id: int, row: Row, log: Row) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.row = row
        self.log = log

    @property
    def first_offset(self) -> int:
        """The offset of the first message whose record the log may still have."""
        raise NotImplementedError

    @property
    def end_offset(self) -> int:
        """The offset behind the last message that is whole in the log."""
        raise NotImplementedError

    def entries(self, start: int | None = None, end: int | None = None) -> NDArray[np.void]:
        """The entries of the messages with these offsets."""
        raise NotImplementedError

    def offsets(self, entries: NDArray[np.void], start: int) -> tuple[Positions, Positions]:
        """The message offsets of each of these entries: an array of firsts and one of ends.

        The ends are exclusive. The first entry is the one of message `start`.
        """
        raise NotImplementedError

    def array(self, first: int, end: int) -> NDArray[np.void]:
        """The entries with the numbers [first, end), as far as files have a place for them."""
        parts = []
        at, stop = first * self.unit_bytes, end * self.unit_bytes
        while at < stop and (segment := self.row.find(at)) is not None:
            count = (min(stop, segment.end) - at) // self.unit_bytes
            if count <= 0:
                break
            parts.append(np.frombuffer(segment.view, self.unit_type, count, at - segment.base))
            at += count * self.unit_bytes
        if len(parts) == 1:
            return parts[0]
        joined = np.empty(sum(map(len, parts)), self.unit_type)
        return np.concatenate(parts, out=joined) if parts else joined

    def count(self) -> tuple[int, int]:
        """The number of the first entry in a file, and the number behind the last whole entry.

        Only the last file is searched, because the files before it are full. An entry is whole when
        its record is in the log.
        """
        if not self.row.items:
            return 0, 0
        unit = self.unit_bytes
        first, last = self.row.start // unit, self.row.items[-1]
        units = np.frombuffer(last.view, self.unit_type, last.size // unit)
        low, high = 0, len(units)
        while low < high:
            middle = (low + high) // 2
            if units["size"][middle] > 0:
                low = middle + 1
            else:
                high = middle
        end = last.base // unit + low
        # Our queues are written a little before the log is; Java leaves old entries at an end.
        while end > first and not self.is_whole(end - 1):
            end -= 1
        return first, end

    def is_whole(self, number: int) -> bool:
        """True if the record that this entry leads to is in the log and belongs to the entry."""
        entry = self.array(number, number + 1)
        if not len(entry):
            return False
        place, size = int(entry["offset"][0]), int(entry["size"][0])
        if (place, size) == FILLER[:2]:
            return True
        segment = self.log.find(place)
        if segment is None:
            return place < self.log.start
        found = whole_record(segment, place)
        return found is not None and found.size == size and self.is_own(found, number)

    def is_own(self, record: Passed, number: int) -> bool:
        """True if this record is the one that this entry was made for."""
        raise NotImplementedError


class SimpleQueueView(QueueView):
    """A consume queue: entry i is for the message with offset i."""

    folder = "consumequeue"
    unit_bytes = ENTRY_BYTES
    unit_type = ENTRY_TYPE

    @property
    def first_offset(self) -> int:
        """The offset of the first message whose record the log may still have."""
        low, high = self.count()
        while low < high:
            middle = (low + high) // 2
            (entry,) = self.array(middle, middle + 1).tolist()
            if entry[0] < self.log.start or entry[:2] == FILLER[:2]:
                low = middle + 1
            else:
                high = middle
        return low

    @property
    def end_offset(self) -> int:
        """The offset behind the last message that is whole in the log."""
        return self.count()[1]

    def entries(self, start: int | None = None, end: int | None = None) -> NDArray[np.void]:
        """The entries of the messages with these offsets."""
        first, last = self.count()
        return self.array(max(first, start or 0), last if end is None else min(end, last))

    def offsets(self, entries: NDArray[np.void], start: int) -> tuple[Positions, Positions]:
        """The message offsets of each of these entries: an array of firsts and one of ends.

        The ends are exclusive. The first entry is the one of message `start`.
        """
        firsts = np.arange(start, start + len(entries))
        return firsts, firsts + 1

    def is_own(self, record: Passed, number: int) -> bool:
        """True if this record is the one that this entry was made for."""
        # A message of a light queue has the offset in the queue that it was sent to.
        return record.queue_offset == number or self.topic.startswith(LMQ_PREFIX)


class BatchQueueView(QueueView):
    """A batch consume queue: an entry is for the messages of one record."""

    folder = "batchconsumequeue"
    unit_bytes = UNIT_BYTES
    unit_type = UNIT_TYPE

    @property
    def first_offset(self) -> int:
        """The offset of the first message whose record the log may still have."""
        units = self.array(*self.count())
        kept = units[units["offset"] >= self.log.start]
        return int(kept["base"][0]) if len(kept) else self.end_offset

    @property
    def end_offset(self) -> int:
        """The offset behind the last message that is whole in the log."""
        first, end = self.count()
        if end == first:
            return 0
        last = self.array(end - 1, end)[0]
        return int(last["base"]) + int(last["number"])

    def entries(self, start: int | None = None, end: int | None = None) -> NDArray[np.void]:
        """The entries of the records that hold messages with these offsets."""
        units = self.array(*self.count())
        wanted = units["base"] + units["number"] > (start or 0)
        if end is not None:
            wanted &= units["base"] < end
        rows = np.flatnonzero(wanted)
        return units[rows[0] : rows[-1] + 1] if len(rows) else units[:0]

    def offsets(self, entries: NDArray[np.void], start: int) -> tuple[Positions, Positions]:
        """The message offsets of each of these entries: an array of firsts and one of ends.

        The ends are exclusive. The first entry is the one of message `start`.
        """
        firsts = entries["base"].astype(np.int64)
        return firsts, firsts + entries["number"]

    def is_own(self, record: Passed, number: int) -> bool:
        """True if this record is the one that this entry was made for."""
        return True
