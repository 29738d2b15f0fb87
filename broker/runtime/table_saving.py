"""Tables of a broker are written to their files in a thread of their own."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Protocol

from ...protocol.aio.slices import Slices, collected
from ...store.base.errors import StoreError
from ...store.files import json_file
from .persistent import PersistentTable
from .table_file import TableFile

log = logging.getLogger(__name__)


class JournaledTable(Protocol):
    """A table whose file has a journal."""

    file: TableFile[Any, Any]

    def pieces(self, *, standard: bool = False) -> Iterator[bytes]:
        """The text of the file (`standard`), in pieces."""

    def save(self) -> None:
        """Write the file when the journal has entries."""


class TableSaving:
    """Writes the `journaled` tables, and those of `tables` with consumed and delivered offsets.

    `sync_log()` syncs the log as it is now; False when that failed.
    """

    def __init__(
        self,
        slices: Slices,
        executor: Executor,
        sync_log: Callable[[], Awaitable[bool]],
    ) -> None:
        self.journaled: list[JournaledTable] = []
        self.tables: list[PersistentTable] = []
        self._slices = slices
        self._executor = executor
        self._sync_log = sync_log

    async def save(self, table: PersistentTable) -> bool:
        """Write the file of this table; returns whether the file is up to date.

        Its consumed and delivered offsets must not outlive the messages, so the log is synced
        first.
        """
        async with table.saving:  # an older version must not be written last
            try:
                pieces = await self._slices.run(collected(table.pieces()))
                if not pieces:
                    return True
                if not await self._sync_log():
                    table.changed = True
                    return False
                await self.in_thread(_write, table.path, pieces)
            except BaseException:
                table.changed = True
                raise
        return True

    async def save_journaled(self) -> None:
        """Write the files whose journals have entries."""
        for each in self.journaled:
            file = each.file
            if file.is_behind:
                mark = file.mark()
                pieces = await self._slices.run(collected(each.pieces(standard=True)))
                await self.in_thread(_write, file.path, pieces)
                file.written(mark)

    async def in_thread(self, work: Callable[..., None], *arguments: object) -> None:
        """Run `work(*arguments)` in the thread that writes the files."""
        await asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)

    def save_all(self) -> None:
        """Write all of `tables`, at the end, after the log is synced."""
        for table in self.tables:
            table.save()

    async def close(self) -> None:
        """Write the journaled tables for the last time."""
        self._executor.shutdown(wait=True)  # a write in progress must not overtake these
        for each in self.journaled:
            try:
                each.save()
            except StoreError as wrong:
                log.error("%s; the next start reads its journal", wrong)
            each.file.close()


def _write(path: Path, pieces: list[bytes]) -> None:
    json_file.save(path, b"".join(pieces))
