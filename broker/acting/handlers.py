"""The requests among the brokers of one name: 905, 906, 900003; and offsets that clients report to
a slave while its master is there."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from ...protocol import codes
from ...protocol.aio.connection import Connection, Handler, Row
from ...protocol.aio.peers import Peers
from ...protocol.command import OK, Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.admin import HaAddresses
from ...protocol.headers.namesrv import MinBrokerIdChange
from ...protocol.headers.offsets import UpdateConsumerOffset
from ...store.engine.store import MessageStore
from ..access import needs
from ..groups.queue_locks import LockTable, handed_over
from .pair_locks import PairLocks


@dataclass(slots=True, eq=False)
class PairHandlers:
    """`address` is this broker's for clients, `ha_address` that for replication.
    `poll_name_servers()` has the name servers asked. On a slave `returning(told)` takes a master's
    announcement, and `locks` are those of the pair."""

    store: MessageStore
    address: str
    ha_address: str
    poll_name_servers: Callable[[], None]
    returning: Callable[[HaAddresses], Awaitable[None]] | None = None
    locks: PairLocks | None = None

    def rows(self) -> list[Row]:
        rows = [
            Row(
                codes.NOTIFY_MIN_BROKER_ID_CHANGE,
                MinBrokerIdChange,
                self.on_change,
                needs.OUR_CLUSTER_GET,
            ),
            Row(
                codes.EXCHANGE_BROKER_HA_INFO, HaAddresses, self.on_addresses, needs.OUR_CLUSTER_GET
            ),
        ]
        if self.locks is not None:
            rows.append(
                Row(codes.HAND_OVER_QUEUE_LOCKS, None, self.on_locks, needs.OUR_CLUSTER_UPDATE)
            )
        return rows

    def on_change(
        self, header: MinBrokerIdChange, command: Command, connection: Connection
    ) -> Response:
        """Any peer can send this, so its content is not used: the name servers are asked."""
        self.poll_name_servers()
        return OK

    async def on_addresses(
        self, header: HaAddresses, command: Command, connection: Connection
    ) -> Response:
        """Answer a question as a master. As a slave take a master's announcement, and answer once
        this broker does not act any more."""
        if self.returning is not None:
            if header.master_ha_address is not None:
                await self.returning(header)
            return OK
        found = HaAddresses(self.ha_address, self.store.durable_end, self.address)
        return Response(codes.SUCCESS, found.to_fields())

    def on_locks(self, header: None, command: Command, connection: Connection) -> Response:
        """A master that stops hands its locks over; one that returns asks for them, without a
        body."""
        assert self.locks is not None
        if not command.body:
            table = self.locks.give()
            return Response(codes.SUCCESS, body=b"" if table is None else handed_over(table))
        try:
            self.locks.take(LockTable.decode(bytes(command.body)))
        except ValueError as wrong:
            raise Refusal(codes.SYSTEM_ERROR, str(wrong)) from None
        return OK


def relayed(peers: Peers, master: Callable[[], str], handler: Handler) -> Handler:
    """A handler of UPDATE_CONSUMER_OFFSET on a slave that also reports to the master what a client
    reports here because it still takes the slave for the master. `master()` is "" without a
    master."""

    @wraps(handler)
    def take(header: UpdateConsumerOffset, command: Command, connection: Connection) -> Any:
        response = handler(header, command, connection)
        peer = peers.connected(master())
        if peer is not None and not peer.is_full:
            peer.oneway(command.code, header.to_fields())
        return response

    return take
