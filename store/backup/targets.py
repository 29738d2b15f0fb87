"""Where backups are kept: a folder, or whatever fsspec reaches by a URL such as s3://bucket/path."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from ..base.errors import StoreError, readable_errors
from ..files import json_file
from ..files.segment import make_folder, sync_folder

PRIVATE = 0o600  # the tables of a store have users with their secrets


class Target(Protocol):
    """Named blobs. Names have slashes. StoreError, with the place, when something fails."""

    def sizes(self, folder: str) -> dict[str, int]:
        """The names below a folder, each with its size in bytes."""

    def read(self, name: str) -> bytes | None:
        """The bytes of a name; None without one."""

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Make or replace a name. It is on the disk then, or in the hands of the service."""

    def delete(self, name: str) -> None:
        """Delete a name."""

    def place(self, name: str) -> str:
        """The name as an operator finds it."""

    def lack(self) -> str:
        """The reason why the target can hold no blobs, such as "it does not exist"; empty if it
        can."""


def target_of(place: str) -> Target:
    """The target at a path, or at a URL. StoreError when fsspec, or its part for this URL, is
    missing."""
    return RemoteTarget(place) if "://" in place else FolderTarget(Path(place))


class FolderTarget:
    """A folder of this machine, which is made by the first write."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def sizes(self, folder: str) -> dict[str, int]:
        found = {}
        with readable_errors(self._root / folder, "read"):
            for parent, _, names in os.walk(self._root / folder):
                for name in names:
                    path = Path(parent, name)
                    found[path.relative_to(self._root).as_posix()] = path.stat().st_size
        return found

    def read(self, name: str) -> bytes | None:
        with readable_errors(self._root / name, "read"):
            try:
                return (self._root / name).read_bytes()
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes | memoryview) -> None:
        path = self._root / name
        make_folder(path.parent)
        json_file.replace(path, data, PRIVATE)
        with readable_errors(path.parent, "sync"):
            sync_folder(path.parent)

    def delete(self, name: str) -> None:
        with readable_errors(self._root / name, "delete"):
            (self._root / name).unlink(missing_ok=True)

    def place(self, name: str) -> str:
        return str(self._root / name)

    def lack(self) -> str:
        if self._root.is_dir():
            return ""
        return "it is no folder" if self._root.exists() else "it does not exist"


class RemoteTarget:
    """A place that fsspec knows by its URL."""

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError as lack:
            raise StoreError(
                f"{url} needs fsspec ({lack}); install aerobee[backup], and what fsspec needs for "
                "this kind of URL, such as s3fs"
            ) from lack
        self._url = url.rstrip("/")
        try:
            self._files, root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as wrong:
            raise StoreError(f"{url} can't be reached: {wrong}") from wrong
        self._root = str(root).rstrip("/")

    def sizes(self, folder: str) -> dict[str, int]:
        with self._readable_errors(folder, "list"):
            self._files.invalidate_cache()
            try:
                found: dict[str, Any] = self._files.find(self._path(folder), detail=True)
            except FileNotFoundError:
                return {}
        start = len(self._root.lstrip("/")) + 1
        return {path.lstrip("/")[start:]: int(info["size"]) for path, info in found.items()}

    def read(self, name: str) -> bytes | None:
        with self._readable_errors(name, "read"):
            try:
                return bytes(self._files.cat_file(self._path(name)))
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes | memoryview) -> None:
        path = self._path(name)
        with self._readable_errors(name, "write"):
            self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._files.pipe_file(path, bytes(data))

    def delete(self, name: str) -> None:
        with self._readable_errors(name, "delete"):
            self._files.rm_file(self._path(name))

    def place(self, name: str) -> str:
        return f"{self._url}/{name}"

    def lack(self) -> str:
        return ""  # a bucket has no folders that exist or not

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _readable_errors(self, name: str, action: str) -> Iterator[None]:
        try:
            yield
        except Exception as wrong:  # each service has errors of its own
            raise StoreError(f"can't {action} {self.place(name)}: {wrong}") from wrong
