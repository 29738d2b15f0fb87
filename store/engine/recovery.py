"""Opening a store: where the log ends, and queues and index that agree with it.

After a clean stop the checkpoint says it all, and only what doesn't add up is checked. After a
crash every record behind the last safe place is checked, and the log ends before the first that
is not whole. What lies behind the end becomes zeros, so that an old record can't come back
when the log has grown up to it. Doing it twice changes nothing more.
"""

import logging

from ...protocol.names import LMQ_PREFIX
from ..files.checkpoint import Checkpoint
from ..files.segments import warn_of
from ..index.index import Index
from ..log.commit_log import CommitLog
from ..log.run import Passed, Run
from ..log.walk import Progress, Walk, whole_record
from ..queues.consume_queue import FILLER
from .derive import QueueGap
from .derive_runs import RunDerive
from .state import StoreState

log = logging.getLogger(__name__)


def recover(
    state: StoreState,
    *,
    is_clean: bool,
    progress: Progress | None = None,
    doubted: bool = False,
) -> int:
    """Find the end of the log, cut and mend queues and index; returns the last store time.

    It loads the files. `progress(done, all)` is called with bytes of the log. `doubted`: a sync had
    failed, so the system may count unsynced pages as synced, and all of them are written again.
    """
    commit_log, index, checkpoint = state.log, state.index, state.checkpoint
    _load(state, is_clean=is_clean)
    if not commit_log.segments.items:
        _drop_all(state)
        return 0
    if 0 <= checkpoint.log_start < commit_log.start:
        log.log(
            logging.ERROR if is_clean else logging.WARNING,
            "the log begins at %d, it began at %d when that was noted last: %sfiles are missing",
            commit_log.start,
            checkpoint.log_start,
            "" if is_clean else "old files went just before the crash, or ",
        )
    start = _start(state, checkpoint, is_clean=is_clean)
    trusted = _trusted_end(state, checkpoint, is_clean=is_clean)
    indexed = _indexed_end(state, checkpoint)
    if checkpoint.synced_end < 0:
        _drop_stale(state)
    walk = Walk(commit_log.segments, trusted, progress)
    mark = index.mark
    sure_end = start if start == checkpoint.synced_end else -1
    try:
        is_whole = start == commit_log.start
        end, last_ms = _derive(state, walk, start, indexed, sure_end, is_whole=is_whole)
    except QueueGap as gap:
        log.warning("queue %s lacks entries; all queues are made again from the log", gap)
        if index.mark != mark:
            indexed = index.end_offset + 1  # not again what was indexed on the way
        end, last_ms = _derive(state, walk, commit_log.start, indexed, sure_end, is_whole=True)
    # A clean stop of aerobee's broker leaves nothing behind the end.
    _cut(state, end, zero=not is_clean or end != checkpoint.synced_end)
    if doubted:
        _write_again(state, checkpoint.synced_end)
    state.queues.trim()
    return last_ms


def _load(state: StoreState, *, is_clean: bool) -> None:
    """Load the files of log, queues and index."""
    commit_log, queues, index = state.log, state.queues, state.index
    checkpoint, settings = state.checkpoint, state.settings
    state.deleted.load()
    # A crash may have come before the names of new files were synced.
    commit_log.new_files = index.new_files = not is_clean
    commit_log.segments.load(sure=checkpoint.segment_bytes == settings.segment_bytes)
    warn_of(commit_log.segments.strays)
    queues.load(
        is_clean=is_clean and checkpoint.synced_end >= 0,
        sure=checkpoint.queue_file_bytes == settings.queue_file_bytes,
        sure_batch=checkpoint.batch_queue_file_bytes == settings.batch_queue_file_bytes,
    )
    queues.drop_deleted(state.deleted.ends)
    _load_index(index, checkpoint, is_clean=is_clean)


def _drop_all(state: StoreState) -> None:
    """Remove queues and index of a log that has no files, as Java does: they lead nowhere."""
    for queue in state.queues.all():
        queue.segments.cut(-1)
    state.queues.simple.clear()
    state.queues.batch.clear()
    state.index.drop_after(-1)
    state.log.set_end(0)
    state.deleted.cut_at_log(0)


def _cut(state: StoreState, end: int, *, zero: bool) -> None:
    """Remove everything behind `end` of the log; with `zero` also bytes in its last file."""
    commit_log, segments = state.log, state.log.segments
    for segment in segments.items:
        if segment.base >= end and not segment.is_blank:
            log.warning("%s lies behind the end of the log at %d; it goes", segment.path, end)
    segments.cut(end if end > commit_log.start else commit_log.start + 1)
    last = segments.find(end) if zero else None
    if last is not None and last.zero(end - last.base):
        log.warning("bytes behind the end of the log at %d were not whole; they are zeros now", end)
    commit_log.set_end(end)
    for queue in state.queues.all():
        queue.cut_at_log(end)
        queue.correct_min(commit_log.start)
    state.index.cut_at_log(end)
    state.deleted.cut_at_log(end)


def _write_again(state: StoreState, synced_end: int) -> None:
    """Write again what the disk may lack, so that the next sync covers it."""
    commit_log = state.log
    for segment in commit_log.segments.items:
        if segment.end > synced_end:
            at = max(0, synced_end - segment.base)
            segment.rewrite(commit_log.end - segment.base, at)
    files = [segment for queue in state.queues.all() for segment in queue.segments.items]
    for segment in (*files, *(file.segment for file in state.index.files)):
        segment.rewrite(segment.size)


def _indexed_end(state: StoreState, checkpoint: Checkpoint) -> int:
    """Messages before this place have all their keys in the index."""
    index = state.index
    if not state.settings.index_enable:
        return state.log.segments.last.end
    last = index.files[-1] if index.files else None
    found = ("", 0) if last is None else (last.segment.path.name, last.count)
    if checkpoint.synced_end >= 0 and found == (checkpoint.index_name, checkpoint.index_count):
        return checkpoint.synced_end
    if last is None:
        return state.log.start
    # Java can stop between two keys of a message only where a file is full.
    return last.end_offset if last.is_full else last.end_offset + 1


def _derive(
    state: StoreState, walk: Walk, start: int, indexed: int, sure_end: int, *, is_whole: bool
) -> tuple[int, int]:
    index = state.index
    index.forget(0)
    derive = RunDerive(
        state.queues,
        index,
        state.settings,
        is_whole=is_whole,
        deleted=state.deleted.ends,
        sure_end=sure_end,
    )

    def on_record(passed: Passed) -> None:
        if passed.log_offset >= start:
            derive.queue(passed)
        if passed.log_offset >= indexed:
            derive.index(passed)

    def on_run(run: Run) -> None:
        if queued := run.since(start):
            derive.queue_run(queued)
        if fresh := run.since(indexed):
            derive.index_run(fresh)

    begin = _record_start(state.log, index.end_offset, start) if indexed < start else start
    end = walk.run(begin, on_record, on_run)
    index.flush(end)
    return end, derive.last_ms


def _record_start(commit_log: CommitLog, place: int, otherwise: int) -> int:
    """`place` if a record begins there, else the start of the log."""
    if place >= otherwise:
        return otherwise
    segment = commit_log.segments.find(place)
    if segment is not None and whole_record(segment, place) is not None:
        return place
    return commit_log.start


def _load_index(index: Index, checkpoint: Checkpoint, *, is_clean: bool) -> None:
    index.load(sure=checkpoint.index_file_bytes == index.file_bytes)
    if is_clean:
        return
    if checkpoint.synced_end < 0:
        index.drop_after(checkpoint.index_ms)
        return
    index.cut_at_file(checkpoint.index_name, checkpoint.index_count)


def _trusted_end(state: StoreState, checkpoint: Checkpoint, *, is_clean: bool) -> int:
    """Up to where the log was whole once: a bad record before that is damage, not the end."""
    if checkpoint.synced_end >= 0:
        return checkpoint.synced_end
    return _queues_end(state) if is_clean else 0


def _drop_stale(state: StoreState) -> None:
    """Drop entries at the ends of queues that are not of the message they lead to.

    Java leaves what it cuts off in the files, and it counts again once the log has grown past it.
    """
    commit_log = state.log
    for queue in state.queues.simple.values():
        if queue.topic.startswith(LMQ_PREFIX):
            continue  # the messages have the offsets of their own queue
        offset = queue.next
        while offset > queue.first_offset:
            place, size, _ = queue.entry(offset - 1)
            segment = commit_log.segments.find(place)
            if segment is None or size == FILLER[1]:
                break
            passed = whole_record(segment, place)
            if passed is None or passed.queue_offset == offset - 1:
                break
            offset -= 1
        if offset < queue.next:
            log.warning("queue %s %d had stale entries at its end", queue.topic, queue.queue_id)
            queue.cut(offset)


def _queues_end(state: StoreState) -> int:
    return max((queue.log_end for queue in state.queues.all()), default=0)


def _start(state: StoreState, checkpoint: Checkpoint, *, is_clean: bool) -> int:
    """The place from which on messages are checked and dispatched; a record begins there."""
    commit_log, queues = state.log, state.queues
    segments = commit_log.segments
    first = commit_log.start
    own = checkpoint.synced_end
    if first <= own <= segments.last.end:
        if is_clean:
            holds = (checkpoint.queues, checkpoint.entries) == queues.counts()
            holds &= checkpoint.first_entries == queues.first_entries
            holds &= _queues_end(state) <= own
        else:
            if first == checkpoint.log_start and queues.first_entries > checkpoint.first_entries:
                log.warning(
                    "old files of queues went just before the crash, or files are missing at their "
                    "beginning: `aerobee store check` tells"
                )
            _, entries = queues.counts(checkpoint.queues_end)
            holds = checkpoint.entries in (-1, entries)
        if holds and not queues.is_mended:
            return own
        log.error("the queues are not as they were left; they are made again from the log")
        return first
    if own > segments.last.end:
        log.error(
            "the log was on the disk up to %d and ends at %d: files at its end are missing, and "
            "with them their messages",
            own,
            segments.last.end,
        )
    if is_clean:
        end = _queues_end(state)
        bases = [segment.base for segment in segments.items if segment.base <= end]
        return bases[-1] if bases else first
    safe_ms = checkpoint.safe_ms
    for segment in reversed(segments.items):
        record = whole_record(segment, segment.base)
        if record is not None and 0 < record.store_ms <= safe_ms:
            return segment.base
    return first
