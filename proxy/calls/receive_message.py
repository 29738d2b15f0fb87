"""ReceiveMessage: a pop of one broker; with several, all of them are asked and waited for."""

import asyncio
import logging
import random
from dataclasses import dataclass
from typing import Any

from ...protocol import codes
from ...protocol.bodies.subscription import SubscriptionData
from ...protocol.command import Command
from ...protocol.errors import Malformed
from ...protocol.headers.pop import (
    Notification,
    NotificationResponse,
    PopMessage,
    PopMessageResponse,
)
from ...protocol.message import pop_handles
from ...protocol.message import properties as props
from ...protocol.message.batch import unwrap
from ...protocol.message.record import Record, decode_all
from ...protocol.names import DLQ_PREFIX
from ..handles.receipt import Receipt, read
from ..http2.call import Call
from ..messages import definitions, times
from ..messages.names import group_of, topic_of
from ..messages.receiving import message_of
from ..messages.status import OK_STATUS, Code, StatusError
from ..routes.topics import TopicRoute
from ..telemetry.membership import subscription_of
from .service import Service, delivery_time

log = logging.getLogger(__name__)

ReceiveMessageResponse = definitions.message("ReceiveMessageResponse")
ALL_QUEUES = -1
BATCH_MAX = 32
CHUNK_BYTES = 256 << 10  # of bodies that are written together
ANSWER_SECONDS = 5.0  # beyond the time that a broker may wait
REQUEST_MS = 3_000  # of clients that don't say their request time-out
FROM_END = 1  # init mode: a new group begins at the end
WAIT_MS_MAX = 5_000  # of one notification: brokers are asked again, routes change
_FOUND = (codes.SUCCESS, codes.POLLING_TIMEOUT, codes.PULL_NOT_FOUND)


@dataclass(slots=True)
class ReceiveRequest:
    """The checked values of a receive request. Times in ms."""

    client_id: str
    group: str
    topic: str
    asked: Any  # the Resource that names the topic
    wanted: SubscriptionData
    max_messages: int
    invisible_ms: int
    in_order: bool
    attempts_max: int
    attempt_id: str | None
    renews: bool


@dataclass(slots=True)
class Delivery:
    """One popped message, to be delivered for the n-th time (`attempt`)."""

    record: Record
    receipt: Receipt
    attempt: int
    message_id: str
    pairs: dict[str, str]


async def receive_message(service: Service, call: Call, client_id: str, request: Any) -> None:
    """A status, the messages, the time."""
    poll_ms = _poll_ms(service, call, client_id, request)
    receive = await _receive_request(service, client_id, request)
    route = await service.topics.route(receive.topic)
    pop = asyncio.create_task(_pop_any(service, route, receive, _first(route, request), poll_ms))
    try:
        popped = await asyncio.shield(pop)
    except asyncio.CancelledError:
        # What the brokers hand out now reaches no client.
        pop.add_done_callback(lambda done: _give_back_later(service, receive, done))
        raise
    began_ns = 0 if service.spans is None else service.spans.now_ns()
    found = await _deliverable(service, receive, popped)
    await _deliver(service, call, receive, found, were_some=bool(popped))
    if service.spans is not None:
        for each in found:
            topic = pop_handles.normal_topic(each.record.topic, receive.group)
            service.spans.received(each.record, topic, receive.group, began_ns=began_ns)


async def _deliver(
    service: Service, call: Call, receive: ReceiveRequest, found: list[Delivery], *, were_some: bool
) -> None:
    now = service.brokers.now_ms()
    if not found:
        said = "no match message" if were_some else "no new message"
        raise StatusError(Code.MESSAGE_NOT_FOUND, said)
    answers = [ReceiveMessageResponse(status=OK_STATUS)]
    undelivered, size = list(found), 0
    try:
        for number, each in enumerate(found, 1):
            answer = ReceiveMessageResponse()
            answer.message.CopyFrom(_message(each, receive, now))
            answers.append(answer)
            size += len(each.record.body)
            if size < CHUNK_BYTES and number < len(found):
                continue
            if receive.renews:
                _keep(service, receive, found[len(found) - len(undelivered) : number])
            call.put_all(answers)
            await call.drained()
            if call.is_done:
                break
            undelivered = found[number:]
            answers, size = [], 0
    finally:
        if undelivered:  # the client is gone
            _give_back(service, receive, undelivered)
    last = ReceiveMessageResponse()
    delivery_time(last, now)
    call.put(last)
    if receive.renews:
        call.when_received(lambda got: None if got else _not_received(service, receive, found))


def _message(delivery: Delivery, receive: ReceiveRequest, now_ms: int) -> Any:
    record = delivery.record
    return message_of(
        record,
        pop_handles.normal_topic(record.topic, receive.group),
        now_ms=now_ms,
        handle=delivery.receipt.full_text,
        attempt=delivery.attempt,
        pairs=delivery.pairs,
        asked=receive.asked,
    )


def _keep(service: Service, receive: ReceiveRequest, found: list[Delivery]) -> None:
    """Keep these messages invisible until the client is done with them."""
    service.clients.seen(receive.client_id)
    for each in found:
        service.keeper.keep(
            receive.client_id,
            receive.group,
            receive.topic,
            each.message_id,
            each.receipt,
            attempt=each.attempt,
        )


def _give_back(service: Service, receive: ReceiveRequest, undelivered: list[Delivery]) -> None:
    for each in undelivered:
        kept = service.keeper.find(receive.client_id, receive.group, each.message_id, each.receipt)
        if kept is not None:
            service.keeper.drop(kept)
    receipts = [each.receipt for each in undelivered]
    service.keeper.give_back_soon(receive.group, receive.topic, receipts)


def _not_received(service: Service, receive: ReceiveRequest, found: list[Delivery]) -> None:
    """The answer may not have reached the client, which then never acknowledges what is renewed."""
    for each in found:
        service.keeper.release_soon(receive.client_id, receive.group, each.message_id, each.receipt)


def _give_back_later(
    service: Service, receive: ReceiveRequest, done: "asyncio.Task[list[Delivery]]"
) -> None:
    if not done.cancelled() and done.exception() is None:
        receipts = [each.receipt for each in done.result()]
        service.keeper.give_back_soon(receive.group, receive.topic, receipts)


def _poll_ms(service: Service, call: Call, client_id: str, request: Any) -> int:
    """The time that the brokers may wait for a message, ms."""
    remaining_s = call.remaining_s()
    remaining = None if remaining_s is None else int(remaining_s * 1_000)
    if request.HasField("long_polling_timeout"):
        wanted = times.to_ms(
            request.long_polling_timeout, "long_polling_timeout", Code.ILLEGAL_POLLING_TIME
        )
    elif remaining is None:
        wanted = service.config.grpc_client_consumer_max_long_polling_timeout_millis
    else:
        client = service.clients.get(client_id)
        timeout_ms = REQUEST_MS
        if client is not None and client.has_settings("request_timeout"):
            timeout_ms = times.to_ms(client.settings.request_timeout, "request_timeout")
        wanted = remaining - timeout_ms // 2
    return within_limits(service, call, wanted)


def within_limits(service: Service, call: Call, wanted: int) -> int:
    """The part of `wanted` ms that the brokers may wait: within the limits of the settings, and so
    that the response surely finds the client waiting."""
    config = service.config
    wanted = max(wanted, config.grpc_client_consumer_min_long_polling_timeout_millis)
    wanted = min(wanted, config.grpc_client_consumer_max_long_polling_timeout_millis)
    seconds = call.answer_in_s()
    return max(0, wanted if seconds is None else min(wanted, int(seconds * 1_000)))


async def _receive_request(service: Service, client_id: str, request: Any) -> ReceiveRequest:
    topic, group = topic_of(request.message_queue.topic), group_of(request.group)
    config = service.config
    renews = config.enable_proxy_auto_renew and request.auto_renew
    if renews:
        invisible_ms = config.default_invisible_time_mills
    else:
        invisible_ms = times.to_ms(
            request.invisible_duration, "invisible_duration", Code.ILLEGAL_INVISIBLE_TIME
        )
        check_invisible(service, invisible_ms, config.min_invisible_time_mills_for_recv)
    settings = await service.topics.group(group)
    return ReceiveRequest(
        client_id,
        group,
        topic,
        request.message_queue.topic,
        filter_of(topic, request.filter_expression),
        max(1, min(request.batch_size, BATCH_MAX)),
        invisible_ms,
        settings.consume_message_orderly,
        settings.retry_max_times + 1,
        request.attempt_id if request.HasField("attempt_id") else None,
        renews,
    )


def check_invisible(service: Service, ms: int, least: int = 0) -> None:
    """StatusError ILLEGAL_INVISIBLE_TIME outside of the limits."""
    most = service.config.max_invisible_time_mills
    if ms < least:
        raise StatusError(
            Code.ILLEGAL_INVISIBLE_TIME,
            f"the invisibleTime is too small. min is {least}, it is {ms} ms",
        )
    if most and ms > most:
        raise StatusError(
            Code.ILLEGAL_INVISIBLE_TIME,
            f"the invisibleTime is too large. max is {most}, it is {ms} ms",
        )


def filter_of(topic: str, expression: Any) -> SubscriptionData:
    """The subscription of a filter; StatusError ILLEGAL_FILTER_EXPRESSION."""
    try:
        return subscription_of(topic, expression)
    except ValueError as wrong:
        raise StatusError(Code.ILLEGAL_FILTER_EXPRESSION, str(wrong)) from None


def _first(route: TopicRoute, request: Any) -> str:
    """The broker that the request names, or any."""
    names = [name for name, _ in route.readable]
    named: str = request.message_queue.broker.name
    if named in names:
        return named
    if not names:
        raise StatusError(
            Code.FORBIDDEN, f"no readable queue of topic {route.topic}; check its permission"
        )
    return random.choice(names)  # noqa: S311


async def _pop_any(
    service: Service, route: TopicRoute, receive: ReceiveRequest, first: str, poll_ms: int
) -> list[Delivery]:
    """Messages of the first broker, or of any other; none once the time is up."""
    names = [first, *(name for name, _ in route.readable if name != first)]
    if len(names) == 1:
        return await _pop(service, receive, first, poll_ms)
    loop = asyncio.get_running_loop()
    until = loop.time() + poll_ms / 1_000
    failure: StatusError | None = None
    while True:
        failures = 0
        for name in names:
            try:
                found = await _pop(service, receive, name, 0)
            except StatusError as wrong:
                failure, failures = wrong, failures + 1
                continue
            if found:
                return found
        if failure is not None and failures == len(names):
            raise failure
        left_ms = int((until - loop.time()) * 1_000)
        if left_ms <= 0:
            return []
        names = await _with_messages(service, receive, names, min(left_ms, WAIT_MS_MAX))


async def _with_messages(
    service: Service, receive: ReceiveRequest, names: list[str], wait_ms: int
) -> list[str]:
    """Wait until a broker has a message; the brokers, those with one first."""
    header = Notification(
        receive.group,
        receive.topic,
        ALL_QUEUES,
        wait_ms,
        service.brokers.now_ms(),
        receive.in_order,
        receive.attempt_id,
    )
    by_address = {
        address: name for name in names if (address := service.brokers.address(name)) is not None
    }
    began = asyncio.get_running_loop().time()
    answers = await service.brokers.first_answer(
        [(address, codes.NOTIFICATION, header) for address in by_address],
        wait_ms / 1_000 + ANSWER_SECONDS,
    )
    having = [
        by_address[address]
        for address, answer in answers.items()
        if answer.header(NotificationResponse).has_message
    ]
    if not having and asyncio.get_running_loop().time() - began < 0.05:
        await asyncio.sleep(0.05)  # brokers that don't wait: too many wait there already
    return having + [name for name in names if name not in having]


async def _pop(
    service: Service, receive: ReceiveRequest, broker: str, poll_ms: int
) -> list[Delivery]:
    address = service.brokers.address(broker)
    if address is None:
        raise StatusError(Code.BAD_REQUEST, f"cannot find broker {broker}")
    header = PopMessage(
        receive.group,
        receive.topic,
        ALL_QUEUES,
        receive.max_messages,
        receive.invisible_ms,
        poll_ms,
        FROM_END,
        service.brokers.now_ms(),
        receive.wanted.expression_type,
        receive.wanted.sub_string,
        receive.in_order,
        receive.attempt_id,
    )
    timeout_s = poll_ms / 1_000 + ANSWER_SECONDS
    answer = await service.brokers.ask(
        address, codes.POP_MESSAGE, header, b"", timeout_s, accepted=_FOUND
    )
    if answer.code != codes.SUCCESS:
        return []
    try:
        return _deliveries(answer, broker)
    except (Malformed, ValueError) as wrong:
        raise StatusError(
            Code.INTERNAL_SERVER_ERROR, f"the messages of broker {broker} can't be read: {wrong}"
        ) from None


def _deliveries(answer: Command, broker: str) -> list[Delivery]:
    infos = answer.header(PopMessageResponse)
    starts = pop_handles.entries_of(infos.start_offset_info)
    counts = pop_handles.entries_of(infos.order_count_info)
    found = []
    for outer in decode_all(answer.body or b""):
        for record in unwrap(outer):
            pairs = record.properties
            flag, queue = pop_handles.retry_flag(record.topic), str(record.queue_id)
            inside = pairs.get(props.POP_CK)
            if inside is not None:
                receipt = read(f"{inside} {record.log_offset}")
            else:
                start = starts.get((flag, queue))
                known = pop_handles.Handle(
                    record.queue_offset if start is None else int(start),
                    infos.pop_ms,
                    infos.invisible_ms,
                    infos.revive_queue_id,
                    flag,
                    broker,
                    record.queue_id,
                    record.queue_offset,
                )
                receipt = Receipt(pop_handles.handle(*known), known, record.log_offset)
            count = counts.get((flag, f"qo{queue}%{record.queue_offset}")) or counts.get(
                (flag, queue)
            )
            times_before = max(record.reconsume_times, int(count or 0))
            message_id = pairs.get(props.UNIQ_KEY) or record.offset_id
            found.append(Delivery(record, receipt, times_before + 1, message_id, pairs))
    return found


async def _deliverable(
    service: Service, receive: ReceiveRequest, popped: list[Delivery]
) -> list[Delivery]:
    """Without messages whose tag only has a wanted hash, which are acknowledged, and without
    messages that were delivered too often, which go to the dead letter topic."""
    tags = {tag.encode() for tag in receive.wanted.tags_set}
    is_dead_letter = receive.topic.startswith(DLQ_PREFIX)
    found, others = [], []
    for each in popped:
        if tags and props.find(each.record.raw_properties, b"TAGS") not in tags:
            others.append(service.popped.ack(receive.group, receive.topic, each.receipt))
        elif each.attempt > receive.attempts_max and not is_dead_letter:
            others.append(
                service.popped.forward(receive.group, receive.topic, each.receipt, each.message_id)
            )
        else:
            found.append(each)
    for result in await asyncio.gather(*others, return_exceptions=True):
        if isinstance(result, BaseException):
            log.warning("a message that is not delivered comes again: %s", result)
    return found
