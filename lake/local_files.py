"""Files of tables on a disk of this machine: on the disk before their name is in a catalog.

pyiceberg's own files are written without fsync: a catalog's commit could survive a power loss that
its files do not. `py-io-impl` names this class where tables are local.
"""

import io
import os
from pathlib import Path
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

IMPLEMENTATION = f"{__name__}.LocalFileIO"


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


class _LocalFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> Any:
        path = Path(self._path)
        path.parent.mkdir(parents=True, exist_ok=True)
        return io.BufferedWriter(_SyncedFile(path, "w" if overwrite else "x"), 1 << 20)


class LocalFileIO(PyArrowFileIO):
    """pyiceberg's files, with fsync where they are local."""

    def new_output(self, location: str) -> PyArrowFile:
        """A file to be written."""
        found = super().new_output(location)
        if self.parse_location(location, self.properties)[0] != "file":
            return found
        return _LocalFile(location, found._path, found._filesystem)
