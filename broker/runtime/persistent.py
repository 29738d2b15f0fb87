"""A table that is written to its file from time to time, not at every change."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

from ...protocol.bodies.data_version import DataVersion
from ...store.files import json_file


class PersistentTable(ABC):
    """A table with its file. Code that changes it sets `changed`; `version` counts the texts
    written. A writer holds the lock `saving`."""

    def __init__(self, path: Path, now_ms: Callable[[], int]) -> None:
        self.path = path
        self.changed = False
        self.version = DataVersion()
        self.saving = asyncio.Lock()
        self._now_ms = now_ms

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
