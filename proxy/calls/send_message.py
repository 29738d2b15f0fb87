"""SendMessage: each message becomes one send request; requests of one tick leave in one write."""

import asyncio
from typing import Any

from ...client.errors import AerobeeError
from ...protocol import codes
from ...protocol.command import Command
from ...protocol.headers.send import SendMessage, SendMessageResponse
from ...protocol.message.message_id import parse_offset_message_id
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX
from ..http2.call import Call
from ..messages import definitions
from ..messages.names import topic_of
from ..messages.sending import MIXED, TRANSACTION, Outgoing, outgoing
from ..messages.status import OK_STATUS, Code, Status, StatusError, of_broker, of_error, shared
from ..messages.transactions import TransactionId
from ..routes.topics import TopicRoute
from .service import Service

SendMessageAnswer = definitions.message("SendMessageResponse")
Entry = definitions.message("SendResultEntry")
SEND_SECONDS = 2.0
DEFAULT_TOPIC, DEFAULT_QUEUES = "TBW102", 4
MESSAGES_MAX = 1_000  # of one call
# Stored, but not as safely as was asked.
_UNSAFE = (codes.FLUSH_DISK_TIMEOUT, codes.FLUSH_SLAVE_TIMEOUT, codes.SLAVE_NOT_AVAILABLE)
# How brokers begin to say that a time is too far away, for which they have no code.
TIMER_ILLEGAL = "timer message illegal"


async def send_message(service: Service, call: Call, client_id: str, request: Any) -> Any:
    """One entry for each message, in their order."""
    messages = request.messages
    _check_together(messages)
    began_ns = 0 if service.spans is None else service.spans.now_ns()
    peer = f"{call.peer[0]}:{call.peer[1]}"
    now_ms = service.brokers.now_ms()
    found = [outgoing(message, service.config, peer, now_ms) for message in messages]
    route = await _route(service, found[0])
    await _check_kinds(service, route.topic, found)
    if len(found) == 1:
        entries = [await _send(service, route, found[0], began_ns)]
    else:
        entries = await asyncio.gather(*(_send(service, route, each, began_ns) for each in found))
    return SendMessageAnswer(
        status=shared([entry.status for entry in entries], "send status is empty"), entries=entries
    )


def _check_together(messages: Any) -> None:
    if not messages:
        raise StatusError(Code.MESSAGE_CORRUPTED, "no message to send")
    if len(messages) > MESSAGES_MAX:
        raise StatusError(
            Code.PAYLOAD_TOO_LARGE,
            f"the request has {len(messages)} messages, the limit is {MESSAGES_MAX}; send fewer",
        )
    topic = topic_of(messages[0].topic)
    if any(message.topic.name != topic for message in messages):
        raise StatusError(Code.MESSAGE_CORRUPTED, "different message topic")


async def _route(service: Service, first: Outgoing) -> TopicRoute:
    try:
        return await service.topics.route(first.topic)
    except StatusError as wrong:
        if wrong.code != Code.TOPIC_NOT_FOUND or not service.config.auto_create_topic:
            raise
        return await service.topics.create(first.topic, first.kind)


async def _check_kinds(service: Service, topic: str, found: list[Outgoing]) -> None:
    if not service.config.enable_topic_message_type_check:
        return
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return
    expected = service.topics.types.known(topic) or await service.topics.type_of(topic)
    if expected in (MIXED, "UNSPECIFIED"):
        return
    for each in found:
        if each.kind != expected:
            raise StatusError(
                Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"TopicMessageType validate failed, the expected type is {expected}, but actual "
                f"type is {each.kind}",
            )


async def _send(service: Service, route: TopicRoute, message: Outgoing, began_ns: int) -> Any:
    broker, queue_id = service.topics.queue_for(route, message.group)
    entry = await _ask(service, route, message, broker, queue_id)
    if service.spans is not None:
        error = "" if entry.status.code == Code.OK else entry.status.message or "refused"
        service.spans.sent(message, broker, queue_id, began_ns=began_ns, error=error)
    return entry


async def _ask(
    service: Service, route: TopicRoute, message: Outgoing, broker: str, queue_id: int
) -> Any:
    address = service.brokers.address(broker)
    if address is None:
        return Entry(status=Status(code=Code.BAD_REQUEST, message=f"cannot find broker {broker}"))
    header = SendMessage(
        message.topic,
        message.topic,
        DEFAULT_TOPIC,
        DEFAULT_QUEUES,
        queue_id,
        message.sys_flag,
        message.born_ms,
        0,
        message.properties,
        reconsume_times=0,
        unit_mode=False,
        batch=False,
        broker_name=broker,
    )
    try:
        answer = await service.brokers.cluster.request(
            address, codes.SEND_MESSAGE_V2, header, message.body, SEND_SECONDS
        )
        return _entry(service, answer, message, broker)
    except AerobeeError as wrong:
        if service.brokers.cluster.connected(address) is None:
            service.topics.routes.forget(route.topic)  # the broker may have gone elsewhere
        return Entry(status=of_error(wrong).status())


def _entry(service: Service, answer: Command, message: Outgoing, broker: str) -> Any:
    if answer.code in _UNSAFE:
        status = of_broker(answer.code, None).status()
        name = codes.RESPONSE_NAMES[answer.code]
        status.message = f"send message failed, sendStatus={name}"
        return Entry(status=status)
    if answer.code != codes.SUCCESS:
        wrong = of_broker(answer.code, answer.remark)
        if answer.code == codes.MESSAGE_ILLEGAL and wrong.message.startswith(TIMER_ILLEGAL):
            wrong.code = Code.ILLEGAL_DELIVERY_TIME
        return Entry(status=wrong.status())
    sent = answer.header(SendMessageResponse)
    entry = Entry(
        status=OK_STATUS,
        message_id=message.message_id,
        offset=sent.queue_offset,
        transaction_id=sent.transaction_id or "",
        recall_handle=sent.recall_handle or "",
    )
    if message.kind == TRANSACTION:
        _, log_offset = parse_offset_message_id(sent.msg_id)
        half = TransactionId(broker, sent.queue_offset, log_offset, message.message_id)
        service.recent.put(message.topic, half)
        entry.transaction_id = half.text
    return entry
