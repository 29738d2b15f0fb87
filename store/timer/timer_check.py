"""config/timercheck: the progress of the timer, in the queue of its topic and in time.

The first 56 bytes are RocketMQ's. They count only what is on the disk already, so after a power cut
no message counts as delivered whose delivery is lost. At byte 512 is aerobee's own section, which
Java neither reads nor changes: the exact progress, up to the message. It is written after each part
of the work, and is valid if the commit log still has everything that it relies on. It repeats
RocketMQ's numbers: if they differ, Java has used the store since, and the section is not valid.
"""

import os
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from struct import Struct
from zlib import crc32

from ..base.errors import readable_errors
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
    "q"  # the three above are valid if the commit log reaches to here
    "q"  # ticks of the wheel, ms
    "q"  # messages in the wheel
    "?"  # a clean stop: the wheel is complete
)
CRC = Struct(">I")


@dataclass(slots=True)
class Progress:
    """The exact progress of the timer. Times in ms; `delivered` counts in the slot `read_ms`."""

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
    """The contents of the file. `own` is None where aerobee's section is missing or not valid."""

    read_ms: int = 0
    flushed: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    changed_ms: int = 0
    changes: int = 0
    own: Progress | None = field(default=None)

    def numbers(self) -> bytes:
        """RocketMQ's part, which is also the body of GET_TIMER_CHECK_POINT's response."""
        return NUMBERS.pack(
            self.read_ms,
            self.flushed,
            self.queue_offset,
            self.master_queue_offset,
            self.state_version,
            self.changed_ms,
            self.changes,
        )


def load(path: Path) -> TimerCheck | None:
    """Read the file; None if it doesn't exist or is cut off."""
    with readable_errors(path, "read"):
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


# Like dataclasses.astuple, which takes longer than the rest of a save.
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
        with readable_errors(self.path, "write"):
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
        """Close the file."""
        if self._fd >= 0:
            disk.current.close(self._fd)
            self._fd = -1
