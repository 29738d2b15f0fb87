"""MessageStore: the store as the broker sees it.

It starts no thread, opens no socket and reads no clock. The broker calls `write_staged` once per
loop iteration before responses go out, and `index_pending` and `save_checkpoint` on a timer. For a
sync it takes a plan to another thread and back: `plan = store.sync_plan()`, there `plan.run()`,
here `store.synced(plan)`.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from pathlib import Path

from ..base.errors import Shortage, StoreError, WritesRefused, readable_errors
from ..base.kernels import Kernels
from ..base.retention import Hold, TopicRule
from ..base.settings import StoreSettings
from ..epochs import Epochs
from ..files import checkpoint as checkpoints
from ..files import disk
from ..files.lock import StoreLock, sync_had_failed, write_abort
from ..files.segment import make_folder, sync_folder
from ..kernels.interpreted import InterpretedKernels
from ..log.commit_log import CommitLog
from ..log.walk import Progress
from .batch_writing import BatchQueueAppender
from .batches import BatchAppender
from .bulk import BulkReader
from .cleaning import Cleaner
from .cutting import CutPlan, Cutter
from .following import Follower
from .page_cache import PageCache
from .reading import Found, Reader
from .recovery import recover
from .state import StoreState, memory_part
from .sync import SyncPlanner
from .writing import Appender

__all__ = ["Found", "MessageStore"]

log = logging.getLogger(__name__)

INTERPRETED = InterpretedKernels()
RESTORING = "restoring.json"  # in a folder into which a backup is being restored


class MessageStore:
    """A store folder. `host` is the ip and port of this broker as records have it.

    Its parts work on one `state`. Their methods that callers use most are attributes of the store.
    `kernels` are the inner loops; `use` changes them later. `queue_left(topic, queue_id)` is the
    queue for a message that has waited: its own, unless a broker says that the topic has fewer.
    """

    queue_left: Callable[[str, int], int] = staticmethod(lambda _, queue_id: queue_id)

    def __init__(
        self,
        root: Path,
        settings: StoreSettings,
        host: bytes,
        now_ms: Callable[[], int],
        kernels: Kernels = INTERPRETED,
    ) -> None:
        self.root = root
        self.host = host
        self.host_hex = host.hex().upper().encode()
        self.state = state = StoreState(root, settings, host, now_ms, kernels)
        self.reader = reader = Reader(state)
        self.follower = Follower(state)
        self.cleaner = Cleaner(state)
        self.cutter = Cutter(state)
        self.page_cache = PageCache(state)
        self.syncs = SyncPlanner(state)
        self._lock = StoreLock(root)
        self._is_open = False
        self.is_whole = True  # whether the log has all that the last run has confirmed

        batch_queues, batches = BatchQueueAppender(state), BatchAppender(state)
        appender = Appender(state, batch_queues)
        # Writes all staged records at once. StoreError when the disk fails: then none of them is
        # stored, and no more messages are taken until a restart.
        self.write_staged = state.log.write_staged
        self.put = appender.put
        self.put_all = appender.put_all
        self.put_table = appender.put_table
        self.eligible_queue = appender.eligible_queue
        self.put_batch = batches.put_batch
        self.put_in_batch_queue = batch_queues.put
        self.index_pending = state.index_pending
        self.confirm = state.confirm
        self.use = state.use
        self.has_batch_queue = state.has_batch_queue
        self.get = reader.get
        self.get_many = BulkReader(state, reader).get_many
        self.message_at = reader.message_at
        self.query = reader.query
        self.query_in_parts = reader.query_in_parts
        self.entries = reader.entries
        self.min_offset = reader.min_offset
        self.max_offset = reader.max_offset
        self.next_offset = reader.next_offset
        self.offset_at = reader.offset_at
        self.store_ms_at = reader.store_ms_at
        self.earliest_store_ms = reader.earliest_store_ms
        self.in_memory = reader.in_memory
        self.count_tagged = reader.count_tagged
        self.queues = reader.queues
        self.queue_keys = reader.queue_keys
        self.topics = reader.topics
        self.cut_plan = self.cutter.plan
        self.sync_plan = self.syncs.plan_due
        self.synced = self.syncs.done
        self.sync_undone = self.syncs.undone
        self.save_checkpoint = self.syncs.save_checkpoint
        self.disk_ratio = self.cleaner.disk_ratio
        self.memory_part = memory_part

    # ---- opening and closing

    def open(self, progress: Progress | None = None) -> None:
        """Lock the folder and recover. StoreError, with one sentence, when that fails.

        `progress(done, all)` reports long work, in bytes of the log.
        """
        state = self.state
        make_folder(self.root, sync=True)
        if disk.current.exists(self.root / RESTORING):
            raise StoreError(
                f"{self.root} is a backup whose restore has not ended; repeat `aerobee restore`, "
                "which goes on, or delete the folder"
            )
        self._lock.acquire()
        try:
            for folder in (state.log_folder, self.root / "config"):
                make_folder(folder)
            # A crash may have come before their names were on the disk.
            with readable_errors(self.root, "sync"):
                for folder in {self.root.parent, state.log_folder.parent}:
                    sync_folder(folder)
            state.measure_memory()
            state.checkpoint = checkpoints.load(self.root / "checkpoint")
            unfinished = self.cutter.unfinished()
            if unfinished is not None:
                self.cutter.redo(unfinished)
            is_clean = unfinished is None and not disk.current.exists(self.root / "abort")
            self.is_whole = is_clean or state.settings.sync_flush
            doubted = not is_clean and sync_had_failed(self.root)
            write_abort(self.root, sync_failed=doubted)
            last_ms = recover(state, is_clean=is_clean, progress=progress, doubted=doubted)
            state.last_ms = last_ms or state.checkpoint.log_ms
            if state.settings.controller_mode or unfinished is not None:
                self._open_epochs()
            self._is_open = True
            state.opened_end = state.log.end
            for queue in state.queues.simple.values():
                queue.opened = queue.next
            self.syncs.note_sizes()
            self._sync_all()
            if doubted:
                write_abort(self.root)
            self.save_checkpoint(sync=unfinished is not None)
            if unfinished is not None:
                self.cutter.finish(unfinished)
        except BaseException:
            self._is_open = False
            self._release()
            raise

    def cut(self, plan: CutPlan) -> None:
        """Cut off the end of the log, which `plan.run()` has copied. A crash leaves all of the end
        or nothing. StoreError when the disk fails."""
        self.cutter.note(plan)
        try:
            self.cutter.cut(plan)
            self.save_checkpoint(sync=True)
            self.cutter.finish(plan.offset)
        except StoreError as wrong:
            self.refuse_writes(f"{wrong}; the next start finishes the cut")
            raise

    def _open_epochs(self) -> None:
        state = self.state
        state.epochs = Epochs.open(state.epochs.path)
        # Noted before their first message, which a crash has kept out of the log.
        state.epochs.cut(state.log.end + 1)
        if state.settings.controller_mode:
            state.confirmed = min(state.checkpoint.confirm_offset, state.log.end)

    def begin_epoch(self, epoch: int) -> None:
        """Begin the epoch of this broker as the master: at the end of the log, the first one of all
        at its start. An epoch that is the last already goes on. DamagedStore for an older one."""
        self.write_staged()
        if epoch != self.epochs.last_epoch:
            self.epochs.append(epoch, self.log_end if self.epochs.entries else self.log_start)

    def make_room(self) -> None:
        """Create the first log file of a new store, so that a full disk fails the start and not
        the first send.

        DiskFull, or another StoreError, when the file can't be created.
        """
        if not self.state.log.segments.items:
            self.state.log.roll(0)

    def close(self) -> None:
        """Write and sync everything. The next start then recovers nothing.

        The file `abort` stays when the disk fails, so that the next start checks the log.
        """
        if not self._is_open:
            return
        self._is_open = False
        state = self.state
        try:
            if state.log.refusal is None:
                self.follower.end_following()
                self.sync()
                self.index_pending()
                self._sync_all()
                self.syncs.note_counts(state.queues.counts(), state.log.written)
                self.save_checkpoint(sync=True)
                with readable_errors(self.root, "write in"), suppress(FileNotFoundError):
                    disk.current.unlink(self.root / "abort")
        finally:
            self._release()

    def abandon(self) -> None:
        """Close all files and write nothing, as a crash of the process does."""
        self._is_open = False
        self._release()

    def _release(self) -> None:
        self.cleaner.release()
        self.state.index.release()
        self.state.queues.release()
        self.state.log.segments.release()
        self._lock.release()

    # ---- settings and limits

    def use_topics(
        self,
        batch_topics: AbstractSet[str],
        rules: Mapping[str, TopicRule],
        queue_left: Callable[[str, int], int],
    ) -> None:
        """Take over the topics whose new queues are batch queues, the retention of topics that have
        their own, and `queue_left` as described at this class."""
        self.state.batch_topics = batch_topics
        self.state.topic_rules = rules
        self.queue_left = queue_left

    def wait_for(self, hold_of: Callable[[str, int], Hold | None] | None) -> None:
        """Let no message go that a group holds, from now on; `hold_of(topic, queue_id)` is the
        hold of a queue with the least offset. None holds nothing."""
        self.state.hold_of = hold_of

    @property
    def settings(self) -> StoreSettings:
        """The settings in use."""
        return self.state.settings

    def change_limits(self, settings: StoreSettings) -> None:
        """Apply these limits from now on. Sizes and paths of files must stay as they are."""
        self.state.settings = settings

    @property
    def refusal(self) -> str | None:
        """The reason why no message is taken until a restart; None while messages are taken."""
        return self.state.log.refusal

    @property
    def pause_reason(self) -> str | None:
        """The reason why no message is taken at present; None while messages are taken. A pause
        ends without a restart."""
        return next(iter(self.paused.values()), None)

    @property
    def paused(self) -> Mapping[str, str]:
        """The causes for which no message is taken at present, with what senders are told."""
        return self.state.log.paused

    def pause(self, cause: str, reason: str) -> None:
        """Take no message until this cause is over; senders are told `reason`."""
        self.state.log.pause(cause, reason)

    def resume(self, cause: str) -> None:
        """Remove this cause of a `pause`; take messages again if it was the last."""
        self.state.log.resume(cause)

    def take_dropped(self) -> bool:
        """Return whether staged messages were dropped since the last call."""
        dropped, self.state.dropped = self.state.dropped, False
        return dropped

    def take_light_arrived(self) -> Collection[tuple[str, int]]:
        """The light queues that got messages since the last call."""
        found = self.state.light_arrived
        if not found:
            return ()
        self.state.light_arrived = {}
        return found

    def refuse_writes(self, reason: str) -> None:
        """Take no more messages until a restart; senders are told `reason`."""
        self.state.log.refuse(reason)

    def delete_topic(self, topic: str) -> None:
        """Delete the queues of a topic. Its messages stay in the log until their file is deleted.

        No crash brings the queues back once this has returned.
        """
        state = self.state
        self.write_staged()
        state.deleted.note(topic, state.log.end, state.log.start)
        # Recovery would miss the deleted entries and rebuild all queues.
        self.syncs.note_counts((-1, -1), -1)
        self.save_checkpoint()
        state.queues.delete_topic(topic)

    # ---- places in the log

    @property
    def epochs(self) -> Epochs:
        """Which master wrote which part of the log; none outside of controller mode."""
        return self.state.epochs

    @property
    def log_start(self) -> int:
        """The log offset of the first byte that is still there."""
        return self.state.log.start

    @property
    def log_end(self) -> int:
        """The log offset that the next record gets."""
        return self.state.log.end

    @property
    def written_end(self) -> int:
        """The end of the log in its file. Staged records lie behind it."""
        return self.state.log.written

    @property
    def durable_end(self) -> int:
        """The end of the log on the disk."""
        return self.state.log.durable

    @property
    def safe_end(self) -> int:
        """The end of the log that a power cut leaves: with SYNC_FLUSH its end on the disk."""
        return self.state.safe_end

    @property
    def is_following(self) -> bool:
        """True if the log is that of a master."""
        return self.state.is_following

    @property
    def commit_log(self) -> CommitLog:
        """The log itself, for those that walk over its files."""
        return self.state.log

    @property
    def readable_end(self) -> int:
        """The end of the log that readers see: with SYNC_FLUSH its end on the disk, in controller
        mode its confirmed end."""
        return self.state.readable_end

    @property
    def confirmed_end(self) -> int:
        """The end of the log that all brokers of the sync state set have, in controller mode."""
        return self.state.confirmed

    @property
    def whole_end(self) -> int:
        """The end of the last message that is in its queue. On a master this is the log's end."""
        return self.state.whole_end

    @property
    def readable_end_moves_with_sync(self) -> bool:
        """True if a sync makes messages readable (SYNC_FLUSH)."""
        return self.state.settings.sync_flush

    @property
    def segment_bytes(self) -> int:
        """The size of a log file in bytes."""
        return self.state.log.segments.size

    def raw(self, place: int, most: int) -> bytes:
        """Up to `most` bytes of the log from `place` on, within one file and already written."""
        return self.state.log.raw(place, most)

    def ahead(self, start: int, size: int) -> tuple[Callable[[], None], int] | None:
        """Prepare these bytes of the log, which are not written yet, for writing.

        Returns a function that gets memory for them, to be called in another thread, and the end
        of the range, which may be cut at the end of a file. None without a file.
        """
        segment = self.state.log.segments.find(start)
        if segment is None:
            return None
        end = min(start + size, segment.end)
        return partial(segment.will_need, start - segment.base, end - start), end

    @property
    def index_backlog(self) -> int:
        """The number of messages whose keys wait for the index."""
        return self.state.index.waiting

    @property
    def index_end(self) -> tuple[int, int]:
        """Store time in ms and log offset of the last message in the index; zeros for none."""
        files = self.state.index.files
        return (files[-1].end_ms, files[-1].end_offset) if files else (0, 0)

    # ---- syncs

    def sync(self) -> None:
        """Write everything and wait for the disk. StoreError when it fails, now or before."""
        if self.refusal is not None:
            raise WritesRefused(self.refusal)
        self.write_staged()
        self._sync_all()

    def _sync_all(self) -> None:
        plan = self.syncs.plan(self.state.now_ms(), with_queues=True, thorough=True)
        if plan is None:
            return
        with readable_errors(self.root, "sync"):
            try:
                plan.run()
            except Shortage:
                self.sync_undone(plan)
                raise
            except OSError as wrong:
                self.sync_failed(wrong)
                raise
        self.synced(plan)

    def sync_failed(self, wrong: Exception) -> str:
        """Take no more messages after a failed sync until a restart, which checks the log.

        A failed sync is never repeated: Linux reports such an error once, and then treats the pages
        as written. Returns the reason that senders are told.
        """
        reason = (
            f"the disk did not take a sync ({wrong}); no more messages are taken until the disk is "
            "in order and the broker started again"
        )
        self.refuse_writes(reason)
        try:
            write_abort(self.root, sync_failed=True)
        except StoreError as also:
            log.error("%s", also)
        return reason
