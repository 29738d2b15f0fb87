"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue settle what was received,
EndTransaction and RecallMessage what was sent."""

import asyncio
from typing import Any

from ...client.base.responses import header_of
from ...client.errors import AerobeeError
from ...protocol import codes
from ...protocol.errors import Refusal
from ...protocol.headers.send import RecallMessage, RecallMessageResponse
from ...protocol.headers.transactions import EndTransaction
from ...protocol.message import recall_handle
from ...protocol.message.record import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from ..handles.receipt import read
from ..http2.call import Call
from ..messages import definitions, times, transactions
from ..messages.names import group_of, topic_of
from ..messages.sending import DELAY, MIXED
from ..messages.status import OK_STATUS, Code, StatusError, of_error, shared
from .receive_message import check_invisible
from .service import Service

AckMessageResponse = definitions.message("AckMessageResponse")
AckMessageResultEntry = definitions.message("AckMessageResultEntry")
ChangeInvisibleDurationResponse = definitions.message("ChangeInvisibleDurationResponse")
ForwardResponse = definitions.message("ForwardMessageToDeadLetterQueueResponse")
EndTransactionResponse = definitions.message("EndTransactionResponse")
RecallMessageAnswer = definitions.message("RecallMessageResponse")
_RESOLUTIONS = definitions.enum("TransactionResolution")
_OUTCOMES = {
    _RESOLUTIONS["COMMIT"]: TRANSACTION_COMMIT,
    _RESOLUTIONS["ROLLBACK"]: TRANSACTION_ROLLBACK,
}
_FROM_CHECK = definitions.enum("TransactionSource")["SOURCE_SERVER_CHECK"]
ENTRIES_MAX = 1_000  # of one call


async def ack_message(service: Service, call: Call, client_id: str, request: Any) -> Any:
    """One entry for each of the request, in its order."""
    topic, group = await service.received_topic(request.topic), group_of(request.group)
    if len(request.entries) > ENTRIES_MAX:
        raise StatusError(
            Code.PAYLOAD_TOO_LARGE,
            f"the request has {len(request.entries)} entries, the limit is {ENTRIES_MAX}",
        )

    async def one(entry: Any) -> Any:
        status = OK_STATUS
        try:
            receipt = read(entry.receipt_handle)
            await service.keeper.ack(client_id, group, topic, entry.message_id, receipt)
        except (StatusError, AerobeeError) as wrong:
            status = of_error(wrong).status()
        return AckMessageResultEntry(
            message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status
        )

    if len(request.entries) == 1:
        entries = [await one(request.entries[0])]
    else:
        entries = await asyncio.gather(*(one(entry) for entry in request.entries))
    status = shared([entry.status for entry in entries], "ack message result is empty")
    return AckMessageResponse(status=status, entries=entries)


async def change_invisible_duration(
    service: Service, call: Call, client_id: str, request: Any
) -> Any:
    """The new handle."""
    topic, group = await service.received_topic(request.topic), group_of(request.group)
    ms = times.to_ms(request.invisible_duration, "invisible_duration", Code.ILLEGAL_INVISIBLE_TIME)
    check_invisible(service, ms)
    receipt = read(request.receipt_handle)
    new = await service.keeper.change(client_id, group, topic, request.message_id, receipt, ms)
    return ChangeInvisibleDurationResponse(status=OK_STATUS, receipt_handle=new.full_text)


async def forward_to_dead_letters(
    service: Service, call: Call, client_id: str, request: Any
) -> Any:
    """The message goes to %DLQ% of the group."""
    topic, group = await service.received_topic(request.topic), group_of(request.group)
    receipt = read(request.receipt_handle)
    await service.keeper.forward(client_id, group, topic, request.message_id, receipt)
    return ForwardResponse(status=OK_STATUS)


async def end_transaction(service: Service, call: Call, client_id: str, request: Any) -> Any:
    """Commit or rollback, whichever proxy the half message went through.

    An unknown outcome changes nothing: the broker asks again.
    """
    topic = await service.received_topic(request.topic)
    half = service.recent.take(topic, request.transaction_id)
    half = half or transactions.read(request.transaction_id)
    outcome = _OUTCOMES.get(request.resolution)
    if outcome is None:
        return EndTransactionResponse(status=OK_STATUS)
    address = await service.topics.address(half.broker_name, topic)
    if address is None:
        raise StatusError(Code.BAD_REQUEST, f"cannot find broker {half.broker_name[:200]}")
    header = EndTransaction(
        topic,
        half.queue_offset,
        half.log_offset,
        outcome,
        half.message_id,
        topic,
        from_check=request.source == _FROM_CHECK,
        transaction_id=half.message_id,
    )
    await service.brokers.ask(address, codes.END_TRANSACTION, header)
    return EndTransactionResponse(status=OK_STATUS)


async def recall_message(service: Service, call: Call, client_id: str, request: Any) -> Any:
    """The id of a delayed message, which is taken back before its time."""
    topic = topic_of(request.topic)
    if service.config.enable_topic_message_type_check:
        kind = await service.topics.type_of(topic)
        if kind not in (DELAY, MIXED):
            raise StatusError(
                Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"TopicMessageType validate failed, the expected type is {kind}, but actual type "
                f"is {DELAY}",
            )
    try:
        handle = recall_handle.decode(request.recall_handle)
    except Refusal as wrong:
        raise StatusError(Code.INTERNAL_SERVER_ERROR, wrong.remark) from None
    await service.topics.route(topic)
    address = service.brokers.address(handle.broker_name)
    if address is None:
        raise StatusError(Code.BAD_REQUEST, f"cannot find broker {handle.broker_name[:200]}")
    header = RecallMessage(topic, request.recall_handle, topic)
    code = codes.RECALL_MESSAGE
    answer = await service.brokers.ask(address, code, header)
    found = header_of(answer, RecallMessageResponse, code)
    return RecallMessageAnswer(status=OK_STATUS, message_id=found.msg_id)
