"""The audit log of a server: administrative requests and refusals, one JSON object a line.

A line has the time, the server, the user that the request names, the peer, the request, its header
fields, and the result: "allowed" or "refused". A body is never written, as it may hold secrets.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any

from ..command import Command
from ..errors import Refusal
from ..security.audited import HIDDEN, is_change, is_denial, name_of
from ..security.signature import ACCESS_KEY
from .connection import Connection, Handler, Row

log = logging.getLogger(__name__)

LINES_PER_SECOND = 100  # further ones are counted in the next line, as "left out"
FIELDS_MAX = 16
CHARS_MAX = 256  # of a name or value
ALLOWED, REFUSED = "allowed", "refused"


class AuditLog:
    """A file that lines are added to. It has mode 0600, and may be moved away at any time.

    OSError when it can't be made. A line that can't be written later is logged as an error, and the
    request goes on.
    """

    def __init__(self, path: Path, server: str, clock: Callable[[], float] = time.time) -> None:
        """`server` is the name in each line; `clock()` gives the time in seconds."""
        self._path = path
        self._server = server
        self._clock = clock
        self._second = 0
        self._lines = 0  # in this second
        self._left_out = 0
        self._fd, self._file = self._open()

    def watch(self, rows: Mapping[int, Row]) -> dict[int, Row]:
        """The same table, in which requests that change something are noted as they are let in."""
        return {
            code: self._watched(row) if is_change(code, row.access) else row
            for code, row in rows.items()
        }

    def refused(self, command: Command, address: str, remark: str) -> None:
        """Note a request that access control didn't let through."""
        self._note(command, address, REFUSED, remark)

    def refused_call(self, user: str, address: str, name: str, remark: str) -> None:
        """Note a gRPC call, by its name, that access control didn't let through."""
        self._write_line(user, address, name, {}, REFUSED, remark)

    async def close(self) -> None:
        """Close the file; nothing is noted any more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _watched(self, row: Row) -> Row:
        handler: Handler = row.handler

        @wraps(handler)
        def noted(header: Any, command: Command, connection: Connection) -> Any:
            try:
                response = handler(header, command, connection)
            except Refusal as refusal:
                if not is_denial(refusal):  # access control has noted those
                    self._note(command, connection.address, ALLOWED, refusal.remark)
                raise
            self._note(command, connection.address, ALLOWED)
            return response

        return replace(row, handler=noted)

    def _note(self, command: Command, address: str, result: str, remark: str = "") -> None:
        fields: dict[str, str] = {}
        with suppress(ValueError):  # bytes that are no UTF-8
            fields = command.fields()
        user = fields.get(ACCESS_KEY, "")
        self._write_line(user, address, name_of(command.code), fields, result, remark)

    def _write_line(
        self,
        user: str,
        address: str,
        request: str,
        fields: Mapping[str, str],
        result: str,
        remark: str,
    ) -> None:
        now = self._clock()
        if int(now) != self._second:
            self._second, self._lines = int(now), 0
        if self._lines >= LINES_PER_SECOND:
            self._left_out += 1
            return
        self._lines += 1
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds"),
            "server": self._server,
            "user": user[:CHARS_MAX],
            "from": address,
            "request": request,
            "fields": {
                name[:CHARS_MAX]: value[:CHARS_MAX]
                for name, value in list(fields.items())[:FIELDS_MAX]
                if name not in HIDDEN
            },
            "result": result,
        }
        if remark:
            line["remark"] = remark[:CHARS_MAX]
        if self._left_out:
            line["left out"] = self._left_out
        self._write(json.dumps(line).encode() + b"\n")

    def _write(self, line: bytes) -> None:
        if self._fd < 0:
            return
        try:
            if _identity(self._path) != self._file:  # moved away by a rotation
                os.close(self._fd)
                self._fd, self._file = self._open()
            if os.write(self._fd, line) < len(line):
                raise OSError("the disk took a part of the line")
            self._left_out = 0
        except OSError as wrong:
            self._left_out += 1
            log.error(
                "the audit log %s lacks %d lines: %s; make room, or correct auditLog",
                self._path,
                self._left_out,
                wrong.strerror or wrong,
            )

    def _open(self) -> tuple[int, tuple[int, int] | None]:
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return fd, _identity(self._path)


def open_audit_log(setting: str, server: str) -> AuditLog | None:
    """The audit log of the setting auditLog; None where it is empty. OSError in one sentence."""
    if not setting:
        return None
    path = Path(setting).expanduser()
    try:
        return AuditLog(path, server)
    except OSError as wrong:
        raise OSError(
            f"auditLog: {path} can't be written: {wrong.strerror}; give a file in a folder that is "
            "there and may be written, or nothing"
        ) from None


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
