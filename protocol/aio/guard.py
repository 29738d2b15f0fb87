"""Access control before the handlers of a server: who sent a request, and whether that user may.

A request names its user in the header (AccessKey) and proves it by a signature over header and
body, made with that user's password. The check runs before the handler and the header class see the
request. What a request needs stands in its row. Without access control no row is changed, so that
it costs nothing.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any

from .. import codes
from ..bodies.access import UserInfo
from ..command import Command, read_ext
from ..errors import Refusal
from ..security.needs import Needs
from ..security.policies import USER_PREFIX, Need
from ..security.signature import ACCESS_KEY, is_signed
from .audit import AuditLog
from .connection import Connection, Row

log = logging.getLogger(__name__)

SHOWN_CHARS_MAX = 64  # of an unknown name, in a remark or the log
LOG_EVERY_MS = 1_000


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


class Guard:
    """Lets requests through to their handlers, or refuses them (NO_PERMISSION).

    `user_of` finds a user by name; `denial` says why a user may not do something from an address,
    None if allowed. `cluster` is what requests about the server itself are about; `no_user` is the
    remark for a request that names no user. Without `is_limited` a signature is enough. Requests
    with a code of `unsigned` need none, those of `unlimited` no permission. Where `all_sign`, also
    a row that is open needs a signature.
    """

    def __init__(
        self,
        user_of: Callable[[str], UserInfo | None],
        denial: Callable[[str, Need, str], str | None],
        refusals: Refusals,
        *,
        cluster: str,
        no_user: str,
        is_limited: bool,
        unsigned: frozenset[int] = frozenset(),
        unlimited: frozenset[int] = frozenset(),
        all_sign: bool = True,
    ) -> None:
        self._user_of = user_of
        self._denial = denial
        self.refusals = refusals
        self._cluster = cluster
        self._no_user = no_user
        self._is_limited = is_limited
        self._unsigned = unsigned
        self._unlimited = unlimited
        self._all_sign = all_sign

    def guarded(self, rows: Mapping[int, Row]) -> dict[int, Row]:
        """The same table, in which each request is checked before its header is read."""
        return {
            code: row if row.access.is_open and not self._all_sign else self._behind(row)
            for code, row in rows.items()
        }

    def check(self, access: Needs, command: Command, connection: Connection) -> None:
        """Refusal (NO_PERMISSION) when the request may not be served.

        The handler reads the signed fields: from now on the command has these.
        """
        try:
            fields = fields_of(command)
            command.ext = read_ext(fields)
            self._check(access, command, fields, connection)
        except Refusal as refusal:
            self.refusals.note(command, connection, refusal)
            raise

    def allows(self, code: int, user: UserInfo, needs: list[Need], connection: Connection) -> bool:
        """True if this user, whose signature is proven, may send a request of this code from
        there."""
        if not self._is_limited or code in self._unlimited or user.is_super:
            return True
        return self._denied(user, needs, connection) is None

    def proven(self, command: Command, fields: Mapping[str, str]) -> UserInfo:
        """The user whose password made the signature of a request; Refusal without one."""
        name = fields.get(ACCESS_KEY, "")
        if not name:
            raise Refusal(codes.NO_PERMISSION, self._no_user)
        user = self._user_of(name)
        if user is None:
            shown = ascii(name[:SHOWN_CHARS_MAX])[1:-1]
            raise Refusal(codes.NO_PERMISSION, f"{USER_PREFIX}{shown} is not found.")
        if user.is_disabled:
            raise Refusal(codes.NO_PERMISSION, f"{USER_PREFIX}{name} is disabled.")
        if not is_signed(fields, command.body or b"", command.version, user.password or ""):
            raise Refusal(
                codes.NO_PERMISSION,
                "check signature failed: it was not made with this user's password, or the "
                "request was changed on its way",
            )
        return user

    # --- inside ---------------------------------------------------------------------------------

    def _behind(self, row: Row) -> Row:
        kind, handler = row.header, row.handler

        @wraps(handler)
        def check_first(header: None, command: Command, connection: Connection) -> Any:
            self.check(row.access, command, connection)
            return handler(None if kind is None else command.header(kind), command, connection)

        return replace(row, header=None, handler=check_first, hot=False)

    def _check(
        self, access: Needs, command: Command, fields: dict[str, str], connection: Connection
    ) -> None:
        code = command.code
        user = None if code in self._unsigned else self.proven(command, fields)
        if not self._is_limited or code in self._unlimited:
            return
        needs = access.of(command, fields, self._cluster)
        if needs and user is None:
            user = self.proven(command, fields)
        if user is None or user.is_super:
            return
        denied = self._denied(user, needs, connection)
        if denied is not None:
            need, why = denied
            raise Refusal(
                codes.NO_PERMISSION,
                f"{USER_PREFIX}{user.username} has no permission to access {need.kind}:{need.name} "
                f"from {ip_of(connection)}, {why}",
            )

    def _denied(
        self, user: UserInfo, needs: list[Need], connection: Connection
    ) -> tuple[Need, str] | None:
        """The first of the permissions that the user doesn't have, and why."""
        name, ip = user.username or "", ip_of(connection)
        for need in needs:
            why = self._denial(name, need, ip)
            if why is not None:
                return need, why
        return None


def protected(
    rows: Mapping[int, Row], guard: Guard | None, audit: AuditLog | None
) -> dict[int, Row]:
    """The same table with access control and audit log, where there are any."""
    found = dict(rows)
    if guard is not None:
        guard.refusals.audit = audit
        found = guard.guarded(found)
    return found if audit is None else audit.watch(found)


def fields_of(command: Command) -> dict[str, str]:
    """The header fields of a request; Refusal when they can't be read."""
    try:
        return command.fields()
    except ValueError:  # bytes that are no UTF-8
        raise Refusal(codes.NO_PERMISSION, "the request's header can't be read") from None


def ip_of(connection: Connection) -> str:
    """The address of a peer, without its port."""
    return connection.address.rpartition(":")[0].strip("[]")
