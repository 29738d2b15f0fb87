"""Spans of what a proxy sends and hands out, as OpenTelemetry's own messages read them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aerobee.scripts.otlp import span_requests
from aerobee.testing import LocalCluster
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from ...steps import result_of
from ..support import Setup, bodies, code_of, message, new, resource, setup

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
TARGET: dict[str, Any] = {"spans_grpc_exporter_target": "http://127.0.0.1:1"}
UNSAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-00"}


@pytest.fixture
async def traced(cluster: LocalCluster) -> AsyncIterator[Setup]:
    async with setup(cluster, **TARGET) as found:
        yield found


def taken(proxied: Setup) -> list[Span]:
    """The spans that wait, which are gone then."""
    assert proxied.proxy.spans is not None
    found: list[Span] = []
    for request in result_of(span_requests(proxied.proxy.spans)):
        (resource_spans,) = request.resource_spans
        (scope,) = resource_spans.scope_spans
        assert scope.scope.name == "aerobee.proxy"
        found += scope.spans
    return found


def attributes(span: Span) -> dict[str, str | int]:
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


async def test_a_message_is_sent_and_received_within_the_trace_of_its_producer(
    traced: Setup,
) -> None:
    await traced.create("Traced", queues=1)
    client = traced.client()
    await traced.ready(client, "Traced", "readers")
    one = message("Traced", "one", user_properties=SAMPLED)
    assert code_of(await client.call("SendMessage", messages=[one])) == "OK"
    _, found = await client.receive("Traced", "readers")
    assert bodies(found) == ["one"]
    assert found[0].user_properties["traceparent"] == SAMPLED["traceparent"]
    sent, received = taken(traced)
    for span, name in ((sent, "send"), (received, "receive")):
        assert span.name == f"{name} Traced"
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
        assert span.kind == Span.SPAN_KIND_SERVER
        assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.status.code == Status.STATUS_CODE_UNSET
    assert sent.span_id != received.span_id
    common: dict[str, Any] = {
        "messaging.system": "rocketmq",
        "messaging.destination.name": "Traced",
        "messaging.destination.partition.id": "0",
        "messaging.message.id": found[0].system_properties.message_id,
    }
    assert attributes(sent) == common | {
        "messaging.operation.name": "send",
        "aerobee.broker.name": "broker-a",
    }
    assert attributes(received) == common | {
        "messaging.operation.name": "receive",
        "messaging.consumer.group.name": "readers",
        "messaging.rocketmq.message.offset": 0,
    }


async def test_a_message_that_is_pulled_is_received_as_well(traced: Setup) -> None:
    await traced.create("Pulled", queues=1)
    client = traced.client()
    one = message("Pulled", "one", user_properties=SAMPLED)
    await client.call("SendMessage", messages=[one])
    queue = new("MessageQueue", topic=resource("Pulled"))
    queue.broker.name = "broker-a"
    fields = {"batch_size": 1, "filter_expression": new("FilterExpression", expression="*")}
    answers = client.stream(
        "PullMessage", group=resource("readers"), message_queue=queue, offset=0, **fields
    )
    assert bodies([each.message async for each in answers if each.HasField("message")]) == ["one"]
    assert [span.name for span in taken(traced)] == ["send Pulled", "receive Pulled"]


async def test_a_send_that_the_broker_refuses_says_why(cluster: LocalCluster) -> None:
    async with setup(cluster, max_message_size=0, **TARGET) as traced:
        await traced.create("Large")
        one = message("Large", bytes(5 << 20), user_properties=SAMPLED)
        answer = await traced.client().call("SendMessage", messages=[one])
        assert code_of(answer) != "OK"
        (span,) = taken(traced)
    assert (span.name, span.status.code) == ("send Large", Status.STATUS_CODE_ERROR)
    assert span.status.message == answer.entries[0].status.message != ""


@pytest.mark.parametrize("pairs", [{}, UNSAMPLED, {"traceparent": "nonsense"}])
async def test_without_a_sampled_context_there_are_no_spans(
    traced: Setup, pairs: dict[str, str]
) -> None:
    await traced.create("Untraced")
    client = traced.client()
    await traced.ready(client, "Untraced", "readers")
    one = message("Untraced", "one", user_properties=pairs)
    await client.call("SendMessage", messages=[one])
    _, found = await client.receive("Untraced", "readers")
    assert len(found) == 1
    assert taken(traced) == []


async def test_without_a_collector_nothing_is_kept(proxied: Setup) -> None:
    await proxied.create("Uncollected")
    one = message("Uncollected", "one", user_properties=SAMPLED)
    assert code_of(await proxied.client().call("SendMessage", messages=[one])) == "OK"
    assert proxied.proxy.spans is None
