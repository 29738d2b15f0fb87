"""A run: records that lie side by side in the log, read and checked together.

What recovery, `check` and the view ask of a record is here for all of them as arrays, so that a
gigabyte of small messages takes seconds. A run holds whole records only: lengths add up, each says
itself where it lies, and its body has its crc.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ...protocol.message import properties as props
from ...protocol.message.record import (
    BODY_CRC_AT,
    CRC_MASK,
    QUEUE_ID_AT,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
    crc32,
)
from ..base.kernels import RunKernels
from ..files.segment import Segment
from .key_hash import slice_hashes
from .keys import hashes_of_keys, places_of_keys, table_of
from .property_table import PropertyTable
from .records import Positions, Records, chain, survey

RUN_BYTES = 2 << 20  # read at once; the arrays of small messages then fit the cache
TOPICS_SEEN_AT_ONCE = 16  # with more topics than this in a run, names are looked up one by one


@dataclass(slots=True)
class Passed:
    """One record of a run: what queues and index are made from, as in `Record`."""

    log_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_ms: int
    raw_properties: bytes


class Run:
    """Whole records, of which the first lies at `place` of the log."""

    def __init__(self, records: Records, place: int, kernels: RunKernels | None = None) -> None:
        self.records = records
        self.kernels = kernels
        self.place = place - (int(records.starts[0]) if len(records) else 0)  # of data[0]

    def __len__(self) -> int:
        return len(self.records)

    @cached_property
    def log_offsets(self) -> Positions:
        """The offset of each record in the log."""
        return self.records.starts + self.place

    @property
    def sizes(self) -> Positions:
        """The size of each record."""
        return self.records.sizes

    @property
    def end(self) -> int:
        """The place behind the last record."""
        return int(self.log_offsets[-1] + self.sizes[-1])

    @cached_property
    def queue_ids(self) -> NDArray[np.int32]:
        """The queue of each record."""
        return self.records.int32(QUEUE_ID_AT)

    @cached_property
    def queue_offsets(self) -> Positions:
        """Each record's offset in its queue."""
        return self.records.queue_offsets()

    @cached_property
    def store_times(self) -> Positions:
        """The time when each record was stored, ms."""
        return self.records.store_times()

    @cached_property
    def _topics(self) -> tuple[list[str], Positions]:
        names, rows = _topics(self.records)
        return [name.decode(errors="replace") for name in names], rows

    @property
    def topics(self) -> list[str]:
        """The topics of the run."""
        return self._topics[0]

    @property
    def topic_of(self) -> Positions:
        """The topic of each record, as its number in `topics`."""
        return self._topics[1]

    @cached_property
    def properties(self) -> PropertyTable:
        """The properties of all records."""
        records, data = self.records, self.records.data
        if self.kernels is not None:
            return PropertyTable(
                *self.kernels.joined(data, records.properties_at, records.properties_end)
            )
        pairs = zip(records.properties_at.tolist(), records.properties_end.tolist(), strict=True)
        return table_of([data[at:end] for at, end in pairs])

    def raw_properties(self, row: int) -> bytes:
        """The properties of one record as they are stored."""
        records = self.records
        return records.data[records.properties_at[row] : records.properties_end[row]]

    def passed(self, row: int) -> Passed:
        """One record by itself."""
        return Passed(
            int(self.log_offsets[row]),
            int(self.sizes[row]),
            self.topics[int(self.topic_of[row])],
            int(self.queue_ids[row]),
            int(self.queue_offsets[row]),
            int(self.records.sys_flags[row]),
            int(self.store_times[row]),
            self.raw_properties(row),
        )

    def tags_codes(self) -> Positions:
        """The tags code of each record, 0 without tags."""
        found = np.zeros(len(self), np.int64)
        rows, starts, ends = self.properties.find(props.TAGS)
        hashes = slice_hashes(self.properties.data, starts, ends, kernels=self.kernels)
        found[rows] = hashes.view(np.int32)
        return found

    def keys(self) -> tuple[Positions, Positions]:
        """The keys of the records: the record's row, ascending, and the hash of `topic#key`.

        As the index has them: first a record's unique key, then each word of KEYS.
        """
        rows, starts, ends = places_of_keys(self.properties)
        kinds = self.records.sys_flags[rows] & TRANSACTION_MASK
        if (kinds == TRANSACTION_ROLLBACK).any():
            kept = kinds != TRANSACTION_ROLLBACK
            rows, starts, ends = rows[kept], starts[kept], ends[kept]
        topic_of = self.topic_of[rows]
        hashes = hashes_of_keys(
            self.properties, starts, ends, self.topics, topic_of, kernels=self.kernels
        )
        return rows, hashes

    def since(self, place: int) -> "Run":
        """The records from this place of the log on."""
        first = int(np.searchsorted(self.log_offsets, place))
        return self if first == 0 else self.picked(slice(first, None))

    def picked(self, rows: slice) -> "Run":
        """Only these records; they must lie side by side."""
        records = self.records.picked(rows)
        place = self.place + int(records.starts[0]) if len(records) else self.place
        return Run(records, place, self.kernels)


def read_run(
    segment: Segment, place: int, size: int = RUN_BYTES, kernels: RunKernels | None = None
) -> Run | None:
    """The whole records from this place of the log on, within `size` bytes; None without any."""
    at = place - segment.base
    data = segment.view[at : at + size]
    if kernels is not None:
        records, _ = survey(data, *kernels.whole(data, place))
        return Run(records, place, kernels) if len(records) else None
    records, _ = survey(data, *chain(data))
    good = (records.log_offsets() == records.starts + place) & has_right_crc(records)
    if not good.all():
        records = records.picked(slice(int(np.argmin(good))))
    return Run(records, place) if len(records) else None


def has_right_crc(records: Records) -> NDArray[np.bool_]:
    """Which bodies have the crc that was stored with them; an empty one always."""
    memory = memoryview(records.data)
    pairs = zip(records.body_at.tolist(), records.body_end.tolist(), strict=True)
    crcs = np.array([crc32(memory[at:end]) for at, end in pairs], np.int64) & CRC_MASK
    right: NDArray[np.bool_] = (crcs == records.int32(BODY_CRC_AT)) | (
        records.body_at == records.body_end
    )
    return right


def _topics(records: Records) -> tuple[list[bytes], Positions]:
    """The different topics, and for each record the number of its own."""
    data = records.data
    lengths = records.topic_end - records.topic_at
    names: list[bytes] = []
    found = np.zeros(len(records), np.int64)
    left = np.arange(len(records))
    bytes_ = np.frombuffer(data, np.uint8)
    while len(left) and len(names) < TOPICS_SEEN_AT_ONCE:
        first = left[0]
        name = data[records.topic_at[first] : records.topic_end[first]]
        same = left[lengths[left] == len(name)]
        for place, byte in _telling_first(name):
            same = same[bytes_[records.topic_at[same] + place] == byte]
        found[same] = len(names)
        names.append(name)
        is_left = np.ones(len(records), np.bool_)
        is_left[same] = False
        left = left[is_left[left]]
    if len(left):
        numbers = {name: number for number, name in enumerate(names)}
        for row in left.tolist():
            name = data[records.topic_at[row] : records.topic_end[row]]
            found[row] = numbers.setdefault(name, len(numbers))
        names = list(numbers)
    return names, found


def _telling_first(name: bytes) -> list[tuple[int, int]]:
    """The bytes of a name with their places, the last ones first: in them topics differ most."""
    return list(enumerate(name))[::-1]
