"""ACK_MESSAGE (200051), BATCH_ACK_MESSAGE (200151), CHANGE_MESSAGE_INVISIBLETIME (200053).

With the handle of a popped message a consumer acknowledges it or asks for more time. A handle of
another broker, or one that does not fit the message, is refused with the reason; clients take that
as "no such message". A late request, after the message became visible again, changes nothing. A
late acknowledgement succeeds all the same, as in RocketMQ (the remark says so); a late request for
more time is refused.
"""

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.bodies.body import body_of
from ...protocol.bodies.pop import BatchAck, BatchAckMessageRequestBody
from ...protocol.command import OK, Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.pop import AckMessage, ChangeInvisibleTime, ChangeInvisibleTimeResponse
from ...protocol.message.pop_handles import (
    ORDER_REVIVE_QUEUE,
    Handle,
    normal_topic,
    parse_handle,
    real_topic,
    retry_flag,
)
from ...store.base.errors import StoreError
from ...store.engine.store import MessageStore
from ..access import gates, needs
from ..groups.groups import Groups
from ..groups.offsets import Offsets
from ..runtime.stats import Stats
from ..settings.config import BrokerConfig
from ..topics.topics import Topics
from .buffer import PopBuffer
from .checkpoints import MESSAGES_MAX, CheckPoint, CheckPointKey
from .counters import PopMeters
from .handlers import INVISIBLE_MS_MAX
from .orders import NOT_OF_BATCH, OTHER_POP, PopOrders
from .revive import LATE_ACK_MS
from .revive_log import PopLog

ACKS_MAX = 10_000  # check points in one request
BITS_BYTES_MAX = 4_096  # of one check point in a batch; more messages than a pop returns
CLOCK_MS_MAX = 60_000  # how far ahead a handle's pop time may be: the clock was set back

_NO_CHANGE = ChangeInvisibleTimeResponse().to_fields()  # clients read the header before the code


class TooLate(Refusal):
    """The message is out again; an acknowledgement is answered with success all the same."""


@dataclass(slots=True, eq=False)
class PopAckHandlers:
    """Takes acknowledgements. `wake(topic, group, queue_id)` says that a queue is free again."""

    config: BrokerConfig
    store: MessageStore
    topics: Topics
    groups: Groups
    offsets: Offsets
    buffer: PopBuffer
    orders: PopOrders
    log: PopLog
    stats: Stats
    meters: PopMeters
    wake: Callable[[str, str, int], None]
    now_ms: Callable[[], int]

    def rows(self) -> list[Row]:
        return [
            Row(codes.ACK_MESSAGE, AckMessage, self.on_ack, needs.POP, gates.POP),
            Row(codes.BATCH_ACK_MESSAGE, None, self.on_batch_ack, needs.BATCH_ACK, gates.POP),
            Row(
                codes.CHANGE_MESSAGE_INVISIBLETIME,
                ChangeInvisibleTime,
                self.on_change,
                needs.POP,
                gates.POP,
            ),
        ]

    def on_ack(self, header: AckMessage, command: Command, connection: Connection) -> Response:
        self._check_group(header.group)
        self._check_place(header.topic, header.queue_id, header.offset)
        handle = self._handle(header)
        topic, group, offset = header.topic, header.group, header.offset
        try:
            if handle.is_order:
                self._ack_in_order(topic, group, header.queue_id, offset, handle)
            else:
                self._ack(topic, group, handle, [offset])
        except TooLate as late:
            return Response(codes.SUCCESS, remark=late.remark)
        return OK

    def on_batch_ack(self, header: None, command: Command, connection: Connection) -> Response:
        """Acknowledge the batch as far as possible: the response names the first failure."""
        if not command.body:
            raise Refusal(codes.NO_MESSAGE, "the request has no body, so it acknowledges nothing")
        acks = body_of(command, BatchAckMessageRequestBody).acks
        if not acks or len(acks) > ACKS_MAX:
            raise Refusal(
                codes.NO_MESSAGE,
                f"the request has {len(acks)} acknowledgements, there must be 1 to {ACKS_MAX}; "
                "send several requests",
            )
        wrong: Refusal | None = None
        late: str | None = None
        for ack in acks:
            try:
                self._batch_ack(ack)
            except TooLate as refusal:
                late = late or refusal.remark
            except Refusal as refusal:
                wrong = wrong or refusal
        if wrong is not None:
            raise wrong
        return OK if late is None else Response(codes.SUCCESS, remark=late)

    def on_change(
        self, header: ChangeInvisibleTime, command: Command, connection: Connection
    ) -> Response:
        try:
            return self._change(header)
        except Refusal as refusal:
            refusal.fields = _NO_CHANGE
            raise

    # --- inside ---------------------------------------------------------------------------------

    def _change(self, header: ChangeInvisibleTime) -> Response:
        self._check_group(header.group)
        self._check_place(header.topic, header.queue_id, header.offset)
        handle = self._handle(header)
        if not 0 <= header.invisible_ms <= INVISIBLE_MS_MAX:
            raise Refusal(
                codes.INVALID_PARAMETER,
                f"the invisible time is {header.invisible_ms} ms, it must be 0 to "
                f"{INVISIBLE_MS_MAX}",
            )
        now_ms = self.now_ms()
        if handle.is_order:
            return self._change_in_order(header, handle, now_ms)
        key: CheckPointKey = (header.topic, header.group, header.queue_id, *handle[:2])
        self._check_popped(key, [header.offset])
        self._check_time(handle, now_ms)
        point = CheckPoint(
            header.topic,
            header.group,
            header.queue_id,
            header.offset,
            now_ms,
            header.invisible_ms,
            handle.revive_queue_id,
            (header.offset,),
        )
        try:
            end = self.log.check_point(point)
        except StoreError as wrong:
            raise Refusal(codes.SYSTEM_ERROR, str(wrong)) from None
        self.stats.check_point(header.topic, header.group)
        self._ack(header.topic, header.group, handle, [header.offset], end)
        self.meters.popped(header.topic, header.group, header.queue_id, 1)  # it still is
        answer = ChangeInvisibleTimeResponse(now_ms, header.invisible_ms, handle.revive_queue_id)
        return Response(codes.SUCCESS, answer.to_fields())

    def _change_in_order(
        self, header: ChangeInvisibleTime, handle: Handle, now_ms: int
    ) -> Response:
        key = (header.topic, header.group, header.queue_id)
        if header.offset < self.offsets.get(*key):
            return Response(codes.SUCCESS, _NO_CHANGE)  # it is done already
        visible_ms = now_ms + header.invisible_ms
        if not self.orders.hide(key, header.offset, handle.pop_ms, visible_ms):
            _out_again(handle)
        answer = ChangeInvisibleTimeResponse(
            handle.pop_ms, visible_ms - handle.pop_ms, ORDER_REVIVE_QUEUE
        )
        return Response(codes.SUCCESS, answer.to_fields())

    def _batch_ack(self, ack: BatchAck) -> None:
        try:
            topic = real_topic(ack.topic, ack.consumer_group, ack.retry)
            numbers = _bits(ack.bits)
        except ValueError as wrong:
            raise Refusal(codes.SYSTEM_ERROR, f"the handle is wrong: {wrong}") from None
        handle = Handle(
            ack.start_offset,
            ack.pop_time,
            ack.invisible_time,
            ack.revive_queue_id,
            ack.retry,
            self.config.broker_name,
            ack.queue_id,
            -1,
        )
        self._check_group(ack.consumer_group)
        self._check_handle(handle)
        offsets = [ack.start_offset + number for number in numbers]
        for offset in offsets:
            self._check_place(topic, ack.queue_id, offset)
        if handle.is_order:
            for offset in offsets:
                self._ack_in_order(topic, ack.consumer_group, ack.queue_id, offset, handle)
        elif offsets:
            self._ack(topic, ack.consumer_group, handle, offsets)

    def _ack(
        self, topic: str, group: str, handle: Handle, offsets: list[int], log_end: int = 0
    ) -> None:
        key: CheckPointKey = (topic, group, handle.queue_id, *handle[:2])
        self._check_popped(key, offsets)
        if not self.buffer.ack(key, offsets, log_end):
            self._check_time(handle, self.now_ms())
            revive_ms = handle.pop_ms + handle.invisible_ms
            try:
                self.log.ack(key, offsets, handle.revive_queue_id, revive_ms)
            except StoreError as wrong:
                raise Refusal(codes.SYSTEM_ERROR, str(wrong)) from None
        self.stats.acknowledged(topic, group, len(offsets))
        left = self.meters.finished(topic, group, handle.queue_id, len(offsets))
        most = self.config.pop_inflight_message_threshold
        if self.config.enable_pop_message_threshold and left <= most < left + len(offsets):
            self.wake(normal_topic(topic, group), group, handle.queue_id)

    def _check_popped(self, key: CheckPointKey, offsets: list[int]) -> None:
        """Refusal when the check point is known and has other messages."""
        point = self.buffer.find(key)
        unknown = [] if point is None else [each for each in offsets if each not in point.offsets]
        if unknown:
            topic, _, queue_id, start, _ = key
            raise Refusal(
                codes.MESSAGE_ILLEGAL,
                f"messages {unknown[:MESSAGES_MAX]} of {topic}/{queue_id} were not popped with "
                f"this handle, which is of the pop from {start} on; send a message's own handle",
            )

    def _ack_in_order(
        self, topic: str, group: str, queue_id: int, offset: int, handle: Handle
    ) -> None:
        key = (topic, group, queue_id)
        if offset < self.offsets.get(*key):
            return  # it is done already
        reached = self.orders.ack(key, offset, handle.pop_ms)
        if reached == OTHER_POP:
            _out_again(handle)
        if reached == NOT_OF_BATCH:
            raise Refusal(
                codes.MESSAGE_ILLEGAL,
                f"offset is illegal, key:{topic}@{group}@{queue_id}, commit:{offset}: it was not "
                "popped with this handle",
            )
        if key not in self.offsets.resets:
            self.offsets.commit(*key, reached)
        if not self.orders.is_blocked(key, None):
            self.wake(topic, group, queue_id)

    def _handle(self, header: AckMessage | ChangeInvisibleTime) -> Handle:
        """The handle of a request; Refusal when it can't be one of this message."""
        try:
            handle = parse_handle(header.extra_info)
        except ValueError as wrong:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"the handle [{header.extra_info[:200]}] can't be read: {wrong}; send it as the "
                "pop gave it",
            ) from None
        if handle.broker_name != self.config.broker_name:
            raise Refusal(
                codes.MESSAGE_ILLEGAL,
                f"the handle is of broker {handle.broker_name[:100]}, this is "
                f"{self.config.broker_name}; ask the broker that the message came from",
            )
        if handle.queue_id != header.queue_id or handle.retry != retry_flag(header.topic):
            raise Refusal(
                codes.MESSAGE_ILLEGAL,
                f"the handle is of queue {handle.queue_id}, retry flag {handle.retry}, but the "
                f"request names queue {header.queue_id} of {header.topic}; send a message's own "
                "handle",
            )
        if handle.offset not in (-1, header.offset) or header.offset < handle.start_offset:
            raise Refusal(
                codes.MESSAGE_ILLEGAL,
                f"the handle is of offset {handle.offset}, popped from {handle.start_offset} on, "
                f"but the request names {header.offset}; send a message's own handle",
            )
        self._check_handle(handle)
        return handle

    def _check_handle(self, handle: Handle) -> None:
        """Refusal when no pop of this broker can have given such a handle."""
        queues = self.config.revive_queue_num
        if not handle.is_order and not 0 <= handle.revive_queue_id < queues:
            raise Refusal(
                codes.MESSAGE_ILLEGAL,
                f"the handle is of revive queue {handle.revive_queue_id}, there are 0 to "
                f"{queues - 1} (reviveQueueNum)",
            )
        ahead_ms = handle.pop_ms - self.now_ms()
        if ahead_ms > CLOCK_MS_MAX or not 0 <= handle.invisible_ms <= INVISIBLE_MS_MAX:
            raise Refusal(
                codes.MESSAGE_ILLEGAL,
                f"the handle is of pop time {handle.pop_ms} and invisible time "
                f"{handle.invisible_ms} ms, which no pop here has given",
            )

    def _check_group(self, group: str) -> None:
        """Refusal when the group is unknown: a pop creates its group, so it has popped nothing."""
        if self.groups.get(group) is None:
            raise Refusal(
                codes.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group[:200]}] does not exist, so it has popped nothing; "
                "send the group that popped, or where it was deleted, pop again",
            )

    def _check_place(self, topic: str, queue_id: int, offset: int) -> None:
        """Refusal when there is no such message."""
        config = self.topics.get(topic)
        if config is None:
            raise Refusal(codes.TOPIC_NOT_EXIST, f"topic[{topic}] not exist; was it deleted?")
        if not 0 <= queue_id < config.read_queue_nums:
            raise Refusal(
                codes.MESSAGE_ILLEGAL,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{config.read_queue_nums}]; a message "
                "from a queue that is gone comes again when its time is up",
            )
        least = self.store.min_offset(topic, queue_id)
        most = self.store.max_offset(topic, queue_id)
        if not least <= offset < most:
            raise Refusal(
                codes.NO_MESSAGE,
                f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{least}~{most}"
                "; send a message's own handle",
            )

    @staticmethod
    def _check_time(handle: Handle, now_ms: int) -> None:
        """TooLate when the handle's time is up, so that its messages are out again."""
        late_ms = now_ms - handle.pop_ms - handle.invisible_ms
        if late_ms > LATE_ACK_MS:
            raise TooLate(
                codes.NO_MESSAGE,
                f"the handle expired {late_ms} ms ago: its messages were invisible for "
                f"{handle.invisible_ms} ms and come again; pop them with a longer time, or change "
                "it before it is up",
            )


def _out_again(handle: Handle) -> NoReturn:
    raise TooLate(
        codes.NO_MESSAGE,
        f"the handle of {handle.pop_ms} expired: the queue was popped again since, so use the "
        "handle of the last pop",
    )


def _bits(text: str) -> list[int]:
    """The numbers of the set bits of a little-endian bit set, given as base64."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"its bits are no base64: {text[:100]!r}") from None
    if len(data) > BITS_BYTES_MAX:
        raise ValueError(f"its bits have {len(data)} bytes, the limit is {BITS_BYTES_MAX}")
    value = int.from_bytes(data, "little")
    return [number for number in range(value.bit_length()) if value >> number & 1]
