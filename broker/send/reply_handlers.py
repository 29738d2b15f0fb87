"""SEND_REPLY_MESSAGE (324, 325): the reply of one client to another's request.

A reply is pushed to the producer of the request, over its connection to this broker, and the
replier learns whether it was delivered. With storeReplyMessageEnable the reply is also stored in
its topic, even if it was not delivered.
"""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.command import Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.send import (
    ReplyMessage,
    SendMessage,
    SendMessageResponse,
    SendMessageV1,
)
from ...protocol.message import properties
from ...protocol.message.message_id import offset_message_id
from ...protocol.message.record import TRANSACTION_MASK
from ...protocol.message.tags import raw_tags_code
from ...store.base.errors import StoreError
from ...store.engine.messages import Message
from ...store.engine.store import MessageStore
from ..access import needs
from ..groups.clients import Clients
from ..runtime.arrivals import above_small, type_of
from ..runtime.stats import Stats
from ..settings.config import BrokerConfig
from ..topics.topics import Target, Topics

log = logging.getLogger(__name__)

PUSH_SECONDS = 10.0  # RocketMQ's Broker2Client.callClient
PUSHED_BYTES_MAX = 16 << 20  # of replies on their way to one client
NOT_STORED = "0"  # msgId of a reply that is not kept: Java's client wants one


@dataclass(slots=True, eq=False)
class ReplyHandlers:
    """Hands replies on. `mark((topic, queue))` says that a message was stored there."""

    config: BrokerConfig
    store: MessageStore
    topics: Topics
    clients: Clients
    stats: Stats
    mark: Callable[[tuple[str, int]], None]
    address: str
    now_ms: Callable[[], int]
    _pushed: dict[Connection, int] = field(init=False, default_factory=dict)  # bytes on their way

    def rows(self) -> list[Row]:
        return [
            Row(codes.SEND_REPLY_MESSAGE, SendMessageV1, self.on_reply, needs.ANY_USER),
            Row(codes.SEND_REPLY_MESSAGE_V2, SendMessage, self.on_reply, needs.ANY_USER),
        ]

    async def on_reply(
        self, header: SendMessage | SendMessageV1, command: Command, connection: Connection
    ) -> Response:
        trace_on = self.config.trace_on
        region = {"MSG_REGION": self.config.region_id, "TRACE_ON": str(trace_on).lower()}
        try:
            target = self._target(header, connection)
        except Refusal as refusal:
            refusal.fields = region
            raise
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = random.randrange(max(1, target.config.write_queue_nums))  # noqa: S311
        answer = SendMessageResponse(NOT_STORED, queue_id, 0)
        answer.region, answer.trace_on = self.config.region_id, trace_on
        pairs = properties.decode(header.properties or "")
        pairs |= region
        header.properties = properties.encode(pairs).decode()
        why_not = await self._push(header, command, connection)
        if self.config.store_reply_message_enable:
            self._store(header, command, connection, target, queue_id, answer)
        if why_not is None:
            return Response(codes.SUCCESS, answer.to_fields())
        is_kept = answer.msg_id != NOT_STORED
        return Response(codes.SYSTEM_ERROR, answer.to_fields() if is_kept else region, why_not)

    def _target(self, header: SendMessage | SendMessageV1, connection: Connection) -> Target:
        """The topic of the reply, created if allowed; else Refusal."""
        topic = header.topic
        is_new = topic not in self.topics.targets
        target = self.topics.for_send(header, connection.address)
        if is_new:
            self.topics.save_made()
        self.topics.check_open(target)
        if header.queue_id >= target.queues:
            raise Refusal(
                codes.INVALID_PARAMETER,
                f"request queueId[{header.queue_id}] is illegal, topic {topic} has "
                f"{target.queues} queues; refresh the route",
            )
        return target

    async def _push(
        self, header: SendMessage | SendMessageV1, command: Command, connection: Connection
    ) -> str | None:
        """Push the reply to the client that asked; the reason if that failed, else None."""
        pairs = properties.decode(header.properties or "")
        asker = pairs.get(properties.REPLY_TO_CLIENT)
        if asker is None:
            return f"reply message properties[{properties.REPLY_TO_CLIENT}] is null"
        producer = self.clients.find_producer(asker)
        if producer is None or producer.is_lost:
            return (
                f"push reply message fail, channel of <{asker}> not found. The client that asked "
                "has left this broker; it has to ask again"
            )
        now_ms = self.now_ms()
        pairs[properties.PUSH_REPLY_TIME] = str(now_ms)
        pushed = ReplyMessage(
            header.producer_group,
            header.topic,
            header.default_topic,
            header.default_topic_queues,
            header.queue_id,
            header.sys_flag,
            header.born_ms,
            header.flag,
            connection.address,
            self.address,
            now_ms,
            properties.encode(pairs).decode(),
            header.reconsume_times or 0,
            bool(header.unit_mode),
        )
        body = command.body or b""
        waiting = self._pushed.get(producer, 0)
        if waiting and waiting + len(body) > PUSHED_BYTES_MAX:
            return (
                f"push reply message to {asker} fail. [OVERLOAD]{waiting} bytes of replies are on "
                f"their way to it, with this one's {len(body)} they would be over the limit of "
                f"{PUSHED_BYTES_MAX}; reply again later"
            )
        self._pushed[producer] = waiting + len(body)
        code = codes.PUSH_REPLY_MESSAGE_TO_CLIENT
        try:
            taken = await producer.ask(code, pushed.to_fields(), body, PUSH_SECONDS)
        except (ConnectionError, TimeoutError) as wrong:
            why = str(wrong) or f"it did not read what it is sent for {PUSH_SECONDS:g} s"
            return f"push reply message to {asker} fail. {why}"
        finally:
            self._pushed[producer] -= len(body)
            if not self._pushed[producer]:
                del self._pushed[producer]
        if taken.code != codes.SUCCESS:
            return f"push reply message to {asker} fail. It answered {taken.code} {taken.remark}"
        return None

    def _store(
        self,
        header: SendMessage | SendMessageV1,
        command: Command,
        connection: Connection,
        target: Target,
        queue_id: int,
        answer: SendMessageResponse,
    ) -> None:
        """Store the reply and put its position into the response. A failure is only logged, as in
        RocketMQ: the producer of the request may have the reply already."""
        text = header.properties or ""
        if text and text[-1] != properties.PAIR_SEPARATOR:
            text += properties.PAIR_SEPARATOR
        try:
            # RocketMQ drops the flags here, so that a compressed reply can't be read any more.
            log_offset, queue_offset, end = self.store.put(
                Message(
                    (target.name, queue_id),
                    header.flag,
                    header.sys_flag & ~TRANSACTION_MASK,
                    header.born_ms,
                    connection.host,
                    command.body or b"",
                    text.encode(),
                    raw_tags_code(text.encode()),
                    header.reconsume_times or 0,
                ),
            )
        except StoreError as wrong:
            self.stats.failures.messages += 1
            log.warning("a reply of %s is not kept: %s", connection.address, wrong)
            return
        size = end - log_offset
        target.puts.add(1, size, type_of(properties.decode(text)), above_small((size,)))
        self.mark((target.name, queue_id))
        answer.msg_id = offset_message_id(self.store.host, log_offset)
        answer.queue_offset = queue_offset
