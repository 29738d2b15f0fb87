"""Epochs as values: their text, lookups, and the point up to which two logs are equal.

An epoch is the time of one master: its number, and the log offset at which the messages of that
master begin. It ends where the next one begins; the last one has no end.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

EPOCHS_MAX = 1_000  # entries; RocketMQ's master has a buffer for this number in its handshake
EPOCH_MAX = (1 << 31) - 1
END_MAX = (1 << 63) - 1  # the end of the last epoch
CRC_MASK = 0x7FFFFFFF
NOT_CHECKED = 0  # instead of the crc


class EpochEntry(NamedTuple):
    """An epoch: its number, and the log offset in bytes where its messages begin."""

    epoch: int
    start_offset: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.start_offset}"


def encode(entries: Sequence[EpochEntry]) -> bytes:
    """The text of RocketMQ's file: the number of entries, the crc of the rest, a line for each."""
    lines = "".join(f"{entry}\n" for entry in entries).encode()
    return b"%d\n%d\n%s" % (len(entries), crc32(lines) & CRC_MASK, lines)


def decode(text: bytes) -> tuple[EpochEntry, ...]:
    """The entries of such a text. ValueError, with what is wrong, for any other text."""
    head = text.split(b"\n", 2)
    if len(head) < 3:
        raise ValueError(f"it has {len(head) - 1} whole lines, a count and a crc come first")
    count, crc, rest = _number(head[0]), _number(head[1]), head[2]
    if not 1 <= count <= EPOCHS_MAX:
        raise ValueError(f"it counts {count} epochs, 1 to {EPOCHS_MAX} can be")
    if rest and not rest.endswith(b"\n"):
        rest += b"\n"  # Java reads such a last line as well
    found = crc32(rest) & CRC_MASK
    if crc not in (NOT_CHECKED, found):
        raise ValueError(f"its crc is {crc}, the lines have {found}")
    lines = rest.splitlines()
    if len(lines) != count:
        raise ValueError(f"it counts {count} epochs and has {len(lines)} lines")
    entries = tuple(_entry(line) for line in lines)
    wrong = disorder(entries)
    if wrong is not None:
        raise ValueError(wrong)
    return entries


def disorder(entries: Sequence[EpochEntry]) -> str | None:
    """The error in these entries; None if numbers and offsets ascend as they must."""
    for entry in entries:
        if not 0 <= entry.epoch <= EPOCH_MAX or not 0 <= entry.start_offset < END_MAX:
            return f"epoch {entry} can't be; numbers and offsets are 0 or more"
    for before, entry in pairwise(entries):
        if entry.epoch <= before.epoch or entry.start_offset <= before.start_offset:
            return f"epoch {entry} follows {before}; number and offset must grow"
    return None


def end_of(entries: Sequence[EpochEntry], number: int) -> int:
    """The end of the entry at this index: the start of the next, `END_MAX` for the last."""
    return entries[number + 1].start_offset if number + 1 < len(entries) else END_MAX


def appended(entries: Sequence[EpochEntry], entry: EpochEntry) -> tuple[EpochEntry, ...]:
    """The entries once another epoch begins. One that is the last already changes nothing.

    A last epoch that begins at the same offset has no message, and is replaced: RocketMQ refuses
    the new one then, so that its messages count as the old one's. The result can be in disorder.
    """
    kept = tuple(entries)
    if kept and kept[-1] == entry:
        return kept
    if kept and kept[-1].epoch < entry.epoch and kept[-1].start_offset == entry.start_offset:
        kept = kept[:-1]
    return (*kept, entry)


def cut_at(entries: Sequence[EpochEntry], offset: int) -> tuple[EpochEntry, ...]:
    """The entries of a log that is cut at `offset`: no epoch begins there or behind."""
    return tuple(entry for entry in entries if entry.start_offset < offset)


def consistent_point(
    own: Sequence[EpochEntry], own_end: int, theirs: Sequence[EpochEntry], their_end: int
) -> int | None:
    """The log offset up to which two logs are equal; None when no epoch is known to both.

    The logs end at `own_end` and `their_end`. From the newest own epoch down, the first that the
    other log has with the same start decides: the logs are equal up to where the first of the two
    ends it. The result is never behind the end of either log.
    """
    numbers = {entry: number for number, entry in enumerate(theirs)}
    for number in reversed(range(len(own))):
        other = numbers.get(own[number])
        if other is not None:
            return min(end_of(own, number), end_of(theirs, other), own_end, their_end)
    return None


def _number(line: bytes) -> int:
    if not line.isdigit() or len(line) > 10:
        raise ValueError(f"{line[:40]!r} stands where a number belongs")
    return int(line)


def _entry(line: bytes) -> EpochEntry:
    parts = line.split(b"-")
    if len(parts) != 2 or not all(part.isdigit() and len(part) <= 19 for part in parts):
        raise ValueError(f"the line {line[:60]!r} is no epoch, which is number-offset")
    return EpochEntry(int(parts[0]), int(parts[1]))
