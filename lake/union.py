"""Table and live log of a topic as one: the table up to the offsets of its snapshot, then the log.

The two never overlap: the log is read from the offset behind the table's last message of each queue
to the ends that the queues have when the read is planned.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, GreaterThanOrEqual
from pyiceberg.table import FileScanTask, Table

from ..client.base.security import OPEN, Security
from ..client.cluster.route import MessageQueue
from . import continuity, opening, settings
from .bodies.decoder import Decoding
from .dead_letters import SUFFIX, DeadLetters
from .errors import LakeError, NoTable
from .progress import progress_of, queue_key, queue_of
from .rows.columns import BY_NAME
from .rows.ranges import QueueRange
from .scan import tasks_of
from .table_schema import COLUMNS, STORE_TIME, row_schema
from .topic_log import Bounds, Source

if TYPE_CHECKING:
    import pandas
    import polars

RAW = Decoding()
NAMES = tuple(column.name for column in COLUMNS)
_MARKED = (BY_NAME["msgId"], BY_NAME[STORE_TIME])


@dataclass(frozen=True)
class Live:
    """The messages behind a table, as a stream of Arrow; each scan reads them anew.

    `failures` has the errors of scans: engines wrap them in errors of their own.
    """

    source: Source
    ranges: tuple[QueueRange, ...]
    columns: tuple[str, ...]
    decoding: Decoding
    failures: list[Exception] = field(default_factory=list)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        every = row_schema(self.decoding.schema)
        return pa.schema([every.field(name) for name in self.columns])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, queue by queue. Errors of the client, and DataLossError."""
        needed = dict.fromkeys(name for name in self.columns if name in BY_NAME)
        if self.decoding.fields:
            needed["value"] = None
        columns = tuple(BY_NAME[name] for name in needed)
        parts = (self.source.rows(each, columns) for each in self.ranges)
        try:
            for batch in self.decoding.decoded(chain.from_iterable(parts)):
                yield batch.select(list(self.columns))
        except Exception as wrong:
            self.failures.append(wrong)
            raise

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """What engines scan, as Arrow's PyCapsule interface has it."""
        reader = pa.RecordBatchReader.from_batches(self.schema, self.batches())
        return reader.__arrow_c_stream__(requested_schema)


class TopicTable:
    """One topic: `files` of its table, and `live` messages behind them.

    With `since_ms` the messages that were stored then or later. `skips_gone`: messages that the
    broker deleted before the table got them are left out, else refused. `decoding` has the columns
    of JSON; live messages whose bodies don't fit are left out. LakeError when the table's progress
    can't be read.
    """

    def __init__(
        self,
        table: Table,
        source: Source,
        topic: str,
        *,
        since_ms: int | None = None,
        skips_gone: bool = False,
        failures: list[Exception] | None = None,
        decoding: Decoding = RAW,
    ) -> None:
        self._skips_gone = skips_gone
        self.decoding = decoding
        self.names = (*NAMES, *decoding.schema.names)
        self._failures = [] if failures is None else failures
        self.table = table
        self.topic = topic
        self.since_ms = since_ms
        self._source = source
        self._name = ".".join(table.name())
        self._progress = progress_of(table.metadata, self._name)

    @property
    def ends(self) -> dict[MessageQueue, int]:
        """By queue the offset behind the table's last message."""
        return {queue_of(self.topic, key): at for key, at in self._progress.offsets.items()}

    @property
    def begun(self) -> list[MessageQueue]:
        """The queues of which messages were read; the others have no rows."""
        said = {*self._progress.marks, *self._progress.gone}
        return [queue_of(self.topic, key) for key in said]

    @property
    def files(self) -> list[str]:
        """The URIs of the table's Parquet files. LakeError as of `tasks`."""
        return [task.file.file_path for task in self.tasks]

    @cached_property
    def tasks(self) -> list[FileScanTask]:
        """The table's Parquet files. LakeError when rows of them are deleted by delete files."""
        return tasks_of(self.table.scan(self._since), self._name)

    @cached_property
    def ranges(self) -> tuple[QueueRange, ...]:
        """The messages behind the table. LakeError when the log does not go on where it ends."""
        bounds, failures = self._source.bounds(self.topic)
        if failures:
            raise LakeError(f"the live part of topic {self.topic} can't be read: {failures[0]}")
        return self.ranges_in(bounds)

    def ranges_in(self, bounds: Mapping[MessageQueue, Bounds]) -> tuple[QueueRange, ...]:
        """The messages behind the table in queues with these bounds. LakeError as of `ranges`."""
        queues = list(bounds)
        since = None if self.since_ms is None else self._source.offsets_at(queues, self.since_ms)
        found = []
        for queue, (first, end) in bounds.items():
            wanted = first if since is None else max(first, since[queue])
            at = self._progress.offsets.get(queue_key(queue), wanted)
            if at > end:
                raise continuity.ends_before(queue, end, at, self._name)
            if at < first == wanted and not self._skips_gone:
                raise LakeError(
                    f"{continuity.gone(queue, at, first)} by table {self._name}; onGone: skip "
                    "leaves them out"
                )
            start = max(at, wanted)
            if start < end:
                self._check_mark(queue, at, first)
                found.append(QueueRange(queue.topic, queue.broker_name, queue.queue_id, start, end))
        return tuple(found)

    def _check_mark(self, queue: MessageQueue, at: int, first: int) -> None:
        """LakeError when the message before offset `at` is another one than in the table."""
        mark = self._progress.marks.get(queue_key(queue))
        if mark is None or at <= first:
            return
        before = QueueRange(queue.topic, queue.broker_name, queue.queue_id, at - 1, at)
        for batch in self._source.rows(before, _MARKED):
            if batch.num_rows and continuity.mark_of_row(batch) != mark:
                raise continuity.differs(queue, at - 1, self._name)

    def live(self, columns: Sequence[str] | None = None) -> Live:
        """The messages behind the table."""
        chosen = self.names if columns is None else tuple(columns)
        return Live(self._source, self.ranges, chosen, self.decoding, self._failures)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in batches of Arrow: those of the table, then the live ones."""
        live = self.live(columns)
        for batch in self._stored(live.columns):
            rows = pa.Table.from_batches([batch])
            for each in live.schema:
                if each.name not in batch.schema.names:  # no writer has added the column yet
                    rows = rows.append_column(each, pa.nulls(len(rows), each.type))
            yield from rows.select(list(live.columns)).cast(live.schema).to_batches()
        yield from live.batches()

    def _stored(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        have = {each.name for each in self.table.schema().fields}
        there = tuple(name for name in columns if name in have)
        yield from self.table.scan(self._since, selected_fields=there).to_arrow_batch_reader()

    @property
    def _since(self) -> BooleanExpression:
        if self.since_ms is None:
            return AlwaysTrue()
        compare: Any = GreaterThanOrEqual
        found: BooleanExpression = compare(STORE_TIME, _moment(self.since_ms).isoformat())
        return found


class DeadLetterTable(TopicTable):
    """The messages of a topic that don't fit the columns of its table: `letters` is the table that
    has them, with its files, and None before there are any."""

    def __init__(
        self, main: Table, letters: tuple[Table, list[str]] | None, *arguments: Any, **options: Any
    ) -> None:
        super().__init__(main, *arguments, **options)
        self.table, self._files = (main, []) if letters is None else letters

    @property
    def files(self) -> list[str]:
        """The URIs of the table's Parquet files."""
        return self._files

    def _stored(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        chosen = list(dict.fromkeys([*columns, STORE_TIME]))
        for file in self._files:
            with self.table.io.new_input(file).open() as stream:
                for batch in pq.ParquetFile(stream).iter_batches(columns=chosen):
                    rows = pa.Table.from_batches([batch])
                    if self.since_ms is not None:
                        rows = rows.filter(pc.field(STORE_TIME) >= _moment(self.since_ms))
                    yield from rows.to_batches()


class Tables:
    """The tables of a lake, by name; opens its catalog and the connection to its cluster.

    with Tables.of(Path("lake.yaml")) as tables:
        tables["orders"].to_polars()
    """

    def __init__(
        self,
        found: settings.LakeSettings,
        *,
        security: Security = OPEN,
        since_ms: int | None = None,
    ) -> None:
        self._settings = found
        self._since_ms = since_ms
        self.failures: list[Exception] = []  # of live messages, in scans of engines
        self._catalog = opening.open_catalog(found, only_reads=True)
        self._log = opening.open_log(found, security)

    @property
    def name_server(self) -> str:
        """The name servers of the settings, "" for the default."""
        return self._settings.namesrv_addr

    @classmethod
    def of(cls, path: Path | str, **options: Any) -> Self:
        """The tables of a file of settings."""
        return cls(settings.read(Path(path)), **options)

    @cached_property
    def names(self) -> Mapping[str, str]:
        """The topics by the names of their tables, and of those of dead letters."""
        pairs = opening.topics_of(self._settings, self._log)
        letters = {
            opening.name_of(topic, entry) + SUFFIX: topic for topic, entry in pairs if entry.fields
        }
        return letters | {opening.name_of(topic, entry): topic for topic, entry in pairs}

    def of_topic(self, topic: str) -> TopicTable:
        """The table of a topic; LakeError when the settings have none for it."""
        entry = self._settings.entry_of(topic)
        if entry is not None:
            return self._table(opening.name_of(topic, entry), topic)
        known = ", ".join(self.names.values()) or "none"
        raise NoTable(
            f"the settings have no table for topic {topic}; they have those of {known}. Add it "
            f"with aerobee lake add {topic}"
        )

    def __getitem__(self, name: str) -> TopicTable:
        topic = self.names.get(name)
        if topic is None:
            known = ", ".join(self.names) or "none"
            raise NoTable(f"the settings have no table {name}; they have {known}")
        return self._table(name, topic)

    def _table(self, name: str, topic: str) -> TopicTable:
        entry = self._settings.entry_of(topic)
        assert entry is not None
        main = opening.name_of(topic, entry)
        is_dead = name != main
        table = self._catalog.load(main, topic)
        options: dict[str, Any] = {
            "since_ms": self._since_ms,
            "skips_gone": entry.on_gone == "skip",
            "failures": self.failures,
            "decoding": Decoding(entry.fields, is_dead),
        }
        if not is_dead:
            return TopicTable(table, self._log, topic, **options)
        letters = DeadLetters(self._catalog, topic, main).files(table)
        return DeadLetterTable(table, letters, self._log, topic, **options)

    def close(self) -> None:
        """Close the connections."""
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        wrong: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


class NamedTable:
    """A table by its name; each read opens the catalog and the connection, and closes them.

    A read has what is in the table and the log at that moment.
    """

    def __init__(self, name: str, found: settings.LakeSettings, **options: Any) -> None:
        self.name = name
        self._settings = found
        self._options = options

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in batches of Arrow: those of the table, then the live ones."""
        with Tables(self._settings, **self._options) as tables:
            yield from tables[self.name].batches(columns)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows in memory."""
        with Tables(self._settings, **self._options) as tables:
            found = tables[self.name]
            return pa.Table.from_batches(found.batches(columns), found.live(columns).schema)

    def to_polars(self, columns: Sequence[str] | None = None) -> "polars.DataFrame":
        """All rows as a DataFrame of polars."""
        import polars

        found = polars.from_arrow(self.to_arrow(columns))
        assert isinstance(found, polars.DataFrame)
        return found

    def to_pandas(self, columns: Sequence[str] | None = None) -> "pandas.DataFrame":
        """All rows as a DataFrame of pandas."""
        return self.to_arrow(columns).to_pandas()
