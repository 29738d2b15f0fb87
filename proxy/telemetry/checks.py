"""Transaction checks: the proxy is a member of its producers' groups, and passes each check on.

A gRPC producer's group is its topic. A check reaches the producer through its telemetry stream,
with a transaction id that names the checked copy of the half message.
"""

import asyncio
import logging

from ...client.cluster.cluster import Cluster
from ...client.errors import AerobeeError
from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.command import OK, Command, Response
from ...protocol.errors import Malformed, Refusal
from ...protocol.headers.transactions import CheckTransactionState
from ...protocol.message import properties as props
from ...protocol.message.record import decode_record
from ..messages import definitions
from ..messages.receiving import message_of
from ..messages.transaction_id import TransactionId
from ..routes.brokers import Brokers
from .clients import Clients

log = logging.getLogger(__name__)

TelemetryCommand = definitions.message("TelemetryCommand")


class Checks:
    """The producer groups of this proxy's clients."""

    def __init__(self, brokers: Brokers, clients: Clients) -> None:
        self._brokers = brokers
        self._cluster: Cluster = brokers.cluster
        self._clients = clients
        self._joined: set[str] = set()
        self.passed_on = 0

    def rows(self) -> list[Row]:
        """What brokers ask of producers."""
        return [Row(codes.CHECK_TRANSACTION_STATE, CheckTransactionState, self.on_check, "ANY")]

    async def join(self, topic: str) -> None:
        """Become a member of the producer group of this topic at its brokers."""
        if topic in self._joined:
            return
        self._joined.add(topic)
        self._cluster.join_producer(topic)
        try:
            await self._cluster.route(topic)  # heartbeats go to the brokers of known routes
            await self._cluster.beat()
        except AerobeeError as wrong:
            log.warning("topic %s: checks begin with the next heartbeat: %s", topic, wrong)

    async def leave_unused(self) -> None:
        """Leave the groups that no client is in any more."""
        for topic in list(self._joined):
            if not self._clients.has_producers(topic):
                self._joined.discard(topic)
                await self._cluster.leave(producer=topic)

    def on_check(
        self, header: CheckTransactionState, command: Command, connection: Connection
    ) -> Response:
        try:
            record = decode_record(command.body or b"")
        except Malformed as wrong:
            raise Refusal(codes.SYSTEM_ERROR, f"the half message can't be read: {wrong}") from None
        pairs = record.properties
        topic = pairs.get(props.PGROUP, "")
        client = self._clients.producer_of(topic)
        if client is None:
            log.info("asked about a transaction of topic %s, whose producers are not here", topic)
            return OK
        message_id = header.transaction_id or pairs.get(props.UNIQ_KEY) or ""
        broker = header.broker_name or self._brokers.name_of(connection.address)
        half = TransactionId(broker, header.queue_offset, header.log_offset, message_id)
        # The header of Java's brokers names the half topic.
        real_topic = pairs.get(props.REAL_TOPIC) or record.topic
        told = TelemetryCommand()
        command_to = told.recover_orphaned_transaction_command
        command_to.message.CopyFrom(message_of(record, real_topic, now_ms=self._brokers.now_ms()))
        command_to.transaction_id = half.text
        client.streams[-1].put(told)
        self.passed_on += 1
        return OK

    async def close(self) -> None:
        """Leave all groups."""
        topics = list(self._joined)
        self._joined.clear()
        leaving = (self._cluster.leave(producer=topic) for topic in topics)
        await asyncio.gather(*leaving, return_exceptions=True)
