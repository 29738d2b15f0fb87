"""The state of one open store: log, queues, index, checkpoint and settings.

The appender, the reader, the cleaner, the follower and recovery all work on one `StoreState`.
"""

import logging
import os
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

from ..base.errors import StoreError
from ..base.kernels import Kernels
from ..base.retention import Hold, TopicRule
from ..base.settings import StoreSettings
from ..epochs import Epochs
from ..files.checkpoint import Checkpoint
from ..index.index import Index
from ..log.commit_log import NOWHERE, CommitLog
from ..queues.deleted import Deleted
from ..queues.queues import Queues

log = logging.getLogger(__name__)

EPOCHS_NAME = "epochFileCheckpoint"


class StoreState:
    """Log, queues and index of one store, and how far each of them is.

    `host` is the ip and port of this broker, 8 or 20 bytes.
    """

    index_pending_max = 1_000_000  # messages whose keys wait for the index

    def __init__(
        self,
        root: Path,
        settings: StoreSettings,
        host: bytes,
        now_ms: Callable[[], int],
        kernels: Kernels,
    ) -> None:
        self.root = root
        self.settings = settings
        self.host = host
        self.now_ms = now_ms
        self.kernels = kernels
        self.log_folder = settings.commit_log_dir or root / "commitlog"
        self.log = CommitLog(
            self.log_folder, settings.segment_bytes, zeros_ahead=settings.sync_flush
        )
        self.log.on_refuse = self._on_refuse
        self.queues = Queues(root, settings)
        self.index = Index(root / "index", settings, now_ms, kernels)
        self.deleted = Deleted(root)
        self.checkpoint = Checkpoint()
        self.epochs = Epochs(root / EPOCHS_NAME)  # read from the file in controller mode only
        # In controller mode every broker of the sync state set has the log up to here.
        self.confirmed = 0 if settings.controller_mode else NOWHERE
        # Whether readers may see less of a queue than it has.
        self.is_bounded = settings.sync_flush or settings.controller_mode
        self.batch_topics: AbstractSet[str] = frozenset()  # new queues of them are batch queues
        self.topic_rules: Mapping[str, TopicRule] = {}  # of topics with a retention of their own
        # Answers `hold`; None without groups that the log waits for.
        self.hold_of: Callable[[str, int], Hold | None] | None = None
        self.light_arrived: dict[tuple[str, int], None] = {}  # light queues with new messages
        self.last_ms = 0  # store time of the last message
        self.opened_end = 0  # an earlier run wrote the log up to here
        self.memory_bytes = 0  # this much of the log's end counts as being in memory
        self.is_following = False  # the log is that of a master
        self.followed_end = 0  # on a slave, the end of the last message that is in its queue
        # Staged messages were lost to a disk error: responses that confirm them must not be sent.
        self.dropped = False

    def use(self, kernels: Kernels) -> None:
        """Use these kernels from now on."""
        self.kernels = self.index.kernels = kernels

    def measure_memory(self) -> None:
        """Estimate how much of the log is in memory, from the memory of this machine."""
        self.memory_bytes = memory_part(self.settings.memory_ratio_percent)

    def hold(self, topic: str, queue_id: int) -> Hold | None:
        """The hold of a queue with the least offset; None where no group holds it."""
        return None if self.hold_of is None else self.hold_of(topic, queue_id)

    def has_batch_queue(self, topic: str, queue_id: int) -> bool:
        """True if this queue is a batch queue, or becomes one. A queue never changes its kind."""
        key = (topic, queue_id)
        return key in self.queues.batch or (
            topic in self.batch_topics and key not in self.queues.simple
        )

    @property
    def safe_end(self) -> int:
        """The end of the log that no crash takes back: with SYNC_FLUSH its end on the disk."""
        return self.log.durable if self.settings.sync_flush else self.log.end

    @property
    def readable_end(self) -> int:
        """The end of the log that readers see: with SYNC_FLUSH its end on the disk, in controller
        mode its confirmed end."""
        return min(self.safe_end, self.confirmed)

    def confirm(self, offset: int) -> bool:
        """Every broker of the sync state set has the log up to `offset`, so nothing before it will
        be cut; returns whether that is news. It never goes back."""
        offset = min(offset, self.log.end)
        is_news = offset > self.confirmed
        if is_news:
            self.confirmed = offset
        return is_news

    @property
    def whole_end(self) -> int:
        """The end of the last message that is in its queue. On a master this is the log's end."""
        return self.followed_end if self.is_following else self.log.end

    def index_pending(self, most: int | None = None) -> int:
        """Add the waiting keys to the index and return the number of messages whose keys were
        added: all of them, or about the `most` oldest.

        DiskFull when the index has no room. The keys then keep waiting. When too many wait, the
        log is paused.
        """
        index = self.index
        if not index.waiting:
            return 0
        self.log.write_staged()
        try:
            done = index.flush(self.safe_end, most)
        except StoreError as wrong:
            if index.waiting > self.index_pending_max:
                self.log.pause("index", f"the index can't follow: {wrong}")
            raise
        self.log.resume("index")
        return done

    def relieve_index(self) -> None:
        """Add the waiting keys to the index now, because too many messages wait."""
        try:
            self.index_pending()
        except StoreError as wrong:  # those messages are stored all the same
            log.error("%s", wrong)

    def _on_refuse(self, dropped: bool) -> None:
        self.dropped = self.dropped or dropped
        self._forget_unwritten()

    def _forget_unwritten(self) -> None:
        """Take back queue entries and keys of records that did not get into the log."""
        end = self.log.end
        for queue in self.queues.all():
            try:
                queue.cut_at_log(end)
            except StoreError as wrong:
                log.error("%s; the next start drops these entries", wrong)
        self.index.forget(end)


def memory_part(percent: int) -> int:
    """A percentage of the machine's memory, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * percent // 100
