"""config/timercheck: how far the timer has come, in the queue of its topic and in time.

The first 56 bytes are RocketMQ's: they hold only what is on the disk already, so a start after a
power cut finds nothing delivered that is lost again. At 512 follows a section of our own, which
Java neither reads nor changes: how far deliveries have come in truth, up to the message. It is
written after each part of the work, and holds if the commit log still has all that it rests on.
It repeats RocketMQ's numbers, so one written before Java used the store is told from one that
still holds.
"""

import os
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from struct import Struct
from zlib import crc32

from ..base.errors import plain_errors
from ..files import disk
from ..files.segment import make_folder

FILE_BYTES = 4096
NUMBERS = Struct(
    ">"
    "q"  # time of the next slot to deliver, ms
    "q"  # the timer log is on disk up to here
    "q"  # offset in the queue of the wheel's topic of the next message to put into the wheel
    "q"  # the same of the master
    "q"  # state version
    "q"  # time of the last change, ms
    "q"  # number of changes
)
NUMBERS_BYTES = NUMBERS.size
assert NUMBERS_BYTES == 56
OWN_AT = 512
OWN_MAGIC = b"aerobee1"
OWN = Struct(
    ">"
    "8s"  # magic
    "56s"  # the numbers again
    "q"  # time of the next slot to deliver, ms
    "q"  # how many messages of it are delivered
    "q"  # offset of the next message to put into the wheel
    "q"  # end of the timer log
    "q"  # the three hold if the commit log reaches to here
    "q"  # ticks of the wheel, ms
    "q"  # messages in the wheel
    "?"  # a clean stop: the wheel is as it should be
)
CRC = Struct(">I")


@dataclass(slots=True)
class Progress:
    """How far the timer has come."""

    read_ms: int = 0
    delivered: int = 0
    queue_offset: int = 0
    timer_log_end: int = 0
    commit_log_end: int = 0
    precision_ms: int = 0
    waiting: int = 0
    is_clean: bool = False


@dataclass(slots=True)
class TimerCheck:
    """The file. `own` is None where nothing of our own holds."""

    read_ms: int = 0
    flushed: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    changed_ms: int = 0
    changes: int = 0
    own: Progress | None = field(default=None)

    def numbers(self) -> bytes:
        """RocketMQ's part, which is also what GET_TIMER_CHECK_POINT answers."""
        return NUMBERS.pack(
            self.read_ms, self.flushed, self.queue_offset, self.master_queue_offset,
            self.state_version, self.changed_ms, self.changes,
        )  # fmt: skip


def load(path: Path) -> TimerCheck | None:
    """The file; None when there is none or it is cut off."""
    with plain_errors(path, "read"):
        try:
            fd = disk.current.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            data = disk.current.pread(fd, FILE_BYTES, 0)
        finally:
            disk.current.close(fd)
    if len(data) < NUMBERS_BYTES:
        return None
    found = TimerCheck(*NUMBERS.unpack_from(data, 0))
    crc_at = OWN_AT + OWN.size
    if len(data) >= crc_at + CRC.size:
        magic, numbers, *own = OWN.unpack_from(data, OWN_AT)
        (crc,) = CRC.unpack_from(data, crc_at)
        is_ours = magic == OWN_MAGIC and crc == crc32(data[OWN_AT:crc_at])
        if is_ours and numbers == data[:NUMBERS_BYTES]:
            found.own = Progress(*own)
    return found


# As dataclasses.astuple gives them, which takes longer than the whole rest of a save.
_progress_of = attrgetter(*Progress.__slots__)


class TimerCheckFile:
    """The file, kept open: it is written often, and each time as one page."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1

    def save(self, check: TimerCheck) -> None:
        """Write it in place, without waiting for the disk. StoreError when that fails."""
        numbers = check.numbers()
        own = b""
        if check.own is not None:
            own = OWN.pack(OWN_MAGIC, numbers, *_progress_of(check.own))
            own += CRC.pack(crc32(own))
        page = (numbers.ljust(OWN_AT, b"\0") + own).ljust(FILE_BYTES, b"\0")
        with plain_errors(self.path, "write"):
            if self._fd < 0:
                make_folder(self.path.parent)
                mode = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                self._fd = disk.current.open(self.path, mode, 0o644)
            disk.current.pwrite(self._fd, page, 0)

    def sync(self) -> None:
        """Wait until the disk has it. OSError as the system gives it."""
        if self._fd >= 0:
            disk.current.sync_data(self._fd)

    def release(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            disk.current.close(self._fd)
            self._fd = -1
