"""The state of a controller on its own disk: a snapshot, and a journal of the events since.

    snapshot.json   its CRC-32, a space, {"version":1,"number":N,"groups":{...}}
    journal         one event a line: CRC-32 of the rest, a space, {"number":N+1,...}
    lock            locked while a controller uses the folder

An event is valid once its line is on the disk. A line torn by a power cut was never acknowledged
and is cut off. Damage followed by a whole line stops the start with an error, since a change
that brokers rely on would be missing.
"""

import asyncio
import logging
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..store.base.errors import DamagedStore, StoreError, readable_errors
from ..store.files import disk, json_file
from ..store.files.lock import StoreLock
from ..store.files.segment import make_folder, sync_folder
from .engine import Leading
from .replicas import Event, Groups, ReplicaGroup, apply

log = logging.getLogger(__name__)

SNAPSHOT = "snapshot.json"
JOURNAL = "journal"
FORMAT_VERSION = 1
JOURNAL_BYTES_MAX = 1 << 20  # a longer journal is replaced by a snapshot


class _Line(msgspec.Struct):
    number: int
    event: Event


class _Snapshot(msgspec.Struct):
    version: int
    number: int
    groups: dict[str, ReplicaGroup]


_line_decoder = msgspec.json.Decoder(_Line)
_snapshot_decoder = msgspec.json.Decoder(_Snapshot)


class FileEngine:
    """`controllerType=file`: a journal and a snapshot on the disk of the only controller.

    `write` and `write_snapshot` block until the disk is done, in another thread, one call at a
    time.
    """

    is_leader = True
    fault = ""

    def __init__(self, folder: Path) -> None:
        self.groups: Groups = {}
        self.place = str(folder)
        self.leading = Leading()
        self._folder = folder
        self._lock = StoreLock(folder)
        self._journal = folder / JOURNAL
        self._fd = -1
        self._end = 0
        self._number = 0  # the number of the last event
        self._fault = ""  # why no more events can be written

    def open(self) -> None:
        """Read the stored state. StoreError when the folder is in use or a file is damaged."""
        make_folder(self._folder, sync=True)
        self._lock.acquire()
        try:
            self._load()
        except BaseException:
            self._lock.release()
            raise

    def begin(self, own: Leading, led: Callable[[], None]) -> None:
        """Lead."""
        self.leading = own
        led()

    async def store(self, events: tuple[Event, ...]) -> None:
        """Write the events to the disk, then apply them. A long journal becomes a snapshot; after
        an error the next change tries that again."""
        await asyncio.to_thread(self.write, events)
        for event in events:
            apply(self.groups, event)
        if self._end > JOURNAL_BYTES_MAX:
            try:
                await asyncio.to_thread(self.write_snapshot)
            except StoreError as wrong:
                log.error("the snapshot of the state could not be written: %s", wrong)

    def write(self, events: tuple[Event, ...]) -> None:
        """Write these events to the disk. StoreError: none of them is stored, unless they can't be
        taken back either; then nothing is written any more."""
        if self._fault:
            raise StoreError(self._fault)
        lines = b"".join(
            _sealed(msgspec.json.encode(_Line(self._number + 1 + offset, event)))
            for offset, event in enumerate(events)
        )
        try:
            with readable_errors(self._journal, "write"):
                view, at = memoryview(lines), 0
                while at < len(lines):
                    at += disk.current.pwrite(self._fd, view[at:], self._end + at)
                disk.current.sync_data(self._fd)
        except StoreError:
            self._take_back()
            raise
        self._end += len(lines)
        self._number += len(events)

    def write_snapshot(self) -> None:
        """Write all `groups`, then empty the journal. StoreError on failure; no event is lost."""
        text = msgspec.json.encode(_Snapshot(FORMAT_VERSION, self._number, self.groups))
        json_file.replace(self._folder / SNAPSHOT, _sealed(text))
        with readable_errors(self._journal, "cut"):
            sync_folder(self._folder)
            disk.current.truncate(self._fd, 0)
            self._end = 0  # also when the sync fails: the next line goes to the beginning
            disk.current.sync(self._fd)

    async def close(self) -> None:
        """Close the journal and release the folder for another controller."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            disk.current.close(fd)
        self._lock.release()

    def _load(self) -> None:
        path = self._folder / SNAPSHOT
        text = json_file.read(path)
        if text is not None:
            snapshot = _read_snapshot(path, text)
            self.groups, self._number = snapshot.groups, snapshot.number
        whole = self._replay(json_file.read(self._journal) or b"")
        with readable_errors(self._journal, "open"):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._fd = disk.current.open(self._journal, flags, 0o644)
            disk.current.truncate(self._fd, whole)
            disk.current.sync(self._fd)
            sync_folder(self._folder)
        self._end = whole

    def _replay(self, data: bytes) -> int:
        """Apply the events of `data`; returns the length of its whole lines in bytes."""
        at = 0
        for line in data.splitlines(keepends=True):
            found = _read_line(line)
            if found is None:
                if _has_whole_line(data[at + len(line) :]):
                    raise DamagedStore(
                        f"{self._journal} is damaged at byte {at}, and whole lines follow: a "
                        "change that brokers rely on is missing; bring the file back from a "
                        "backup"
                    )
                break
            at += len(line)
            if found.number <= self._number:
                continue  # the snapshot has it
            if found.number != self._number + 1:
                raise DamagedStore(
                    f"{self._journal} has event {found.number} after {self._number}: events "
                    "between them are missing; bring the file back from a backup"
                )
            self._number = found.number
            apply(self.groups, found.event)
        return at

    def _take_back(self) -> None:
        """Truncate a failed write, so that a later start doesn't read it."""
        try:
            with readable_errors(self._journal, "cut"):
                disk.current.truncate(self._fd, self._end)
                disk.current.sync(self._fd)
        except StoreError as wrong:
            self._fault = (
                f"{wrong}: a change that failed may be in it; no change is stored any more "
                "until the disk is in order and the controller started again"
            )
            raise StoreError(self._fault) from wrong


def _sealed(text: bytes) -> bytes:
    """A line: the CRC-32 of the text in eight hexadecimal digits, a space, the text."""
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _opened(line: bytes) -> bytes | None:
    """The text of a line; None when the line is torn or damaged."""
    crc, _, text = line.partition(b" ")
    text = text.rstrip(b"\n")
    if not line.endswith(b"\n") or crc != b"%08x" % zlib.crc32(text):
        return None
    return text


def _read_line(line: bytes) -> _Line | None:
    text = _opened(line)
    return None if text is None else _line_decoder.decode(text)


def _has_whole_line(data: bytes) -> bool:
    return any(_opened(line) is not None for line in data.splitlines(keepends=True))


def _read_snapshot(path: Path, data: bytes) -> _Snapshot:
    text = _opened(data)
    if text is None:
        raise DamagedStore(f"{path} is damaged: its checksum is wrong; bring it back from a backup")
    try:
        found = _snapshot_decoder.decode(text)
    except msgspec.ValidationError as wrong:
        raise DamagedStore(
            f"{path} can't be read: {wrong}; start the aerobee that wrote it"
        ) from None
    if found.version != FORMAT_VERSION:
        raise DamagedStore(
            f"{path} has version {found.version}, this aerobee reads {FORMAT_VERSION}; start the "
            "aerobee that wrote it"
        )
    return found
