"""Spans of OpenTelemetry around sends and the processing of messages, when its API is installed.

`pip install "aerobee[otel]"` brings the API; without an SDK set up in the application it does
nothing. The context travels as W3C's `traceparent` in the message's properties, so that a trace
goes on in whoever consumes it, in any language.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

try:
    from opentelemetry import propagate, trace
except ImportError:
    ENABLED = False
else:
    ENABLED = True

SYSTEM = "rocketmq"
NAME = "aerobee"


@contextmanager
def sending(topic: str, group: str, carrier: dict[str, str]) -> Iterator[Any]:
    """A span around a send; `carrier` gets what is to travel along. Gives the span."""
    attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
        "messaging.rocketmq.client_group": group,
    }
    tracer = trace.get_tracer(NAME)
    kind = trace.SpanKind.PRODUCER
    with tracer.start_as_current_span(f"send {topic}", kind=kind, attributes=attributes) as span:
        propagate.inject(carrier)
        yield span


@contextmanager
def processing(
    topic: str, msg_id: str, queue_id: int, offset: int, properties: Mapping[str, str]
) -> Iterator[Any]:
    """A span around the work on a message that was received, a child of the one that sent it."""
    attributes: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.operation.type": "process",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(queue_id),
        "messaging.message.id": msg_id,
        "messaging.rocketmq.message.offset": offset,
    }
    tracer = trace.get_tracer(NAME)
    with tracer.start_as_current_span(
        f"process {topic}",
        context=propagate.extract(properties),
        kind=trace.SpanKind.CONSUMER,
        attributes=attributes,
    ) as span:
        yield span
