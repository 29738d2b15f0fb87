"""Every call of a materializer to its file system and catalog, numbered; one of them goes wrong."""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import PurePath
from typing import Any

from aerobee.lake import local_files
from pyiceberg.catalog import sql

FILES = ("new_input", "new_output", "delete")
CATALOG = ("load_table", "commit_table", "create_table", "create_namespace")
STREAM = ("write", "close")


class Doors:
    """Passes calls on, and has `happen` called at call number `at`: before its effect, or after.
    With `name` only calls of that name are counted: manifests are written by several threads.

    Where `happen` raises, that is what the caller sees. Calls from then on pass. `names` has a name
    for each call so far, with the kind of its file.
    """

    def __init__(
        self, at: int, happen: Callable[[], None], *, after: bool, name: str | None = None
    ) -> None:
        self.at, self.happen, self.after, self.name = at, happen, after, name
        self.names: list[str] = []
        self._lock = threading.Lock()

    def install(self, patch: Callable[[Any, str, Any], None]) -> None:
        """Put the doors into pyiceberg's files and catalog of SQLite."""
        for owner, names in ((local_files.LocalFileIO, FILES), (sql.SqlCatalog, CATALOG)):
            for name in names:
                patch(owner, name, self._door(name, getattr(owner, name)))
        create = local_files._LocalFile.create

        def created(file: Any, overwrite: bool = False) -> Any:
            kind = _kind(file.location)
            stream = self.call(f"create {kind}", lambda: create(file, overwrite))
            return _Stream(self, kind, stream)

        patch(local_files._LocalFile, "create", created)

    def call(self, name: str, work: Callable[[], Any]) -> Any:
        with self._lock:
            number = len(self.names) if self.name is None else self.names.count(name)
            self.names.append(name)
        goes_wrong = number == self.at and self.name in (None, name)
        if goes_wrong and not self.after:
            self.happen()
        found = work()
        if goes_wrong and self.after:
            self.happen()
        return found

    def _door(self, name: str, inner: Any) -> Any:
        def called(owner: Any, *arguments: Any, **options: Any) -> Any:
            of = f" {_kind(arguments[0])}" if name in FILES else ""
            return self.call(name + of, lambda: inner(owner, *arguments, **options))

        return called


def _kind(location: Any) -> str:
    """What a file is: .parquet, .avro (a manifest), snap-.avro (a list of them), .json."""
    path = PurePath(str(getattr(location, "location", location)))
    return ("snap-" if path.name.startswith("snap-") else "") + path.suffix


class _Stream:
    """A stream whose writes and close are calls too."""

    def __init__(self, doors: Doors, kind: str, inner: Any) -> None:
        self._doors, self._kind, self._inner = doors, kind, inner

    def write(self, data: Any) -> Any:
        return self._doors.call(f"write {self._kind}", lambda: self._inner.write(data))

    def close(self) -> None:
        if not self._inner.closed:
            try:
                self._doors.call(f"close {self._kind}", self._inner.close)
            except BaseException:
                with suppress(OSError):
                    self._inner.close()
                raise

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
