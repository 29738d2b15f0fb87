"""Queues and index made from many records at once: what `derive` does for each, for whole runs.

The messages of a run are sorted by queue, in each queue in their order; where a queue goes on
without a gap its entries are written in one piece, and where it has them already they are compared
in one piece. All other records are derived one by one. The result is the same.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...protocol.message.record import INNER_BATCH, TRANSACTION_COMMIT, TRANSACTION_MASK
from ..log.records import Positions
from ..log.run import Run
from ..queues.consume_queue import ENTRY_TYPE, SCHEDULE_TOPIC, ConsumeQueue
from ..queues.queues import QUEUE_ID_MAX, is_legal
from .derive import Derive

Key = tuple[str, int]  # topic, queue id

SMALL_NUMBERS = 1 << 16  # up to here numpy sorts by counting


class RunDerive(Derive):
    """Brings queues and index to where the log is, by runs or by single messages."""

    def queue_run(self, run: Run) -> set[Key]:
        """The entries of these messages; which queues have one of them. QueueGap when entries
        before one are missing."""
        self.last_ms = int(run.store_times[-1])
        kinds = run.records.sys_flags & TRANSACTION_MASK
        wanted = (kinds == 0) | (kinds == TRANSACTION_COMMIT)
        for number, topic in enumerate(run.topics):
            if topic in self._deleted:
                gone = run.log_offsets < self._deleted[topic]
                wanted &= ~(gone & (run.topic_of == number))
        ids = run.queue_ids
        odd = (ids < 0) | (ids > QUEUE_ID_MAX)
        for number, topic in enumerate(run.topics):
            if not is_legal(topic, 0):
                odd |= run.topic_of == number
        special = odd | ((run.records.sys_flags & INNER_BATCH) != 0)
        if self._settings.lmq_enable:
            special[:] = True
        if SCHEDULE_TOPIC in run.topics:
            special |= run.topic_of == run.topics.index(SCHEDULE_TOPIC)
        found: set[Key] = set()
        for row in np.flatnonzero(wanted & special).tolist():
            passed = run.passed(row)
            self.queue(passed)
            found.add((passed.topic, passed.queue_id))
        rows = np.flatnonzero(wanted & ~special)
        for topic, queue_id, own, entries in by_queue(run, rows):
            self._entries(self._queues.make(topic, queue_id), run, own, entries)
            found.add((topic, queue_id))
        self.last_ms = int(run.store_times[-1])
        return found

    def index_run(self, run: Run) -> None:
        """The keys of these messages in the index."""
        self._index.flush(run.place)
        rows, hashes = run.keys()
        self._index.add(hashes, run.log_offsets[rows], run.store_times[rows])

    def _entries(
        self, queue: ConsumeQueue, run: Run, rows: Positions, entries: NDArray[np.void]
    ) -> None:
        """The entries of messages of one queue."""
        offsets = run.queue_offsets[rows]
        breaks = [*(np.flatnonzero(offsets[1:] != offsets[:-1] + 1) + 1).tolist(), len(rows)]
        at = 0
        for stop in breaks:
            while at < stop:
                offset = int(offsets[at])
                if offset == queue.next:
                    queue.append_all(entries[at:stop])
                    at = stop
                    continue
                known = 0
                if queue.first_offset <= offset < queue.next:
                    known = queue.count_equal(offset, entries[at:stop])
                    at += known
                if not known:
                    self.queue(run.passed(int(rows[at])))
                    at += 1


def by_queue(run: Run, rows: Positions) -> Iterator[tuple[str, int, Positions, NDArray[np.void]]]:
    """Yield for each queue of these messages: topic, id, its messages in order, their entries."""
    if not len(rows):
        return
    ids = run.queue_ids[rows].astype(np.int64)
    width = int(ids.max()) + 1
    groups = run.topic_of[rows] * width + ids
    order = stable_order(groups)
    rows, groups = rows[order], groups[order]
    entries = np.empty(len(rows), ENTRY_TYPE)
    entries["offset"] = run.log_offsets[rows]
    entries["size"] = run.sizes[rows]
    entries["tags"] = run.tags_codes()[rows]
    borders = (np.flatnonzero(groups[1:] != groups[:-1]) + 1).tolist()
    for first, end in zip([0, *borders], [*borders, len(rows)], strict=True):
        topic = run.topics[int(run.topic_of[rows[first]])]
        yield topic, int(run.queue_ids[rows[first]]), rows[first:end], entries[first:end]


def queued_rows(run: Run) -> Positions:
    """The messages of a run that have an entry in their queue, by their system flags."""
    kinds = run.records.sys_flags & TRANSACTION_MASK
    return np.flatnonzero((kinds == 0) | (kinds == TRANSACTION_COMMIT))


def stable_order(numbers: NDArray[Any]) -> Positions:
    """Positions that bring these numbers into rising order and leave equal ones as they are."""
    least = int(numbers.min())
    if least >= 0 and int(numbers.max()) < SMALL_NUMBERS:
        return np.argsort(numbers.astype(np.uint16), kind="stable")
    return np.argsort(numbers, kind="stable")
