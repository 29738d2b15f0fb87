"""Access control before the handlers of a server: the user of a signature, and notes of refusals.

What a proven user may do is for each server to say.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from .. import codes
from ..bodies.access import UserInfo
from ..command import Command
from ..errors import Refusal
from ..security.signature import ACCESS_KEY, is_signed
from .audit import AuditLog
from .connection import Connection, Handler, Row

log = logging.getLogger(__name__)

SHOWN_CHARS_MAX = 64  # of an unknown name, in a remark or the log
LOG_EVERY_MS = 1_000

Check = Callable[[Row, Command, Connection], None]


class Refusals:
    """The requests that access control refused: their `count`, the `audit` log where there is one,
    and a warning at most each second."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.count = 0
        self.audit: AuditLog | None = None
        self._now_ms = now_ms
        self._log_again_ms = 0

    def note(self, command: Command, connection: Connection, refusal: Refusal) -> None:
        """A request was refused."""
        self.count += 1
        if self.audit is not None:
            self.audit.refused(command, connection.address, refusal.remark)
        now = self._now_ms()
        if now >= self._log_again_ms:
            self._log_again_ms = now + LOG_EVERY_MS
            log.warning(
                "refused request %s of %s: %s (%d refused since the start)",
                codes.REQUEST_NAMES.get(command.code, str(command.code)),
                connection.address,
                refusal.remark,
                self.count,
            )


def guarded(row: Row, check: Check) -> Row:
    """The same row, in which `check` looks at each request first, before its header is read."""
    kind = row.header
    handler: Handler = row.handler

    def look_first(header: None, command: Command, connection: Connection) -> Any:
        check(row, command, connection)
        return handler(None if kind is None else command.header(kind), command, connection)

    return Row(row.code, None, look_first, row.access, bulk=row.bulk)


def fields_of(command: Command) -> dict[str, str]:
    """The header fields of a request; Refusal when they can't be read."""
    try:
        return command.fields()
    except ValueError:  # bytes that are no UTF-8
        raise Refusal(codes.NO_PERMISSION, "the request's header can't be read") from None


def proven(
    command: Command,
    fields: Mapping[str, str],
    user_of: Callable[[str], UserInfo | None],
    unsigned: str,
) -> UserInfo:
    """The user whose password made the signature of a request; Refusal without one, with the
    remark `unsigned` where the request names no user."""
    name = fields.get(ACCESS_KEY, "")
    if not name:
        raise Refusal(codes.NO_PERMISSION, unsigned)
    user = user_of(name)
    if user is None:
        shown = ascii(name[:SHOWN_CHARS_MAX])[1:-1]
        raise Refusal(codes.NO_PERMISSION, f"User:{shown} is not found.")
    if user.is_disabled:
        raise Refusal(codes.NO_PERMISSION, f"User:{name} is disabled.")
    if not is_signed(fields, command.body or b"", command.version, user.password or ""):
        raise Refusal(
            codes.NO_PERMISSION,
            "check signature failed: it was not made with this user's password, or the request "
            "was changed on its way",
        )
    return user
