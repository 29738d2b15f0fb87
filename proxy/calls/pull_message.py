"""PullMessage: the messages of one queue from an offset on."""

from typing import Any

from ...client.base.responses import header_of
from ...protocol import codes
from ...protocol.errors import Malformed
from ...protocol.headers.pull import SUBSCRIPTION, SUSPEND, PullMessage, PullMessageResponse
from ...protocol.message.batch import unwrap
from ...protocol.message.record import Record, decode_all
from ..http2.call import Call
from ..messages import definitions, times
from ..messages.names import group_of
from ..messages.receiving import message_of
from ..messages.status import OK_STATUS, Code, StatusError
from .offsets import check_offset, queue_of
from .receive_message import ANSWER_SECONDS, BATCH_MAX, filter_of, within_limits
from .service import Service

Answer = definitions.message("PullMessageResponse")
_NOTHING = (codes.PULL_NOT_FOUND, codes.PULL_RETRY_IMMEDIATELY)
_ACCEPTED = (codes.SUCCESS, codes.PULL_OFFSET_MOVED, *_NOTHING)


async def pull_message(service: Service, call: Call, client_id: str, request: Any) -> None:
    """A status, the messages, the next offset."""
    group = group_of(request.group)
    address, topic, queue_id = await queue_of(service, request.message_queue)
    check_offset(request.offset)
    wanted = filter_of(topic, request.filter_expression)
    poll_ms = _poll_ms(service, call, request)
    header = PullMessage(
        group,
        topic,
        queue_id,
        request.offset,
        max(1, min(request.batch_size, BATCH_MAX)),
        SUBSCRIPTION | (SUSPEND if poll_ms else 0),
        0,
        poll_ms,
        0,
        wanted.sub_string,
        wanted.expression_type,
    )
    timeout_s = poll_ms / 1_000 + ANSWER_SECONDS
    code = codes.PULL_MESSAGE
    answer = await service.brokers.ask(address, code, header, b"", timeout_s, accepted=_ACCEPTED)
    found = header_of(answer, PullMessageResponse, code)
    if answer.code == codes.PULL_OFFSET_MOVED:
        raise StatusError(
            Code.ILLEGAL_OFFSET,
            f"the offset is {request.offset}; queue {queue_id} of topic {topic} has those from "
            f"{found.min_offset} to {found.max_offset}",
        )
    records: list[Record] = []
    messages = []
    began_ns = 0 if service.spans is None else service.spans.now_ns()
    if answer.code == codes.SUCCESS:
        now = service.brokers.now_ms()
        try:
            records = [each for outer in decode_all(answer.body or b"") for each in unwrap(outer)]
            messages = [
                message_of(record, topic, now_ms=now, asked=request.message_queue.topic)
                for record in records
            ]
        except (Malformed, ValueError) as wrong:
            raise StatusError(
                Code.INTERNAL_SERVER_ERROR, f"the messages of {address} can't be read: {wrong}"
            ) from None
    if messages:
        call.put(Answer(status=OK_STATUS))
    else:
        status = StatusError(Code.MESSAGE_NOT_FOUND, "no new message").status()
        call.put(Answer(status=status))
    for message in messages:
        await call.write(Answer(message=message))
    if service.spans is not None:
        for record in records:
            service.spans.received(record, topic, group, began_ns=began_ns)
    call.put(Answer(next_offset=found.next_offset))


def _poll_ms(service: Service, call: Call, request: Any) -> int:
    wanted = times.to_ms(
        request.long_polling_timeout, "long_polling_timeout", Code.ILLEGAL_POLLING_TIME
    )
    return within_limits(service, call, wanted)
