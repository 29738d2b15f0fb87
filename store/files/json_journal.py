"""A journal beside a JSON file: the changes since the file was written, one JSON text per line.

RocketMQ's files are one JSON text each, so a change of one entry means writing all of it. With a
journal a change costs one line. The owner writes the whole file from time to time and at a clean
stop, and deletes the journal: only after a crash is a file incomplete without its journal.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ..base.errors import StoreError, readable_errors
from . import disk, json_file
from .segment import make_folder, sync_folder

T = TypeVar("T")

JOURNAL_SUFFIX = ".journal"
JOURNAL_BYTES_MAX = 64 << 20


class JsonJournal:
    """The journal of the file at `path`. `end` is its size in bytes."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_name(path.name + JOURNAL_SUFFIX)
        self.end = 0
        self._fd = -1

    def load(self, decode: Callable[[bytes], T]) -> list[T]:
        """The decoded lines, up to the first that can't be decoded: a line that a power cut tore
        was never acknowledged."""
        found: list[T] = []
        self.end = 0
        for line in (json_file.read(self.path) or b"").splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            try:
                found.append(decode(line))
            except ValueError:
                break
            self.end += len(line)
        return found

    def append(self, lines: bytes) -> None:
        """Append these lines and sync them to the disk. StoreError when that fails: then the lines
        don't count, and the next ones overwrite them."""
        if self.end + len(lines) > JOURNAL_BYTES_MAX:
            raise StoreError(
                f"{self.path} has {self.end} bytes, {len(lines)} more would be over the limit of "
                f"{JOURNAL_BYTES_MAX}; the log says why {self.path.stem} can't be written"
            )
        if self._fd < 0:
            self._open()
        with readable_errors(self.path, "write"):
            view, at = memoryview(lines), 0
            while at < len(lines):
                at += disk.current.pwrite(self._fd, view[at:], self.end + at)
            disk.current.sync_data(self._fd)
        self.end += len(lines)

    def forget(self, mark: int, first: bytes) -> None:
        """Drop the lines before `mark`, an earlier `end`, because the file has them now.

        Later lines stay, behind the line `first`; if there are none, the journal is deleted.
        """
        kept = b"" if mark >= self.end else (json_file.read(self.path) or b"")[mark : self.end]
        self.close()
        if kept:
            json_file.replace(self.path, first + kept)
            self.end = len(first) + len(kept)
            return
        self.end = 0
        with readable_errors(self.path, "delete"), suppress(FileNotFoundError):
            disk.current.unlink(self.path)

    def close(self) -> None:
        """Close the file; the next `append` opens it again."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            disk.current.close(fd)

    def _open(self) -> None:
        make_folder(self.path.parent, sync=True)
        with readable_errors(self.path, "open"):
            self._fd = disk.current.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if not self.end:
                disk.current.truncate(self._fd, 0)
            sync_folder(self.path.parent)
