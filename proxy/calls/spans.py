"""Spans of a proxy: a message was sent to its broker, a message was handed to a consumer.

They belong to the trace of the producer, as the broker's own do: siblings of the broker's spans. A
message without a sampled context in its property `traceparent` has none.
"""

import time
from collections.abc import Callable

from ...protocol.message import properties as props
from ...protocol.message.record import Record
from ...protocol.message.spans import Span, SpanList, context_of
from ..messages.sending import Outgoing

SEND, RECEIVE = "send", "receive"


class ProxySpans(SpanList):
    """The spans of one proxy that wait for the exporter. Times are in ns since 1970."""

    def __init__(self, now_ns: Callable[[], int] = time.time_ns) -> None:
        super().__init__("aerobee.proxy")
        self.now_ns = now_ns

    def sent(
        self, message: Outgoing, broker: str, queue_id: int, *, began_ns: int, error: str
    ) -> None:
        """Make the span of a message that a broker has answered for, or that failed: `error`."""
        context = context_of(message.properties.encode(errors="replace"))
        if context is None:
            return
        attributes: dict[str, str | int] = {
            "messaging.destination.partition.id": str(queue_id),
            "messaging.message.id": message.message_id,
            "aerobee.broker.name": broker,
        }
        self.add(Span(context, SEND, message.topic, began_ns, self.now_ns(), attributes, error))

    def received(self, record: Record, topic: str, group: str, *, began_ns: int) -> None:
        """Make the span of a message that went to a member of the group; it begins with the answer
        of the broker."""
        context = context_of(record.raw_properties)
        if context is None:
            return
        attributes: dict[str, str | int] = {
            "messaging.destination.partition.id": str(record.queue_id),
            "messaging.message.id": record.properties.get(props.UNIQ_KEY, ""),
            "messaging.rocketmq.message.offset": record.queue_offset,
            "messaging.consumer.group.name": group,
        }
        self.add(Span(context, RECEIVE, topic, began_ns, self.now_ns(), attributes))
