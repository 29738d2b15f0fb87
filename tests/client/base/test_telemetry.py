"""Spans around sends and the work on messages, one trace over both."""

import asyncio
from collections.abc import Iterator

import pytest
from aerobee.client import Consumer, Message, Producer
from aerobee.testing import LocalCluster
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from ...waiting import LONG


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """All spans that end in this test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


async def receive(cluster: LocalCluster, *, fail: bool = False) -> dict[str, str]:
    """Send a message, process it, and give back its properties."""
    consumer = Consumer(cluster.name_server, group="g", topics=["orders"], start="earliest")
    async with Producer(cluster.name_server, group="shop") as producer:
        await producer.send(Message("orders", b"x", properties={"own": "text"}))
        async with consumer, asyncio.timeout(LONG):
            async for message in consumer:
                async with message.process():
                    if fail:
                        raise RuntimeError("no")
                return message.stored_properties
    raise AssertionError("no message came")


async def test_a_trace_goes_on_in_the_consumer(
    aerobee_cluster: LocalCluster, spans: InMemorySpanExporter
) -> None:
    properties = await receive(aerobee_cluster)
    (sent,) = named(spans, "send orders")
    (processed,) = named(spans, "process orders")
    assert sent.context is not None
    assert processed.context is not None
    assert processed.parent is not None
    assert processed.context.trace_id == sent.context.trace_id
    assert processed.parent.span_id == sent.context.span_id
    assert properties["own"] == "text"
    assert properties["traceparent"].split("-")[1] == f"{sent.context.trace_id:032x}"
    assert (sent.kind, processed.kind) == (trace.SpanKind.PRODUCER, trace.SpanKind.CONSUMER)
    assert sent.attributes is not None
    assert sent.attributes["messaging.message.id"] == properties["UNIQ_KEY"]


async def test_a_failure_is_seen_in_the_span_and_the_message_comes_again(
    aerobee_cluster: LocalCluster, spans: InMemorySpanExporter
) -> None:
    await receive(aerobee_cluster, fail=True)
    (processed,) = named(spans, "process orders")
    assert processed.status.status_code is StatusCode.ERROR


async def test_without_spans_nothing_travels_along(aerobee_cluster: LocalCluster) -> None:
    assert "traceparent" not in await receive(aerobee_cluster)


@pytest.mark.parametrize("kind", ["coroutine", "function", "batch"])
async def test_a_listener_works_inside_a_span_of_the_trace(
    aerobee_cluster: LocalCluster, spans: InMemorySpanExporter, kind: str
) -> None:
    inside, called = list[int](), asyncio.Event()
    loop = asyncio.get_running_loop()
    consumer = Consumer(aerobee_cluster.name_server, group="g", topics=["orders"], start="earliest")

    def ordinary(*_: object) -> None:
        inside.append(trace.get_current_span().get_span_context().span_id)
        loop.call_soon_threadsafe(called.set)

    async def coroutine(*_: object) -> None:
        ordinary()

    function = ordinary if kind == "function" else coroutine
    consumer.listener(batch_max=8 if kind == "batch" else None)(function)
    async with Producer(aerobee_cluster.name_server, group="shop") as producer:
        await producer.send(Message("orders", b"x"))
        async with consumer, asyncio.timeout(LONG):
            await called.wait()
    (sent,) = named(spans, "send orders")
    (processed,) = named(spans, "process orders")
    assert sent.context is not None
    assert processed.context is not None
    assert inside == [processed.context.span_id]
    if kind == "batch":
        assert [link.context.span_id for link in processed.links] == [sent.context.span_id]
        assert processed.attributes is not None
        assert processed.attributes["messaging.batch.message_count"] == 1
    else:
        assert processed.parent is not None
        assert processed.parent.span_id == sent.context.span_id


async def test_a_listener_that_raises_is_seen_in_its_span(
    aerobee_cluster: LocalCluster, spans: InMemorySpanExporter
) -> None:
    called = asyncio.Event()
    consumer = Consumer(aerobee_cluster.name_server, group="g", topics=["orders"], start="earliest")

    @consumer.listener
    async def listen(_: object) -> None:
        called.set()
        raise RuntimeError("no")

    async with Producer(aerobee_cluster.name_server) as producer:
        await producer.send(Message("orders", b"x"))
        async with consumer, asyncio.timeout(LONG):
            await called.wait()
    (processed,) = named(spans, "process orders")
    assert processed.status.status_code is StatusCode.ERROR
