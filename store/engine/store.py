"""MessageStore: all that the broker sees of the store.

It has no thread, socket or clock. The broker calls `write_staged` once per turn of its loop before
answers go out, `index_pending` and `save_checkpoint` on a timer, and takes a `sync_plan` to another
thread and back: `plan = store.sync_plan()`, there `plan.run()`, here `store.synced(plan)`.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..base.errors import DiskFull, StoreError, WritesRefused, plain_errors
from ..base.settings import StoreSettings
from ..files import checkpoint as checkpoints
from ..files import disk
from ..files.checkpoint import Checkpoint
from ..files.lock import StoreLock, sync_had_failed, write_abort
from ..files.segment import make_folder, sync_folder
from ..log.walk import Progress
from .bulk import BulkReading
from .cleaning import Cleaning
from .following import Following
from .page_cache import PageCache
from .reading import Found
from .recovery import recover
from .sync import SyncPlan
from .writing import Writing

__all__ = ["Found", "MessageStore"]

log = logging.getLogger(__name__)

QUEUE_PAGES_MIN = 2  # dirty pages that make a sync of a queue worth it between thorough ones
QUEUES_CHEAP_MAX = 64  # dirty queues that are all synced each time
PAGE_BYTES = 4096
QUEUE_ENTRY_BYTES = 20
INDEX_SYNC_MAX = 1_024  # messages whose keys are added before a sync, as they would be soon


class MessageStore(Writing, BulkReading, Cleaning, Following, PageCache):
    """A store folder, opened. `host` is this broker's ip and port as records have it."""

    def __init__(
        self, root: Path, settings: StoreSettings, host: bytes, now_ms: Callable[[], int]
    ) -> None:
        super().__init__(root, settings, host, now_ms)
        self._leaving = []
        self._damaged = set()
        self._lock = StoreLock(root)
        self._checkpoint = Checkpoint()
        self._saved = Checkpoint()
        self._is_open = False
        self._queues_synced_ms = 0
        self._thorough_ms = 0

    def open(self, progress: Progress | None = None) -> None:
        """Lock the folder, recover, get ready. StoreError, with one sentence, when it can't be.

        `progress(done, all)` is told of long work in bytes of the log.
        """
        make_folder(self.root, sync=True)
        self._lock.acquire()
        try:
            for folder in (self.log_folder, self.root / "config"):
                make_folder(folder)
            # Whoever made them may have been stopped before their names were on the disk.
            with plain_errors(self.root, "sync"):
                for folder in {self.root.parent, self.log_folder.parent}:
                    sync_folder(folder)
            self._measure_memory()
            self._checkpoint = checkpoints.load(self.root / "checkpoint")
            is_clean = not disk.current.exists(self.root / "abort")
            doubted = not is_clean and sync_had_failed(self.root)
            write_abort(self.root, sync_failed=doubted)
            last_ms = recover(
                self, self._checkpoint, is_clean=is_clean, progress=progress, doubted=doubted
            )
            self._last_ms = last_ms or self._checkpoint.log_ms
            self._is_open = True
            self._opened_end = self._log.end
            for queue in self._queues.plain.values():
                queue.opened = queue.next
            self._note_sizes()
            self._sync_all()
            if doubted:
                write_abort(self.root)
            self.save_checkpoint()
        except BaseException:
            self._is_open = False
            self._let_go()
            raise

    def make_room(self) -> None:
        """Give a new store its first log file, so that a full disk stops the start, not a sender.

        DiskFull, or another StoreError, when it can't be made.
        """
        if not self._log.segments.items:
            self._log.roll(0)

    @property
    def refusal(self) -> str | None:
        """Why no more messages are taken until a restart; None while they are."""
        return self._log.refusal

    def close(self) -> None:
        """Write and sync everything; the folder then opens at once the next time.

        The file `abort` stays when the disk doesn't take all, so that the next start looks closely.
        """
        if not self._is_open:
            return
        self._is_open = False
        try:
            if self._log.refusal is None:
                self.end_following()
                self.sync()
                self.index_pending()
                self._sync_all()
                self._note_counts(self._queues.counts(), self._log.written)
                checkpoints.save(self.root / "checkpoint", self._checkpoint, sync=True)
                with plain_errors(self.root, "write in"), suppress(FileNotFoundError):
                    disk.current.unlink(self.root / "abort")
        finally:
            self._let_go()

    def delete_topic(self, topic: str) -> None:
        """Delete the queues of a topic. Its messages stay in the log until their file goes.

        No crash brings them back once this has returned.
        """
        self.write_staged()
        self._deleted.note(topic, self._log.end, self._log.start)
        # Recovery would miss the entries that go now, and make all queues again.
        self._note_counts((-1, -1), -1)
        self.save_checkpoint()
        self._queues.delete_topic(topic)

    # ---- the disk

    def sync_plan(self) -> SyncPlan | None:
        """What has to reach the disk now; None when nothing is new. Run it in any thread."""
        self.write_staged()
        now_ms = self._now_ms()
        is_due = now_ms - self._queues_synced_ms >= self.settings.queue_sync_ms
        return self._plan(now_ms, with_queues=is_due, thorough=False)

    def synced(self, plan: SyncPlan) -> None:
        """Note that a plan has run through: what it covers survives a power cut."""
        self._log.durable = max(self._log.durable, min(plan.log_end, self._log.written))
        for queue, end in plan.queues:
            queue.synced = min(end, queue.next)
        checkpoint = self._checkpoint
        checkpoint.log_ms = max(checkpoint.log_ms, plan.log_ms)
        for file in plan.index_files:
            file.segment.forget()
        if plan.covers_all:
            checkpoint.queues_ms = max(checkpoint.queues_ms, plan.log_ms)
            checkpoint.index_ms = max(checkpoint.index_ms, plan.full_index_ms)
            checkpoint.synced_end = plan.synced_end
            checkpoint.confirm_offset = plan.synced_end
            checkpoint.index_count = plan.index_count
            checkpoint.index_name = plan.index_name
            self._note_counts(plan.counts, plan.log_end)

    def save_checkpoint(self) -> None:
        """Write the file `checkpoint`, if it has changed."""
        checkpoint = self._checkpoint
        checkpoint.log_start = self._log.start
        if checkpoint != self._saved:
            checkpoints.save(self.root / "checkpoint", checkpoint)
            self._saved = Checkpoint(**{name: getattr(checkpoint, name) for name in _FIELDS})

    def sync(self) -> None:
        """Write everything and wait for the disk. StoreError when it fails, now or before."""
        if self._log.refusal is not None:
            raise WritesRefused(self._log.refusal)
        self.write_staged()
        self._sync_all()

    def _sync_all(self) -> None:
        plan = self._plan(self._now_ms(), with_queues=True, thorough=True)
        if plan is None:
            return
        with plain_errors(self.root, "sync"):
            try:
                plan.run()
            except OSError as wrong:
                self.sync_failed(wrong)
                raise
        self.synced(plan)

    def sync_failed(self, wrong: Exception) -> str:
        """A sync has failed: take no more messages until a restart, which looks closely.

        It is never repeated: Linux reports such an error once, and takes the pages for written
        from then on. Returns what senders are told.
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

    def _note_counts(self, counts: tuple[int, int], log_end: int) -> None:
        checkpoint = self._checkpoint
        checkpoint.queues, checkpoint.entries = counts
        checkpoint.queues_end = log_end
        checkpoint.first_entries = self._queues.first_entries
        checkpoint.log_start = self._log.start

    def _note_sizes(self) -> None:
        checkpoint, settings = self._checkpoint, self.settings
        checkpoint.segment_bytes = settings.segment_bytes
        checkpoint.queue_file_bytes = settings.queue_file_bytes
        checkpoint.batch_queue_file_bytes = settings.batch_queue_file_bytes
        checkpoint.index_file_bytes = self._index.file_bytes

    def _plan(self, now_ms: int, *, with_queues: bool, thorough: bool) -> SyncPlan | None:
        log = self._log
        plan = SyncPlan(log.written, self._last_ms)
        if log.new_files:
            plan.folders += [self.log_folder, self.root]
            log.new_files = False
        if log.durable < log.written:
            for segment in reversed(log.segments.items):
                if segment.end <= log.durable:
                    break
                plan.segments.append(segment)
        if with_queues:
            self._plan_queues(plan, now_ms, thorough=thorough)
        is_new = plan.covers_all and plan.synced_end != self._checkpoint.synced_end
        is_empty = not (plan.segments or plan.folders or plan.queue_segments or is_new)
        return None if is_empty else plan

    def _plan_queues(self, plan: SyncPlan, now_ms: int, *, thorough: bool) -> None:
        self._queues_synced_ms = now_ms
        dirty = [queue for queue in self._queues.all() if queue.next != queue.synced]
        if now_ms - self._thorough_ms >= self.settings.queue_sync_thorough_ms:
            thorough = True
        if thorough or len(dirty) <= QUEUES_CHEAP_MAX:
            self._thorough_ms = now_ms
            plan.covers_all = True
            plan.counts = self._queues.counts()
            self._queues.trim()
        else:
            least = QUEUE_PAGES_MIN * PAGE_BYTES // QUEUE_ENTRY_BYTES
            dirty = [queue for queue in dirty if queue.next - queue.synced >= least]
        for queue in dirty:
            if queue.new_files:
                folder = queue.segments.folder
                plan.folders += [folder, folder.parent, folder.parent.parent, self.root]
                queue.new_files = False
            plan.queue_segments += queue.unsynced()
            plan.queues.append((queue, queue.next))
        if plan.covers_all:
            self._plan_index(plan)

    def _plan_index(self, plan: SyncPlan) -> None:
        index = self._index
        try:
            if index.waiting <= INDEX_SYNC_MAX:  # more are for whoever adds them in parts
                self.index_pending()
        except DiskFull:
            plan.covers_all = False  # what recovery would have to index again is not all known
            return
        if index.new_files:
            plan.folders += [self.root / "index", self.root]
            index.new_files = False
        for file in index.files:
            if file.count != file.synced_count:
                file.synced_count = file.count
                plan.queue_segments.append(file.segment)
                plan.index_files.append(file)
            if file.is_full:
                plan.full_index_ms = file.end_ms
        if index.files:
            plan.index_count = index.files[-1].count
            plan.index_name = index.files[-1].segment.path.name
        end = min(plan.log_end, self.whole_end)
        waiting = index.first_waiting
        plan.synced_end = end if waiting is None else min(end, waiting)

    def _let_go(self) -> None:
        for each in self._leaving:
            each.segment.release()
        self._index.release()
        self._queues.release()
        self._log.segments.release()
        self._lock.release()


_FIELDS = tuple(Checkpoint.__slots__)
