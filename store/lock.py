"""Who has a store open: the file `lock`, and the file `abort` that only a clean stop removes."""

import fcntl
import os
from pathlib import Path

from .errors import StoreInUse, plain_errors

_ours: set[str] = set()  # a process's own locks never stop it, so it has to remember


class StoreLock:
    """Holds a store folder for this process."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._name = str(root.resolve())
        self._fd = -1

    def acquire(self) -> None:
        """StoreInUse when the folder is open already, here or in another process."""
        if self._name in _ours:
            raise StoreInUse(
                f"the store {self._root} is already open in this process; give each broker a "
                "folder of its own"
            )
        path = self._root / "lock"
        with plain_errors(path, "open"):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # The very range that Java locks, so that the two keep each other out as well.
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError as wrong:
            os.close(fd)
            raise StoreInUse(
                f"the store {self._root} is already open by {_holder(self._root)}; stop that "
                "broker, or choose another folder with storePathRootDir"
            ) from wrong
        if os.fstat(fd).st_size == 0:
            os.pwrite(fd, b"lock", 0)
        self._fd = fd
        _ours.add(self._name)

    def release(self) -> None:
        """Let others open it."""
        if self._fd >= 0:
            _ours.discard(self._name)
            os.close(self._fd)
            self._fd = -1


def write_abort(root: Path) -> None:
    """Note that the store is in use: the process number, until a clean stop."""
    path = root / "abort"
    with plain_errors(path, "write"):
        path.write_text(str(os.getpid()))


def _holder(root: Path) -> str:
    try:
        return f"process {int((root / 'abort').read_text())}"
    except (OSError, ValueError):
        return "another process"
