"""A row of files of one size without gaps; each file's name is the place of its first byte."""

from pathlib import Path

from . import disk
from .errors import DamagedStore, plain_error, plain_errors
from .segment import Segment, make_folder

NAME_DIGITS = 20


class Segments:
    """The files of one commit log or queue, in order. `setting` names the size for messages."""

    __slots__ = ("folder", "items", "setting", "size", "writable")

    def __init__(self, folder: Path, size: int, setting: str, *, writable: bool) -> None:
        self.folder = folder
        self.size = size
        self.setting = setting
        self.writable = writable
        self.items: list[Segment] = []

    def load(self) -> None:
        """Find the files. DamagedStore when one has another size, a strange name, or is missing."""
        self.items = []
        try:
            entries = [entry for entry in disk.current.entries(self.folder) if not entry.is_folder]
        except FileNotFoundError:
            return
        except OSError as wrong:
            raise plain_error(wrong, self.folder, "read") from wrong
        for number, entry in enumerate(entries):
            path = self.folder / entry.name
            if not entry.name.isascii() or not entry.name.isdigit():
                raise DamagedStore(
                    f"{path} has no business here: files are named by {NAME_DIGITS} digits; move "
                    "it away"
                )
            found = entry.size
            if found == 0 and number == len(entries) - 1:
                # A crash between making a file and giving it its size.
                with plain_errors(path, "delete"):
                    disk.current.unlink(path)
                continue
            if found != self.size:
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
            self.items.pop().delete()

    def delete(self) -> None:
        """Delete all files and the folder."""
        self.cut(-1)
        with plain_errors(self.folder, "delete"):
            if disk.current.is_folder(self.folder):
                disk.current.remove_folder(self.folder)

    def release(self) -> None:
        """Let go of all mappings and file numbers."""
        for segment in self.items:
            segment.release()

    def _append(self, segment: Segment) -> None:
        if self.items and segment.base != self.items[-1].end:
            raise DamagedStore(
                f"{self.items[-1].path} ends at {self.items[-1].end}, the next file is "
                f"{segment.path.name}: one between them is missing; restore it"
            )
        self.items.append(segment)
