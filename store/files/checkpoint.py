"""The checkpoint: up to where log, queues and index were on the disk. Recovery starts from it.

The first 40 bytes are RocketMQ's. At byte 64 is aerobee's own section, which Java neither reads nor
changes: exact positions instead of times. It repeats RocketMQ's five numbers: if they differ, Java
has used the store since, and the section is not valid.
"""

import os
from dataclasses import dataclass, fields
from pathlib import Path
from struct import Struct
from zlib import crc32

from ..base.errors import readable_errors
from . import disk

FILE_BYTES = 4096
TIMES = Struct(
    ">"
    "q"  # store time of the last message in the log that is on disk, ms
    "q"  # … in the consume queues
    "q"  # … in the last index file that is full
    "q"  # masterFlushedOffset
    "q"  # confirmPhyOffset
)
OWN_AT = 64
OWN_MAGIC = b"aerobee2"
OWN = Struct(
    ">"
    "8s"  # magic
    "40s"  # the five numbers again
    "q"  # a record begins there, or the log ends; all before it is on disk, in the queues too
    "q"  # entries of the last index file on disk, as the number of the next one
    "17s"  # name of that file
    "q"  # consume queues with a file, and
    "q"  # their entries in all, of messages before
    "q"  # this end of the log; -1 where nothing is known
    "q"  # entries that went with the first files of the queues, in all
    "q"  # where the log began
    "q"  # size of a file of the commit log,
    "q"  # … of a consume queue,
    "q"  # … of a batch consume queue,
    "q"  # … of the index: the store was made with these
)
CRC = Struct(">I")
SAFETY_MS = 3_000  # RocketMQ's allowance for times that were noted before the disk had the data


@dataclass(slots=True)
class Checkpoint:
    """The numbers of the file. `synced_end` is -1 where aerobee's section is not valid."""

    log_ms: int = 0
    queues_ms: int = 0
    index_ms: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0
    synced_end: int = -1
    index_count: int = 0
    index_name: str = ""
    queues: int = -1
    entries: int = -1
    queues_end: int = -1
    first_entries: int = 0
    log_start: int = -1
    segment_bytes: int = 0
    queue_file_bytes: int = 0
    batch_queue_file_bytes: int = 0
    index_file_bytes: int = 0

    @property
    def safe_ms(self) -> int:
        """Messages stored up to this moment (ms) are on the disk, in log and queues."""
        return max(0, min(self.log_ms, self.queues_ms) - SAFETY_MS)


def load(path: Path) -> Checkpoint:
    """The checkpoint in this file; an empty one if the file doesn't exist or is cut off."""
    with readable_errors(path, "read"):
        try:
            fd = disk.current.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return Checkpoint()
        try:
            data = disk.current.pread(fd, FILE_BYTES, 0)
        finally:
            disk.current.close(fd)
    if len(data) < TIMES.size:
        return Checkpoint()
    found = Checkpoint(*TIMES.unpack_from(data, 0))
    crc_at = OWN_AT + OWN.size
    if len(data) < crc_at + CRC.size:
        return found
    magic, times, synced_end, index_count, name, *counts = OWN.unpack_from(data, OWN_AT)
    (crc,) = CRC.unpack_from(data, crc_at)
    if magic == OWN_MAGIC and times == data[: TIMES.size] and crc == crc32(data[OWN_AT:crc_at]):
        found.synced_end = synced_end
        found.index_count = index_count
        for field_name, value in zip(_COUNT_FIELDS, counts, strict=True):
            setattr(found, field_name, value)
        found.index_name = name.rstrip(b"\0").decode("ascii", "replace")
    return found


def save(path: Path, checkpoint: Checkpoint, *, sync: bool = False) -> None:
    """Write the file in place: 4096 bytes, as one page. `sync` waits for the disk."""
    times = TIMES.pack(*_values(checkpoint, _TIME_FIELDS))
    own = OWN.pack(
        OWN_MAGIC,
        times,
        checkpoint.synced_end,
        checkpoint.index_count,
        checkpoint.index_name.encode(),
        *_values(checkpoint, _COUNT_FIELDS),
    )
    data = times.ljust(OWN_AT, b"\0") + own + CRC.pack(crc32(own))
    with readable_errors(path, "write"):
        fd = disk.current.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            disk.current.pwrite(fd, data.ljust(FILE_BYTES, b"\0"), 0)
            if sync:
                disk.current.sync(fd)
        finally:
            disk.current.close(fd)


def _values(checkpoint: Checkpoint, names: list[str]) -> list[int]:
    return [getattr(checkpoint, name) for name in names]


_TIME_FIELDS = [field.name for field in fields(Checkpoint)][:5]
_COUNT_FIELDS = [field.name for field in fields(Checkpoint)][8:]
