"""The audit: JSON lines about each action, on disk before it begins and after it ended.

A line says which visitor did what from where, and how it ended. Without the first line there is
no action. An action without a second line was cut off: its result is unknown.
"""

import asyncio
import json
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...client.base.identity import now_ms
from ..texts import TextError, quoted
from .rights import Visitor

TEXT_CHARS_MAX = 1_000  # of one value
LINE_BYTES_MAX = 256 << 10
READ_BYTES_MAX = 1 << 20
SECRETS = ("secret", "password", "credential", "accesskey", "token")


class AuditFailed(TextError):
    """A line could not be written: the file, why, and what to do. Nothing was done."""

    status = 503


@dataclass(frozen=True, slots=True)
class Entry:
    """An action that has begun."""

    id: str
    file: Path


class Audit:
    """One file of lines; only its owner may read it. It is opened for each line, so it may be
    renamed at any time. `now` gives ms."""

    def __init__(self, path: Path, *, now: Callable[[], int] = now_ms) -> None:
        self.path = path
        self._now = now
        self._one = asyncio.Lock()

    def check(self) -> None:
        """AuditFailed when no line can be written."""
        try:
            os.close(self._open())
        except OSError as wrong:
            raise self._failed(wrong) from None

    async def begin(
        self,
        visitor: Visitor,
        cluster: str,
        action: str,
        target: str,
        details: Mapping[str, Any],
    ) -> Entry:
        """An action is about to begin. AuditFailed when that can't be written: then don't."""
        entry = Entry(secrets.token_hex(8), self.path)
        await self._write(
            {
                "entry": entry.id,
                "step": "begin",
                "visitor": visitor.name,
                "from": visitor.address,
                "cluster": cluster,
                "action": action,
                "target": target,
                "details": dict(details),
            }
        )
        return entry

    async def end(self, entry: Entry, result: object) -> None:
        """Write the result of an action; AuditFailed if it can't be written."""
        await self._write({"entry": entry.id, "step": "end", "result": result})

    def last(self, count: int) -> list[dict[str, Any]]:
        """The last lines, the newest first; AuditFailed when the file can't be read."""
        return self.tail()[0][:count]

    def tail(self) -> tuple[list[dict[str, Any]], bool]:
        """The lines of the last READ_BYTES_MAX bytes, the newest first, and whether the file has
        more; AuditFailed when it can't be read."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - READ_BYTES_MAX))
                lines = file.read(READ_BYTES_MAX).splitlines()
        except FileNotFoundError:
            return [], False
        except OSError as wrong:
            raise self._failed(wrong) from None
        found: list[dict[str, Any]] = []
        for line in reversed(lines):
            try:
                row = json.loads(line)
            except ValueError:
                continue  # cut by the limit, or by a crash
            if isinstance(row, dict):
                found.append(row)
        return found, size > READ_BYTES_MAX

    async def _write(self, row: dict[str, Any]) -> None:
        at = datetime.fromtimestamp(self._now() / 1000, UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"at": at, **_safe(row)}, default=str).encode() + b"\n"
        if len(line) > LINE_BYTES_MAX:
            raise AuditFailed(
                "a line of the audit has %(size)s bytes, the limit is %(limit)s; do this in "
                "smaller steps",
                size=len(line),
                limit=LINE_BYTES_MAX,
            )
        async with self._one:
            try:
                await asyncio.to_thread(self._append, line)
            except OSError as wrong:
                raise self._failed(wrong) from None

    def _append(self, line: bytes) -> None:
        file = self._open()
        try:
            size = os.fstat(file).st_size
            written = os.write(file, line)
            if written < len(line):
                os.ftruncate(file, size)
                raise OSError(None, f"only {written} of {len(line)} bytes were written")
            os.fsync(file)
        finally:
            os.close(file)

    def _open(self) -> int:
        """The file to append to; it is made for its owner alone."""
        is_new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        file = os.open(self.path, flags, 0o600)
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            os.close(file)
            raise OSError(None, "it is no plain file")
        if is_new:
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        return file

    def _failed(self, wrong: OSError) -> AuditFailed:
        return AuditFailed(
            "the audit %(path)s can't be used: %(why)s; without an audit there is no action: free "
            "space or name another file with --audit",
            path=self.path,
            why=quoted(wrong.strerror or str(wrong)),
        )


def _safe(value: Any, name: str = "") -> Any:
    """The value without secrets, each text cut."""
    if isinstance(value, Mapping):
        return {str(key): _safe(one, str(key)) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_safe(one, name) for one in value]
    if value is not None and any(word in name.lower() for word in SECRETS):
        return "(secret)"
    if isinstance(value, str) and len(value) > TEXT_CHARS_MAX:
        return f"{value[:TEXT_CHARS_MAX]}… ({len(value)} characters)"
    return value
