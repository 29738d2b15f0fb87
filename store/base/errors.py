"""The errors of the store. The text of each is one readable sentence for the operator."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class StoreError(Exception):
    """The store can't do it; the text says what happened, the value, the limit, and what to do."""


class IllegalMessage(StoreError):
    """The message can't be stored as it is; trying again doesn't help."""


class MessageTooLarge(IllegalMessage):
    """A body, the properties, or the whole record is larger than a limit."""


class StoreInUse(StoreError):
    """Another process, or this one, has the folder open."""


class Shortage(StoreError):
    """The system has too little of something: room, file numbers, memory. Nothing is damaged or
    half done, and the same works once there is more."""


class DiskFull(Shortage):
    """There is no room for another file, or a limit of the system stops it from growing."""


class NotWritable(StoreError):
    """The folder or a file in it can't be written."""


class DamagedStore(StoreError):
    """A file is not what its name and the settings say."""


class ArrowMissing(StoreError, ImportError):
    """Rows were asked for as Arrow data, and pyarrow is not installed."""


class SystemUnsupported(StoreError, ImportError):
    """Raised where the operating system lacks calls that the store needs."""


class PolarsMissing(StoreError, ImportError):
    """A DataFrame was asked for, and polars is not installed."""


class WritesRefused(StoreError):
    """The store takes no messages now; the text says why, such as a disk that has failed."""


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # of a disk
_NO_RIGHT = (errno.EACCES, errno.EPERM, errno.EROFS)
_SHORT = {
    errno.EMFILE: "the process has no file numbers left; raise ulimit -n (LimitNOFILE= of a unit)",
    errno.ENFILE: "the system has no file numbers left; raise fs.file-max with sysctl",
    errno.ENOMEM: "the system gives no more memory; free some, or raise vm.max_map_count",
    errno.EAGAIN: "the system can't do it now; it is tried again",
}


@contextmanager
def readable_errors(path: Path | str, action: str) -> Iterator[None]:
    """Turn an OSError of the block into a StoreError that names the path and the action."""
    try:
        yield
    except OSError as wrong:
        raise readable_error(wrong, path, action) from wrong


@contextmanager
def own_shortages(path: Path | str, action: str) -> Iterator[None]:
    """Turn an OSError of the block into a Shortage if it is one; others stay what they are."""
    try:
        yield
    except OSError as wrong:
        if wrong.errno in _SHORT:
            raise readable_error(wrong, path, action) from wrong
        raise


def readable_error(wrong: OSError, path: Path | str, action: str) -> StoreError:
    """The StoreError for an OSError while doing `action` (such as "make") to `path`."""
    reason = os.strerror(wrong.errno) if wrong.errno else str(wrong)
    if wrong.errno in NO_ROOM:
        return DiskFull(f"no room to {action} {path} ({reason}); free some space, then go on")
    if wrong.errno in _NO_RIGHT:
        return NotWritable(
            f"can't {action} {path} ({reason}); give the broker's user the right to write there, "
            "or choose another folder with storePathRootDir"
        )
    if wrong.errno in _SHORT:
        return Shortage(f"can't {action} {path}: {_SHORT[wrong.errno]}")
    if wrong.errno == errno.ENOTDIR:
        return StoreError(
            f"can't {action} {path}: a part of this path is a file, not a folder; move that file "
            "away, or choose another path"
        )
    return StoreError(f"can't {action} {path}: {reason}")
