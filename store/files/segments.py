"""A row of files of one size without gaps; each file's name is the place of its first byte."""

import logging
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from ..base.errors import DamagedStore, plain_error, plain_errors
from . import disk
from .segment import Segment, make_folder

log = logging.getLogger(__name__)

NAME_DIGITS = 20
MISSING_FILES_MAX = 1_000  # made again as zeros between two that are there


def sorted_out(folder: Path) -> tuple[list[disk.Entry], list[Path]]:
    """The files of a folder that have a number for a name, and whatever else is there. OSError as
    the system gives it."""
    entries: list[disk.Entry] = []
    strays: list[Path] = []
    for entry in disk.current.entries(folder):
        if entry.name.isascii() and entry.name.isdigit() and not entry.is_folder:
            entries.append(entry)
        else:
            strays.append(folder / entry.name)
    return entries, strays


def warn_of(strays: Sequence[Path]) -> None:
    """Say once what is passed over."""
    if strays:
        log.warning(
            "%s is not the store's and is passed over%s; nothing of it is read or deleted",
            strays[0],
            f", as are {len(strays) - 1} others" if len(strays) > 1 else "",
        )


class Segments:
    """The files of one commit log or queue, in order. `setting` names the size for messages."""

    __slots__ = ("folder", "is_mended", "items", "setting", "size", "strays", "writable")

    def __init__(self, folder: Path, size: int, setting: str, *, writable: bool) -> None:
        self.folder = folder
        self.size = size
        self.setting = setting
        self.writable = writable
        self.items: list[Segment] = []
        self.strays: list[Path] = []  # what is not the store's
        self.is_mended = False  # zeros stand for something that was lost

    def load(self, *, sure: bool = False) -> None:
        """Find the files. DamagedStore when one has another size. What has no number for a name is
        not the store's: it is passed over, and never deleted (`strays`).

        A file that is missing between others, or cut off, becomes one of zeros, or with zeros at
        its end, which is reported: what was in it is gone, but the others are good. A cut-off file
        needs proof that it is not the setting that is wrong: `sure` says that the store was made
        with this size; the names of two neighbours say so, too. A crash may leave an empty file,
        which goes when it is the last; not when it is the only one: its name is where it begins.
        """
        self.items = []
        try:
            entries, self.strays = sorted_out(self.folder)
        except FileNotFoundError:
            return
        except OSError as wrong:
            raise plain_error(wrong, self.folder, "read") from wrong
        for number, entry in enumerate(entries):
            path = self.folder / entry.name
            found = entry.size
            if found == 0 and number == len(entries) - 1 and self.items:
                # A crash between making a file and giving it its size.
                with plain_errors(path, "delete"):
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
        """The place of the first byte there is; 0 without files."""
        return self.items[0].base if self.items else 0

    def find(self, place: int) -> Segment | None:
        """The file that holds the byte at this place."""
        items = self.items
        if not items:
            return None
        number = (place - items[0].base) // self.size
        return items[number] if 0 <= number < len(items) else None

    def add(self, base: int, *, reserve: int) -> Segment:
        """Make the next file, which begins at `base`, with room for `reserve` bytes."""
        make_folder(self.folder)
        path = self.folder / f"{base:0{NAME_DIGITS}d}"
        segment = Segment.create(path, base, self.size, reserve=reserve, writable=self.writable)
        self.items.append(segment)
        return segment

    def cut(self, place: int) -> None:
        """Delete the files that begin at `place` or behind it."""
        while self.items and self.items[-1].base >= place:
            self.items[-1].delete()
            self.items.pop()

    def delete(self) -> None:
        """Delete all files, and the folder unless there is something else in it."""
        self.cut(-1)
        with plain_errors(self.folder, "delete"):
            if disk.current.is_folder(self.folder) and not disk.current.entries(self.folder):
                disk.current.remove_folder(self.folder)

    def release(self) -> None:
        """Let go of all mappings and file numbers."""
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
        """Whether two neighbours are as far apart as a file is long."""
        bases = [int(entry.name) for entry in entries]
        return any(after - base == self.size for base, after in pairwise(bases))
