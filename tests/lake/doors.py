"""Every call of a materializer to its file system and catalog, numbered; one of them goes wrong."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from aerobee.lake import local_files
from pyiceberg.catalog import sql

FILES = ("new_input", "new_output", "delete")
CATALOG = ("load_table", "commit_table", "create_table", "create_namespace")
STREAM = ("write", "close")


class Doors:
    """Passes calls on, and has `happen` called at call number `at`: before its effect, or after.

    Where `happen` raises, that is what the caller sees. Calls from then on pass.
    """

    def __init__(self, at: int, happen: Callable[[], None], *, after: bool) -> None:
        self.at, self.happen, self.after = at, happen, after
        self.names: list[str] = []

    def install(self, patch: Callable[[Any, str, Any], None]) -> None:
        """Put the doors into pyiceberg's files and catalog of SQLite."""
        for owner, names in ((local_files.LocalFileIO, FILES), (sql.SqlCatalog, CATALOG)):
            for name in names:
                patch(owner, name, self._door(name, getattr(owner, name)))
        create = local_files._LocalFile.create

        def created(file: Any, overwrite: bool = False) -> Any:
            return _Stream(self, self.call("create", lambda: create(file, overwrite)))

        patch(local_files._LocalFile, "create", created)

    def call(self, name: str, work: Callable[[], Any]) -> Any:
        number = len(self.names)
        self.names.append(name)
        if number == self.at and not self.after:
            self.happen()
        found = work()
        if number == self.at and self.after:
            self.happen()
        return found

    def _door(self, name: str, inner: Any) -> Any:
        return lambda *arguments, **options: self.call(name, lambda: inner(*arguments, **options))


class _Stream:
    """A stream whose writes and close are calls too."""

    def __init__(self, doors: Doors, inner: Any) -> None:
        self._doors, self._inner = doors, inner

    def write(self, data: Any) -> Any:
        return self._doors.call("write", lambda: self._inner.write(data))

    def close(self) -> None:
        if not self._inner.closed:
            try:
                self._doors.call("close", self._inner.close)
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
