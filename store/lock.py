"""Who has a store open: the file `lock`, and the file `abort` that only a clean stop removes."""

import os
from pathlib import Path

from . import disk
from .errors import StoreInUse, plain_errors


class StoreLock:
    """Holds a store folder for this process."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._name = disk.current.full_name(root)
        self._fd = -1

    def acquire(self) -> None:
        """StoreInUse when the folder is open already, here or in another process."""
        # A process's own locks never stop it, so it has to remember them.
        if self._name in disk.current.held:
            raise StoreInUse(
                f"the store {self._root} is already open in this process; give each broker a "
                "folder of its own"
            )
        path = self._root / "lock"
        with plain_errors(path, "open"):
            fd = disk.current.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # The very range that Java locks, so that the two keep each other out as well.
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
            with plain_errors(path, "write"):
                disk.current.pwrite(fd, b"lock", 0)

    def release(self) -> None:
        """Let others open it."""
        if self._fd >= 0:
            disk.current.held.discard(self._name)
            disk.current.close(self._fd)
            self._fd = -1


def write_abort(root: Path) -> None:
    """Note that the store is in use: the process number, until a clean stop."""
    path = root / "abort"
    with plain_errors(path, "write"):
        fd = disk.current.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            disk.current.pwrite(fd, str(os.getpid()).encode(), 0)
        finally:
            disk.current.close(fd)


def _holder(root: Path) -> str:
    try:
        return f"process {int((root / 'abort').read_text())}"
    except (OSError, ValueError):
        return "another process"
