"""Spans of OpenTelemetry around sends and the processing of messages, when its API is installed.

`pip install "aerobee[otel]"` brings the API; without an SDK set up in the application it does
nothing. The context travels as W3C's `traceparent` in the message's properties, so that a trace
goes on in whoever consumes it, in any language.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

try:
    from opentelemetry import context, propagate, trace
except ImportError:
    ENABLED = False
else:
    ENABLED = True
    API = vars(trace)
    # One call less than the API's own way, which stays for versions that have it elsewhere.
    current = getattr(vars(context).get("_RUNTIME_CONTEXT"), "get_current", context.get_current)
    # The API sets a provider of this name up when it is first asked.
    IS_NAMED = "OTEL_PYTHON_TRACER_PROVIDER" in os.environ

SYSTEM = "rocketmq"
NAME = "aerobee"
TRACE_PARENT = b"traceparent\x01"  # the property, in a message's stored properties


def is_wanted(raw_properties: bytes = b"") -> bool:
    """Whether a span would be made, or a context has to be passed on.

    Without an SDK there are no spans, and spans that do nothing cost half as much as a send. It may
    be set up at any time, so this is asked each time. `raw_properties` are those of a message that
    was received.
    """
    if not ENABLED:
        return False
    # The API's own question looks into the environment each time.
    if IS_NAMED or API.get("_TRACER_PROVIDER", True) is not None:
        return True
    return TRACE_PARENT in raw_properties or bool(current())


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


@contextmanager
def processing_batch(
    topic: str, queue_id: int, properties: Sequence[Mapping[str, str]]
) -> Iterator[Any]:
    """A span around the work on several messages, linked to those that sent them."""
    contexts = (
        trace.get_current_span(propagate.extract(each, context.Context())).get_span_context()
        for each in properties
    )
    attributes: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.operation.type": "process",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(queue_id),
        "messaging.batch.message_count": len(properties),
    }
    with trace.get_tracer(NAME).start_as_current_span(
        f"process {topic}",
        kind=trace.SpanKind.CONSUMER,
        attributes=attributes,
        links=[trace.Link(each) for each in contexts if each.is_valid],
    ) as span:
        yield span
