"""The messages of a queue as Arrow batches, read from the log of a store."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...protocol.errors import Malformed
from ...protocol.message.record import (
    RECORD_BYTES_MIN,
    SIZE_AT,
)
from ..base.errors import DamagedStore, StoreError
from ..files.listing import Row
from ..log.chunk import Chunk, MessagesGone
from ..log.records import Records, locate
from ..log.run import has_right_crc
from ..queues.consume_queue import FILLER
from .arrays import slices
from .queue_view import QueueView
from .rows import FIELDS, every_row, rows_of

Batch: TypeAlias = pa.RecordBatch
Schema: TypeAlias = pa.Schema

SCHEMA = pa.schema([pa.field(name, kind) for name, (kind, _) in FIELDS.items()])


def schema_of(columns: Sequence[str] | None) -> Schema:
    """The schema of these columns, None for all; ValueError for an unknown column."""
    if columns is None:
        return SCHEMA
    for name in columns:
        if name not in FIELDS:
            raise ValueError(f"there is no column {name!r}; there are {', '.join(FIELDS)}")
    return pa.schema([SCHEMA.field(name) for name in columns])


def batch(chunk: Chunk, schema: Schema, *, all_rows: bool) -> Batch:
    """The messages of a chunk as rows, with `all_rows` the messages of all its records."""
    rows = (
        every_row(chunk.data, chunk.records)
        if all_rows
        else rows_of(chunk.data, first=chunk.start, end=chunk.end, records=chunk.records)
    )
    arrays = [FIELDS[name][1](rows) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def chunks(
    queue: QueueView, start: int | None, end: int | None, messages_max: int, bytes_max: int
) -> Iterator[Chunk]:
    """The records of the offsets [start, end) of a queue; see `StoreView.chunks`."""
    first, last = queue.first_offset, queue.end_offset
    begin = first if start is None else start
    stop = last if end is None else min(end, last)
    if begin < first and begin < stop:
        raise _gone(queue, begin)
    while begin < stop:
        entries = queue.entries(begin, min(stop, begin + messages_max))
        starts, ends = queue.offsets(entries, begin)
        sizes = np.cumsum(entries["size"], dtype=np.int64)
        count = max(1, int(np.searchsorted(sizes, bytes_max, side="right")))
        try:
            data, records = _gathered(queue, entries[:count])
        except StoreError:
            queue.log = Row(queue.log.folder, queue.log.size)
            if queue.first_offset > begin:  # its file was deleted meanwhile
                raise _gone(queue, begin) from None
            raise
        passed = min(stop, int(ends[count - 1]))
        yield Chunk(max(begin, int(starts[0])), passed, data, records)
        begin = passed


def _gathered(queue: QueueView, entries: NDArray[np.void]) -> tuple[bytes, Records | None]:
    """The records of these entries, one after the other, and, if they come from one file, where
    their fields lie; Arrow copies them, file by file."""
    places, sizes = entries["offset"].astype(np.int64), entries["size"].astype(np.int64)
    real = ~((places == FILLER[0]) & (sizes == FILLER[1]))
    places, sizes = places[real], sizes[real]
    # Arrow would write beyond its memory for a negative size.
    if (sizes < RECORD_BYTES_MIN).any():
        at = int(np.argmin(sizes))
        raise _damage(queue, f"the entry that leads to {places[at]} has the size {sizes[at]}")
    parts = []
    records = None
    done = 0
    while done < len(places):
        segment = queue.log.find(int(places[done]))
        if segment is None:
            raise _damage(queue, f"an entry leads to {places[done]}, where there is no file")
        count = int(np.searchsorted(places[done:], segment.end))
        starts = places[done : done + count] - segment.base
        ends = starts + sizes[done : done + count]
        if (starts[1:] < ends[:-1]).any() or (ends > segment.size).any() or not count:
            raise _damage(queue, f"the entries around {places[done]} of the log are out of order")
        low, high = int(starts[0]), int(ends[-1])
        gathered = slices(segment.memory[low:high], starts - low, ends - low)
        data = gathered.buffers()[2].to_pybytes()[: int((ends - starts).sum())]
        records = _checked(queue, data, places[done : done + count], sizes[done : done + count])
        parts.append(data)
        done += count
    return b"".join(parts), records if len(parts) == 1 else None


def _checked(
    queue: QueueView, data: bytes, places: NDArray[np.int64], sizes: NDArray[np.int64]
) -> Records:
    try:
        records = locate(data, np.cumsum(sizes) - sizes)
    except Malformed as wrong:
        raise _damage(queue, f"between {places[0]} and {places[-1]} of the log {wrong}") from wrong
    whole = (records.int32(SIZE_AT) == sizes) & (records.log_offsets() == places)
    if not whole.all():
        raise _damage(queue, f"the entries around {places[0]} lead to other records")
    right = has_right_crc(records)
    if not right.all():
        raise _damage(queue, f"the body of the record at {places[np.argmin(right)]} is damaged")
    return records


def _gone(queue: QueueView, begin: int) -> MessagesGone:
    first = queue.first_offset
    return MessagesGone(
        f"topic {queue.topic} queue {queue.queue_id} has the offsets {first} to {queue.end_offset} "
        f"now, {begin} was asked for: old files are deleted in time; begin at {first}",
        first,
    )


def _damage(queue: QueueView, what: str) -> DamagedStore:
    return DamagedStore(
        f"topic {queue.topic} queue {queue.queue_id}: {what}; look with: aerobee store check"
    )
