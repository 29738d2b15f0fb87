"""The parts of a store, and where they lie: what writing, reading and recovery share."""

import logging
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path

from ..base.errors import StoreError
from ..base.settings import StoreSettings
from ..index.index import Index
from ..log.commit_log import CommitLog
from ..queues.deleted import Deleted
from ..queues.queues import Queues

log = logging.getLogger(__name__)

HOST_BYTES_V4 = 8


class Parts:
    """Log, queues and index of one store. `host` is this broker's ip and port, 8 or 20 bytes;
    `batch_topics` are those whose queues are made as batch queues."""

    batch_topics: AbstractSet[str] = frozenset()
    index_pending_max = 1_000_000  # messages whose keys wait for the index

    def __init__(
        self, root: Path, settings: StoreSettings, host: bytes, now_ms: Callable[[], int]
    ) -> None:
        self.root = root
        self.settings = settings
        self.host = host
        self.host_hex = host.hex().upper().encode()
        self.log_folder = settings.commit_log_dir or root / "commitlog"
        self._now_ms = now_ms
        self._log = CommitLog(
            self.log_folder, settings.segment_bytes, zeros_ahead=settings.sync_flush
        )
        self._queues = Queues(root, settings)
        self._log.on_refuse = self._on_refuse
        # Staged messages were: answers that say otherwise may be waiting for the end of the turn.
        self.dropped = False
        self._deleted = Deleted(root)
        self._index = Index(root / "index", settings, now_ms)
        # The same things at hand for every message that comes in.
        self._plain_queues = self._queues.plain
        self._pending_keys = self._index.pending
        self._body_bytes_max = settings.max_message_bytes
        self._last_ms = 0  # store time of the last message
        # Writes what `put` has staged, in one go. StoreError when the disk fails: then none of what
        # was staged is stored, and nothing more is taken until a restart.
        self.write_staged = self._log.write_staged

    def ahead(self, start: int, size: int) -> tuple[Callable[[], None], int] | None:
        """What another thread is to call, so that these bytes of the log, which are yet to be
        written, have memory then; and where they end, for a file may before. None without a file.
        """
        segment = self._log.segments.find(start)
        if segment is None:
            return None
        end = min(start + size, segment.end)
        return partial(segment.will_need, start - segment.base, end - start), end

    def change_limits(self, settings: StoreSettings) -> None:
        """Go by these limits from now on. Sizes and places of files must be those from before."""
        self.settings = settings
        self._body_bytes_max = settings.max_message_bytes

    def has_batch_queue(self, topic: str, queue_id: int) -> bool:
        """Whether this queue is a batch queue, or will be. A queue stays what it was made as."""
        key = (topic, queue_id)
        return key in self._queues.batch or (
            topic in self.batch_topics and key not in self._queues.plain
        )

    @property
    def readable_end(self) -> int:
        """How far the log may be read: with SYNC_FLUSH only what is on the disk."""
        return self._log.durable if self.settings.sync_flush else self._log.end

    @property
    def index_backlog(self) -> int:
        """How many messages have keys that wait for the index."""
        return self._index.waiting

    def index_pending(self, most: int | None = None) -> int:
        """Add the keys of new messages to the index, or of the `most` oldest of them; of how many.

        DiskFull when it has no room: they wait on, and when too many wait no messages are taken.
        """
        index = self._index
        if not index.waiting:
            return 0
        self._log.write_staged()
        try:
            done = index.flush(self.readable_end, most)
        except StoreError as wrong:
            if index.waiting > self.index_pending_max:
                self._log.pause("index", f"the index can't follow: {wrong}")
            raise
        self._log.resume("index")
        return done

    def _relieve_index(self) -> None:
        """Too many messages have keys that wait for the index: add them now."""
        try:
            self.index_pending()
        except StoreError as wrong:  # those messages are stored all the same
            log.error("%s", wrong)

    def refuse_writes(self, reason: str) -> None:
        """Take nothing more until a restart; `reason` is what senders are told."""
        self._log.refuse(reason)

    def _on_refuse(self, dropped: bool) -> None:
        self.dropped = self.dropped or dropped
        self._forget_unwritten()

    def _forget_unwritten(self) -> None:
        """Take back what was given out for records that didn't get into the log."""
        end = self._log.end
        for queue in self._queues.all():
            try:
                queue.cut_at_log(end)
            except StoreError as wrong:
                log.error("%s; the next start drops these entries", wrong)
        self._index.forget(end)
