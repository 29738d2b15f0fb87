"""Requests about users and access lists: 3001 to 3010.

A broker has none of either until access control is configured. Until then RocketMQ answers each of
them SYSTEM_ERROR, and so does this broker, which says why.
"""

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.command import Command, Reply
from ...protocol.errors import Refusal

REQUESTS = (
    codes.AUTH_CREATE_USER,
    codes.AUTH_UPDATE_USER,
    codes.AUTH_DELETE_USER,
    codes.AUTH_GET_USER,
    codes.AUTH_LIST_USER,
    codes.AUTH_CREATE_ACL,
    codes.AUTH_UPDATE_ACL,
    codes.AUTH_DELETE_ACL,
    codes.AUTH_GET_ACL,
    codes.AUTH_LIST_ACL,
)


class AdminAuthHandlers:
    """Answers that there are no users and no access lists."""

    def rows(self) -> list[Row]:
        return [Row(code, None, self.on_any) for code in REQUESTS]

    def on_any(self, header: None, command: Command, connection: Connection) -> Reply:
        raise Refusal(
            codes.SYSTEM_ERROR,
            f"{codes.REQUEST_NAMES[command.code]}: access control is not configured on this "
            "broker, so it keeps no users and no access lists; whoever can connect may do "
            "everything, so let only those connect who may (bindAddress)",
        )
