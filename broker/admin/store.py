"""Requests that let old files of the store go: queues and index (306), the log (329).

They begin it and come back at once, as in RocketMQ: a round can take minutes.
"""

from dataclasses import dataclass

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.command import OK, Command, Response
from ..access import needs
from ..runtime.cleaner import Cleaner


@dataclass(slots=True, eq=False)
class AdminStoreHandlers:
    """Begins rounds of the cleaner."""

    cleaner: Cleaner

    def rows(self) -> list[Row]:
        return [
            Row(
                codes.CLEAN_EXPIRED_CONSUMEQUEUE,
                None,
                self.on_clean_queues,
                needs.OUR_CLUSTER_UPDATE,
            ),
            Row(
                codes.DELETE_EXPIRED_COMMITLOG,
                None,
                self.on_delete_expired,
                needs.OUR_CLUSTER_UPDATE,
            ),
        ]

    def on_clean_queues(self, header: None, command: Command, connection: Connection) -> Response:
        """Delete the files that lead to nothing in the log.

        Java deletes a whole queue whose last message is gone, so that it counts from 0 again: a
        group with a larger offset would then skip the next messages. Here its last file stays.
        """
        self.cleaner.clean_queues()
        return OK

    def on_delete_expired(self, header: None, command: Command, connection: Connection) -> Response:
        """Let files of the log go that are past fileReservedTime, whatever deleteWhen says."""
        self.cleaner.delete_expired()
        return OK
