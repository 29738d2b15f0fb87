"""The commit log: the messages of all topics in order of arrival, in files of one size.

A new record gets its place and is staged; `write_staged` writes all staged records at once. The log
therefore has three ends: `end` (assigned), `written` (in the file: survives a crash of the process)
and `durable` (on the disk: survives a power cut), durable <= written <= end. No record uses the
last 8 bytes of a file, which are reserved for the blank record that closes it.
"""

from collections.abc import Callable
from pathlib import Path
from struct import Struct

from ...protocol.message.record import (
    LAYOUT,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
)
from ..base.errors import DamagedStore, MessageTooLarge, StoreError, WritesRefused, readable_errors
from ..base.settings import BLANK_BYTES_MIN
from ..files import disk
from ..files.segment import Segment
from ..files.segments import Segments

BLANK = Struct(
    ">"
    "i"  # bytes left in the file
    "I"  # magic
)
assert BLANK.size == BLANK_BYTES_MIN
STAGED_BYTES_MAX = 8 << 20  # gathered at most before a write
ZEROS_BYTES = 256 << 10  # written ahead of the log at once
NOWHERE = 1 << 63  # no log gets there
READ_BYTES_KEPT = 64 << 20  # of the mappings that readers have touched, in memory
RECORD_START = LAYOUT.pick("size", "magic", "log_offset")


class CommitLog:
    """The log. `room_end` is how far records may go in the file at hand; -1 takes none.

    With `zeros_ahead` zeros are written before records are. A sync then finds blocks that are in
    use, and takes half as long as one that has the file system note for each that it is now.
    """

    __slots__ = (
        "_read_bytes",
        "_zeros_end",
        "durable",
        "end",
        "new_files",
        "on_refuse",
        "paused",
        "refusal",
        "room_end",
        "segments",
        "staged",
        "written",
    )

    def __init__(self, folder: Path, segment_bytes: int, *, zeros_ahead: bool = False) -> None:
        self.segments = Segments(folder, segment_bytes, "mappedFileSizeCommitLog", writable=False)
        self.staged: list[bytes] = []
        self.end = 0
        self.written = 0
        self.durable = 0
        self.room_end = 0
        self.refusal: str | None = None
        # Called with whether staged records were dropped.
        self.on_refuse: Callable[[bool], None] = lambda dropped: None
        self.paused: dict[str, str] = {}  # by cause, what senders are told
        self.new_files = False  # made since the folder was synced
        self._read_bytes = 0
        self._zeros_end = 0 if zeros_ahead else NOWHERE

    @property
    def start(self) -> int:
        """The place of the first byte that is still there."""
        return self.segments.start

    def set_end(self, end: int) -> None:
        """Set the place of the next record, which recovery has found. No file begins behind it.

        The file is opened, so that no write can lack a file descriptor. StoreError if that fails.
        """
        self.end = self.written = end
        self.set_room()
        segment = self.segments.find(end)
        if segment is not None:
            _ = segment.fd

    def roll(self, size: int) -> int:
        """Go on in a new file, because `size` more bytes don't fit; returns where it begins.

        StoreError when that can't be.
        """
        if self.refusal is not None:
            raise WritesRefused(self.refusal)
        for reason in self.paused.values():
            raise WritesRefused(reason)
        segments = self.segments
        if size + BLANK_BYTES_MIN > segments.size:
            raise MessageTooLarge(
                f"{size} bytes don't fit a commit log file of {segments.size} bytes "
                "(mappedFileSizeCommitLog); send smaller messages or batches"
            )
        self.write_staged()
        base = segments.last.end if segments.items else self.end
        segment = segments.add(base, reserve=segments.size, is_open=True)
        self.new_files = True
        if base > self.end:
            closed = segments.items[-2]
            try:
                closed.write(self.end - closed.base, BLANK.pack(base - self.end, MAGIC_BLANK))
            except (OSError, StoreError) as wrong:
                raise self._broken(closed, wrong) from wrong
        self.end = self.written = base
        self.room_end = segment.end - BLANK_BYTES_MIN
        return base

    def write_staged(self) -> None:
        """Write what is staged. StoreError when the disk fails: then nothing staged is kept."""
        staged = self.staged
        if not staged:
            return
        data = b"".join(staged)
        staged.clear()
        segment = self.segments.items[-1]
        at = self.written - segment.base
        try:
            if self.end > self._zeros_end:
                self._write_zeros(segment)
            # Nearly always the file is open and takes all of it: no call is spent on the rest.
            done = disk.current.pwrite(segment.open_fd, data, at) if segment.open_fd >= 0 else 0
            if done < len(data):
                segment.write(at + done, memoryview(data)[done:])
        except (OSError, StoreError) as wrong:
            raise self._broken(segment, wrong) from wrong
        self.written = self.end

    def _write_zeros(self, segment: Segment) -> None:
        start = max(self._zeros_end, self.written)
        end = min(self.end + ZEROS_BYTES, segment.end)
        segment.write(start - segment.base, bytes(end - start))
        self._zeros_end = end

    def pause(self, cause: str, reason: str) -> None:
        """Take no more records until this cause is over; `reason` is what senders are told."""
        self.paused[cause] = reason
        self.room_end = -1

    def resume(self, cause: str) -> None:
        """Remove this cause of a `pause`; take records again if it was the last."""
        if self.paused.pop(cause, None) is not None and not self.paused and self.refusal is None:
            self.set_room()

    def set_room(self) -> None:
        """Work out how far records may go in the file at hand."""
        segment = self.segments.find(self.end)
        self.room_end = 0 if segment is None else segment.end - BLANK_BYTES_MIN
        if self.paused:
            self.room_end = -1

    def refuse(self, reason: str) -> None:
        """Take no more records until a restart. Those staged are dropped."""
        self.refusal = reason
        self.room_end = -1
        dropped = self.end > self.written
        self.staged.clear()
        self.end = self.written
        self.on_refuse(dropped)

    # ---- the log of another broker

    def append_raw(self, data: bytes) -> None:
        """Write bytes of another log at the end of our log, without staging them.

        StoreError if they run over the end of a file, which can't happen if both logs have files of
        one size, or if the disk doesn't take them.
        """
        if self.refusal is not None:
            raise WritesRefused(self.refusal)
        segments = self.segments
        if not segments.items or self.end >= segments.last.end:
            segments.add(self.end, reserve=segments.size, is_open=True)
            self.new_files = True
        segment = segments.last
        end = self.end + len(data)
        if end > segment.end:
            raise DamagedStore(
                f"{len(data)} bytes of another log don't fit {segment.path.name} at {self.end}, it "
                f"ends at {segment.end}; {segments.setting} must be the same on both brokers"
            )
        at = self.written - segment.base
        self.end = end
        try:
            if end > self._zeros_end:
                self._write_zeros(segment)
            segment.write(at, data)
        except (OSError, StoreError) as wrong:
            self.end = self.written
            raise self._broken(segment, wrong) from wrong
        self.written = end

    def begin_at(self, place: int) -> None:
        """Let an empty log begin at this place, the start of a file of another log."""
        assert self.end == 0
        if place % self.segments.size:
            raise DamagedStore(
                f"the other log's file begins at {place}, no multiple of {self.segments.size} "
                f"({self.segments.setting}), which must be the same on both brokers"
            )
        self.segments.cut(-1)
        self.set_end(place)

    def cut(self, place: int) -> None:
        """Drop what lies at this place or behind it; zeros stand there then. StoreError as
        `Segment.zero`."""
        assert self.start <= place <= self.written
        self.segments.cut(max(place, self.start + 1))
        segment = self.segments.find(place)
        if segment is not None:
            segment.zero(place - segment.base)
        self.durable = min(self.durable, place)
        self.set_end(place)

    def raw(self, place: int, most: int) -> bytes:
        """Up to `most` bytes as they lie in the file from this place on, within one file.

        There are no bytes behind the written ones, or before the first file. StoreError if the file
        can't be read.
        """
        segment = self.segments.find(place)
        if segment is None:
            return b""
        size = min(segment.end, self.written, place + most) - place
        if size <= 0:
            return b""
        with readable_errors(segment.path, "read"):
            return disk.current.pread(segment.fd, size, place - segment.base)

    def _broken(self, segment: Segment, wrong: OSError | StoreError) -> StoreError:
        """The disk failed: refuse all that comes, and tell why."""
        reason = (wrong.strerror if isinstance(wrong, OSError) else None) or str(wrong)
        self.refuse(
            f"the disk did not take a write to {segment.path} ({reason}); no "
            "more messages are taken until the disk is in order and the broker started again"
        )
        return StoreError(self.refusal)

    # ---- reading, of what is written

    def record(self, place: int, end: int | None = None) -> memoryview | None:
        """The record at this place, if one begins there and lies before `end`."""
        limit = self.written if end is None else end
        segment = self.segments.find(place)
        if segment is None or place + RECORD_BYTES_MIN > limit:
            return None
        at = place - segment.base
        if at + RECORD_BYTES_MIN > segment.size:
            return None
        size, magic, own_place = RECORD_START.unpack_from(segment.view, at)
        if magic not in (MAGIC_V1, MAGIC_V2) or own_place != place:
            return None
        if size < RECORD_BYTES_MIN or place + size > limit:
            return None
        return segment.memory[at : at + size] if at + size <= segment.size else None

    def count_read(self, size: int) -> None:
        """Count bytes handed to readers, and free the memory of the files from time to time."""
        self._read_bytes += size
        if self._read_bytes >= READ_BYTES_KEPT:
            self._read_bytes = 0
            for segment in self.segments.items:
                segment.forget()
