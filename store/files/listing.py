"""The files of a store for programs that only read them: the view, `check` and `dump`.

No lock is taken and nothing is written, also not what a broker would mend at its start. So a broker
may run on the folder meanwhile; then files come and go, and their ends grow. What is not as it
should be is told in `problems`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ..base.errors import plain_errors
from . import disk
from .segment import Segment
from .segments import NAME_DIGITS, sorted_out

STRAY = f"is not the store's, whose files are named by {NAME_DIGITS} digits; it is passed over"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong with a file or a folder; `at` is the byte in the file, if one is.
    What `is_stray` is not the store's, and harmless."""

    path: Path
    text: str
    at: int | None = None
    is_stray: bool = False


class Row:
    """A row of files of one size, as far as they are there. `items` are in order."""

    __slots__ = ("folder", "items", "problems", "size")

    def __init__(self, folder: Path, size: int = 0, unit: int = 1) -> None:
        """Find the files. `size` is what each should have, 0 when that is not known.

        Then the distance of two neighbours tells it or, of a single file, its length, which is a
        whole number of `unit` bytes.
        """
        self.folder = folder
        self.items: list[Segment] = []
        self.problems: list[Problem] = []
        with plain_errors(folder, "read"):
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
        """The place of the first byte there is; 0 without files."""
        return self.items[0].base if self.items else 0

    @property
    def end(self) -> int:
        """The place behind the last byte there is; 0 without files."""
        return self.items[-1].end if self.items else 0

    def find(self, place: int) -> Segment | None:
        """The file that holds the byte at this place."""
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
        """Let go of the mappings; they come back when asked for."""
        for segment in self.items:
            segment.release()


def entries_of(folder: Path) -> list[disk.Entry]:
    """What is in a folder, by name; nothing when there is none. StoreError when it is no folder."""
    with plain_errors(folder, "read"):
        try:
            return disk.current.entries(folder)
        except FileNotFoundError:
            return []


def queue_folders(root: Path) -> Iterator[tuple[str, int, Path]]:
    """Topic, queue id and folder of each queue below a folder such as `consumequeue`."""
    for topic in entries_of(root):
        if not topic.is_folder:
            continue
        for queue in entries_of(root / topic.name):
            if queue.is_folder and queue.name.isascii() and queue.name.isdigit():
                yield topic.name, int(queue.name), root / topic.name / queue.name


def _size_of(entries: list[disk.Entry]) -> int:
    """The size that files of these names and lengths were made with."""
    distances = [int(after.name) - int(entry.name) for entry, after in pairwise(entries)]
    lengths = [entry.size for entry in entries]
    if distances and min(distances) in lengths:
        return min(distances)
    return max(lengths, default=0)
