"""Syncs: planned in the thread of the loop, run in another one.

A plan holds files only and reads nothing that changes while it runs. It syncs folders first: after
a power cut a file without its name is lost.
"""

from dataclasses import dataclass, field
from pathlib import Path

from ..base.errors import Shortage
from ..files import checkpoint as checkpoints
from ..files.checkpoint import Checkpoint
from ..files.segment import Segment, sync_folder
from ..index.index_file import IndexFile
from ..queues.batch_queue import BatchQueue
from ..queues.consume_queue import ENTRY_BYTES, ConsumeQueue
from .state import StoreState

QUEUE_PAGES_MIN = 2  # dirty pages that make a sync of a queue worth it between thorough ones
QUEUES_CHEAP_MAX = 64  # dirty queues that are all synced each time
PAGE_BYTES = 4096
UNKNOWN = -1  # how much of an index file is synced
INDEX_SYNC_MAX = 1_024  # messages whose keys are added before a sync, as they would be soon


@dataclass(slots=True)
class SyncPlan:
    """A sync: `segments` of the log, then `queue_segments` and index.

    When it is through, the log is durable up to `log_end`. `queues` are those fully covered, each
    with the end that is then on disk. `covers_all` says that no queue was left out; then queues and
    index are on disk for all messages before `synced_end`.
    """

    log_end: int
    log_ms: int
    segments: list[Segment] = field(default_factory=list)
    folders: list[Path] = field(default_factory=list)
    queue_segments: list[Segment] = field(default_factory=list)
    queues: list[tuple[ConsumeQueue | BatchQueue, int]] = field(default_factory=list)
    covers_all: bool = False
    counts: tuple[int, int] = (-1, -1)  # queues and their entries, when all are covered
    synced_end: int = -1
    index_files: list[IndexFile] = field(default_factory=list)
    index_count: int = 0
    index_name: str = ""
    full_index_ms: int = 0

    def run(self) -> None:
        """Wait for the disk; may run in any one thread. OSError as the system gives it; Shortage
        when a file can't be opened now."""
        for folder in dict.fromkeys(self.folders):
            sync_folder(folder)
        for segment in self.segments:
            segment.sync()
        for segment in self.queue_segments:
            segment.sync()


class SyncPlanner:
    """Plans syncs of one store, and notes in its checkpoint what they have covered."""

    def __init__(self, state: StoreState) -> None:
        self._state = state
        self._saved = Checkpoint()
        self._queues_synced_ms = 0
        self._thorough_ms = 0

    def plan_due(self) -> SyncPlan | None:
        """Plan what has to reach the disk now; None when nothing is new.

        The plan may run in any one thread.
        """
        self._state.log.write_staged()
        now_ms = self._state.now_ms()
        is_due = now_ms - self._queues_synced_ms >= self._state.settings.queue_sync_ms
        return self.plan(now_ms, with_queues=is_due, thorough=False)

    def done(self, plan: SyncPlan) -> None:
        """Note that a plan has run to its end: what it covers survives a power cut."""
        log = self._state.log
        log.durable = max(log.durable, min(plan.log_end, log.written))
        for queue, end in plan.queues:
            queue.synced = min(end, queue.next)
        checkpoint = self._state.checkpoint
        checkpoint.log_ms = max(checkpoint.log_ms, plan.log_ms)
        for file in plan.index_files:
            file.segment.forget()
        if plan.covers_all:
            checkpoint.queues_ms = max(checkpoint.queues_ms, plan.log_ms)
            checkpoint.index_ms = max(checkpoint.index_ms, plan.full_index_ms)
            checkpoint.synced_end = plan.synced_end
            if not self._state.settings.controller_mode:
                checkpoint.confirm_offset = plan.synced_end
            checkpoint.index_count = plan.index_count
            checkpoint.index_name = plan.index_name
            self.note_counts(plan.counts, plan.log_end)

    def undone(self, plan: SyncPlan) -> None:
        """Note that a plan has met a Shortage: all that it had to sync is planned again."""
        self._state.log.new_files = True
        for queue, _ in plan.queues:
            queue.new_files = True
        self._state.index.new_files = True
        for file in plan.index_files:
            file.synced_count = UNKNOWN

    def save_checkpoint(self, *, sync: bool = False) -> None:
        """Write the file `checkpoint` if it has changed, with `sync` always and to the disk."""
        checkpoint = self._state.checkpoint
        checkpoint.log_start = self._state.log.start
        if self._state.settings.controller_mode:
            checkpoint.confirm_offset = self._state.confirmed
        if sync or checkpoint != self._saved:
            checkpoints.save(self._state.root / "checkpoint", checkpoint, sync=sync)
            self._saved = Checkpoint(**{name: getattr(checkpoint, name) for name in _FIELDS})

    def note_counts(self, counts: tuple[int, int], log_end: int) -> None:
        """Note the numbers of queues and of their entries when the log ended at `log_end`."""
        checkpoint = self._state.checkpoint
        checkpoint.queues, checkpoint.entries = counts
        checkpoint.queues_end = log_end
        checkpoint.first_entries = self._state.queues.first_entries
        checkpoint.log_start = self._state.log.start

    def note_sizes(self) -> None:
        """Note the sizes of files, for starts with other settings."""
        checkpoint, settings = self._state.checkpoint, self._state.settings
        checkpoint.segment_bytes = settings.segment_bytes
        checkpoint.queue_file_bytes = settings.queue_file_bytes
        checkpoint.batch_queue_file_bytes = settings.batch_queue_file_bytes
        checkpoint.index_file_bytes = self._state.index.file_bytes

    def plan(self, now_ms: int, *, with_queues: bool, thorough: bool) -> SyncPlan | None:
        """Plan a sync of the log, and of queues and index if asked; None when nothing is new.

        A `thorough` one leaves out no queue.
        """
        log = self._state.log
        plan = SyncPlan(log.written, self._state.last_ms)
        if log.new_files:
            plan.folders += [self._state.log_folder, self._state.root]
            log.new_files = False
        if log.durable < log.written:
            for segment in reversed(log.segments.items):
                if segment.end <= log.durable:
                    break
                plan.segments.append(segment)
        if with_queues:
            self._plan_queues(plan, now_ms, thorough=thorough)
        is_new = plan.covers_all and plan.synced_end != self._state.checkpoint.synced_end
        is_empty = not (plan.segments or plan.folders or plan.queue_segments or is_new)
        return None if is_empty else plan

    def _plan_queues(self, plan: SyncPlan, now_ms: int, *, thorough: bool) -> None:
        self._queues_synced_ms = now_ms
        dirty = [queue for queue in self._state.queues.all() if queue.next != queue.synced]
        if now_ms - self._thorough_ms >= self._state.settings.queue_sync_thorough_ms:
            thorough = True
        if thorough or len(dirty) <= QUEUES_CHEAP_MAX:
            self._thorough_ms = now_ms
            plan.covers_all = True
            plan.counts = self._state.queues.counts()
            self._state.queues.trim()
        else:
            least = QUEUE_PAGES_MIN * PAGE_BYTES // ENTRY_BYTES
            dirty = [queue for queue in dirty if queue.next - queue.synced >= least]
        for queue in dirty:
            if queue.new_files:
                folder = queue.segments.folder
                plan.folders += [folder, folder.parent, folder.parent.parent, self._state.root]
                queue.new_files = False
            plan.queue_segments += queue.unsynced()
            plan.queues.append((queue, queue.next))
        if plan.covers_all:
            self._plan_index(plan)

    def _plan_index(self, plan: SyncPlan) -> None:
        index = self._state.index
        try:
            if index.waiting <= INDEX_SYNC_MAX:  # more are added in slices elsewhere
                self._state.index_pending()
        except Shortage:
            plan.covers_all = False  # what recovery would have to index again is not all known
            return
        if index.new_files:
            plan.folders += [self._state.root / "index", self._state.root]
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
        end = min(plan.log_end, self._state.whole_end)
        waiting = index.first_waiting
        plan.synced_end = end if waiting is None else min(end, waiting)


_FIELDS = tuple(Checkpoint.__slots__)
