"""How far a table is: the next offset of each queue, kept in the summary of its snapshots.

One commit of the catalog appends files and moves the offsets. So a message is in the table exactly
if its offset is below the one in the snapshot, whoever was killed.
"""

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..client.cluster.route import MessageQueue
from .errors import LakeError

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

VERSION = 1
VERSION_KEY = "aerobee.version"
OFFSETS_KEY = "aerobee.offsets"
MARKS_KEY = "aerobee.marks"
GONE_KEY = "aerobee.gone"
LETTERS_KEY = "aerobee.dead-letters"
ACCEPTED_KEY = "aerobee.accepted-snapshot"  # a property of the table, which an operator sets

# Snapshots of others that leave the rows as they are, or take some away on purpose.
_HARMLESS = ("replace", "delete")


def queue_key(queue: MessageQueue) -> str:
    """The queue's name in a summary: broker-a:0."""
    return f"{queue.broker_name}:{queue.queue_id}"


def queue_of(topic: str, key: str) -> MessageQueue:
    """The queue of a topic that has this name in a summary."""
    broker_name, _, queue_id = key.rpartition(":")
    return MessageQueue(topic, broker_name, int(queue_id))


def mark_of(message_id: str | None, store_us: int) -> str:
    """What tells one message from another at the same offset: 8 hexadecimal digits of its id and
    its store time in µs."""
    return f"{zlib.crc32(f'{message_id}@{store_us}'.encode()):08x}"


@dataclass(slots=True)
class Progress:
    """By queue the next offset, the mark of the message before it, and how many messages were gone
    before they were read. A mark is missing where no message was read yet.

    `letters` is the number of the last commit that changed the table of dead letters, and `dead`
    how many rows that has then.
    """

    offsets: dict[str, int] = field(default_factory=dict)
    marks: dict[str, str] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)
    letters: int = 0
    dead: int = 0

    def copy(self) -> "Progress":
        """A copy that can be changed."""
        return replace(
            self, offsets=dict(self.offsets), marks=dict(self.marks), gone=dict(self.gone)
        )

    def summary(self) -> dict[str, str]:
        """The progress as properties of a snapshot."""
        found = {
            VERSION_KEY: str(VERSION),
            OFFSETS_KEY: _json(self.offsets),
            MARKS_KEY: _json(self.marks),
        }
        if self.gone:
            found[GONE_KEY] = _json(self.gone)
        if self.letters:
            found[LETTERS_KEY] = _json({"number": self.letters, "rows": self.dead})
        return found


def progress_of(metadata: "TableMetadata", name: str) -> Progress:
    """The progress of a table, empty before its first commit.

    LakeError when another writer has changed the rows, or the progress can't be read.
    """
    accepted = metadata.properties.get(ACCEPTED_KEY)
    snapshot = metadata.current_snapshot()
    if snapshot is None:
        return Progress()
    current, is_accepted = snapshot, False
    for each in ancestors(metadata):
        said = each.summary
        if said is not None and said[OFFSETS_KEY] is not None:
            return _read(said.additional_properties, name, each.snapshot_id)
        is_accepted = is_accepted or str(each.snapshot_id) == accepted  # with all before it
        if is_accepted:
            continue
        operation = None if said is None else said.operation.value
        if operation not in _HARMLESS:
            raise LakeError(
                f"snapshot {each.snapshot_id} of table {name} is no commit of aerobee "
                f"(operation {operation}): it may have added rows that are no messages; roll the "
                "table back to the snapshot before it, or, if its rows are wanted, set the table's "
                f"property {ACCEPTED_KEY} to {each.snapshot_id}"
            )
    raise LakeError(
        f"no snapshot of table {name} up to {current.snapshot_id} has the property {OFFSETS_KEY}, "
        "so nobody knows which messages it holds: another writer made its rows, or expired all "
        "snapshots of aerobee; roll it back to one of them, or give another name: "
        "aerobee lake add TOPIC --table NAME"
    )


@dataclass(frozen=True, slots=True)
class Totals:
    """What a table has: rows, files and their bytes, dead letters beside it, messages that were
    gone before they were read, and its last snapshot; None and 0 before the first commit."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    dead_letters: int = 0
    gone: int = 0
    snapshot: int | None = None
    committed_ms: int = 0


NO_TOTALS = Totals()


def totals_of(metadata: "TableMetadata", progress: Progress) -> Totals:
    """What the table has, with its progress."""
    dead, gone = progress.dead, sum(progress.gone.values())
    snapshot = metadata.current_snapshot()
    if snapshot is None:
        return Totals(dead_letters=dead, gone=gone)
    rows, files, size = (
        int((snapshot.summary and snapshot.summary[name]) or 0)
        for name in ("total-records", "total-data-files", "total-files-size")
    )
    return Totals(rows, files, size, dead, gone, snapshot.snapshot_id, snapshot.timestamp_ms)


def described_by(metadata: "TableMetadata") -> set[int]:
    """The ids of the snapshots that `progress_of` reads: the last one, and those before it up to
    the first that tells the offsets."""
    found: set[int] = set()
    for each in ancestors(metadata):
        found.add(each.snapshot_id)
        if each.summary is not None and each.summary[OFFSETS_KEY] is not None:
            break
    return found


def ancestors(metadata: "TableMetadata") -> "Iterator[Snapshot]":
    """The table's snapshot, then the one before it, and so on."""
    at = metadata.current_snapshot()
    while at is not None:
        yield at
        parent = at.parent_snapshot_id
        at = None if parent is None else metadata.snapshot_by_id(parent)


def _read(said: dict[str, Any], name: str, snapshot_id: int) -> Progress:
    version = said.get(VERSION_KEY)
    if version != str(VERSION):
        raise LakeError(
            f"snapshot {snapshot_id} of table {name} has {VERSION_KEY} {version!r}, this aerobee "
            f"reads {VERSION}; use the version of aerobee that wrote it, or a newer one"
        )
    try:
        letters = _numbers(said.get(LETTERS_KEY, "{}"))
        return Progress(
            _numbers(said[OFFSETS_KEY]),
            {key: str(mark) for key, mark in json.loads(said.get(MARKS_KEY, "{}")).items()},
            _numbers(said.get(GONE_KEY, "{}")),
            letters.get("number", 0),
            letters.get("rows", 0),
        )
    except (ValueError, TypeError, AttributeError) as wrong:
        raise LakeError(
            f"snapshot {snapshot_id} of table {name} has offsets that can't be read ({wrong}): "
            f"{str(said[OFFSETS_KEY])[:200]!r}; roll the table back to the snapshot before it"
        ) from None


def _numbers(text: str) -> dict[str, int]:
    found = json.loads(text)
    for key, number in found.items():
        if type(number) is not int or number < 0:
            raise ValueError(f"{key} is {number!r}")
    return dict(found)


def _json(values: dict[str, Any]) -> str:
    return json.dumps(values, separators=(",", ":"), sort_keys=True)
