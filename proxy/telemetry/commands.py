"""Commands to clients through their telemetry streams: a stack trace, a message to be consumed now,
a transaction to be ended, a new connection.

mqadmin asks a broker, the broker asks the proxy, and the client answers on its stream.
"""

import asyncio
import logging
import uuid
from typing import Any

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.bodies.running import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from ...protocol.bodies.subscription import SubscriptionData
from ...protocol.command import OK, VERSION, Command, Response
from ...protocol.errors import Malformed, Refusal
from ...protocol.headers.clients import ConsumeMessageDirectly
from ...protocol.headers.clients import ConsumerRunningInfo as AskRunningInfo
from ...protocol.headers.transactions import CheckTransactionState
from ...protocol.message import properties as props
from ...protocol.message.record import Record, decode_record
from ..messages import definitions
from ..messages.receiving import message_of
from ..messages.status import Code
from ..messages.transactions import RecentTransactions, TransactionId
from ..routes.brokers import Brokers
from .clients import Client, Clients
from .membership import subscriptions_of

log = logging.getLogger(__name__)

WAITING_MAX = 1_000  # commands that clients have not answered yet
CHARS_MAX = 1 << 20  # of a stack trace that is passed on
TelemetryCommand = definitions.message("TelemetryCommand")
# What the result of a message consumed now is called in remoting.
_RESULTS = {
    Code.OK: "CR_SUCCESS",
    Code.FAILED_TO_CONSUME_MESSAGE: "CR_LATER",
    Code.MESSAGE_CORRUPTED: "CR_RETURN_NULL",
}


class Commands:
    """Passes requests of brokers on to clients. `seconds` is how long a client may take."""

    def __init__(
        self,
        brokers: Brokers,
        clients: Clients,
        recent: RecentTransactions,
        seconds: float,
    ) -> None:
        self._brokers = brokers
        self._clients = clients
        self._recent = recent
        self._seconds = seconds
        # By nonce: the client that is asked, and its answer.
        self._waiting: dict[str, tuple[str, asyncio.Future[Any]]] = {}
        self.checks = 0  # that were passed on

    def rows(self) -> list[Row]:
        """The requests that brokers send to clients."""
        return [
            Row(codes.CHECK_TRANSACTION_STATE, CheckTransactionState, self.on_check),
            Row(codes.GET_CONSUMER_RUNNING_INFO, AskRunningInfo, self.on_running_info),
            Row(codes.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectly, self.on_directly),
        ]

    def answered(self, client_id: str, command: Any) -> None:
        """A client answered a command; an answer without a waiter is dropped."""
        kind = command.WhichOneof("command")
        if kind not in ("thread_stack_trace", "verify_message_result"):
            return
        asked, answer = self._waiting.get(getattr(command, kind).nonce, ("", None))
        if answer is not None and asked == client_id and not answer.done():
            answer.set_result(command)

    def reconnect(self, client: Client) -> None:
        """Ask a client to connect again, because this connection will end."""
        told = TelemetryCommand()
        told.reconnect_endpoints_command.nonce = uuid.uuid4().hex
        client.streams[-1].put(told)

    def on_check(
        self, header: CheckTransactionState, command: Command, connection: Connection
    ) -> Response:
        """CHECK_TRANSACTION_STATE (39): any connected producer of the topic is asked."""
        record = _record(command)
        pairs = record.properties
        topic = pairs.get(props.PGROUP, "")
        client = self._clients.producer_of(topic)
        if client is None:
            log.info("asked about a transaction of topic %s, whose producers are not here", topic)
            return OK
        message_id = header.transaction_id or pairs.get(props.UNIQ_KEY) or ""
        broker = header.broker_name or self._brokers.name_of(connection.address)
        half = TransactionId(broker, header.queue_offset, header.log_offset, message_id)
        self._recent.put(topic, half)
        # The header of Java's brokers names the half topic.
        real_topic = pairs.get(props.REAL_TOPIC) or record.topic
        told = TelemetryCommand()
        command_to = told.recover_orphaned_transaction_command
        command_to.message.CopyFrom(
            message_of(
                record, real_topic, now_ms=self._brokers.now_ms(), asked=client.named(real_topic)
            )
        )
        command_to.transaction_id = half.text
        client.streams[-1].put(told)
        self.checks += 1
        return OK

    async def on_running_info(
        self, header: AskRunningInfo, command: Command, connection: Connection
    ) -> Response:
        """GET_CONSUMER_RUNNING_INFO (307): what the proxy knows, and the client's stacks if they
        are wanted."""
        client = self._consumer(header.group, header.client_id)
        try:
            info = _running_info(client, subscriptions_of(client, client.since_ms))
        except ValueError as wrong:
            raise Refusal(codes.SYSTEM_ERROR, str(wrong)) from None
        if header.jstack:
            told = TelemetryCommand()
            nonce = told.print_thread_stack_trace_command.nonce = uuid.uuid4().hex
            answer = await self._ask(client, nonce, told)
            if answer.status.code != Code.OK:
                raise Refusal(codes.SYSTEM_ERROR, _remark(client, answer))
            info.jstack = answer.thread_stack_trace.thread_stack_trace[:CHARS_MAX]
        return Response(body=info.encode())

    async def on_directly(
        self, header: ConsumeMessageDirectly, command: Command, connection: Connection
    ) -> Response:
        """CONSUME_MESSAGE_DIRECTLY (309): the client consumes the record in the body."""
        client = self._consumer(header.group, header.client_id or "")
        record = _record(command)
        topic = record.properties.get(props.RETRY_TOPIC) or record.topic
        told = TelemetryCommand()
        nonce = told.verify_message_command.nonce = uuid.uuid4().hex
        message = message_of(
            record, topic, now_ms=self._brokers.now_ms(), asked=client.named(topic)
        )
        told.verify_message_command.message.CopyFrom(message)
        began = asyncio.get_running_loop().time()
        answer = await self._ask(client, nonce, told)
        found = ConsumeMessageDirectlyResult(
            consume_result=_RESULTS.get(answer.status.code),
            remark=f"from gRPC client {client.client_id}: {answer.status.message}"[:CHARS_MAX],
            spent_time_mills=round((asyncio.get_running_loop().time() - began) * 1_000),
        )
        return Response(body=found.encode())

    # --- inside ---------------------------------------------------------------------------------

    def _consumer(self, group: str, client_id: str) -> Client:
        client = self._clients.get(client_id)
        if client is None or client.group != group or not client.streams:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"client {client_id[:200]} of group {group[:200]} has no telemetry stream at this "
                "proxy; ask again when it is connected",
            )
        return client

    async def _ask(self, client: Client, nonce: str, told: Any) -> Any:
        """The client's answer; Refusal SYSTEM_BUSY when it gives none in time."""
        if len(self._waiting) >= WAITING_MAX:
            raise Refusal(
                codes.SYSTEM_BUSY,
                f"[OVERLOAD]{len(self._waiting)} commands wait for answers of clients, the limit "
                f"is {WAITING_MAX}; ask again later",
            )
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[nonce] = (client.client_id, answer)
        client.streams[-1].put(told)
        try:
            async with asyncio.timeout(self._seconds):
                return await answer
        except TimeoutError:
            raise Refusal(
                codes.SYSTEM_BUSY,
                f"call remote timeout: client {client.client_id} did not answer within "
                f"{self._seconds:g} s (grpcProxyRelayRequestTimeoutInSeconds)",
            ) from None
        finally:
            del self._waiting[nonce]


def _record(command: Command) -> Record:
    try:
        return decode_record(command.body or b"")
    except Malformed as wrong:
        raise Refusal(codes.SYSTEM_ERROR, f"the message can't be read: {wrong}") from None


def _remark(client: Client, answer: Any) -> str:
    said = answer.status.message or f"code {answer.status.code}"
    return f"client {client.client_id} refused: {said}"[:CHARS_MAX]


def _running_info(client: Client, wanted: list[SubscriptionData]) -> ConsumerRunningInfo:
    """The running info of a consumer as far as the proxy knows it, with what mqadmin reads."""
    return ConsumerRunningInfo(
        properties={
            "PROP_CONSUME_TYPE": client.consume_type,
            "PROP_CONSUMEORDERLY": "false",
            "PROP_THREADPOOL_CORE_SIZE": "0",
            "PROP_CONSUMER_START_TIMESTAMP": str(client.since_ms),
            "PROP_CLIENT_VERSION": str(VERSION),
            "consumerGroup": client.group,
            "grpcClientVersion": client.version,
            "grpcClientLanguage": client.language,
        },
        subscription_set=wanted,
    )
