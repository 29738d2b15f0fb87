"""OpenTelemetry spans around sends and message processing, if its API is installed.

`pip install "aerobee[otel]"` installs the API; without an SDK configured by the application it does
nothing. The context travels in the message property `traceparent` (W3C), so traces continue in
consumers of any language.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ...protocol.message import properties as props

try:
    from opentelemetry import context, propagate, trace
except ImportError:
    ENABLED = False
else:
    ENABLED = True
    API = vars(trace)
    # One call less than the public API, which is the fallback for other versions.
    current = getattr(vars(context).get("_RUNTIME_CONTEXT"), "get_current", context.get_current)
    # The API creates the provider of this name on first use.
    IS_NAMED = "OTEL_PYTHON_TRACER_PROVIDER" in os.environ

SYSTEM = "rocketmq"
NAME = "aerobee"
# The property, in a message's stored properties.
TRACE_PARENT = f"{props.TRACE_PARENT}{props.NAME_VALUE_SEPARATOR}".encode()


def is_wanted(raw_properties: bytes = b"") -> bool:
    """True if spans are to be created or a context is to be propagated.

    Without an SDK there are no spans, and no-op spans cost half as much as a send. An SDK may be
    configured at any time, so this runs for each message. `raw_properties` are those of a received
    message.
    """
    if not ENABLED:
        return False
    # The API's own function reads the environment each time.
    if IS_NAMED or API.get("_TRACER_PROVIDER", True) is not None:
        return True
    return TRACE_PARENT in raw_properties or bool(current())


@contextmanager
def sending(topic: str, group: str, carrier: dict[str, str]) -> Iterator[Any]:
    """A span around a send. Puts the context to propagate into `carrier`; yields the span."""
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
    attributes = _of_queue(topic, queue_id) | {
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
    """A span around the processing of several messages, linked to their send spans."""
    contexts = (
        trace.get_current_span(propagate.extract(each, context.Context())).get_span_context()
        for each in properties
    )
    attributes = _of_queue(topic, queue_id) | {"messaging.batch.message_count": len(properties)}
    with trace.get_tracer(NAME).start_as_current_span(
        f"process {topic}",
        kind=trace.SpanKind.CONSUMER,
        attributes=attributes,
        links=[trace.Link(each) for each in contexts if each.is_valid],
    ) as span:
        yield span


def _of_queue(topic: str, queue_id: int) -> dict[str, str | int]:
    """The attributes of each span around the processing of messages of a queue."""
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.type": "process",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(queue_id),
    }
