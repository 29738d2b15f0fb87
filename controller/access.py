"""Access control of a controller: brokers and administrators sign, as they do at brokers.

RocketMQ's controllers have none, and its brokers sign all their requests once they have
innerClientAuthenticationCredentials. Reading the members of a broker name needs no signature.
"""

import logging
from collections.abc import Callable, Mapping

from ..protocol.aio.connection import Connection, Row
from ..protocol.aio.guard import Refusals, fields_of, guarded, proven
from ..protocol.command import Command, read_ext
from ..protocol.errors import Refusal
from .config import ControllerConfig

log = logging.getLogger(__name__)

READ = "ANY"  # the access of rows that need no signature
UNSIGNED = (
    "the request has no AccessKey, and this controller serves it only when it is signed with a "
    "user's name and password"
)


class Access:
    """Lets requests through to their handlers, or refuses them."""

    def __init__(self, config: ControllerConfig, now_ms: Callable[[], int]) -> None:
        self.refusals = Refusals(now_ms)
        self._users = config.users()
        if not self._users:
            log.warning(
                "access control is on and there is no user, so no broker can join; name one in "
                "initAuthenticationUser"
            )

    def guard(self, table: Mapping[int, Row]) -> dict[int, Row]:
        """The same table, in which requests are looked at first."""
        return {
            code: row if row.access == READ else guarded(row, self.check)
            for code, row in table.items()
        }

    def check(self, row: Row, command: Command, connection: Connection) -> None:
        """Refusal (NO_PERMISSION) when the request may not be served."""
        try:
            fields = fields_of(command)
            command.ext = read_ext(fields)
            proven(command, fields, self._users.get, UNSIGNED)
        except Refusal as refusal:
            self.refusals.note(command, connection, refusal)
            raise
