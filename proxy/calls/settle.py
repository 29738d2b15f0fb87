"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue."""

import asyncio
from typing import Any

from ...client.errors import AerobeeError
from ..handles.receipt import read
from ..http2.call import Call
from ..messages import definitions, times
from ..messages.names import group_of
from ..messages.status import OK_STATUS, Code, StatusError, of_error, shared
from .receive_message import check_invisible
from .service import Service

AckMessageResponse = definitions.message("AckMessageResponse")
AckMessageResultEntry = definitions.message("AckMessageResultEntry")
ChangeInvisibleDurationResponse = definitions.message("ChangeInvisibleDurationResponse")
ForwardResponse = definitions.message("ForwardMessageToDeadLetterQueueResponse")
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
