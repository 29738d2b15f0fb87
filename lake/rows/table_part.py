"""Rows of a table's files that one task reads: offsets of queues, from some of the files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ...store.columns.arrays import codes
from .columns import Column
from .decode import schema_of

BATCH_ROWS = 8_192  # Spark's own Arrow batches have 10,000
KEYS = ("brokerName", "queueId", "offset")


@dataclass(frozen=True)
class TablePart:
    """`files` of a table, and the offsets [start, end) that are wanted by broker name and queue id.

    `properties` are those of pyiceberg's file system. A task gets it pickled.
    """

    files: tuple[str, ...]
    wanted: Mapping[tuple[str, int], tuple[int, int]]
    properties: Mapping[str, str]

    def rows(self, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
        """The wanted rows with these columns. Errors of the file system, as where a file is gone:
        the table was compacted, and its old files swept, since the read was planned."""
        from pyiceberg.io import load_file_io

        schema = schema_of(columns)
        names = list(dict.fromkeys((*schema.names, *KEYS)))
        for path in self.files:
            io = load_file_io(dict(self.properties), path)
            with io.new_input(path).open() as stream, pq.ParquetFile(stream) as file:
                for number in range(file.num_row_groups):
                    if not self._has_wanted(file.metadata.row_group(number)):
                        continue
                    rows = file.read_row_group(number, names, use_threads=False)
                    for batch in rows.combine_chunks().to_batches(BATCH_ROWS):
                        chosen = batch.filter(self._is_wanted(batch)).select(schema.names)
                        if chosen.num_rows:
                            yield chosen.cast(schema)

    def _has_wanted(self, group: pq.RowGroupMetaData) -> bool:
        """False if the group's statistics say that it has none of the offsets."""
        for number in range(group.num_columns):
            column = group.column(number)
            if column.path_in_schema == "offset" and column.statistics is not None:
                least, most = column.statistics.min, column.statistics.max
                return any(start <= most and least < end for start, end in self.wanted.values())
        return True

    def _is_wanted(self, rows: pa.RecordBatch) -> pa.Array:
        """A column that is true where a row is wanted."""
        brokers = rows.column("brokerName").dictionary_encode()
        queues, offsets = _values(rows, "queueId", np.int32), _values(rows, "offset", np.int64)
        width = int(queues.max(initial=0)) + 1
        starts = np.zeros(len(brokers.dictionary) * width, np.int64)
        ends = np.zeros_like(starts)
        for place, broker in enumerate(brokers.dictionary.to_pylist()):
            for queue in np.unique(queues).tolist():
                at = place * width + queue
                starts[at], ends[at] = self.wanted.get((broker, queue), (0, 0))
        places = codes(brokers).astype(np.int64) * width + queues
        mask = (starts[places] <= offsets) & (offsets < ends[places])
        bits = pa.py_buffer(np.packbits(mask, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(mask), [None, bits])


def _values(rows: pa.RecordBatch, name: str, kind: type) -> NDArray[np.integer]:
    """The numbers of a column without nulls, over the same memory."""
    column = rows.column(name)
    size = np.dtype(kind).itemsize
    return np.frombuffer(column.buffers()[1], kind, len(column), size * column.offset)
