"""A row of files of one size without gaps; each file's name is the position of its first byte."""

import logging
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from ..base.errors import DamagedStore, readable_error, readable_errors
from . import disk
from .segment import Segment, make_folder

log = logging.getLogger(__name__)

NAME_DIGITS = 20
MISSING_FILES_MAX = 1_000  # between two files; they are replaced by files of zeros


def sorted_out(folder: Path) -> tuple[list[disk.Entry], list[Path]]:
    """The files of a folder whose names are numbers, and the paths of everything else in it.
    OSError as the system gives it."""
    entries: list[disk.Entry] = []
    strays: list[Path] = []
    for entry in disk.current.entries(folder):
        if entry.name.isascii() and entry.name.isdigit() and not entry.is_folder:
            entries.append(entry)
        else:
            strays.append(folder / entry.name)
    return entries, strays


def warn_of(strays: Sequence[Path]) -> None:
    """Log one warning about files that are not the store's."""
    if strays:
        log.warning(
            "%s is not the store's and is passed over%s; nothing of it is read or deleted",
            strays[0],
            f", as are {len(strays) - 1} others" if len(strays) > 1 else "",
        )


class Segments:
    """The files of one commit log or queue, in order. `setting` is the name of the setting with
    their size, for errors."""

    __slots__ = ("folder", "is_mended", "items", "setting", "size", "strays", "writable")

    def __init__(self, folder: Path, size: int, setting: str, *, writable: bool) -> None:
        self.folder = folder
        self.size = size
        self.setting = setting
        self.writable = writable
        self.items: list[Segment] = []
        self.strays: list[Path] = []  # files that are not the store's
        self.is_mended = False  # lost bytes were replaced by zeros

    def load(self, *, sure: bool = False) -> None:
        """Find the files. DamagedStore when one has another size. A file whose name is no number is
        not the store's: it is ignored and never deleted (`strays`).

        A file missing between others is replaced by one of zeros, and a cut-off file gets zeros at
        its end. Both are logged: their bytes are lost, but the other files are good. A file counts
        as cut off only if the setting is known to be right: `sure` says that the store was made
        with this size, and the names of two neighbours prove it, too. An empty file, which a crash
        may leave, is deleted if it is the last, but not if it is the only one: its name says where
        the row begins.
        """
        self.items = []
        try:
            entries, self.strays = sorted_out(self.folder)
        except FileNotFoundError:
            return
        except OSError as wrong:
            raise readable_error(wrong, self.folder, "read") from wrong
        for number, entry in enumerate(entries):
            path = self.folder / entry.name
            found = entry.size
            if found == 0 and number == len(entries) - 1 and self.items:
                # A crash between making a file and giving it its size.
                with readable_errors(path, "delete"):
                    disk.current.unlink(path)
                continue
            if found < self.size and (found == 0 or sure or self._is_proved(entries)):
                log.error("%s was cut off after %d bytes; zeros stand for the rest", path, found)
                self.is_mended = True
                Segment(path, 0, self.size, writable=self.writable).lengthen()
            elif found != self.size:
                raise DamagedStore(
                    f"{path} has {found} bytes, {self.setting} is {self.size}; set it to what the "
                    "store was made with, or restore the file"
                )
            self._append(Segment(path, int(entry.name), self.size, writable=self.writable))

    @property
    def last(self) -> Segment:
        return self.items[-1]

    @property
    def start(self) -> int:
        """The position of the first byte in the files; 0 without files."""
        return self.items[0].base if self.items else 0

    def find(self, place: int) -> Segment | None:
        """The file with the byte at this position; None without one."""
        items = self.items
        if not items:
            return None
        number = (place - items[0].base) // self.size
        return items[number] if 0 <= number < len(items) else None

    def add(self, base: int, *, reserve: int, is_open: bool = False) -> Segment:
        """Make the next file, which begins at `base`, with room for `reserve` bytes; as
        `Segment.create`."""
        make_folder(self.folder)
        path = self.folder / f"{base:0{NAME_DIGITS}d}"
        segment = Segment.create(
            path, base, self.size, reserve=reserve, writable=self.writable, is_open=is_open
        )
        self.items.append(segment)
        return segment

    def cut(self, place: int) -> None:
        """Delete the files that begin at `place` or behind it."""
        while self.items and self.items[-1].base >= place:
            self.items[-1].delete()
            self.items.pop()

    def delete(self) -> None:
        """Delete all files, and the folder unless it has other files."""
        self.cut(-1)
        with readable_errors(self.folder, "delete"):
            if disk.current.is_folder(self.folder) and not disk.current.entries(self.folder):
                disk.current.remove_folder(self.folder)

    def release(self) -> None:
        """Drop all mappings and close all files."""
        for segment in self.items:
            segment.release()

    def _append(self, segment: Segment) -> None:
        if self.items and segment.base != self.items[-1].end:
            missing = segment.base - self.items[-1].end
            if missing % self.size or not 0 < missing <= MISSING_FILES_MAX * self.size:
                raise DamagedStore(
                    f"{self.items[-1].path} ends at {self.items[-1].end}, the next file is "
                    f"{segment.path.name}, which is not a multiple of {self.size} ({self.setting}) "
                    f"behind it, or more than {MISSING_FILES_MAX} files; set {self.setting} to "
                    "what the store was made with, or restore the files between them"
                )
            while self.items[-1].end < segment.base:
                made = self.add(self.items[-1].end, reserve=0)
                self.is_mended = True
                log.error("%s was missing; a file of zeros stands in its place", made.path)
        self.items.append(segment)

    def _is_proved(self, entries: list[disk.Entry]) -> bool:
        """True if the distance between two neighbours is the file size."""
        bases = [int(entry.name) for entry in entries]
        return any(after - base == self.size for base, after in pairwise(bases))
