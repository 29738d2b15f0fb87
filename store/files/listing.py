"""The files of a store for programs that only read them: the view, `check` and `dump`.

They take no lock and write nothing, not even the repairs that a broker makes at its start. So a
broker may run on the folder meanwhile; then files are added, deleted and grow. `problems` lists
what is wrong.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ..base.errors import readable_errors
from . import disk
from .segment import Segment
from .segments import NAME_DIGITS, sorted_out

STRAY = f"is not the store's, whose files are named by {NAME_DIGITS} digits; it is passed over"


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with a file or a folder; `at` is the byte in the file, if there is one. A file that
    `is_stray` doesn't belong to the store and is harmless."""

    path: Path
    text: str
    at: int | None = None
    is_stray: bool = False


class Row:
    """A row of files of one size, as far as they exist. `items` are in order."""

    __slots__ = ("folder", "items", "problems", "size")

    def __init__(self, folder: Path, size: int = 0, unit: int = 1) -> None:
        """Find the files. `size` is the size that each should have in bytes, 0 if unknown.

        An unknown size is the distance between two neighbours or, with a single file, its length.
        It must be a multiple of `unit` bytes.
        """
        self.folder = folder
        self.items: list[Segment] = []
        self.problems: list[Problem] = []
        with readable_errors(folder, "read"):
            try:
                named, strays = sorted_out(folder)
            except FileNotFoundError:
                named, strays = [], []
        for path in strays:
            self.problems.append(Problem(path, STRAY, is_stray=True))
        self.size = size or _size_of(named)
        for number, entry in enumerate(named):
            path, base = folder / entry.name, int(entry.name)
            if entry.size == 0 and number == len(named) - 1:
                continue  # made, but not yet given its size
            if entry.size != self.size:
                text = f"has {entry.size} bytes instead of {self.size}"
                self.problems.append(Problem(path, text))
            elif self.size % unit:
                self.problems.append(
                    Problem(path, f"has {entry.size} bytes, no multiple of {unit}")
                )
            if self.items and base > self.items[-1].base + self.size:
                text = f"begins at {base}, the file before it at {self.items[-1].base}"
                self.problems.append(Problem(path, f"{text}: what was between them is missing"))
            if entry.size:
                self.items.append(Segment(path, base, entry.size, writable=False))

    @property
    def start(self) -> int:
        """The position of the first byte in the files; 0 without files."""
        return self.items[0].base if self.items else 0

    @property
    def end(self) -> int:
        """The position behind the last byte in the files; 0 without files."""
        return self.items[-1].end if self.items else 0

    def find(self, place: int) -> Segment | None:
        """The file with the byte at this position; None without one."""
        low, high = 0, len(self.items)
        while low < high:
            middle = (low + high) // 2
            if self.items[middle].end <= place:
                low = middle + 1
            else:
                high = middle
        if low == len(self.items) or place < self.items[low].base:
            return None
        return self.items[low]

    def release(self) -> None:
        """Drop the mappings; they are made again when needed."""
        for segment in self.items:
            segment.release()


def entries_of(folder: Path) -> list[disk.Entry]:
    """The entries of a folder, by name; none if it doesn't exist. StoreError if it is a file."""
    with readable_errors(folder, "read"):
        try:
            return disk.current.entries(folder)
        except FileNotFoundError:
            return []


def queue_folders(root: Path, topic: str | None = None) -> Iterator[tuple[str, int, Path]]:
    """Topic, queue id and folder of each queue below a folder such as `consumequeue`, or only of
    those of `topic`."""
    topics = (
        [each.name for each in entries_of(root) if each.is_folder] if topic is None else [topic]
    )
    for name in topics:
        for queue in entries_of(root / name):
            if queue.is_folder and queue.name.isascii() and queue.name.isdigit():
                yield name, int(queue.name), root / name / queue.name


def _size_of(entries: list[disk.Entry]) -> int:
    """The file size that these names and lengths suggest, in bytes."""
    distances = [int(after.name) - int(entry.name) for entry, after in pairwise(entries)]
    lengths = [entry.size for entry in entries]
    if distances and min(distances) in lengths:
        return min(distances)
    return max(lengths, default=0)
