"""A table by queue and offset: how far it goes, where it begins, and which files have a range.

For readers that begin in the table and go on in the log.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.types import LongType

from ..client.base.security import Security
from ..client.cluster.route import MessageQueue
from .errors import LakeError
from .rows.table_part import KEYS, TablePart
from .table_schema import STORE_TIME
from .union import Tables, TopicTable

PART_BYTES = 64 << 20  # of files in one part, unless one file is larger


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    size: int
    rows: int
    first: int  # the least offset in it, of any queue
    last: int


class History:
    """The table of one topic, as it was when this was made.

    `ends` has by queue the offset behind the table's last message: the log is read from there.
    """

    def __init__(self, found: TopicTable) -> None:
        self.ends: Mapping[MessageQueue, int] = found.ends
        self._begun = found.begun
        self._table = found.table
        self._firsts: dict[int | None, dict[MessageQueue, int]] = {}
        self._files = sorted(
            (_file(task.file, found.table) for task in found.tasks), key=lambda each: each.first
        )

    @property
    def row_bytes(self) -> float:
        """The mean size of a row in the files, in bytes."""
        return sum(each.size for each in self._files) / max(1, sum(e.rows for e in self._files))

    def firsts(self, since_ms: int | None = None) -> dict[MessageQueue, int]:
        """By queue the least offset that the table has, of the messages stored at `since_ms` or
        later; a queue without any is not in it."""
        known = self._firsts.get(since_ms)
        if known is None:
            known = self._firsts[since_ms] = self._look(since_ms)
        return known

    def parts(self, wanted: Mapping[MessageQueue, tuple[int, int]]) -> list[TablePart]:
        """The parts that together have the messages with the offsets [start, end) of each queue."""
        ranges = {(each.broker_name, each.queue_id): span for each, span in wanted.items()}
        parts: list[list[str]] = []
        size = PART_BYTES
        for file in self._files:
            if any(start <= file.last and file.first < end for start, end in ranges.values()):
                if size + file.size > PART_BYTES:
                    parts.append([])
                    size = 0
                parts[-1].append(file.path)
                size += file.size
        properties = dict(self._table.io.properties)
        return [TablePart(tuple(each), ranges, properties) for each in parts]

    def _look(self, since_ms: int | None) -> dict[MessageQueue, int]:
        wanted = {(each.broker_name, each.queue_id): each for each in self._begun}
        found: dict[MessageQueue, int] = {}
        for file in self._files:
            if all(queue in found and found[queue] <= file.first for queue in self._begun):
                break
            for broker, queue_id, offset in self._least(file, since_ms):
                queue = wanted.get((broker, queue_id))
                if queue is not None:
                    found[queue] = min(offset, found.get(queue, offset))
        return found

    def _least(self, file: _File, since_ms: int | None) -> Iterable[tuple[str, int, int]]:
        """By broker and queue the least offset in a file."""
        names = list(KEYS) if since_ms is None else [*KEYS, STORE_TIME]
        with self._table.io.new_input(file.path).open() as stream:
            rows = pq.read_table(stream, columns=names)
        if since_ms is not None:
            since = pa.scalar(since_ms * 1_000, rows.schema.field(STORE_TIME).type)
            rows = rows.filter(pc.greater_equal(rows.column(STORE_TIME), since))
        least = rows.group_by(list(KEYS[:2])).aggregate([(KEYS[2], "min")])
        columns = [least.column(name).to_pylist() for name in (*KEYS[:2], "offset_min")]
        return zip(*columns, strict=True)


def history_of(config: Path | str, topic: str, security: Security) -> History:
    """The history of a topic. LakeError when the settings in `config` have no table for it, when it
    has columns of JSON, or when the log does not go on where the table ends."""
    with Tables.of(config, security=security) as tables:
        table = tables.of_topic(topic)
        if table.decoding.fields:
            raise LakeError(
                f"the table of topic {topic} has columns of JSON: its dead letters are not in it, "
                "and come into it later when they are read again, so a stream would lack them; "
                "read the log alone, or a second table of the topic without json"
            )
        _ = table.ranges  # which checks the log
        return History(table)


def _file(file: DataFile, table: Table) -> _File:
    field_id = table.schema().find_field("offset").field_id

    def bound(bounds: Mapping[int, bytes] | None, otherwise: int) -> int:
        said = (bounds or {}).get(field_id)
        return otherwise if said is None else int(from_bytes(LongType(), said))

    return _File(
        file.file_path,
        file.file_size_in_bytes,
        file.record_count,
        bound(file.lower_bounds, 0),
        bound(file.upper_bounds, (1 << 63) - 1),
    )
