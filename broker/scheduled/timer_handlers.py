"""Requests about timer messages: 60, 61, 370.

GET_TIMER_CHECK_POINT and GET_TIMER_METRICS tell the progress and the waiting messages. By
RECALL_MESSAGE a producer takes a timer message back before its time. The recall is itself a timer
message for the same slot. It is stored like any other, so it survives a restart. When the slot is
due, recalls are read first, and the messages that they name are left out.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ...protocol import codes
from ...protocol.aio.connection import Connection, Row
from ...protocol.aio.slices import LongResponse, Slices, reply_of
from ...protocol.command import Command, Response
from ...protocol.errors import Refusal
from ...protocol.headers.send import RecallMessage, RecallMessageResponse
from ...protocol.message import properties, recall_handle
from ...protocol.message.recall_handle import RecallHandle
from ...protocol.message.tags import tag_hash
from ...store.base.errors import StoreError
from ...store.engine.messages import Message
from ...store.engine.store import MessageStore
from ...store.timer.timer_log import WHEEL_TOPIC
from ..access import gates, needs
from ..groups.permissions import Permissions
from ..runtime.syncer import Syncer
from ..settings.config import BrokerConfig
from .delivery_policy import DeliveryPolicy
from .timers import Timers


@dataclass(slots=True, eq=False)
class AdminTimerHandlers:
    """Answers about the timers; None where timerWheelEnable is false."""

    _timers: Timers | None
    _slices: Slices

    def rows(self) -> list[Row]:
        return [
            Row(codes.GET_TIMER_CHECK_POINT, None, self.on_check_point, needs.OUR_CLUSTER_GET),
            Row(codes.GET_TIMER_METRICS, None, self.on_metrics, needs.OUR_CLUSTER_GET),
        ]

    def on_check_point(self, header: None, command: Command, connection: Connection) -> Response:
        """The 56 bytes that config/timercheck begins with."""
        timers = self._timers
        if timers is None:
            raise Refusal(
                codes.SYSTEM_ERROR,
                "The checkpoint is null: timerWheelEnable is false; switch it on",
            )
        return Response(body=timers.check_point())

    def on_metrics(self, header: None, command: Command, connection: Connection) -> LongResponse:
        """The text of config/timermetrics as it is now."""
        timers = self._timers
        if timers is None:
            raise Refusal(
                codes.SYSTEM_ERROR,
                "The timer message store is null: timerWheelEnable is false; switch it on",
            )
        return self._slices.respond(reply_of(timers.metrics.text()))


TAG = "_RECALL_TAG_"
BODY = b"0"


@dataclass(slots=True, eq=False)
class RecallHandlers:
    """Takes timer messages back. `syncer` is None where answers don't wait for the disk."""

    config: BrokerConfig
    store: MessageStore
    permissions: Permissions
    delivery_policy: DeliveryPolicy
    syncer: Syncer | None
    now_ms: Callable[[], int]

    def rows(self) -> list[Row]:
        return [
            Row(codes.RECALL_MESSAGE, RecallMessage, self.on_recall, needs.TOPIC_PUB, gates.RECALL)
        ]

    def on_recall(
        self, header: RecallMessage, command: Command, connection: Connection
    ) -> Response | None:
        region = {"MSG_REGION": self.config.region_id}
        try:
            handle = self._handle(header)
            end = self._put(handle, header.producer_group, connection.host)
        except Refusal as refusal:
            refusal.fields = region
            raise
        answer = RecallMessageResponse(handle.unique_key)
        reply = Response(codes.SUCCESS, answer.to_fields() | region)
        if self.syncer is not None:
            # Late or not, it is stored: RocketMQ answers both the same.
            responses = self.syncer.each([(connection, command, reply)], lambda same, code: same)
            self.syncer.after(end, responses)
            return None
        return reply

    def _handle(self, header: RecallMessage) -> RecallHandle:
        """The message to recall; Refusal if not allowed, or if it is not on this broker."""
        config = self.config
        if not config.recall_message_enable:
            raise Refusal(
                codes.NO_PERMISSION,
                "recall failed, operation is forbidden; switch recallMessageEnable on",
            )
        if (
            not self.permissions.is_broker_writable
            and not config.allow_recall_when_broker_not_writeable
        ):
            raise Refusal(
                codes.SERVICE_NOT_AVAILABLE,
                "recall failed, broker service not available: brokerPermission is "
                f"{config.broker_permission} and allowRecallWhenBrokerNotWriteable is off",
            )
        if self.permissions.topics.get(header.topic) is None:
            raise Refusal(
                codes.TOPIC_NOT_EXIST,
                f"recall failed, the topic[{header.topic[:255]}] not exist",
            )
        handle = recall_handle.decode(header.recall_handle)
        if handle.topic != header.topic:
            raise Refusal(
                codes.ILLEGAL_OPERATION,
                f"recall failed, topic not match: the handle is of {handle.topic[:255]}, the "
                f"request of {header.topic}",
            )
        if handle.broker_name != config.broker_name:
            raise Refusal(
                codes.ILLEGAL_OPERATION,
                "recall failed, broker service not available: the handle is of broker "
                f"{handle.broker_name[:255]}, this is {config.broker_name}",
            )
        left_ms = handle.time_ms - self.now_ms()
        if left_ms <= 0 or left_ms >= config.timer_max_delay_sec * 1_000:
            raise Refusal(
                codes.ILLEGAL_OPERATION,
                f"recall failed, timestamp invalid: {left_ms} ms are left, but it must be between "
                f"0 and {config.timer_max_delay_sec * 1_000}",
            )
        return handle

    def _put(self, handle: RecallHandle, group: str | None, host: bytes) -> int:
        """Store the recall; returns where it ends in the log."""
        now_ms = self.now_ms()
        text = properties.encode(
            {
                properties.TAGS: TAG,
                properties.TIMER_DEL_UNIQKEY: f"{handle.topic}+{handle.unique_key}",
                properties.UNIQ_KEY: handle.unique_key,
                properties.TIMER_DELIVER_MS: str(handle.time_ms),
                properties.BORN_TIMESTAMP: str(now_ms),
                properties.PGROUP: group,
            }
        ).decode()
        place = self.delivery_policy.place(text, handle.topic, 0)
        if place.topic != WHEEL_TOPIC:
            raise Refusal(
                codes.ILLEGAL_OPERATION,
                f"recall failed, timestamp invalid: {handle.time_ms} is over by now",
            )
        try:
            _, _, end = self.store.put(
                Message(
                    (place.topic, place.queue_id),
                    0,
                    0,
                    now_ms,
                    host,
                    BODY,
                    place.text.encode(),
                    tag_hash(TAG),
                )
            )
        except StoreError as wrong:
            raise Refusal(codes.SYSTEM_ERROR, f"recall failed, execute error: {wrong}") from None
        return end
