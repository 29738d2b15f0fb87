"""A broadcasting group's offsets in a file of this machine: LocalFileOffsetStore.

`<folder>/<client id>/<group>/offsets.json`, by default below `~/.rocketmq_offsets`, in the form
that Java's client reads and writes. The file before is kept as `.bak`; when the file is missing,
empty or damaged, that one counts. The file is replaced in one step, so a crash leaves the old or
the new one.
"""

import asyncio
import logging
import os
import re
from collections.abc import Iterable
from pathlib import Path

from ...protocol.bodies.body import Body, MessageQueue
from ...protocol.wire import Int64
from ..errors import ClientError
from .offsets import NONE, OffsetStore

log = logging.getLogger(__name__)

FOLDER = "~/.rocketmq_offsets"  # rocketmq.client.localOffsetStoreDir of Java's client
FILE = "offsets.json"
FILE_BYTES_MAX = 16 << 20

_LEGAL = re.compile(r"[\w.@#%|:\[\]-]+")


class OffsetSerializeWrapper(Body):
    """The content of the file."""

    offset_table: dict[MessageQueue, Int64] = {}


class LocalOffsetStore(OffsetStore):
    """The offsets of one group and one client id; `path` is the file."""

    def __init__(self, client_id: str, group: str, folder: str | os.PathLike[str] = FOLDER) -> None:
        super().__init__(group)
        for name in (client_id, group):
            if _LEGAL.fullmatch(name) is None or name in (".", ".."):
                raise ClientError(
                    f"{name!r} can't be the name of a folder for offsets; use letters, digits and "
                    "any of . @ # % | : - _"
                )
        self.path = Path(folder).expanduser() / client_id / group / FILE
        self._backup = self.path.with_name(FILE + ".bak")
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """Read the file into memory; ClientError when it and its .bak are damaged."""
        table = await asyncio.to_thread(self._read)
        for queue, offset in table.items():
            self.update(queue, offset, increase_only=False)

    async def persist_all(self, queues: Iterable[MessageQueue]) -> None:
        """Write the offsets of these queues; those of others stay as they are in the file."""
        wanted = {queue: self.in_memory(queue) for queue in queues if self.in_memory(queue) >= 0}
        if not wanted:
            return
        async with self._writing:
            try:
                await asyncio.to_thread(self._write, wanted)
            except (OSError, ClientError) as wrong:
                log.error("offsets of group %s are not persisted yet: %s", self.group, wrong)

    async def persist(self, queue: MessageQueue) -> None:
        """Persist one queue."""
        await self.persist_all([queue])

    async def update_to_broker(
        self, queue: MessageQueue, offset: int, *, oneway: bool = True
    ) -> None:
        """Do nothing: brokers don't keep the offsets of a broadcasting group."""

    async def _fetch(self, queue: MessageQueue) -> int:
        return (await asyncio.to_thread(self._read)).get(queue, NONE)

    # --- files: in a thread ---------------------------------------------------------------------

    def _read(self) -> dict[MessageQueue, int]:
        table, trouble = _table_of(self.path)
        if table is not None:
            return table
        backup, trouble_of_backup = _table_of(self._backup)
        if backup is not None:
            if trouble:
                log.warning("%s; going on with %s", trouble, self._backup)
            return backup
        if trouble_of_backup:
            raise ClientError(
                f"the offsets of group {self.group} can't be read: "
                f"{trouble or f'{self.path} is missing'}, and {trouble_of_backup}; repair one of "
                "the files, or remove both to begin anew"
            )
        if trouble:
            raise ClientError(
                f"the offsets of group {self.group} can't be read: {trouble}, and there is no "
                f"{self._backup}; repair the file, or remove it to begin anew"
            )
        return {}

    def _write(self, wanted: dict[MessageQueue, int]) -> None:
        table = self._read() | wanted
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if _table_of(self.path)[0] is not None:  # a damaged one must not replace a good .bak
            _replace(self._backup, self.path.read_bytes())
        _replace(self.path, OffsetSerializeWrapper(table).encode())


def _table_of(path: Path) -> tuple[dict[MessageQueue, int] | None, str]:
    """The table in a file; or None and the problem, which is "" if the file does not exist."""
    try:
        with path.open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None, ""
    except OSError as wrong:
        return None, f"{path} can't be read ({wrong})"
    if len(text) > FILE_BYTES_MAX:
        return None, f"{path} has more than {FILE_BYTES_MAX} bytes"
    if not text.strip(b" \t\r\n\0"):
        return None, f"{path} is empty"
    try:
        return dict(OffsetSerializeWrapper.decode(text).offset_table), ""
    except ValueError as wrong:
        return None, f"{path} is damaged ({wrong})"


def _replace(path: Path, data: bytes) -> None:
    scratch = path.with_name(path.name + ".tmp")
    scratch.write_bytes(data)
    os.replace(scratch, path)
