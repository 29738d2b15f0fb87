"""Exclusive use of a store: the file `lock`, and `abort`, which only a clean stop removes."""

import os
from pathlib import Path

from ..base.errors import StoreInUse, readable_errors
from . import disk
from .segment import sync_folder

SYNC_FAILED = "a sync failed"
ABORT_BYTES_MAX = 200


class StoreLock:
    """Locks a store folder for this process."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._name = disk.current.full_name(root)
        self._fd = -1

    def acquire(self) -> None:
        """Take the lock. StoreInUse when the folder is open already, here or in another process."""
        # File locks don't exclude their own process, so `held` remembers its folders.
        if self._name in disk.current.held:
            raise StoreInUse(
                f"the store {self._root} is already open in this process; give each broker a "
                "folder of its own"
            )
        path = self._root / "lock"
        with readable_errors(path, "open"):
            fd = disk.current.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # The range that Java locks, so that Java and aerobee exclude each other.
            disk.current.lock(fd, 1)
        except OSError as wrong:
            disk.current.close(fd)
            raise StoreInUse(
                f"the store {self._root} is already open by {_holder(self._root)}; stop that "
                "broker, or choose another folder with storePathRootDir"
            ) from wrong
        self._fd = fd
        disk.current.held.add(self._name)
        if disk.current.size(fd) == 0:
            with readable_errors(path, "write"):
                disk.current.pwrite(fd, b"lock", 0)

    def release(self) -> None:
        """Release the lock."""
        if self._fd >= 0:
            disk.current.held.discard(self._name)
            disk.current.close(self._fd)
            self._fd = -1


def write_abort(root: Path, *, sync_failed: bool = False) -> None:
    """Note on the disk that the store is in use, with the process id; a clean stop removes it.

    `sync_failed` also notes that the system may count bytes as synced that are not. That note
    matters only while the machine runs, so it need not reach the disk.
    """
    path = root / "abort"
    text = f"{os.getpid()}\n{SYNC_FAILED}" if sync_failed else str(os.getpid())
    with readable_errors(path, "write"):
        fd = disk.current.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            disk.current.pwrite(fd, text.encode(), 0)
        finally:
            disk.current.close(fd)
        if not sync_failed:
            sync_folder(root)


def sync_had_failed(root: Path) -> bool:
    """True if the last run noted that a sync failed."""
    return SYNC_FAILED in _abort_text(root)


def _holder(root: Path) -> str:
    try:
        return f"process {int(_abort_text(root).split()[0])}"
    except (IndexError, ValueError):
        return "another process"


def _abort_text(root: Path) -> str:
    try:
        fd = disk.current.open(root / "abort", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return disk.current.pread(fd, ABORT_BYTES_MAX, 0).decode(errors="replace")
    finally:
        disk.current.close(fd)
