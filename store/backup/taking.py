"""Taking a backup, of a store at rest or in use. Nothing of the store is locked or changed.

The order makes it consistent: first the checkpoint and the tables that say how far something has
come, then what points into the log, then the log, and last the topics. So nothing points behind the
copied end of the log, and what the log has more than its queues is derived at the next start, as
after a crash. Old files that retention deletes meanwhile are missing at the beginning of the copy.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from pathlib import Path

from ..base.errors import StoreError, readable_errors
from ..files import disk, json_file
from ..files.listing import entries_of
from ..files.segment import data_of
from . import manifest
from .manifest import PIECE_BYTES, PIECES, ZEROS, BackedUp, Backup, Piece
from .targets import Target

LOG = "commitlog"
CONFIG = "config"
EPOCHS_NAME = "epochFileCheckpoint"
# What a message needs exists before it: these are read once more behind the log.
LATE = ("config/topics.json", "config/subscriptionGroup.json")
# The own lock of a running broker, its mark, and what a failover cut off.
PASSED_OVER = frozenset({"lock", "abort", "abort.bak", "cut"})
TRIES = 200  # to read a table and its journal while neither changes
AHEAD_BYTES = 1 << 20  # of one hint to the disk
ZEROS_BYTES = 64 << 10  # checked together at the end of a piece
TRY_SECONDS = 0.01
NAME_DIGITS = 17  # or more: a file of a row, named by its place or by a time

Progress = Callable[[int, int, int], None]  # bytes done, bytes in all, files done
Pace = Callable[[int], None]  # called with the bytes that were read; sleeps to hold a rate


@dataclass(frozen=True, slots=True)
class Taken:
    """A backup that was taken: its name, its bytes in all, the bytes read, and the new ones."""

    name: str
    data_bytes: int
    read_bytes: int
    new_bytes: int


def take(
    root: Path,
    target: Target,
    *,
    version: str,
    now_ms: Callable[[], int],
    log_folder: Path | None = None,
    pace: Pace = lambda _: None,
    progress: Progress = lambda *_: None,
) -> Taken:
    """Take a backup of the store in `root`. Pieces that an interrupted backup has written are not
    written again. StoreError if there is no store, or the target has backups of a different one."""
    if not (log_folder or root / LOG).is_dir():
        raise StoreError(
            f"{root} is no store: it has no folder {LOG}; give the folder that the broker has as "
            "storePathRootDir"
        )
    store = disk.current.full_name(root)
    before = manifest.names(target)
    last = manifest.load(target, before[-1]) if before else None
    if last is not None and last.store != store:
        raise StoreError(
            f"{target.place('')} has the backups of {last.store}, not of {store}; give each store "
            "a place of its own"
        )
    work = _Taking(root, target, log_folder or root / LOG, last, pace, progress)
    begun_ms = now_ms()
    files = work.run()
    backup = Backup(store, begun_ms, now_ms(), version, files)
    name, text = backup.encode()
    target.write(name, text)
    return Taken(name, backup.data_bytes, work.read_bytes, work.new_bytes)


def forget_old(target: Target, keep: int) -> int:
    """Delete all but the newest `keep` backups, and the pieces that no other one has; returns how
    many backups went. StoreError, and nothing is deleted, when a kept one can't be read."""
    all_names = manifest.names(target)
    gone, kept = all_names[:-keep], all_names[-keep:]
    used = {
        piece.name
        for name in kept
        for file in manifest.load(target, name).files
        for piece in file.pieces
    }
    for name in gone:
        target.delete(name)
    for name in target.sizes(PIECES):
        if name not in used:
            target.delete(name)
    return len(gone)


class _Taking:
    def __init__(
        self,
        root: Path,
        target: Target,
        log_folder: Path,
        last: Backup | None,
        pace: Pace,
        progress: Progress,
    ) -> None:
        self._root = root
        self._target = target
        self._log_folder = log_folder
        self._full = {file.path: file for file in last.files if file.stamp} if last else {}
        self._pace = pace
        self._progress = progress
        self._there = target.sizes(PIECES)
        self._room = memoryview(bytearray(PIECE_BYTES))
        self._files: dict[str, BackedUp] = {}
        self._all_bytes = 0
        self._done_bytes = 0
        self.read_bytes = 0
        self.new_bytes = 0

    def run(self) -> list[BackedUp]:
        tops = [entry for entry in entries_of(self._root) if _is_kept(entry.name)]
        folders = [entry.name for entry in tops if entry.is_folder]
        rest = sorted(name for name in folders if name not in (LOG, CONFIG))
        self._take_tables(["checkpoint"])
        self._take_tables(self._tables())
        # The timer wheel is among these; the timer log, to which it points, comes after it.
        paths = [self._root / entry.name for entry in tops if not entry.is_folder]
        paths = [path for path in paths if path.name not in ("checkpoint", EPOCHS_NAME)]
        paths += [path for name in rest for path in _below(self._root / name)]
        self._all_bytes = sum(map(_room, [*paths, *_below(self._log_folder)]))
        self._take_all(self._root, "", paths)
        self._take_all(self._log_folder, f"{LOG}/", list(_below(self._log_folder)))
        for path in [path for path in self._files if path.startswith(LATE)]:
            del self._files[path]
        late = [EPOCHS_NAME] if disk.current.exists(self._root / EPOCHS_NAME) else []
        self._take_tables([*late, *(name for name in self._tables() if name.startswith(LATE))])
        return list(self._files.values())

    def _tables(self) -> list[str]:
        return [path.relative_to(self._root).as_posix() for path in _below(self._root / CONFIG)]

    def _take_tables(self, names: list[str]) -> None:
        """Small files. A table, its .bak and its journal are of one moment."""
        for _, family in groupby(sorted(names), key=lambda name: name.partition(".json")[0]):
            paths = [self._root / name for name in family]
            for path, data in zip(paths, _read_together(paths), strict=True):
                if data is not None:
                    name = path.relative_to(self._root).as_posix()
                    view = memoryview(data)
                    parts = [view[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]
                    self.read_bytes += len(data)
                    self._files[name] = BackedUp(name, len(data), [*map(self._kept, parts)])

    def _take_all(self, base: Path, prefix: str, paths: list[Path]) -> None:
        """The files below `base`, whose names in the backup begin with `prefix`."""
        lasts = {path.parent: path for path in paths}  # sorted: the last one of a row still grows
        for path in paths:
            is_full = path != lasts[path.parent] and _is_numbered(path.name)
            name = prefix + path.relative_to(base).as_posix()
            file = self._read(path, name, is_full=is_full)
            if file is not None:
                self._files[file.path] = file
                self._done_bytes += _room(path)
                self._progress(self._done_bytes, self._all_bytes, len(self._files))

    def _read(self, path: Path, name: str, *, is_full: bool) -> BackedUp | None:
        """Read a file and write the pieces that are new; None if retention has deleted it."""
        with readable_errors(path, "read"):
            try:
                fd = disk.current.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            try:
                status = os.fstat(fd)
                stamp = [status.st_ino, status.st_mtime_ns] if is_full else []
                known = self._full.get(name)
                if known is not None and stamp == known.stamp and self._has(known):
                    return known
                size = status.st_size
                pieces = [self._piece(fd, at, size) for at in range(0, size, PIECE_BYTES)]
                return BackedUp(name, size, pieces, stamp)
            finally:
                disk.current.close(fd)

    def _piece(self, fd: int, at: int, size: int) -> Piece:
        # All pieces use one buffer: new memory costs as much as the rest of the work.
        room, count = self._room, 0
        for place, chunk in data_of(fd, at, min(at + PIECE_BYTES, size)):
            start = place - at
            room[count:start] = bytes(start - count)
            count = start + len(chunk)
            room[start:count] = chunk
            self.read_bytes += len(chunk)
            self._pace(len(chunk))
        # The disk reads the next piece while this one is written.
        for place in range(at + PIECE_BYTES, min(at + 2 * PIECE_BYTES, size), AHEAD_BYTES):
            disk.current.will_need(fd, place, AHEAD_BYTES)
        return self._kept(room[:count])

    def _kept(self, data: memoryview) -> Piece:
        """The piece with this data, which is in the target then."""
        whole = data[: _end_of_data(data)]
        if not whole:
            return ZEROS
        piece = Piece(sha256(whole).hexdigest(), len(whole))
        if self._there.get(piece.name) != piece.size:
            self._target.write(piece.name, whole)
            self._there[piece.name] = piece.size
            self.new_bytes += piece.size
        return piece

    def _has(self, file: BackedUp) -> bool:
        return all(
            not piece.hash or self._there.get(piece.name) == piece.size for piece in file.pieces
        )


def _end_of_data(data: memoryview) -> int:
    """The start of the zeros at the end."""
    end = len(data)
    while end:
        start = max(0, end - ZEROS_BYTES)
        kept = len(bytes(data[start:end]).rstrip(b"\0"))
        if kept:
            return start + kept
        end = start
    return 0


def _read_together(paths: list[Path]) -> list[bytes | None]:
    """The bytes of these files, read until none has changed meanwhile; None where none is."""
    for _ in range(TRIES):
        before = [_stamp(path) for path in paths]
        found = [
            None if stamp is None else json_file.read(path)
            for path, stamp in zip(paths, before, strict=True)
        ]
        if len(paths) == 1 or before == [_stamp(path) for path in paths]:
            return found
        time.sleep(TRY_SECONDS)
    raise StoreError(
        f"{paths[0]} and what is beside it changed in each of {TRIES} tries to read them; take the "
        "backup at another time"
    )


def _is_kept(name: str) -> bool:
    return name not in PASSED_OVER and not name.endswith(".new")


def _is_numbered(name: str) -> bool:
    return len(name) >= NAME_DIGITS and name.isascii() and name.isdigit()


def _below(folder: Path) -> Iterator[Path]:
    """The files below a folder, those of each folder by name."""
    for entry in entries_of(folder):
        if entry.is_folder:
            yield from _below(folder / entry.name)
        elif _is_kept(entry.name):
            yield folder / entry.name


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = disk.current.stat(path)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _room(path: Path) -> int:
    try:
        return disk.current.stat(path).st_blocks * 512
    except FileNotFoundError:
        return 0
