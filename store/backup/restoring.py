"""Restoring a backup into an empty folder, whole or up to a moment.

Until it is done, the folder has the file `restoring.json`, and no broker opens it. A restore that
was interrupted goes on: what is in the folder already is compared with the hashes and not fetched
again. The folder is left as a crash leaves one, with the file `abort`: the broker that starts on it
cuts a torn end, and makes what is missing in queues and index, with its own settings.
"""

import json
import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from ..base.errors import StoreError, readable_errors
from ..engine.store import RESTORING
from ..files import disk, json_file
from ..files.listing import Row, entries_of
from ..files.lock import write_abort
from ..files.segment import Segment, make_folder, sync_folder
from ..log.run import Passed, Run
from ..log.walk import Walk, whole_record
from . import manifest
from .manifest import PIECE_BYTES, BackedUp, Backup, Piece
from .taking import LOG, Progress
from .targets import PRIVATE, Target

# How far the broker had come. Restored up to a moment, they are those of a backup before it.
COURSES = (
    "checkpoint",
    "timerwheel",
    "timerlog/",
    "config/consumerOffset.json",
    "config/lmqConsumerOffset.json",
    "config/delayOffset.json",
    "config/timercheck",
    "config/timermetrics",
    "config/consumerOrderInfo.json",
    "config/transactionMetrics",
)


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore: the backup's name, number of files and bytes, and the offset at
    which the log was cut, -1 if it was not."""

    name: str
    files: int
    data_bytes: int
    cut_at: int = -1


def check(target: Target, name: str, progress: Progress = lambda *_: None) -> Backup:
    """Read all of a backup. DamagedStore, naming the file, when a part is missing or another."""
    backup = manifest.load(target, name)
    done = 0
    for number, file in enumerate(backup.files, 1):
        for piece in file.pieces:
            if piece.hash:
                manifest.data_of(target, file, piece)
                done += piece.size
        progress(done, backup.data_bytes, number)
    return backup


def restore(
    target: Target,
    root: Path,
    *,
    name: str | None = None,
    until_ms: int | None = None,
    progress: Progress = lambda *_: None,
) -> Restored:
    """Restore the newest backup, or the one called `name`, into the empty folder `root`.

    With `until_ms` the log ends before the first message that was stored later. StoreError when
    the folder is not empty, no backup fits, or one is damaged.
    """
    chosen, files = _choice(target, name, until_ms)
    _begin(root, {"backup": chosen, "until": until_ms})
    work = _Restoring(target, root, sum(one.size for each in files for one in each.pieces))
    for number, file in enumerate(files, 1):
        work.bring(file)
        progress(work.done, work.all, number)
    cut_at = -1 if until_ms is None else _cut(root / LOG, until_ms)
    write_abort(root)
    for folder in {(root / file.path).parent for file in files}:
        with readable_errors(folder, "sync"):
            sync_folder(folder)
    with readable_errors(root / RESTORING, "delete"):
        disk.current.unlink(root / RESTORING)
        sync_folder(root)
    return Restored(chosen, len(files), work.all, cut_at)


def _choice(target: Target, name: str | None, until_ms: int | None) -> tuple[str, list[BackedUp]]:
    """The name of the backup with the log, and the files to bring."""
    found = manifest.existing(target)
    if until_ms is None:
        chosen = manifest.named(found, name)
        return chosen, manifest.load(target, chosen).files
    if name is not None:
        raise StoreError("give --backup or --until; a time chooses its backups itself")
    backups = {each: manifest.load(target, each) for each in found}
    older = [each for each, backup in backups.items() if backup.done_ms <= until_ms]
    later = [each for each, backup in backups.items() if backup.begun_ms >= until_ms]
    if not older or not later:
        raise StoreError(
            "--until needs a backup from before that time, for the offsets of groups and timers, "
            "and one from after it, for the messages; --list shows all, and --backup restores one "
            "as it is"
        )
    log, tables = backups[later[0]].files, backups[older[-1]].files
    files = [file for file in log if not file.path.startswith(COURSES)]
    return later[0], files + [file for file in tables if file.path.startswith(COURSES)]


def _begin(root: Path, order: dict[str, object]) -> None:
    """Mark the folder. StoreError if it has something else than this restore's beginning."""
    make_folder(root, sync=True)
    mark = json_file.load(root / RESTORING, json.loads)
    if mark is None and entries_of(root):
        raise StoreError(f"{root} is not empty; restore into a folder that is empty or not there")
    if mark is not None and mark != order:
        raise StoreError(
            f"{root} has the beginning of another restore ({mark}); repeat that one, or delete the "
            "folder"
        )
    if mark is None:
        json_file.replace(root / RESTORING, json.dumps(order).encode())


class _Restoring:
    def __init__(self, target: Target, root: Path, whole: int) -> None:
        self._target = target
        self._root = root
        self.all = whole
        self.done = 0

    def bring(self, file: BackedUp) -> None:
        """Bring one file, as far as it isn't there yet."""
        path = self._root / file.path
        if ".." in Path(file.path).parts or Path(file.path).is_absolute():
            raise StoreError(f"the backup names {file.path}, which is no place in a store")
        make_folder(path.parent)
        is_table = file.path.startswith("config/")
        with readable_errors(path, "write"):
            fd = disk.current.open(
                path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE if is_table else 0o644
            )
            try:
                is_new = disk.current.size(fd) == 0
                disk.current.truncate(fd, file.size)
                for number, piece in enumerate(file.pieces):
                    if piece.hash:
                        self._bring_piece(fd, file, number * PIECE_BYTES, piece, is_new=is_new)
                disk.current.sync(fd)
            finally:
                disk.current.close(fd)

    def _bring_piece(self, fd: int, file: BackedUp, at: int, piece: Piece, *, is_new: bool) -> None:
        there = b"" if is_new else disk.current.pread(fd, piece.size, at)
        if sha256(there).hexdigest() != piece.hash:
            data = memoryview(manifest.data_of(self._target, file, piece))
            written = 0
            while written < len(data):
                written += disk.current.pwrite(fd, data[written:], at + written)
        self.done += piece.size


def _cut(folder: Path, until_ms: int) -> int:
    """Cut the log before the first message stored later than `until_ms`; returns where, -1 if no
    message was."""
    row = Row(folder)
    begun = [segment for segment in row.items if _first_ms(segment) <= until_ms]
    if not begun:
        raise StoreError(
            "the log of that backup has no message from before that time; choose a later time, or "
            "another backup with --backup"
        )
    place = _first_after(row, begun[-1].base, until_ms)
    if place is None and begun[-1] is not row.items[-1]:
        place = begun[-1].end
    if place is None:
        return -1
    for segment in reversed(row.items):
        if segment.base >= place:
            segment.delete()
        elif segment.end > place:
            segment.zero(place - segment.base)
    return place


def _first_ms(segment: Segment) -> int:
    record = whole_record(segment, segment.base)
    return 1 << 62 if record is None else record.store_ms


def _first_after(row: Row, start: int, until_ms: int) -> int | None:
    """The offset of the first message from `start` on that was stored after `until_ms`."""
    found: list[int] = []

    def on_record(passed: Passed) -> None:
        if passed.store_ms > until_ms:
            found.append(passed.log_offset)

    def on_run(run: Run) -> None:
        late = run.log_offsets[run.store_times > until_ms]
        found.extend(late[:1].tolist())

    Walk(row, 0).run(start, on_record, on_run)
    return min(found, default=None)
