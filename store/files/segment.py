"""A segment: one file of a fixed size, of the log, of a queue or of the index.

A segment has its full length from the start, and bytes are written only where room on the disk was
reserved before (`reserve`). On a full disk `reserve` raises an error that a caller can handle; a
write through a mapping without room would kill the process. The mapping is dropped, never closed:
readers may still have views of it.
"""

import errno
import mmap
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..base.errors import StoreError, own_shortages, readable_error, readable_errors
from . import disk

ZERO_CHUNK_BYTES = 1 << 20
START_BYTES = 512
HINT_BYTES = 128 << 10
_ZEROS = bytes(ZERO_CHUNK_BYTES)


class Segment:
    """A file of `size` bytes whose first byte is at `base` in its row of files.

    `open_fd` is its file descriptor while it is open, else -1.
    """

    __slots__ = (
        "_array",
        "_kept",
        "_map",
        "_memory",
        "base",
        "open_fd",
        "path",
        "size",
        "writable",
    )

    def __init__(self, path: Path, base: int, size: int, *, writable: bool) -> None:
        """An existing file. `writable`: the mapping may be written through."""
        self.path = path
        self.base = base
        self.size = size
        self.writable = writable
        self.open_fd = -1
        self._kept = -1  # the open file between `retire` and `release`
        self._map: mmap.mmap | None = None
        self._memory: memoryview | None = None
        self._array: npt.NDArray[np.uint8] | None = None

    @classmethod
    def create(
        cls,
        path: Path,
        base: int,
        size: int,
        *,
        reserve: int,
        writable: bool,
        is_open: bool = False,
    ) -> "Segment":
        """A new file of zeros with room for its first `reserve` bytes; with `is_open` it has its
        `open_fd`, so that a write can't want for one.

        Shortage, such as DiskFull, when there is no room; no file is left then.
        """
        segment = cls(path, base, size, writable=writable)
        try:
            fd = disk.current.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except OSError as wrong:
            raise readable_error(wrong, path, "make") from wrong
        try:
            segment.open_fd = fd
            disk.current.truncate(fd, size)
            if writable:
                _reserve_zeros(fd, 0, reserve)
            elif reserve:
                disk.current.allocate(fd, 0, reserve)
            if not is_open:
                segment._close()
        except OSError as wrong:
            with suppress(OSError):
                segment._close()
            with suppress(OSError):
                disk.current.unlink(path)
            raise readable_error(wrong, path, f"reserve {reserve} bytes for") from wrong
        return segment

    @property
    def end(self) -> int:
        """The place behind the last byte."""
        return self.base + self.size

    @property
    def fd(self) -> int:
        """The file descriptor, opened when needed and kept until `release`."""
        if self.open_fd < 0:
            with readable_errors(self.path, "open"):
                self.open_fd = disk.current.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        return self.open_fd

    @property
    def view(self) -> mmap.mmap:
        """The whole file, mapped."""
        found = self._map
        if found is None:
            mode = os.O_RDWR if self.writable else os.O_RDONLY
            with readable_errors(self.path, "open"):
                fd = disk.current.open(self.path, mode | os.O_CLOEXEC)
                try:
                    found = disk.current.map(fd, self.size, writable=self.writable)
                finally:
                    disk.current.close(fd)
            self._map = found
        return found

    @property
    def memory(self) -> memoryview:
        """The whole file as a memoryview, from which readers take slices."""
        found = self._memory
        if found is None:
            found = self._memory = memoryview(self.view)
        return found

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        """The whole file as a read-only array, for compiled functions."""
        found = self._array
        if found is None:
            found = self._array = np.frombuffer(self.view, np.uint8)
            found.flags.writeable = False
        return found

    @property
    def is_mapped(self) -> bool:
        return self._map is not None

    def write(self, at: int, data: bytes | memoryview) -> None:
        """Write all of `data` at byte `at` of the file. OSError as the system gives it."""
        fd = self.fd
        done = disk.current.pwrite(fd, data, at)
        while done < len(data):
            more = disk.current.pwrite(fd, memoryview(data)[done:], at + done)
            if more == 0:
                raise OSError(errno.EIO, "the system wrote nothing")
            done += more

    def reserve(self, at: int, size: int) -> None:
        """Reserve room on the disk for these bytes, which become zeros. DiskFull without room."""
        with readable_errors(self.path, f"reserve {size} bytes for"):
            fd = disk.current.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                _reserve_zeros(fd, at, size)
            finally:
                disk.current.close(fd)

    def will_need(self, at: int, size: int) -> None:
        """Have the system read these bytes into memory. It takes a while: call it in a thread.

        It is only a hint, so errors are ignored, also that the file is gone.
        """
        with suppress(OSError):
            fd = disk.current.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                # Systems take at most this many bytes at a time.
                for start in range(at, at + size, HINT_BYTES):
                    disk.current.will_need(fd, start, min(HINT_BYTES, at + size - start))
            finally:
                disk.current.close(fd)

    @contextmanager
    def reader(self) -> Iterator[Callable[[int, int], bytes]]:
        """`read(at, size)` without a mapping, for the few bytes read when a store is opened."""
        with readable_errors(self.path, "read"):
            fd = disk.current.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                yield lambda at, size: disk.current.pread(fd, size, at)
            finally:
                disk.current.close(fd)

    def sync(self) -> None:
        """Wait until the disk has the written bytes. OSError as the system gives it; Shortage if
        the file can't be opened now: then no sync was tried.

        May run in another thread: a file that was deleted meanwhile is ignored.
        """
        if self.open_fd >= 0:
            disk.current.sync_data(self.open_fd)
            return
        try:
            with own_shortages(self.path, "open"):
                fd = disk.current.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            disk.current.sync_data(fd)
        finally:
            disk.current.close(fd)

    def zero(self, at: int) -> bool:
        """Set every byte from `at` on to zero; returns whether any was not zero.

        Holes and blocks never written are skipped, so that a large empty file takes no time.
        """
        changed = False
        was_open = self.open_fd >= 0
        with readable_errors(self.path, "zero"):
            try:
                for place, chunk in data_of(self.fd, at, self.size):
                    if chunk != _ZEROS[: len(chunk)]:
                        self.write(place, _ZEROS[: len(chunk)])
                        changed = True
            finally:
                if not was_open:
                    self._close()
        return changed

    @property
    def is_blank(self) -> bool:
        """True if the first bytes are zeros, so nothing was ever written to the file."""
        with self.reader() as read:
            return not any(read(0, min(self.size, START_BYTES)))

    def lengthen(self) -> None:
        """Give a truncated file its full size again, with zeros at the end."""
        with readable_errors(self.path, "lengthen"):
            disk.current.truncate(self.fd, self.size)
        self._close()

    def rewrite(self, end: int, at: int = 0) -> None:
        """Write the bytes from `at` to `end` again, so that the next sync brings them to the disk.

        After a failed sync the system counts pages as clean that never reached the disk.
        """
        with readable_errors(self.path, "write"):
            for place, chunk in data_of(self.fd, at, end):
                self.write(place, chunk)

    def forget(self) -> None:
        """Give the memory of mapped pages back to the system; they are read again when needed."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)

    def release(self) -> None:
        """Drop the mapping and close the file; both are opened again when needed."""
        self._array = None
        self._memory = None
        self._map = None
        self._close()
        if self._kept >= 0:
            disk.current.close(self._kept)
            self._kept = -1

    def delete(self) -> None:
        """Delete the file. Views that readers still have stay valid."""
        try:
            disk.current.unlink(self.path)
        except FileNotFoundError:
            pass
        except OSError as wrong:
            raise readable_error(wrong, self.path, "delete") from wrong
        self.release()

    def retire(self) -> "weakref.ref[mmap.mmap] | None":
        """Delete the file's name at once, but keep the file itself open until `release`.

        The system frees a file when its last reference goes, which takes long for a large file.
        So the last reference must go in `release`, in a thread, and not when a reader drops its
        view. Returns a weak reference that is dead once no reader has a view any more; None if the
        file was not mapped. StoreError when the name can't be deleted; nothing has changed then.
        """
        with readable_errors(self.path, "delete"), suppress(FileNotFoundError):
            if self._kept < 0:
                self._kept = disk.current.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            disk.current.unlink(self.path)
        found = None if self._map is None else weakref.ref(self._map)
        self._array = None
        self._memory = None
        self._map = None
        return found

    @property
    def status(self) -> os.stat_result | None:
        """The file's `os.stat`: its last write, its room; None when it is gone."""
        with readable_errors(self.path, "examine"):
            try:
                return disk.current.stat(self.path)
            except FileNotFoundError:
                return None

    def _close(self) -> None:
        if self.open_fd >= 0:
            disk.current.close(self.open_fd)
            self.open_fd = -1


def _reserve_zeros(fd: int, at: int, size: int) -> None:
    """Reserve room for these bytes and write zeros there, so that their pages are in memory.

    On ext4, the first store through a mapping to a page that is not in memory takes milliseconds.
    """
    if size:
        disk.current.allocate(fd, at, size)
    for start in range(at, at + size, ZERO_CHUNK_BYTES):
        disk.current.pwrite(fd, _ZEROS[: min(ZERO_CHUNK_BYTES, at + size - start)], start)


def data_of(fd: int, at: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The data of an open file from byte `at` to `end`, without holes: byte offset and data of each
    chunk."""
    for start, stop in disk.current.data(fd, at, end):
        for place in range(start, stop, ZERO_CHUNK_BYTES):
            yield place, disk.current.pread(fd, min(ZERO_CHUNK_BYTES, stop - place), place)


def sync_folder(path: Path) -> None:
    """Wait until the disk has the names in this folder. OSError as the system gives it; Shortage
    when it can't be opened now: nothing was synced then that could have failed.

    A folder that is gone, or that may not be opened, is ignored.
    """
    try:
        with own_shortages(path, "open"):
            fd = disk.current.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return
    try:
        disk.current.sync(fd)
    finally:
        disk.current.close(fd)


def make_folder(path: Path, *, sync: bool = False) -> None:
    """Make the folder and its parents, unless they exist. StoreError if a file is in the way.

    With `sync` the names of new folders are on the disk then.
    """
    if disk.current.exists(path) and not disk.current.is_folder(path):
        raise StoreError(f"{path} is a file, a folder is needed there; move it away")
    new = []
    if sync:
        new = [part for part in (path, *path.parents) if not disk.current.exists(part)]
    with readable_errors(path, "make"):
        disk.current.make_folders(path)
        for part in new:
            sync_folder(part.parent)
