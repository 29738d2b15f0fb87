"""A stream that begins in the tables of a lake: what is in them is read there, the rest in the log.

Each message is in a micro-batch by its offset, wherever it is read: a row of a table is the same as
the message in the log. So a table that grows, or is loaded again, changes no row.
"""

import logging
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..client.cluster.route import MessageQueue
from ..client.errors import AerobeeError
from ..lake.errors import LakeError, NoTable
from ..lake.rows.ranges import QueueRange
from . import progress
from .options import ReadOptions
from .plan import Bounds
from .progress import Progress, Span

if TYPE_CHECKING:
    from ..lake.history import History
    from ..lake.rows.table_part import TablePart

log = logging.getLogger(__name__)

REFRESH_SECONDS = 600  # old files of a compacted table stay for a day at least


class StreamTables:
    """The tables of a stream's topics, each loaded when it is needed first.

    A topic of `subscribePattern` that has no table is read from the log alone.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._found: dict[str, History | None] = {}
        self._loaded: dict[str, float] = {}

    def over(self, log: Bounds, start: Progress) -> "TableBounds":
        """The bounds of tables and log together, for a stream that is at `start`."""
        return TableBounds(self, log, start)

    def history(self, topic: str) -> "History | None":
        """The table of a topic. LakeError when it has none, or the log does not continue it."""
        if topic not in self._found:
            self._load(topic)
        return self._found[topic]

    def size_at(self, queue: MessageQueue, offset: int) -> float | None:
        """The mean bytes of a row in the files, None for an offset behind the table."""
        history = self.history(queue.topic)
        if history is None or offset >= history.ends.get(queue, 0):
            return None
        return history.row_bytes

    def tasks(self, log: Bounds, start: Progress, end: Progress) -> list["QueueRange | TablePart"]:
        """The tasks of a micro-batch; DataLossError as `progress.ranges`."""
        lows = progress.lows_of(self.over(log, start), start, end)
        wanted = list(progress.spans(lows, start, end))
        found: list[QueueRange | TablePart] = []
        in_log = []
        for topic in end:
            spans = [each for each in wanted if each[0].topic == topic]
            history = self._fresh(topic, spans, log)
            in_table = {}
            for queue, begin, stop in spans:
                at = 0 if history is None else min(stop, history.ends.get(queue, 0))
                if begin < at:
                    in_table[queue] = (begin, at)
                    begin = at
                if begin != stop:
                    in_log.append((queue, begin, stop))
            if history is not None and in_table:
                found += history.parts(in_table)
        return [*found, *progress.logged(log, self._options, lows, in_log)]

    def _fresh(self, topic: str, spans: Iterable[Span], log: Bounds) -> "History | None":
        """The table of a topic, loaded again where it may have what the log has not any more."""
        history = self.history(topic)
        if history is None:
            return None
        ends = [(*each, history.ends.get(each[0], 0)) for each in spans]
        if any(
            max(begin, at) < min(stop, log.min_offset(queue))
            for queue, begin, stop, at in ends
            if at < stop
        ):
            self._load(topic)
        elif (
            any(begin < min(at, stop) for _, begin, stop, at in ends)
            and time.monotonic() - self._loaded[topic] > REFRESH_SECONDS
        ):
            self._try_load(topic)
        return self._found[topic]

    def _load(self, topic: str) -> None:
        from ..lake.history import history_of  # pyiceberg, which other streams do without

        config, security = self._options.lake_config, self._options.security
        assert config is not None
        try:
            self._found[topic] = history_of(config, topic, security)
        except NoTable:
            if self._options.pattern is None:
                raise
            self._found[topic] = None
        self._loaded[topic] = time.monotonic()

    def _try_load(self, topic: str) -> None:
        try:
            self._load(topic)
        except (LakeError, AerobeeError) as wrong:
            log.warning("the table of topic %s can't be loaded again: %s", topic, wrong)


class TableBounds:
    """Queues with the offsets that table and log have together (`plan.Bounds`).

    A queue that is in the table alone, as one whose broker is away, ends where the table does or
    the stream is.
    """

    def __init__(self, tables: StreamTables, log: Bounds, start: Progress) -> None:
        self._tables = tables
        self._log = log
        self._start = start
        self._logged: dict[str, set[MessageQueue]] = {}

    def topics(self) -> list[str]:
        """The names of all topics."""
        return self._log.topics()

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic, in the log or the table."""
        found = self._logged[topic] = set(self._log.queues(topic))
        history = self._tables.history(topic)
        return sorted(found if history is None else found | set(history.ends))

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""
        history = self._tables.history(queue.topic)
        found = None if history is None else history.firsts().get(queue)
        if found is not None:
            return found
        return self._log.min_offset(queue) if self._is_logged(queue) else self._end(queue)

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return self._log.max_offset(queue) if self._is_logged(queue) else self._end(queue)

    def offset_at(self, queue: MessageQueue, ms: int) -> int:
        """The offset of the first message stored at `ms` or later."""
        if self._is_logged(queue):
            found = self._log.offset_at(queue, ms)
            if found > self._log.min_offset(queue):
                return found
        else:
            found = self._end(queue)
        history = self._tables.history(queue.topic)
        return found if history is None else min(found, history.firsts(ms).get(queue, found))

    def _is_logged(self, queue: MessageQueue) -> bool:
        if queue.topic not in self._logged:
            self.queues(queue.topic)
        return queue in self._logged[queue.topic]

    def _end(self, queue: MessageQueue) -> int:
        history = self._tables.history(queue.topic)
        ends = {} if history is None else history.ends
        at = self._start.get(queue.topic, {}).get(progress.name_of(queue), 0)
        return max(at, ends.get(queue, 0))
