"""Requests about replication: 907, 908, 1007."""

from dataclasses import dataclass

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.command import OK, Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.admin import MasterFlushOffset
from ..access import needs
from .master import HaMaster
from .slave import HaSlave


@dataclass(slots=True, eq=False)
class AdminHaHandlers:
    """Reports the state of replication. `slave` is None on a master."""

    master: HaMaster
    slave: HaSlave | None

    def rows(self) -> list[Row]:
        return [
            Row(codes.GET_BROKER_HA_STATUS, None, self.on_status, needs.OUR_CLUSTER_GET),
            Row(
                codes.RESET_MASTER_FLUSH_OFFSET,
                MasterFlushOffset,
                self.on_reset_flush_offset,
                needs.CLUSTER_UPDATE,
            ),
            Row(codes.GET_BROKER_EPOCH_CACHE, None, self.on_epochs, needs.OUR_CLUSTER_GET),
        ]

    def on_status(self, header: None, command: Command, connection: Connection) -> Response:
        info = self.master.info() if self.slave is None else self.slave.info()
        return Response(codes.SUCCESS, body=info.encode())

    def on_reset_flush_offset(
        self, header: MasterFlushOffset, command: Command, connection: Connection
    ) -> Response:
        if self.slave is not None:  # a master passes over it, as in RocketMQ
            self.slave.master_durable_end = header.offset
        return OK

    def on_epochs(self, header: None, command: Command, connection: Connection) -> Response:
        raise Refusal(
            codes.SYSTEM_ERROR,
            "this request only for controllerMode; this broker has no controller",
        )
