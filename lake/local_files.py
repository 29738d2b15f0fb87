"""Files of tables on a disk of this machine: on the disk before their name is in a catalog.

pyiceberg's own files are written without fsync: a catalog's commit could survive a power loss that
its files do not. They also load ten times as much code. `py-io-impl` names this class where tables
are local.
"""

import io
import os
import re
from pathlib import Path
from typing import Any

from pyiceberg.io import FileIO, InputFile, OutputFile

IMPLEMENTATION = f"{__name__}.LocalFileIO"
BUFFER_BYTES = 1 << 20


class _SyncedFile(io.FileIO):
    """A new file that `close` brings to the disk, with its name in the folder."""

    def close(self) -> None:
        """Sync and close."""
        if not self.closed:
            try:
                os.fsync(self.fileno())
            finally:
                super().close()
            folder = os.open(os.path.dirname(os.path.abspath(str(self.name))), os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


class _LocalFile(InputFile, OutputFile):
    """A file to be read or written."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self._path = path_of(location)

    def __len__(self) -> int:
        """The file's size in bytes."""
        return self._path.stat().st_size

    def exists(self) -> bool:
        """True if the file is there."""
        return self._path.exists()

    def open(self, seekable: bool = True) -> Any:
        """A stream to read from."""
        return self._path.open("rb")

    def create(self, overwrite: bool = False) -> Any:
        """A stream to write to; its close syncs. FileExistsError unless `overwrite`."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return io.BufferedWriter(_SyncedFile(self._path, "w" if overwrite else "x"), BUFFER_BYTES)

    def to_input_file(self) -> "_LocalFile":
        """The file itself."""
        return self


class LocalFileIO(FileIO):
    """Local files for pyiceberg. ValueError for a location elsewhere."""

    def new_input(self, location: str) -> _LocalFile:
        """A file to be read."""
        return _LocalFile(location)

    def new_output(self, location: str) -> _LocalFile:
        """A file to be written."""
        return _LocalFile(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file; FileNotFoundError where there is none."""
        text = location if isinstance(location, str) else location.location
        path_of(text).unlink()


def path_of(location: str) -> Path:
    """The path of a location: file:///PATH, file:/PATH (as Java writes it), or a path. ValueError
    for another place."""
    path = re.sub(r"file:(?://)?(?=/)", "", location, count=1)
    if "://" in path:
        raise ValueError(
            f"{location} is no file of this machine, and the place of the lake is one: the table "
            "lies elsewhere; give its place with --to"
        )
    return Path(path)
