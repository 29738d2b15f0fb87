"""A table that is written to its file from time to time, not at every change."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

from ...protocol.bodies.data_version import DataVersion
from ...store.files import json_file

# More versions than a master writes of a table between the last copy of it and the master's end.
VERSIONS_AHEAD = 1 << 16


class PersistentTable(ABC):
    """A table with its file. Code that changes it sets `changed`; `version` counts the texts
    written. A writer holds the lock `saving`."""

    def __init__(self, path: Path, now_ms: Callable[[], int]) -> None:
        self.path = path
        self.changed = False
        self.version = DataVersion()
        # The version is that of a master's table: what is written here is no newer than that.
        self.follows = False
        self.saving = asyncio.Lock()
        self._now_ms = now_ms

    def lead(self) -> None:
        """Give this table a version newer than that of the master, which it followed."""
        before = self.version
        counter = before.counter + VERSIONS_AHEAD
        self.version = DataVersion(before.state_version, self._now_ms(), counter)
        self.follows = False
        self.changed = True

    @abstractmethod
    def text(self, *, standard: bool = False) -> Iterator[bytes]:
        """The table as an answer has it, or its file (`standard`), in pieces between which others
        may work. What changes meanwhile is in it or not."""

    def pieces(self) -> Iterator[bytes]:
        """The new text in pieces, with other work in between; none when nothing changed.

        A change in between is written the next time. A caller that fails to write sets `changed`
        again.
        """
        if self.changed:
            self.changed = False
            if not self.follows:
                self.version = self.version.following(self._now_ms())
            yield from self.text(standard=True)

    def unsaved(self) -> bytes | None:
        """The new text, which the caller writes; None when nothing changed since the last."""
        return b"".join(self.pieces()) or None

    def save(self) -> None:
        """Write the file when something changed."""
        text = self.unsaved()
        if text is not None:
            json_file.save(self.path, text)
