"""The read-only view of a received message.

Properties and body are decoded at the first access, because many applications never read them.
"""

from dataclasses import dataclass
from typing import Protocol

from ...protocol.bodies.body import MessageQueue
from ...protocol.errors import Malformed
from ...protocol.message import properties as props
from ...protocol.message.compression import CompressionMissing, decompress
from ...protocol.message.record import Record
from ...protocol.names import RETRY_PREFIX, without_namespace
from ..errors import ClientError


class Source(Protocol):
    """The queue that a message was received from.

    `topic` is the topic without its `namespace`, None if each message names its own (as those of a
    retry topic do). `dropped` is true once the queue is assigned to another consumer.
    """

    queue: MessageQueue
    topic: str | None
    namespace: str
    dropped: bool


@dataclass(slots=True)
class NoConsumer:
    """The source of a message that no consumer received, such as the reply to a request."""

    queue: MessageQueue
    topic: str | None = None
    namespace: str = ""
    dropped: bool = False


class MessageView:
    """A received message, read-only.

    `properties` are the sender's own, `system_properties` those of RocketMQ's clients and brokers,
    `stored_properties` both. `topic` is the topic it was sent to, even if it was received from the
    group's retry topic. `reconsume_times` counts earlier deliveries that failed. `record` is the
    message as stored.
    """

    __slots__ = ("_body", "_stored", "reconsume_times", "record", "source", "topic")

    def __init__(self, record: Record, source: Source) -> None:
        self.record = record
        self.source = source
        self.reconsume_times = record.reconsume_times
        self._stored: dict[str, str] | None = None
        self._body: bytes | None = None
        topic = source.topic
        if topic is None:
            topic = without_namespace(self.sent_topic, source.namespace)
        self.topic = topic

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.msg_id} of {self.topic}, offset {self.offset} of queue "
            f"{self.queue_id} on {self.source.queue.broker_name}>"
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
        """Properties written by RocketMQ's clients and brokers, such as UNIQ_KEY, TAGS,
        MSG_REGION."""
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
        return props.keys_of(self.stored_properties)

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
        """The queue it was received from: topic (the retry topic for a retry), broker, queue id."""
        return self.source.queue

    @property
    def queue_id(self) -> int:
        """The number of its queue at its broker, from 0."""
        return self.record.queue_id

    @property
    def offset(self) -> int:
        """The message's offset in its queue."""
        return self.record.queue_offset

    @property
    def flag(self) -> int:
        """The producer's flag; RocketMQ ignores it."""
        return self.record.flag

    @property
    def born_ms(self) -> int:
        """The time at which the message was sent, by the sender's clock."""
        return self.record.born_ms

    @property
    def store_ms(self) -> int:
        """The time at which the message was stored, by the broker's clock."""
        return self.record.store_ms

    @property
    def is_void(self) -> bool:
        """True if the queue is assigned to another consumer, which receives the message too;
        settling it has no effect."""
        return self.source.dropped
