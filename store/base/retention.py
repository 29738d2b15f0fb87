"""Retention: which files a store deletes, decided from the time and the room on its disks.

This module deletes nothing. `judge` decides whether expired files are deleted now, whether some
must go whatever their age, and whether messages are refused; `doomed` says how many log files that
means. The oldest files go first, never the last one, and a bounded number in one round.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

HOUR_MS = 3_600_000
ALL_BYTES = 1 << 62


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of retention. The defaults and the ranges are RocketMQ's."""

    keep_ms: int = 72 * HOUR_MS  # fileReservedTime, there in hours
    hours: frozenset[int] = frozenset({4})  # deleteWhen, in local time
    early_percent: int = 75  # diskMaxUsedSpaceRatio: expired files go at any hour
    force_percent: int = 85  # diskSpaceCleanForciblyRatio: files go before their time
    refuse_percent: int = 90  # diskSpaceWarningLevelRatio: no message is taken
    may_force: bool = True  # cleanFileForciblyEnable
    files_max: int = 10  # deleteFileBatchMax, of the log in a round
    log_pause_ms: int = 100  # deleteCommitLogFilesInterval, between two files
    queue_pause_ms: int = 100  # deleteConsumeQueueFilesInterval
    held_ms: int = 120_000  # destroyMapedFileIntervalForcibly
    retry_ms: int = 120_000  # redeleteHangedFileInterval

    def __post_init__(self) -> None:
        for name, least, most in (
            ("early_percent", 10, 95),
            ("force_percent", 30, 85),
            ("refuse_percent", 35, 90),
        ):
            # As in RocketMQ, a value out of range becomes the nearest one in it.
            object.__setattr__(self, name, min(max(getattr(self, name), least), most))


class Room(NamedTuple):
    """A disk: the bytes used on it, the bytes that the broker can still use, and which of its
    files (`what`) are there."""

    used: int
    free: int
    what: str

    @property
    def percent(self) -> int:
        """The used part of the disk in percent, rounded up."""
        usable = self.used + self.free
        return -(-self.used * 100 // usable) if usable else 0

    def above(self, percent: int) -> int:
        """The bytes to delete so that the disk is no fuller than this."""
        return max(0, self.used - (self.used + self.free) * percent // 100)


class TopicRule(NamedTuple):
    """The retention of a topic: time in ms, and bytes in each queue; None where the store's own
    rules decide."""

    keep_ms: int | None = None
    keep_bytes: int | None = None


class Hold(NamedTuple):
    """A group that holds the messages of a queue from `offset` on; -1 holds all of them."""

    group: str
    offset: int


class LogFile(NamedTuple):
    """A file of the log: when it was last written, and the room that it takes in bytes. A topic
    with a time of its own still needs it (`is_kept`), or no queue has a message in it any more
    (`is_unneeded`)."""

    written_ms: int
    size: int
    is_kept: bool = False
    is_unneeded: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision for one round.

    `is_due`: expired files are deleted now. `surplus`: the bytes to delete whatever their age.
    `refusal` is the text for senders if messages must be refused, else None. Once begun, refusing
    ends only with `is_clear`, which needs more free room than a round without a `refusal`.
    """

    is_due: bool
    surplus: int
    refusal: str | None
    is_clear: bool


def judge(rules: Rules, disks: Sequence[Room], now_ms: int, *, by_hand: bool = False) -> Verdict:
    """The verdict for now. `disks`: the disk of the log, then the disk of the queues if it differs.

    With `by_hand`, expired files are deleted at any hour.
    """
    fullest = max(disks, key=lambda disk: disk.percent)
    surplus = 0
    if rules.may_force:
        surplus = disks[0].above(rules.force_percent)
        if any(disk.above(rules.force_percent) for disk in disks[1:]):
            surplus = ALL_BYTES  # queue files go after log files; how many is unknown
    refusal = None
    if fullest.percent > rules.refuse_percent:
        refusal = (
            f"the broker's disk is full: {fullest.percent} % of the disk of the {fullest.what} is "
            f"used, the limit is {rules.refuse_percent} % (diskSpaceWarningLevelRatio); free some "
            f"space, sends are taken again from {rules.force_percent} % on "
            "(diskSpaceCleanForciblyRatio)"
        )
    return Verdict(
        is_due=by_hand
        or fullest.percent > rules.early_percent
        or time.localtime(now_ms // 1000).tm_hour in rules.hours,
        surplus=surplus,
        refusal=refusal,
        is_clear=fullest.percent <= rules.force_percent,
    )


def doomed(
    rules: Rules, verdict: Verdict, files: Iterable[LogFile], now_ms: int, leaving: int = 0
) -> int:
    """The number of files to delete in this round, the oldest first.

    `files` may all be deleted; no more than needed are read from it. `leaving` is the number of
    bytes in deleted files that readers still have open.
    """
    surplus = verdict.surplus - leaving
    count = 0
    for file in files:
        is_past = file.written_ms + rules.keep_ms <= now_ms and not file.is_kept
        is_expired = verdict.is_due and (is_past or file.is_unneeded)
        if count >= rules.files_max or not (is_expired or surplus > 0):
            break
        surplus -= file.size
        count += 1
    return count
