"""Requests about replication, of a master that has no slaves: 907, 908, 1007."""

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.bodies.ha import HARuntimeInfo
from ...protocol.command import OK, Command, Reply
from ...protocol.errors import Refusal
from ...protocol.headers.admin import MasterFlushOffset
from ...store.store import MessageStore


class AdminHaHandlers:
    """Answers for a lone master."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store

    def rows(self) -> list[Row]:
        return [
            Row(codes.GET_BROKER_HA_STATUS, None, self.on_status),
            Row(codes.RESET_MASTER_FLUSH_OFFSET, MasterFlushOffset, self.on_reset_flush_offset),
            Row(codes.GET_BROKER_EPOCH_CACHE, None, self.on_epochs),
        ]

    def on_status(self, header: None, command: Command, connection: Connection) -> Reply:
        info = HARuntimeInfo(master=True, master_commit_log_max_offset=self.store.log_end)
        return Reply(codes.SUCCESS, body=info.encode())

    def on_reset_flush_offset(
        self, header: MasterFlushOffset, command: Command, connection: Connection
    ) -> Reply:
        return OK  # what its master has on disk is a slave's to know; a master passes over it

    def on_epochs(self, header: None, command: Command, connection: Connection) -> Reply:
        raise Refusal(
            codes.SYSTEM_ERROR,
            "this request only for controllerMode; this broker is a master by itself, without a "
            "controller",
        )
