"""`rebuild`: makes the queues and the index of a store again from its log.

Files keep the sizes that the store has, unless settings are given. A queue without a message in the
log is left alone, because nothing else knows its numbering. The checkpoint is changed first: if the
work is interrupted, the next start makes everything from the log as well. The checkpoint keeps up
to where the log was whole, so a damaged record costs that record and not the ones behind it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...protocol.names import LMQ_PREFIX
from ..base.errors import StoreError, readable_errors
from ..base.settings import StoreSettings
from ..columns.view import StoreView
from ..engine.store import MessageStore
from ..files import checkpoint as checkpoints
from ..files import disk
from ..files.listing import Row, entries_of, queue_folders
from ..files.lock import StoreLock, sync_had_failed, write_abort
from ..files.segment import Segment, sync_folder
from ..files.segments import sorted_out
from ..index.index_file import HEADER
from ..log.walk import Progress
from ..queues.consume_queue import FILLER
from .check_index import layout_of

NOWHERE = -2  # a number of queues, entries or keys that no store has
HOST_BYTES = 8  # of the broker's address; no record is written here, so zeros do


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The numbers of queues, of their entries in all, and of keys in the index."""

    queues: int
    entries: int
    keys: int


def rebuild(
    root: Path,
    settings: StoreSettings | None = None,
    progress: Progress | None = None,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> Rebuilt:
    """Make queues and index again. StoreError when `root` is no store, or a broker runs on it.

    `progress(done, all, messages)` is called with bytes of the log, done and in all, and messages.
    """
    used = settings or settings_of(root)
    lock = StoreLock(root)
    view = StoreView(root, used.commit_log_dir)
    lock.acquire()
    try:
        # Data that a failed sync left in doubt stays in doubt.
        write_abort(root, sync_failed=sync_had_failed(root))
        _forget_queues(root, view)
        _delete_queues(root, view)
        with readable_errors(root / "index", "delete"):
            if disk.current.is_folder(root / "index"):
                _delete_files(root / "index")
            sync_folder(root)
    finally:
        view.release()
        lock.release()
    store = MessageStore(root, used, bytes(HOST_BYTES), now_ms)
    store.open(progress)
    try:
        queues, entries = store.state.queues.counts()
        return Rebuilt(queues, entries, sum(file.count - 1 for file in store.state.index.files))
    finally:
        store.close()


def settings_of(root: Path, log_folder: Path | None = None) -> StoreSettings:
    """The settings that the files of a store were made with, as far as the files show them.

    StoreError when an index file doesn't show its layout.
    """
    noted = checkpoints.load(root / "checkpoint")
    simple_files = [path for _, _, path in queue_folders(root / "consumequeue")]
    is_light = any(path.parent.name.startswith(LMQ_PREFIX) for path in simple_files)
    batch = [path for _, _, path in queue_folders(root / "batchconsumequeue")]
    found = {
        "segment_bytes": noted.segment_bytes or Row(log_folder or root / "commitlog").size,
        "queue_file_bytes": noted.queue_file_bytes or _size(simple_files),
        "batch_queue_file_bytes": noted.batch_queue_file_bytes or _size(batch),
    }
    for entry in entries_of(root / "index"):
        if not entry.is_folder and entry.size and entry.name.isdigit():
            path = root / "index" / entry.name
            segment = Segment(path, 0, entry.size, writable=False)
            if entry.size < HEADER.size or HEADER.unpack_from(segment.view)[-1] <= 1:
                continue  # without an entry it doesn't show its layout
            layout = layout_of(segment, 0, 0)
            if layout is None:
                raise StoreError(
                    f"{path} does not tell its numbers of slots and entries; give them with "
                    "--set maxHashSlotNum=N --set maxIndexNum=N, or the broker's settings with -c"
                )
            found["index_slots"], found["index_entries"] = layout
            break
    known: dict[str, Any] = {name: value for name, value in found.items() if value}
    return StoreSettings(commit_log_dir=log_folder, lmq_enable=is_light, **known)


def _size(folders: list[Path]) -> int:
    return next((row.size for row in map(Row, folders) if row.size), 0)


def _forget_queues(root: Path, view: StoreView) -> None:
    """Note in the checkpoint that nothing of queues and index is on the disk."""
    noted = checkpoints.load(root / "checkpoint")
    ends = [noted.synced_end if noted.synced_end <= view.log.end else -1]
    for topic, queue_ids in view.topics().items():
        for queue_id in queue_ids:
            queue = view.queue(topic, queue_id)
            first, end = queue.count()
            for place, size in queue.array(max(first, end - 1), end)[["offset", "size"]].tolist():
                ends.append(place + size if size != FILLER[1] else 0)
    noted.synced_end = max(ends)
    noted.index_name, noted.index_count = "", NOWHERE
    noted.queues = noted.entries = NOWHERE
    checkpoints.save(root / "checkpoint", noted, sync=True)


def _delete_queues(root: Path, view: StoreView) -> None:
    start = view.log.start
    for kind in ("consumequeue", "batchconsumequeue"):
        for topic, queue_id, folder in queue_folders(root / kind):
            first, end = view.queue(topic, queue_id).count()
            last = view.queue(topic, queue_id).array(end - 1, end) if end > first else None
            if last is not None and len(last) and 0 <= int(last["offset"][0]) < start:
                continue
            with readable_errors(folder, "delete"):
                _delete_files(folder)


def _delete_files(folder: Path) -> None:
    """Delete the store's files in a folder, and the folder unless it has other files."""
    entries, strays = sorted_out(folder)
    for entry in entries:
        disk.current.unlink(folder / entry.name)
    if not strays:
        disk.current.remove_folder(folder)
