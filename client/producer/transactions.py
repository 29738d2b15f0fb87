"""Transactions: a message that consumers see only after a local transaction has succeeded.

The message is sent as a half message; then the local transaction runs, and its result is sent to
the broker. If the result never arrives, the broker asks a live producer of the group.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.headers.transactions import CheckTransactionState, EndTransaction
from ...protocol.message import properties as props
from ...protocol.message.message_id import parse_offset_message_id
from ...protocol.message.record import TRANSACTION_PREPARED
from ..base.arguments import check_timeout
from ..base.message import Message, check_message
from ..base.message_view import MessageView
from ..base.receipts import SendReceipt, SendStatus
from ..errors import AerobeeError, ClientError, IllegalMessageError
from .broker_requests import TransactionState
from .producer import SEND_SECONDS, Producer

STATE_NAMES = {  # of Java's LocalTransactionState
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}

log = logging.getLogger(__name__)

Checker = Callable[[MessageView], Awaitable[TransactionState] | TransactionState]
Local = Callable[[Message], Awaitable[TransactionState] | TransactionState]


class TransactionProducer(Producer):
    """Sends messages as parts of local transactions.

        async def check(message):        # after a crash: how did it end?
            found = await database.has(message.keys[0])
            return TransactionState.COMMIT if found else TransactionState.ROLLBACK

        async with TransactionProducer("127.0.0.1:9876", group="shop", check=check) as producer:
            async with producer.transaction(Message("orders", b"...", keys=["o-1"])):
                await database.insert(...)      # leaving commits, raising rolls back

    `check` is a coroutine function, or an ordinary one, which runs in a thread. The other options
    are those of `Producer`; sends outside of a transaction work as there.
    """

    def __init__(
        self,
        name_server: str | Iterable[str] | None = None,
        *,
        group: str,
        check: Checker,
        **options: Any,
    ) -> None:
        super().__init__(name_server, group=group, **options)
        self._check = check

    async def start(self) -> None:
        """Make the client; connections are made when the first message needs them."""
        await super().start()
        self._calls.checks[self.group] = self._ask
        if self._tracer is not None:
            self._calls.on_checked[self.group] = self._on_checked

    async def send_in_transaction(
        self,
        message: Message,
        local: Local,
        timeout: float = SEND_SECONDS,  # noqa: ASYNC109
    ) -> tuple[SendReceipt, TransactionState]:
        """Send a half message, run `local` with it, and report its result to the broker.

        If the half message is stored but not safe, `local` isn't run and the message is rolled
        back. If `local` raises, the state stays unknown, the broker will call `check`, and the
        error is raised here.
        """
        receipt = await self._send_half(message, timeout)
        if receipt.status is not SendStatus.OK:
            await self._end(receipt, TransactionState.ROLLBACK, message)
            return receipt, TransactionState.ROLLBACK
        try:
            state = TransactionState(await _result(local, message))
        except BaseException:
            await self._end(receipt, TransactionState.UNKNOWN, message)
            raise
        await self._end(receipt, state, message)
        return receipt, state

    @asynccontextmanager
    async def transaction(
        self,
        message: Message,
        timeout: float = SEND_SECONDS,  # noqa: ASYNC109
    ) -> AsyncIterator[SendReceipt]:
        """The block as local transaction: leaving it commits the message, raising rolls it back.

        ClientError, before the block, when the half message is stored but not safe.
        """
        receipt = await self.begin(message, timeout)
        try:
            yield receipt
        except BaseException:
            await self._end(receipt, TransactionState.ROLLBACK, message)
            raise
        await self._end(receipt, TransactionState.COMMIT, message)

    async def begin(
        self,
        message: Message,
        timeout: float = SEND_SECONDS,  # noqa: ASYNC109
    ) -> SendReceipt:
        """Send a half message, to be ended with `end`; for code that can't use
        `send_in_transaction`.

        ClientError if it is stored but not safe; it was then rolled back.
        """
        receipt = await self._send_half(message, timeout)
        if receipt.status is SendStatus.OK:
            return receipt
        await self._end(receipt, TransactionState.ROLLBACK, message)
        raise ClientError(
            f"the half message {receipt.msg_id} is not safe ({receipt.status}) and was rolled "
            "back; try again, or see why the broker's disk or slave is slow"
        )

    async def _send_half(self, message: Message, timeout: float) -> SendReceipt:  # noqa: ASYNC109
        check_message(message)
        check_timeout(timeout)
        if message.is_delayed:
            raise IllegalMessageError(
                "a message of a transaction can't have a delay (delay_level, delay, deliver_at); "
                "send it without, or without the transaction"
            )
        more = {props.TRAN_MSG: "true", props.PGROUP: self.group}
        outgoing = self._packer.pack(message, more, sys_flag=TRANSACTION_PREPARED)
        return await self._delivery.send(outgoing, None, timeout)

    async def end(self, receipt: SendReceipt, state: TransactionState) -> None:
        """Report the result to the broker, once; if that is lost, the broker asks."""
        await self._end(receipt, state, None)

    async def end_confirmed(self, receipt: SendReceipt, state: TransactionState) -> None:
        """Tell the broker and wait for its answer; raises what kept it from the end.

        For a half message of another producer of the group, too.
        """
        topic = receipt.queue.topic
        await self._open().publish_route(topic)  # it may be the first that is done with the topic
        address = self._open().address_of(receipt.queue.broker_name)
        await self._open().ask(address, codes.END_TRANSACTION, self._end_header(receipt, state))

    def _end_header(self, receipt: SendReceipt, state: TransactionState) -> EndTransaction:
        _, log_offset = parse_offset_message_id(receipt.offset_msg_id)
        return EndTransaction(
            self.group,
            receipt.queue_offset,
            log_offset,
            state,
            receipt.msg_id,
            receipt.queue.topic,
            transaction_id=receipt.transaction_id,
        )

    async def _end(
        self, receipt: SendReceipt, state: TransactionState, message: Message | None
    ) -> None:
        header = self._end_header(receipt, state)
        cluster = self._open()
        try:
            address = cluster.address_for(receipt.queue)
            await cluster.oneway(address, codes.END_TRANSACTION, header)
            if self._tracer is not None:
                on_checked = STATE_NAMES[state]
                self._tracer.ended(receipt, address, on_checked, message, by_check=False)
        except AerobeeError as wrong:
            log.warning("the end of transaction %s was not told: %s", receipt.msg_id, wrong)

    def _on_checked(
        self,
        message: MessageView,
        asked: CheckTransactionState,
        address: str,
        state: TransactionState,
    ) -> None:
        assert self._tracer is not None
        queue = MessageQueue(message.topic, "", message.queue_id)
        receipt = SendReceipt(
            message.msg_id,
            message.offset_msg_id,
            queue,
            asked.queue_offset,
            SendStatus.OK,
            None,
            asked.transaction_id,
        )
        self._tracer.ended(receipt, address, STATE_NAMES[state], message, by_check=True)

    async def _ask(self, message: MessageView) -> TransactionState:
        return TransactionState(await _result(self._check, message))


async def _result(
    work: Callable[[Any], Awaitable[TransactionState] | TransactionState], argument: object
) -> TransactionState:
    """The result of a coroutine function, or of an ordinary one, which runs in a thread."""
    if inspect.iscoroutinefunction(work):
        found: TransactionState = await work(argument)
        return found
    plain: Any = await asyncio.to_thread(work, argument)
    if inspect.isawaitable(plain):
        plain = await plain
    if not isinstance(plain, TransactionState):
        raise ClientError(
            f"{getattr(work, '__qualname__', work)} gave {plain!r}; give a TransactionState"
        )
    return plain
