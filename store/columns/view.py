"""A store as data: its queues as numpy arrays, its messages as Arrow batches. It only reads.

The folder may be in use by an aerobee or Java broker. Data that is cut off or damaged raises an
error and is never returned. A view knows the files that existed when it was made or refreshed; each
call looks up again where a queue ends in them. Arrow is imported only when rows are asked for;
`pip install "aerobee[spark]"` installs it.
"""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...protocol.names import LMQ_PREFIX
from ..base.chunk import Chunk
from ..base.errors import ArrowMissing, PolarsMissing, StoreError
from ..files import checkpoint
from ..files.listing import Row, queue_folders
from ..log.records import Positions
from ..log.run import Passed
from ..log.walk import whole_record
from ..queues.batch_queue import UNIT_BYTES, UNIT_TYPE
from ..queues.consume_queue import ENTRY_BYTES, ENTRY_TYPE, FILLER

if TYPE_CHECKING:
    from .frames import DataFrame
    from .messages import Batch, Schema

PIECE_MESSAGES_MAX = 8_192  # Spark's own Arrow batches have 10,000 rows
PIECE_BYTES_MAX = 8 << 20  # or one message


class StoreView:
    """A store folder, read only.

    `root` is the broker's storePathRootDir, `log_folder` its storePathCommitLog where that is
    another folder. StoreError where there is no store. A view knows the files that existed when it
    was made; `refresh` makes it look again.
    """

    def __init__(self, root: Path | str, log_folder: Path | str | None = None) -> None:
        """StoreError when there is no store."""
        self.root = Path(root)
        self._log_folder = Path(log_folder) if log_folder else self.root / "commitlog"
        if not self._log_folder.is_dir():
            raise StoreError(
                f"{self.root} is no store: it has no folder {self._log_folder.name}; give the "
                "folder that the broker has as storePathRootDir"
            )
        self.refresh()

    def refresh(self) -> None:
        """Look again which files exist."""
        sizes = checkpoint.load(self.root / "checkpoint")
        self.log = Row(self._log_folder, sizes.segment_bytes)
        self._queues: dict[tuple[str, int], QueueView] = {}
        kinds: list[tuple[type[QueueView], int]] = [
            (PlainQueueView, sizes.queue_file_bytes),
            (BatchQueueView, sizes.batch_queue_file_bytes),
        ]
        for kind, size in kinds:
            for topic, queue_id, folder in queue_folders(self.root / kind.folder):
                row = Row(folder, size, kind.unit_bytes)
                self._queues[topic, queue_id] = kind(topic, queue_id, row, self.log)

    def topics(self) -> dict[str, list[int]]:
        """Every topic with a queue, and the ids of its queues."""
        found: dict[str, list[int]] = {}
        for topic, queue_id in sorted(self._queues):
            found.setdefault(topic, []).append(queue_id)
        return found

    def queue(self, topic: str, queue_id: int) -> "QueueView":
        """One queue. StoreError when there is none."""
        found = self._queues.get((topic, queue_id))
        if found is None:
            raise StoreError(
                f"the store {self.root} has no queue {queue_id} of topic {topic}; it has "
                f"{self.topics().get(topic, 'no queue of it at all')}"
            )
        return found

    def entries(
        self, topic: str, queue_id: int, start: int | None = None, end: int | None = None
    ) -> NDArray[np.void]:
        """The entries of the messages with offsets [start, end) as an array with named fields.

        `offset` in the log, `size` in bytes and `tags` (the hash) of a consume queue; a batch queue
        has one entry per record and more fields. Entries from one file are a view of its mapping,
        not a copy.
        """
        return self.queue(topic, queue_id).entries(start, end)

    def chunks(
        self,
        topic: str,
        queue_id: int,
        start: int | None = None,
        end: int | None = None,
        *,
        messages_max: int = PIECE_MESSAGES_MAX,
        bytes_max: int = PIECE_BYTES_MAX,
    ) -> Iterator[Chunk]:
        """The records of the offsets [start, end), a bounded chunk at a time and without a gap.

        A chunk has the form of a pull's result, which `spark/decode.py` and `batches` read.
        MessagesGone when part of the range is deleted, DamagedStore when a record is not whole,
        ArrowMissing.
        """
        _check_arrow()
        from . import messages

        queue = self.queue(topic, queue_id)
        yield from messages.chunks(queue, start, end, messages_max, bytes_max)

    def batches(
        self,
        topic: str,
        queue_id: int | None = None,
        start: int | None = None,
        end: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        messages_max: int = PIECE_MESSAGES_MAX,
        bytes_max: int = PIECE_BYTES_MAX,
    ) -> "Iterator[Batch]":
        """The messages with offsets [start, end) of a queue, as Arrow batches of bounded size.

        Without `queue_id`, of each queue of the topic, one queue after the other. Bodies are
        unpacked. A message of a light queue (%LMQ%) has the topic, queue and offset of the queue
        that it was sent to. `columns` are names from `schema()`; None means all. Raises as
        `chunks`; ValueError for an unknown column, StoreError for an unknown topic.
        """
        _check_arrow()
        from . import messages

        schema = messages.schema_of(columns)
        is_light = topic.startswith(LMQ_PREFIX)
        for each in self._queue_ids(topic) if queue_id is None else [queue_id]:
            for chunk in self.chunks(
                topic, each, start, end, messages_max=messages_max, bytes_max=bytes_max
            ):
                yield messages.batch(chunk, schema, all_rows=is_light)

    def to_polars(
        self,
        topic: str,
        queue_id: int | None = None,
        start: int | None = None,
        end: int | None = None,
        *,
        columns: Sequence[str] | None = None,
    ) -> "DataFrame":
        """The rows of `batches` in one polars DataFrame, all of them in memory.

        PolarsMissing where polars is not installed; raises as `batches`.
        """
        if find_spec("polars") is None:
            raise PolarsMissing(
                "a DataFrame needs polars, which is not installed; run "
                "pip install 'aerobee[polars]', or take the Arrow batches of batches()"
            )
        from . import frames

        found = self.batches(topic, queue_id, start, end, columns=columns)
        return frames.to_polars(found, self.schema(columns))

    def _queue_ids(self, topic: str) -> list[int]:
        found = self.topics().get(topic)
        if found is None:
            near = ", ".join(get_close_matches(topic, self.topics(), 3)) or "topics() lists them"
            raise StoreError(f"the store {self.root} has no queue of topic {topic}; {near}")
        return found

    def schema(self, columns: Sequence[str] | None = None) -> "Schema":
        """The columns of `batches`."""
        _check_arrow()
        from . import messages

        return messages.schema_of(columns)

    def release(self) -> None:
        """Drop all mappings; arrays returned before stay valid."""
        self.log.release()
        for queue in self._queues.values():
            queue.row.release()


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
        """Whether the record that this entry leads to is in the log and belongs to the entry."""
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
        """Whether this record is the one that this entry was made for."""
        raise NotImplementedError


class PlainQueueView(QueueView):
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
        """Whether this record is the one that this entry was made for."""
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
        """Whether this record is the one that this entry was made for."""
        return True


def _check_arrow() -> None:
    if find_spec("pyarrow") is None:
        raise ArrowMissing(
            "the rows of a store need pyarrow, which is not installed; run "
            "pip install 'aerobee[spark]'"
        )
