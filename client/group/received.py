"""A message that a consumer received, open until it is settled, once.

Settled means acknowledged or given back to its broker. Until then the group doesn't move past it.
Properties and body are decoded when they are first looked at, because many are never.
"""

import logging
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Any, Protocol

from ...protocol.bodies.body import MessageQueue
from ...protocol.errors import Malformed
from ...protocol.message import properties as props
from ...protocol.message.compression import CompressionMissing, decompress
from ...protocol.message.record import Record
from ...protocol.names import RETRY_PREFIX, without_namespace
from ..base import telemetry
from ..base.failures import log_failure
from ..errors import ClientError
from .process_queue import ProcessQueue

log = logging.getLogger(__name__)


class Settler(Protocol):
    """Where a message goes when it is settled: the consumer it came from."""

    def acknowledge(self, message: "ReceivedMessage") -> None:
        """It is done."""

    async def send_back(self, message: "ReceivedMessage", delay_level: int) -> None:
        """It is to come again later."""

    def again(self, message: "ReceivedMessage") -> None:
        """It was let go unsettled and may be taken by somebody else."""


class MessageView:
    """A received message to look at.

    `properties` are what the sender gave as such, `system_properties` what clients and brokers
    wrote, and `stored_properties` both.
    `topic` is the one it was sent to, also when it comes from the group's retry topic.
    `reconsume_times` says how often it was given back before. `record` is the message as stored.
    """

    __slots__ = ("_body", "_stored", "held", "reconsume_times", "record", "topic")

    def __init__(self, record: Record, held: ProcessQueue) -> None:
        self.record = record
        self.held = held
        self.reconsume_times = record.reconsume_times
        self._stored: dict[str, str] | None = None
        self._body: bytes | None = None
        topic = held.topic
        if topic is None:
            topic = without_namespace(self.sent_topic, held.namespace)
        self.topic = topic

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.msg_id} of {self.topic}, offset {self.offset} of queue "
            f"{self.queue_id} on {self.held.queue.broker_name}>"
        )

    @property
    def body(self) -> bytes:
        """The body as it was sent; ClientError when it can't be unpacked."""
        if self._body is None:
            record = self.record
            try:
                self._body = decompress(record.body, record.sys_flag)
            except (Malformed, CompressionMissing) as wrong:
                raise ClientError(f"message {self.msg_id}: {wrong}") from wrong
        return self._body

    @property
    def properties(self) -> dict[str, str]:
        """The sender's own properties. Tags, keys and sharding key are attributes of their own."""
        return props.own(self.stored_properties)

    @property
    def system_properties(self) -> dict[str, str]:
        """What RocketMQ's clients and brokers wrote, such as UNIQ_KEY, TAGS, MSG_REGION."""
        pairs = self.stored_properties
        return {name: text for name, text in pairs.items() if name in props.SYSTEM}

    @property
    def stored_properties(self) -> dict[str, str]:
        """All properties as the broker stored them."""
        if self._stored is None:
            self._stored = props.decode(self.record.raw_properties)
        return self._stored

    @property
    def sent_topic(self) -> str:
        """The topic it was sent to as brokers know it: with its namespace, if it has one."""
        topic = self.record.topic
        if topic.startswith(RETRY_PREFIX):
            return self.stored_properties.get(props.RETRY_TOPIC, topic)
        return topic

    @property
    def tags(self) -> str | None:
        """The tag that its producer gave it, None without one."""
        return self.stored_properties.get(props.TAGS)

    @property
    def keys(self) -> list[str]:
        """The keys that its producer gave it, to look it up by."""
        return self.stored_properties.get(props.KEYS, "").split()

    @property
    def sharding_key(self) -> str | None:
        """The sharding key that its producer sent it with, None without one."""
        return self.stored_properties.get(props.SHARDING_KEY)

    @property
    def msg_id(self) -> str:
        """The id that the sender gave it (UNIQ_KEY), without one the offset message id."""
        return self.stored_properties.get(props.UNIQ_KEY) or self.record.offset_id

    @property
    def offset_msg_id(self) -> str:
        """The id that says where it lies: the broker's address and its place in the log."""
        return self.record.offset_id

    @property
    def queue(self) -> MessageQueue:
        """Where it was received: topic (the retry topic for a retry), broker, queue id."""
        return self.held.queue

    @property
    def queue_id(self) -> int:
        """The number of its queue at its broker, from 0."""
        return self.record.queue_id

    @property
    def offset(self) -> int:
        """Its offset in the queue."""
        return self.record.queue_offset

    @property
    def flag(self) -> int:
        """The number that its producer gave it; RocketMQ gives it no meaning."""
        return self.record.flag

    @property
    def born_ms(self) -> int:
        """When it was sent, by the sender's clock."""
        return self.record.born_ms

    @property
    def store_ms(self) -> int:
        """When it was stored, by the broker's clock."""
        return self.record.store_ms

    @property
    def is_void(self) -> bool:
        """Its queue belongs to somebody else now, who receives it too; settling does nothing."""
        return self.held.dropped


class ReceivedMessage(MessageView):
    """A message and what may be done with it: `process()`, `ack()`, `nack()`."""

    __slots__ = ("_open", "_settler")

    def __init__(self, record: Record, held: ProcessQueue, settler: Settler) -> None:
        # What MessageView does, without a call for it: this is done for every message.
        self.record = record
        self.held = held
        self.reconsume_times = record.reconsume_times
        self._stored = None
        self._body = None
        topic = held.topic
        if topic is None:
            topic = without_namespace(self.sent_topic, held.namespace)
        self.topic = topic
        self._settler = settler
        self._open = True

    @property
    def is_open(self) -> bool:
        """It was not settled yet."""
        return self._open

    def process(self) -> "Processing":
        """A context for the work on it: leaving it acknowledges.

        Raising an Exception inside logs it and sends the message back for a later try; the loop
        around goes on. A cancelled task leaves the message to be received again.
        """
        return Processing(self)

    async def ack(self) -> None:
        """It is done: the group may move past it. Nothing when it was settled before."""
        self.settle()

    async def nack(self, delay_level: int = 0) -> None:
        """Send it back for a later try, by default after a time that grows with each one.

        `delay_level` is 1 to 18, or -1 for the dead letter topic at once. Nothing when it was
        settled before.
        """
        if self._open:
            self._open = False
            await self._settler.send_back(self, delay_level)

    def settle(self) -> None:
        """What `ack` does, for callers that can't await."""
        if self._open:
            self._open = False
            self._settler.acknowledge(self)

    def release(self) -> None:
        """Let go of it unsettled: it may be received again at once, here."""
        if self._open:
            self._settler.again(self)

    def reopen(self) -> None:
        """It could not be sent back and is received here again."""
        self._open = True


def finish(messages: Iterable[ReceivedMessage]) -> list[int]:
    """They count as settled from now on; the offsets of those that didn't before. For settlers."""
    offsets = []
    for message in messages:
        if message._open:
            message._open = False
            offsets.append(message.record.queue_offset)
    return offsets


class Processing:
    """The work on one message, as `async with`; see `ReceivedMessage.process`."""

    __slots__ = ("_message", "_span")

    def __init__(self, message: ReceivedMessage) -> None:
        self._message = message
        self._span: AbstractContextManager[Any] | None = None

    async def __aenter__(self) -> ReceivedMessage:
        message = self._message
        if telemetry.is_wanted(message.record.raw_properties):
            self._span = telemetry.processing(
                message.topic,
                message.msg_id,
                message.queue_id,
                message.offset,
                message.stored_properties,
            )
            self._span.__enter__()
        return message

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if self._span is not None:
            with suppress(BaseException):  # a span notes the error, and raises it again
                self._span.__exit__(kind, error, traceback)
        if error is None:
            self._message.settle()
        elif isinstance(error, Exception):
            log_failure(log, error, "processing %r failed, it comes again", self._message)
            await self._message.nack()
            return True
        else:
            self._message.release()
        return False
