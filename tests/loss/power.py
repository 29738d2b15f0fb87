"""A disk in memory that forgets: at a power cut it has what was synced, and any part of the rest.

It keeps what the kernel would: the bytes that programs see, and apart from them what the medium
holds. Whatever was not synced is in units that survive one by one: a sector of 512 bytes (as it was
after any of the writes to it), the size of a file, a name made, removed or replaced in a folder. A
sync that fails drops its units for good, as Linux does: the bytes are seen until the power goes,
and no later sync brings them to the medium.
"""

import errno
import mmap
import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from aerobee.store.files.disk import Disk, Entry

SECTOR = 512
Units = list[tuple[Any, ...]]
Image = dict[str, bytes | None]  # what is at each path; None for a folder


class File:
    """A file: `data` as programs see it, `kept` as the medium has it."""

    __slots__ = ("data", "is_mapped", "kept", "seen", "versions")

    def __init__(self, data: bytes = b"") -> None:
        self.data: Any = data  # bytes, then a mapping once something changes
        self.kept = data
        self.seen = data  # the contents when `versions` was brought up to date
        self.versions: dict[int, list[bytes]] = {}  # of each sector since the medium has it
        self.is_mapped = False

    def buffer(self) -> Any:
        """The contents as something that can be written to."""
        if isinstance(self.data, bytes) and self.data:
            made = mmap.mmap(-1, len(self.data))
            made[:] = self.data
            self.data = made
        return self.data

    def resize(self, size: int) -> None:
        """Cut or lengthen with zeros. No process has it mapped then."""
        assert not self.is_mapped
        self.data = bytes(self.data[:size]).ljust(size, b"\0")
        self.refresh()

    def refresh(self) -> None:
        """Note what has changed since the last time, sector by sector."""
        now = bytes(self.data[:])
        seen = self.seen
        if now == seen:
            return
        for at in range(0, len(now), SECTOR):
            sector = now[at : at + SECTOR]
            if sector != seen[at : at + SECTOR].ljust(len(sector), b"\0"):
                self.versions.setdefault(at, []).append(sector)
        self.seen = now

    def sync(self) -> None:
        """The medium has it all now, but for what an earlier failure has dropped."""
        self.refresh()
        if self.versions or len(self.kept) != len(self.seen):
            kept = bytearray(self.kept[: len(self.seen)].ljust(len(self.seen), b"\0"))
            for at in self.versions:
                kept[at : at + SECTOR] = self.seen[at : at + SECTOR]
            self.kept = bytes(kept)
            self.versions = {}


class PowerDisk(Disk):
    """The disk. `on_step`, when set, is called before everything that changes it.

    `fail(call, path)` may raise the OSError that a call is to fail with: open, make, write, grow
    (a write that takes room), sync, rename, unlink.
    """

    def __init__(self, image: Image | None = None) -> None:
        super().__init__()
        self.nodes: dict[str, File | None] = {"/": None}
        self.kept_nodes: dict[str, File | None] = {"/": None}
        self.names: list[tuple[str, str, Any]] = []  # changes of names that were not synced
        self.on_step: Callable[[], None] | None = None
        self.fail: Callable[[str, str], None] | None = None
        self._open: dict[int, tuple[str, File | None]] = {}
        self._numbers = count(1 << 20)
        for path, data in (image or {}).items():
            self.nodes[path] = None if data is None else File(data)
        self.kept_nodes.update(self.nodes)

    # ---- what the store calls

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:  # type: ignore[override]
        name = str(path)
        node = self.nodes.get(name, errno.ENOENT)
        self._may_fail("open", name)
        if flags & os.O_DIRECTORY:
            if node is not None:
                raise _error(errno.ENOENT, name)
        elif node == errno.ENOENT:
            if not flags & os.O_CREAT or self.nodes.get(os.path.dirname(name), 0) is not None:
                raise _error(errno.ENOENT, name)
            self._may_fail("make", name)
            self._step()
            node = File()
            self._rename("make", name, node)
        elif node is None:
            raise _error(errno.EISDIR, name)
        elif flags & os.O_EXCL:
            raise _error(errno.EEXIST, name)
        elif flags & os.O_TRUNC and len(node.data):  # type: ignore[union-attr]
            self._step()
            node.resize(0)  # type: ignore[union-attr]
        fd = next(self._numbers)
        self._open[fd] = name, node  # type: ignore[assignment]
        return fd

    def close(self, fd: int) -> None:
        del self._open[fd]

    def pread(self, fd: int, size: int, at: int) -> bytes:
        return bytes(self._file(fd).data[at : at + size])

    def pwrite(self, fd: int, data: Any, at: int) -> int:
        name, file = self._open[fd]
        assert file is not None
        data = bytes(data)
        end = at + len(data)
        self._may_fail("grow" if end > len(file.data) else "write", name)
        self._step()
        if end > len(file.data):
            file.resize(end)
        buffer = file.buffer()
        if file.is_mapped:
            file.refresh()
        if len(data):
            buffer[at:end] = data
            for sector in range(at - at % SECTOR, end, SECTOR):
                # Also when nothing changes: it is on its way to the medium once more.
                now = bytes(buffer[sector : sector + SECTOR])
                versions = file.versions.setdefault(sector, [])
                if not versions or versions[-1] != now:
                    versions.append(now)
            file.seen = bytes(buffer[:])
        return len(data)

    def truncate(self, fd: int, size: int) -> None:
        self._may_fail("write", self._open[fd][0])
        self._step()
        self._file(fd).resize(size)

    def allocate(self, fd: int, at: int, size: int) -> None:
        self._may_fail("grow", self._open[fd][0])
        assert at + size <= len(self._file(fd).data)

    def sync_data(self, fd: int) -> None:  # type: ignore[override]
        name, file = self._open[fd]
        self._step()
        try:
            self._may_fail("sync", name)
        except OSError:
            if file is not None:
                file.refresh()
                file.versions = {}
            raise
        if file is not None:
            file.sync()
            return
        rest = []
        for change in self.names:
            if os.path.dirname(change[1]) == name:
                _apply(self.kept_nodes, change)
            else:
                rest.append(change)
        self.names = rest

    sync = sync_data  # type: ignore[assignment]

    def unlink(self, path: Any) -> None:  # type: ignore[override]
        name = str(path)
        if self.nodes.get(name) is None:
            raise _error(errno.ENOENT, name)
        self._may_fail("unlink", name)
        self._step()
        self._rename("remove", name, None)

    def replace(self, old: Any, new: Any) -> None:  # type: ignore[override]
        if self.nodes.get(str(old)) is None:
            raise _error(errno.ENOENT, str(old))
        self._may_fail("rename", str(new))
        self._step()
        self._rename("replace", str(new), (str(old), self.nodes[str(old)]))

    def remove_folder(self, path: Any) -> None:  # type: ignore[override]
        self._may_fail("unlink", str(path))
        self._step()
        if self.entries(path):
            raise _error(errno.ENOTEMPTY, str(path))
        self._rename("remove", str(path), None)

    def is_folder(self, path: Any) -> bool:
        return self.nodes.get(str(path), 0) is None

    def exists(self, path: Any) -> bool:
        return str(path) in self.nodes

    def stat(self, path: Any) -> Any:  # type: ignore[override]
        node = self.nodes.get(str(path), errno.ENOENT)
        if isinstance(node, int):
            raise _error(errno.ENOENT, str(path))
        size = 0 if node is None else len(node.data)
        return SimpleNamespace(st_mtime_ns=0, st_size=size, st_blocks=size // SECTOR, st_dev=1)

    def room(self, path: Any) -> tuple[int, int]:
        return 10, 90

    def make_folders(self, path: Path) -> None:
        name = str(path)
        if name not in self.nodes:
            self.make_folders(path.parent)
            self._may_fail("make", name)
            self._step()
            self._rename("make", name, None)

    def entries(self, path: Any) -> list[Entry]:
        folder = str(path)
        if self.nodes.get(folder, 0) is not None:
            raise _error(errno.ENOENT, folder)
        start = len(folder) + 1
        return sorted(
            Entry(name[start:], node is None, 0 if node is None else len(node.data))
            for name, node in self.nodes.items()
            if name.startswith(folder + "/") and "/" not in name[start:]
        )

    def size(self, fd: int) -> int:
        return len(self._file(fd).data)

    def map(self, fd: int, size: int, *, writable: bool) -> mmap.mmap:
        file = self._file(fd)
        assert size == len(file.data)
        self._may_fail("map", self._open[fd][0])
        file.is_mapped |= writable
        found: mmap.mmap = file.buffer()
        return found

    def data(self, fd: int, at: int, end: int) -> list[tuple[int, int]]:
        end = min(end, self.size(fd))
        return [(at, end)] if at < end else []

    def lock(self, fd: int, size: int) -> None:
        pass

    def full_name(self, path: Path) -> str:
        return str(path)

    # ---- what a test asks

    def killed(self) -> Image:
        """The image after the process was killed: all that it has written."""
        return {
            name: None if node is None else bytes(node.data[:]) for name, node in self.nodes.items()
        }

    def cut(self) -> "Cut":
        """The medium at this moment, and all that may or may not get there."""
        for node in self.nodes.values():
            if node is not None and node.is_mapped:
                node.refresh()
        return Cut(self)

    # ---- inside

    def _file(self, fd: int) -> File:
        file = self._open[fd][1]
        assert file is not None
        return file

    def _rename(self, kind: str, name: str, value: Any) -> None:
        change = kind, name, value
        self.names.append(change)
        _apply(self.nodes, change)

    def _step(self) -> None:
        if self.on_step is not None:
            self.on_step()

    def _may_fail(self, call: str, name: str) -> None:
        if self.fail is not None:
            self.fail(call, name)


class Cut:
    """A power cut: what the medium had, and the units that may have got there as well."""

    def __init__(self, disk: PowerDisk) -> None:
        self.kept_nodes = dict(disk.kept_nodes)
        files = dict.fromkeys(
            node for node in (*disk.nodes.values(), *disk.kept_nodes.values()) if node is not None
        )
        self.kept = {file: file.kept for file in files}
        self.units: Units = [("name", change) for change in disk.names]
        for file in files:
            if len(file.seen) != len(file.kept):
                self.units.append(("size", file, len(file.seen)))
            for at, versions in file.versions.items():
                self.units.append(("sector", file, at, tuple(versions)))

    def images(self, most: int, draw: Random) -> Iterator[Image]:
        """Up to `most` different media: all there can be when they are so few, else the likeliest.

        Nothing survived, all did, all but one, only one, and then as the dice fall.
        """
        units = len(self.units)
        chosen: Iterator[list[bool]]
        if units < most.bit_length() and 1 << units <= most:
            chosen = ([bool(n >> bit & 1) for bit in range(units)] for n in range(1 << units))
        else:
            chosen = _choices(units, draw) if most > 2 else _dice(units, draw)
        met: set[int] = set()
        for tries, survives in enumerate(chosen):
            if len(met) >= most or tries >= 4 * most:
                return
            image = self.image(survives, draw)
            key = hash(frozenset(image.items()))
            if key not in met:
                met.add(key)
                yield image

    def image(self, survives: list[bool], draw: Random) -> Image:
        """The medium when these units got there."""
        nodes = dict(self.kept_nodes)
        sizes: dict[File, int] = {}
        sectors: dict[File, list[tuple[int, bytes]]] = {}
        for unit, lives in zip(self.units, survives, strict=True):
            if not lives:
                continue
            if unit[0] == "name":
                _apply(nodes, unit[1])
            elif unit[0] == "size":
                sizes[unit[1]] = unit[2]
            else:
                versions = unit[3]
                found = versions[-1] if len(versions) == 1 else draw.choice(versions)
                sectors.setdefault(unit[1], []).append((unit[2], found))
        image: Image = {}
        for name in sorted(nodes):
            above = os.path.dirname(name)
            if name == "/" or (above != "/" and image.get(above, 0) is not None):
                continue  # the folder above it did not survive
            file = nodes[name]
            if file is None:
                image[name] = None
                continue
            data = self.kept.get(file, b"")
            size = sizes.get(file, len(data))
            if size != len(data) or file in sectors:
                changed = bytearray(data[:size].ljust(size, b"\0"))
                for at, sector in sectors.get(file, ()):
                    changed[at : at + len(sector)] = sector
                del changed[size:]
                data = bytes(changed)
            image[name] = data
        return image


def _choices(units: int, draw: Random) -> Iterator[list[bool]]:
    yield [False] * units
    yield [True] * units
    order = list(range(units))
    draw.shuffle(order)
    for one in order:
        yield [number != one for number in range(units)]
        yield [number == one for number in range(units)]
        yield [draw.random() < 0.5 for _ in range(units)]
    yield from _dice(units, draw)


def _dice(units: int, draw: Random) -> Iterator[list[bool]]:
    while True:
        likely = draw.choice((0.0, 0.2, 0.5, 0.8, 0.95, 1.0))
        yield [draw.random() < likely for _ in range(units)]


def _apply(nodes: dict[str, File | None], change: tuple[str, str, Any]) -> None:
    kind, name, value = change
    if kind == "make":
        nodes[name] = value
    elif kind == "remove":
        nodes.pop(name, None)
    else:
        old, file = value
        if nodes.get(old) is file:
            del nodes[old]
        nodes[name] = file


def _error(number: int, name: str) -> OSError:
    return OSError(number, os.strerror(number), name)
