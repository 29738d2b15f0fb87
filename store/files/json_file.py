"""config/*.json, each with a copy beside it, the .bak.

A save is atomic, also at a power cut: the new text is written to a new file, which is then renamed.
If a file can't be read, its .bak is read instead. RocketMQ's .bak is the text before the last save;
ours is the same text, so that a damaged file costs nothing.
"""

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ...protocol.codec.fastjson import LENIENT_BYTES_MAX, quote_keys
from ..base.errors import DamagedStore, readable_errors
from . import disk
from .segment import make_folder, sync_folder

T = TypeVar("T")

log = logging.getLogger(__name__)

FILE_BYTES_MAX = 1 << 30
OWNER_ONLY = 0o600  # the mode of a file that has secrets in it


def load(path: Path, decode: Callable[[bytes], T]) -> T | None:
    """The decoded file, or else its .bak, with a warning that names both; None when neither exists.

    DamagedStore, naming what is there, when nothing of it can be decoded.
    """
    reasons = []
    for candidate in (path, _backup(path)):
        data = read(candidate)
        if data is None:
            continue
        try:
            if not data.strip():
                raise ValueError(f"{len(data)} bytes without a text")
            found = _decoded(data, decode)
        except Exception as wrong:  # whatever the decoder finds: the other file may be good
            reasons.append(f"{candidate} ({wrong})")
            continue
        if candidate != path:
            why = f"can't read {reasons[0]}" if reasons else f"{path} is missing"
            log.warning("%s; its copy %s is taken instead", why, candidate)
        return found
    if reasons:
        raise DamagedStore(f"can't read {' nor '.join(reasons)}; correct or remove what is there")
    return None


def save(path: Path, text: bytes | str, *, mode: int = 0o644) -> None:
    """Replace the text of the file and of its .bak. StoreError when that fails."""
    make_folder(path.parent, sync=True)
    data = text.encode() if isinstance(text, str) else text
    for candidate in (_backup(path), path):  # a failure in between leaves the old text
        replace(candidate, data, mode)
    with readable_errors(path.parent, "write"):
        sync_folder(path.parent)


def read(path: Path) -> bytes | None:
    """The bytes of a file; None if it doesn't exist. StoreError when it can't be read."""
    with readable_errors(path, "read"):
        try:
            fd = disk.current.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return disk.current.pread(fd, min(disk.current.size(fd), FILE_BYTES_MAX), 0)
        finally:
            disk.current.close(fd)


def exists(path: Path) -> bool:
    """True if the file or its .bak is there, whatever is in it."""
    return any(disk.current.exists(candidate) for candidate in (path, _backup(path)))


def remove(path: Path) -> None:
    """Remove the file and its .bak for good. StoreError when that fails."""
    with readable_errors(path, "remove"):
        found = False
        for candidate in (path, _backup(path)):
            with suppress(FileNotFoundError):
                disk.current.unlink(candidate)
                found = True
        if found:
            sync_folder(path.parent)


def replace(path: Path, data: bytes | memoryview, mode: int = 0o644) -> None:
    """Replace the file by these bytes, atomically. StoreError when that fails."""
    made = path.with_name(path.name + ".new")
    with readable_errors(path, "write"):
        fd = disk.current.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        try:
            view, at = memoryview(data), 0
            while at < len(data):
                at += disk.current.pwrite(fd, view[at:], at)
            disk.current.sync(fd)
        finally:
            disk.current.close(fd)
        disk.current.replace(made, path)


def _decoded(data: bytes, decode: Callable[[bytes], T]) -> T:
    try:
        return decode(data)
    except Exception:
        if len(data) <= LENIENT_BYTES_MAX:
            raise
        # Java writes integer keys without quotes. The lenient reader is slow and refuses a text of
        # this size, so quote the keys and use the strict one.
        return decode(quote_keys(data))


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".bak")
