"""config/*.json, each with a .bak beside it: the text before the last save.

A save is atomic, also at a power cut: the new text is written to a new file, which is then renamed.
If a file can't be read, its .bak is read instead.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ...protocol.codec.fastjson import LENIENT_BYTES_MAX, quote_keys
from ..base.errors import DamagedStore, plain_errors
from . import disk
from .segment import make_folder, sync_folder

T = TypeVar("T")

FILE_BYTES_MAX = 1 << 30
OWNER_ONLY = 0o600  # the mode of a file that has secrets in it


def load(path: Path, decode: Callable[[bytes], T]) -> T | None:
    """The decoded file, or else its .bak; None when neither exists or both are empty.

    DamagedStore, naming both, when there is a text and none can be decoded.
    """
    reasons = []
    for candidate in (path, _backup(path)):
        data = read(candidate)
        if not data.strip():
            continue
        try:
            return _decoded(data, decode)
        except Exception as wrong:  # whatever the decoder finds: the other file may be good
            reasons.append(f"{candidate} ({wrong})")
    if reasons:
        raise DamagedStore(f"can't read {' nor '.join(reasons)}; correct or remove what is there")
    return None


def save(path: Path, text: bytes | str, *, mode: int = 0o644) -> None:
    """Replace the file's text; the previous text becomes the .bak. StoreError when that fails."""
    make_folder(path.parent, sync=True)
    data = text.encode() if isinstance(text, str) else text
    previous = read(path)
    if previous:
        replace(_backup(path), previous, mode)
    replace(path, data, mode)
    with plain_errors(path.parent, "write"):
        sync_folder(path.parent)


def read(path: Path) -> bytes:
    """The bytes of a file, none if it doesn't exist. StoreError when it can't be read."""
    with plain_errors(path, "read"):
        try:
            fd = disk.current.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        try:
            return disk.current.pread(fd, min(disk.current.size(fd), FILE_BYTES_MAX), 0)
        finally:
            disk.current.close(fd)


def remove(path: Path) -> None:
    """Remove the file, which has no .bak, for good. StoreError when that fails."""
    with plain_errors(path, "remove"):
        try:
            disk.current.unlink(path)
        except FileNotFoundError:
            return
        sync_folder(path.parent)


def replace(path: Path, data: bytes | memoryview, mode: int = 0o644) -> None:
    """Replace the file by these bytes, atomically. StoreError when that fails."""
    made = path.with_name(path.name + ".new")
    with plain_errors(path, "write"):
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
