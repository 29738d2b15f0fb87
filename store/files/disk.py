"""The system calls that the store makes, in one place, so that a test can put another disk there.

Everything in this folder that touches a file does it through `current`. The methods add nothing to
the calls: they raise what the system raises, and each does what its name says in `os`.
"""

import ctypes
import errno
import mmap
import os
import sys
from pathlib import Path
from typing import NamedTuple

from ..base.errors import SystemUnsupported

try:
    import fcntl

    os.posix_fallocate, os.fdatasync  # noqa: B018 - Windows lacks all of these, macOS these two
except (ImportError, AttributeError) as lack:
    raise SystemUnsupported(
        f"broker and store run on Linux, and this is {sys.platform} ({lack}); run them there, in "
        "WSL or in a Linux container. The client, the name server and the commands that ask a "
        "broker run here"
    ) from None

_LIBC = ctypes.CDLL(None, use_errno=True)


class Entry(NamedTuple):
    """One name in a folder; `size` in bytes, 0 for a folder."""

    name: str
    is_folder: bool
    size: int


class Disk:
    """The disk of this machine."""

    open = staticmethod(os.open)
    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    pwrite = staticmethod(os.pwrite)
    truncate = staticmethod(os.ftruncate)
    allocate = staticmethod(os.posix_fallocate)
    sync_data = staticmethod(os.fdatasync)
    sync = staticmethod(os.fsync)
    stat = staticmethod(os.stat)
    unlink = staticmethod(os.unlink)
    replace = staticmethod(os.replace)
    remove_folder = staticmethod(os.rmdir)
    is_folder = staticmethod(os.path.isdir)
    exists = staticmethod(os.path.lexists)

    def __init__(self) -> None:
        self.held: set[str] = set()  # folders that this process has locked

    def make_folders(self, path: Path) -> None:
        """Make the folder and its parents, unless they exist."""
        path.mkdir(parents=True, exist_ok=True)

    def entries(self, path: Path) -> list[Entry]:
        """The entries of a folder, sorted by name."""
        with os.scandir(path) as found:
            return sorted(
                Entry(entry.name, True, 0)
                if entry.is_dir()
                else Entry(entry.name, False, entry.stat().st_size)
                for entry in found
            )

    def size(self, fd: int) -> int:
        """The size of an open file in bytes."""
        return os.fstat(fd).st_size

    def room(self, path: Path) -> tuple[int, int]:
        """The bytes used on the disk of a folder, and the bytes that the broker can still use."""
        found = os.statvfs(path)
        used = found.f_blocks - found.f_bfree
        return used * found.f_frsize, found.f_bavail * found.f_frsize

    def map(self, fd: int, size: int, *, writable: bool) -> mmap.mmap:
        """A mapping of the first `size` bytes of a file, shared with other processes."""
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        return mmap.mmap(fd, size, mmap.MAP_SHARED, prot)

    def data(self, fd: int, at: int, end: int) -> list[tuple[int, int]]:
        """The parts of a file between `at` and `end` that are no holes: start and end of each.

        Room that was reserved and never written is a hole until it is read: then its pages, and
        pages read ahead, are in memory and count as data. So all parts are found before any is
        read.
        """
        parts = []
        while at < end:
            try:
                at = os.lseek(fd, at, os.SEEK_DATA)
            except OSError as wrong:
                if wrong.errno != errno.ENXIO:  # no more data
                    raise
                break
            if at < end:
                start, at = at, os.lseek(fd, at, os.SEEK_HOLE)
                parts.append((start, min(at, end)))
        return parts

    def will_need(self, fd: int, at: int, size: int) -> None:
        """A hint that these bytes of a file will be read or written: the system reads them now."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, at, size, os.POSIX_FADV_WILLNEED)

    def absent(self, address: int, size: int) -> int:
        """The number of these bytes of a mapped file that are not in memory. OSError if the system
        can't tell."""
        page = mmap.PAGESIZE
        start = address // page * page
        pages = (address + size - start + page - 1) // page
        found = (ctypes.c_ubyte * pages)()
        length = ctypes.c_size_t(pages * page)
        if _LIBC.mincore(ctypes.c_void_p(start), length, found) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        absent = sum(not one & 1 for one in found)
        return min(size, absent * page)

    def read_ahead(self, view: mmap.mmap, *, wanted: bool) -> None:
        """A hint whether the pages after a page that is read will be read as well."""
        if hasattr(mmap, "MADV_RANDOM"):
            view.madvise(mmap.MADV_NORMAL if wanted else mmap.MADV_RANDOM)

    def lock(self, fd: int, size: int) -> None:
        """Lock the first bytes of a file against other processes. OSError when one has them."""
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, size, 0)

    def full_name(self, path: Path) -> str:
        """The absolute path of a file or folder, without links: the same for every path to it."""
        return str(path.resolve())


current = Disk()
