"""The requests that only a broker in controller mode serves: 906, 1007, 1008, 900003."""

from collections.abc import Callable
from dataclasses import dataclass

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.bodies.ha import EpochEntryCache, EpochSpan
from ...protocol.command import OK, Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.admin import HaAddresses
from ...protocol.headers.controller import NotifyRoleChanged
from ...store.engine.store import MessageStore
from ..access import needs
from ..groups.queue_locks import LockTable
from ..settings.config import BrokerConfig
from .lock_handover import LockHandover

LAST_END = (1 << 63) - 1  # of the last epoch, which goes on


@dataclass(slots=True, eq=False)
class MemberHandlers:
    """`address` is this broker's for clients, `ha_address` that for replication. `poll_leader()`
    has the leader of the controllers asked for the last election. `handover` takes locks of the
    master before."""

    config: BrokerConfig
    store: MessageStore
    address: str
    ha_address: str
    poll_leader: Callable[[], None]
    handover: LockHandover

    def rows(self) -> list[Row]:
        return [
            Row(
                codes.EXCHANGE_BROKER_HA_INFO, HaAddresses, self.on_addresses, needs.OUR_CLUSTER_GET
            ),
            Row(codes.GET_BROKER_EPOCH_CACHE, None, self.on_epochs, needs.OUR_CLUSTER_GET),
            Row(
                codes.NOTIFY_BROKER_ROLE_CHANGED,
                NotifyRoleChanged,
                self.on_role,
                needs.OUR_CLUSTER_GET,
            ),
            Row(codes.HAND_OVER_QUEUE_LOCKS, None, self.on_locks, needs.OUR_CLUSTER_UPDATE),
        ]

    def on_addresses(
        self, header: HaAddresses, command: Command, connection: Connection
    ) -> Response:
        """Answer where this master replicates. A slave ignores the addresses: its controller tells
        it."""
        if self.config.is_slave:
            return OK
        found = HaAddresses(self.ha_address, self.store.durable_end, self.address)
        return Response(codes.SUCCESS, found.to_fields())

    def on_epochs(self, header: None, command: Command, connection: Connection) -> Response:
        config, entries = self.config, self.store.epochs.entries
        ends = [one.start_offset for one in entries[1:]] + [LAST_END]
        found = EpochEntryCache(
            broker_id=config.broker_id,
            broker_name=config.broker_name,
            cluster_name=config.broker_cluster_name,
            epoch_list=[
                EpochSpan(end_offset=end, epoch=one.epoch, start_offset=one.start_offset)
                for one, end in zip(entries, ends, strict=False)
            ],
            max_offset=self.store.log_end,
        )
        return Response(codes.SUCCESS, body=found.encode())

    def on_role(
        self, header: NotifyRoleChanged, command: Command, connection: Connection
    ) -> Response:
        """Any peer can send this, so its content is not used: the leader is asked."""
        self.poll_leader()
        return OK

    def on_locks(self, header: None, command: Command, connection: Connection) -> Response:
        try:
            self.handover.come(LockTable.decode(bytes(command.body or b"")))
        except ValueError as wrong:
            raise Refusal(codes.SYSTEM_ERROR, str(wrong)) from None
        return OK
