"""A table in one of RocketMQ's JSON files, with a journal: a change appends one line.

Such a file is one JSON text with every entry, so a new topic among 10,000 would cost a text of
megabytes, written twice and synced three times. A change goes into a journal beside the file
instead (`store/files/json_journal.py`): one line, synced before the change is acknowledged. The
broker writes the whole file about a second later, in slices and another thread, and when it stops.
So the folder of a broker that was stopped has no journal, and RocketMQ can open it. After a crash
`load` takes the changes from the journal. A journal in which the file's version doesn't occur is
not this file's: another broker has written the file since, and the journal is dropped.

A whole table is written into responses, too, and the encoding is the expensive part. So the text of
an entry is kept (`EncodedEntries`): an entry is never changed in place, a new object takes its
name.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec import field

from ...protocol.bodies.body import Body, filled
from ...protocol.bodies.data_version import DataVersion
from ...protocol.codec import fastjson
from ...store.files import json_file
from ...store.files.json_journal import JsonJournal

log = logging.getLogger(__name__)

SPARE_MAX = 1_000  # texts of entries that are gone


class EncodedEntries:
    """The texts of one table, as its file has them."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Body, bytes]] = {}
        self._order: list[str] = []  # the names as they were sorted last

    def of(self, name: str, entry: Body) -> bytes:
        """The text of an entry with its name, without the braces around them."""
        found = self._known.get(name)
        if found is None or found[0] is not entry:
            text = fastjson.dump({name: entry}, bare_keys=False, ascii_only=True)[1:-1]
            found = self._known[name] = entry, text
        return found[1]

    def pieces(
        self, body: Body, name: str, table: Mapping[str, Body], *, standard: bool = False
    ) -> Iterator[bytes]:
        """The text of `body`, whose table of this name is empty, with these entries in it.

        `standard` is for the file, as `Body.encode` has it. The table may change between two
        pieces: deleted entries are left out, and new ones are not in the text yet.
        """
        if len(self._known) > len(table) + SPARE_MAX:
            self._known = {known: one for known, one in self._known.items() if known in table}
        return filled(body, name, self._of_all(table, standard), standard=standard)

    def _of_all(self, table: Mapping[str, Body], standard: bool) -> Iterator[bytes]:
        for name in self._sorted(table):
            entry = table.get(name)
            if entry is None:
                continue
            text = self.of(name, entry)
            if not standard and b"\\u" in text:  # only the file has no other characters
                text = fastjson.dump({name: entry})[1:-1]
            yield text

    def _sorted(self, table: Mapping[str, Body]) -> list[str]:
        # A nearly sorted list is sorted ten times as quickly.
        order = [name for name in self._order if name in table]
        if len(order) < len(table):
            order += table.keys() - set(order)
        order.sort()
        self._order = order
        return order


Entry = TypeVar("Entry", bound=Body)


class Change(Body):
    """A line of a journal; subclasses have the entries that were put in `put`. The first line of a
    journal has only the version that the file had then."""

    data_version: DataVersion = field(default_factory=DataVersion)
    gone: list[str] = []


Line = TypeVar("Line", bound=Change)


class Mark(NamedTuple):
    """A state of the table: its version, and where the journal ended then."""

    version: DataVersion
    end: int


class TableFile(Generic[Entry, Line]):
    """The file at `path`; `name` is the table's key in it, `line` the type of a journal's line."""

    def __init__(self, path: Path, name: str, line: type[Line], now_ms: Callable[[], int]) -> None:
        self.path = path
        self.version = DataVersion()
        self._name = name
        self._line = line
        self._now_ms = now_ms
        self._texts = EncodedEntries()
        self._journal = JsonJournal(path)
        self._written = DataVersion()  # the version that the file has

    @property
    def is_behind(self) -> bool:
        """True if the journal has changes that the file lacks."""
        return self._journal.end > 0

    def load(self, version: DataVersion | None) -> list[Line]:
        """The changes since the file was written, which has this version."""
        self.version = self._written = version or DataVersion()
        lines = self._journal.load(self._line.decode)
        versions = [line.data_version for line in lines]
        if self._written in versions:
            lines = lines[versions.index(self._written) + 1 :]
        elif lines and self._written.counter >= versions[0].counter:
            log.warning(
                "%s is of version %d and %s of none like it: another broker has written the file "
                "since, and what the journal has is dropped",
                self.path,
                self._written.counter,
                self._journal.path.name,
            )
            self._journal.forget(self._journal.end, b"")
            return []
        if lines:
            self.version = lines[-1].data_version
            log.info("%d changes come from %s", len(lines), self._journal.path)
        return lines

    def changed(
        self,
        put: Mapping[str, Entry],
        gone: Iterable[str] = (),
        version: DataVersion | None = None,
        **more: Any,
    ) -> None:
        """Write down the new or changed entries, and the names of deleted ones; `version` is the
        table's from now on. StoreError when it can't be written; then nothing has changed.

        `more` are fields of the line by their names on the wire.
        """
        version = version or self.version.following(self._now_ms(), self.version.state_version)
        texts = self._texts
        line = fastjson.dump(
            {"dataVersion": version, "gone": sorted(gone)} | more, bare_keys=False, ascii_only=True
        )
        entries = b",".join([texts.of(name, entry) for name, entry in put.items()])
        first = b"" if self.is_behind else self._first_line()
        self._journal.append(b'%b%b,"put":{%b}}\n' % (first, line[:-1], entries))
        self.version = version

    def pieces(
        self, body: Body, table: Mapping[str, Entry], *, standard: bool = False
    ) -> Iterator[bytes]:
        """The text of `body` with the table in it, in pieces (`EncodedEntries.pieces`)."""
        return self._texts.pieces(body, self._name, table, standard=standard)

    def mark(self) -> Mark:
        """The state of now: what changes while the file is written is still in the journal then."""
        return Mark(self.version, self._journal.end)

    def written(self, mark: Mark) -> None:
        """Note that the file has everything up to this mark."""
        self._written = mark.version
        self._journal.forget(mark.end, self._first_line())

    def save(self, pieces: Iterable[bytes]) -> None:
        """Write the file at once if it is behind, for a broker that stops."""
        if not self.is_behind:
            return
        mark = self.mark()
        json_file.save(self.path, b"".join(pieces))
        self.written(mark)

    def close(self) -> None:
        """Let go of the journal."""
        self._journal.close()

    def _first_line(self) -> bytes:
        text = fastjson.dump({"dataVersion": self._written}, bare_keys=False, ascii_only=True)
        return text + b"\n"
