"""Requests that brokers send to producers: transaction checks and replies to requests.

39 asks how a transaction ended whose END_TRANSACTION the broker never received; the group's `Check`
decides, and END_TRANSACTION goes back on the same connection. 326 delivers the reply to a request,
matched by correlation id. Both tables are bounded.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import IntEnum

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row, host_bytes
from ...protocol.bodies.body import MessageQueue
from ...protocol.command import OK, Command, Response
from ...protocol.errors import Malformed, Refusal
from ...protocol.headers.send import ReplyMessage
from ...protocol.headers.transactions import CheckTransactionState, EndTransaction
from ...protocol.message import properties as props
from ...protocol.message.properties import encode
from ...protocol.message.record import (
    TRANSACTION_COMMIT,
    TRANSACTION_ROLLBACK,
    Record,
    decode_record,
)
from ..base.failures import log_failure
from ..base.identity import now_ms
from ..base.message_view import MessageView, NoConsumer
from ..errors import ClientError

log = logging.getLogger(__name__)

CHECKS_MAX = 2_000  # concurrent checks per client (checkRequestHoldMax)
REQUESTS_MAX = 10_000  # waiting for their reply, per client


class TransactionState(IntEnum):
    """The end of a local transaction, in the numbers of END_TRANSACTION."""

    UNKNOWN = 0
    COMMIT = TRANSACTION_COMMIT
    ROLLBACK = TRANSACTION_ROLLBACK


Check = Callable[[MessageView], Awaitable[TransactionState]]
# Called after a check: the half message, the request, the broker's address, the state.
OnChecked = Callable[[MessageView, CheckTransactionState, str, TransactionState], None]


class ProducerCalls:
    """The requests of brokers to the producers of one client."""

    def __init__(self) -> None:
        self.checks: dict[str, Check] = {}
        self.on_checked: dict[str, OnChecked] = {}
        self._waiting: dict[str, asyncio.Future[MessageView]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}

    def rows(self) -> list[Row]:
        return [
            Row(codes.CHECK_TRANSACTION_STATE, CheckTransactionState, self.on_check),
            Row(codes.PUSH_REPLY_MESSAGE_TO_CLIENT, ReplyMessage, self.on_reply),
        ]

    def expect(self, correlation_id: str) -> "asyncio.Future[MessageView]":
        """The future reply with this id; call `forget` when nothing awaits it any more."""
        if len(self._waiting) >= REQUESTS_MAX:
            raise ClientError(
                f"{len(self._waiting)} requests wait for a reply, the limit is {REQUESTS_MAX}; "
                "send fewer at a time"
            )
        future = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return future

    def forget(self, correlation_id: str) -> None:
        """Stop waiting for this reply."""
        self._waiting.pop(correlation_id, None)

    def close(self) -> None:
        """Cancel running checks; the broker repeats them."""
        for task in self._tasks:
            task.cancel()

    def on_check(
        self, header: CheckTransactionState, command: Command, connection: Connection
    ) -> Response:
        try:
            record = decode_record(command.body or b"")
        except Malformed as wrong:
            raise Refusal(codes.SYSTEM_ERROR, f"the half message can't be read: {wrong}") from None
        message = _view(record, header.broker_name or "")
        group = message.stored_properties.get(props.PGROUP, "")
        check = self.checks.get(group)
        if check is None:
            log.warning("asked about a transaction of group %s, which is not here", group)
        elif len(self._tasks) >= CHECKS_MAX:
            log.warning("asked about %d transactions at once; it will be asked again", CHECKS_MAX)
        else:
            work = self._check(check, message, group, header, connection)
            task = asyncio.get_running_loop().create_task(work, name=f"check-{group}")
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)
        return OK

    def on_reply(self, header: ReplyMessage, command: Command, _: Connection) -> Response:
        pairs = props.decode(header.properties or "")
        waiting = self._waiting.get(pairs.get(props.CORRELATION_ID, ""))
        if waiting is None or waiting.done():
            log.warning("a reply came for which nobody waits (any more): %s", header.properties)
            return OK
        pairs[props.ARRIVE_TIME] = str(now_ms())
        record = Record(
            0,
            0,
            0,
            header.queue_id,
            header.flag,
            0,
            0,
            header.sys_flag,
            header.born_ms,
            _host(header.born_host),
            header.store_ms,
            _host(header.store_host),
            header.reconsume_times or 0,
            0,
            command.body or b"",
            header.topic,
            encode(pairs),
        )
        waiting.set_result(_view(record, ""))
        return OK

    async def _check(
        self,
        check: Check,
        message: MessageView,
        group: str,
        header: CheckTransactionState,
        connection: Connection,
    ) -> None:
        try:
            state = TransactionState(await check(message))
        except Exception as wrong:
            what = "the check of transaction %r failed, its broker will ask again"
            log_failure(log, wrong, what, message)
            state = TransactionState.UNKNOWN
        answer = EndTransaction(
            group,
            header.queue_offset,
            header.log_offset,
            state,
            message.msg_id,
            header.topic,
            from_check=True,
            transaction_id=header.transaction_id,
        )
        connection.oneway(codes.END_TRANSACTION, answer.to_fields())
        on_checked = self.on_checked.get(group)
        if on_checked is not None:
            on_checked(message, header, connection.address, state)


def _view(record: Record, broker_name: str) -> MessageView:
    queue = MessageQueue(record.topic, broker_name, record.queue_id)
    return MessageView(record, NoConsumer(queue))


def _host(address: str) -> bytes:
    """An "ip:port" in the form of records; zeros for anything else, as nothing depends on it."""
    ip, _, port = address.rpartition(":")
    try:
        return host_bytes((ip.strip("[]"), int(port)))
    except (OSError, ValueError, OverflowError):
        return bytes(8)
