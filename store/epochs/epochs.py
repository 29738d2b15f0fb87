"""The file epochFileCheckpoint: the epochs of a store's log, in RocketMQ's format.

A change is on the disk when its method returns. An epoch must be noted before its first message is
written: messages of a new master that count as the old master's would hide where two logs part.
"""

from collections.abc import Iterable
from pathlib import Path

from ..base.errors import DamagedStore, StoreError, readable_errors
from ..files import disk, json_file
from ..files.segment import make_folder, sync_folder
from .entries import (
    EPOCH_MAX,
    EPOCHS_MAX,
    EpochEntry,
    appended,
    cut_at,
    decode,
    disorder,
    encode,
    end_of,
)


class Epochs:
    """The epochs of one log, oldest first. `path` is the file; the text before the last change is
    in its .bak."""

    def __init__(self, path: Path, entries: tuple[EpochEntry, ...] = ()) -> None:
        self.path = path
        self._entries = entries

    @classmethod
    def open(cls, path: Path) -> "Epochs":
        """The epochs in this file; none when it doesn't exist.

        DamagedStore when its text can't be read, or is missing while there is a .bak. The .bak
        itself is not read: it may lack the last epoch, whose messages would count as older ones.
        """
        text = json_file.read(path)
        if text is None and json_file.read(_backup(path)) is None:
            return cls(path)
        text = text or b""
        try:
            return cls(path, decode(text))
        except ValueError as wrong:
            raise DamagedStore(
                f"{path} has {len(text)} bytes and can't be read: {wrong}; restore it from a copy "
                f"({_backup(path).name} is the text before its last change), or delete the store "
                "folder, so that this broker takes the log of its master anew"
            ) from wrong

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All epochs, oldest first: numbers and offsets ascend."""
        return self._entries

    @property
    def last_epoch(self) -> int:
        """The number of the last epoch; 0 when there is none."""
        return self._entries[-1].epoch if self._entries else 0

    def epoch_at(self, offset: int) -> EpochEntry | None:
        """The epoch of the byte at this log offset; None before the first one."""
        for entry in reversed(self._entries):
            if entry.start_offset <= offset:
                return entry
        return None

    def end_of(self, epoch: int) -> int | None:
        """The log offset where this epoch ends: `END_MAX` for the last; None for an unknown one."""
        for number, entry in enumerate(self._entries):
            if entry.epoch == epoch:
                return end_of(self._entries, number)
        return None

    def append(self, epoch: int, start_offset: int) -> None:
        """Begin an epoch at this log offset. One that is the last already changes nothing.

        A last epoch that begins there too has no message, and is replaced. Above `EPOCHS_MAX` the
        oldest goes. DamagedStore for a number or an offset that is not above the last one's.
        """
        changed = appended(self._entries, EpochEntry(epoch, start_offset))
        if changed == self._entries:
            return
        wrong = disorder(changed)
        if wrong is not None:
            raise DamagedStore(
                f"{wrong} (numbers to {EPOCH_MAX}): the epochs of this log and of the controller "
                "or master don't fit; look which broker has the newest messages, and delete the "
                "store folders of the others"
            )
        self._save(changed[-EPOCHS_MAX:])

    def adopt(self, entries: Iterable[tuple[int, int]]) -> None:
        """Take the epochs of another log, which is equal to this one. DamagedStore when their
        numbers and offsets don't ascend."""
        found = tuple(EpochEntry(*entry) for entry in entries)
        wrong = disorder(found)
        if wrong is not None:
            raise DamagedStore(f"the epochs of the master's log can't be: {wrong}")
        self._keep(found)

    def cut(self, offset: int) -> None:
        """The log ends at `offset` now: drop the epochs that begin there or behind it."""
        self._keep(cut_at(self._entries, offset))

    def drop_before(self, offset: int) -> None:
        """Drop the epochs that end before `offset`, at which the log begins now.

        An epoch that ends right there stays: a log that ends there, too, can continue with ours.
        """
        entries = self._entries
        self._keep(
            tuple(entry for at, entry in enumerate(entries) if end_of(entries, at) >= offset)
        )

    def _keep(self, entries: tuple[EpochEntry, ...]) -> None:
        if entries == self._entries:
            return
        if entries:
            self._save(entries)
            return
        # The .bak first: one without its file is refused.
        for path in (_backup(self.path), self.path):
            with readable_errors(path, "delete"):
                if disk.current.exists(path):
                    disk.current.unlink(path)
                    sync_folder(path.parent)
        self._entries = ()

    def _save(self, entries: tuple[EpochEntry, ...]) -> None:
        try:
            make_folder(self.path.parent, sync=True)
            if previous := json_file.read(self.path):
                json_file.replace(_backup(self.path), previous)
            json_file.replace(self.path, encode(entries))
            with readable_errors(self.path.parent, "write"):
                sync_folder(self.path.parent)
        except StoreError as wrong:
            raise StoreError(f"the epochs of the log can't be saved: {wrong}") from wrong
        self._entries = entries


def _backup(path: Path) -> Path:
    return path.with_name(path.name + ".bak")
