"""Spans of stored and delivered messages, as OpenTelemetry's own messages read them."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.protocol.bodies.topic import TopicConfig
from aerobee.protocol.message import spans as spans_module
from aerobee.protocol.message.batch import Entry, encode_batch
from aerobee.protocol.message.properties import encode
from aerobee.scripts.otlp import span_requests
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from ...clocks import Clock
from ...steps import result_of
from ..conftest import Caller, Config, Run, Start, parked
from ..popping import Popper

ON_BOTH_ENGINES = True

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"
TARGET = {"spans_grpc_exporter_target": "http://127.0.0.1:1"}


def taken(broker: Broker) -> list[Span]:
    """The spans that wait, which are gone then."""
    assert broker.spans is not None
    found: list[Span] = []
    for request in result_of(span_requests(broker.spans)):
        (resource,) = request.resource_spans
        assert [one.key for one in resource.resource.attributes] == ["service.name"]
        (scope,) = resource.scope_spans
        found += scope.spans
    return found


def attributes(span: Span) -> dict[str, str | int]:
    return {
        one.key: one.value.string_value or one.value.int_value
        for one in span.attributes
        if one.key not in ("messaging.system", "messaging.message.id")
    }


@pytest.fixture
async def traced(start: Start, config: Config) -> Broker:
    broker: Broker = await start(config(**TARGET))
    broker.topics.put(TopicConfig("T", 4, 4))
    return broker


@pytest.fixture
async def sender(traced: Broker) -> AsyncIterator[Caller]:
    caller = Caller(traced)
    yield caller
    await caller.peers.close()


async def test_a_message_is_stored_and_delivered_within_the_trace_of_its_sender(
    traced: Broker, sender: Caller
) -> None:
    await sender.send("T", queue_id=2, traceparent=SAMPLED, UNIQ_KEY="0A" * 16)
    await sender.pull("T", queue_id=2, group="readers")
    stored, delivered = taken(traced)
    for span, name in ((stored, "store"), (delivered, "deliver")):
        assert span.name == f"{name} T"
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
        assert span.kind == Span.SPAN_KIND_SERVER
        assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
    assert stored.span_id != delivered.span_id
    assert stored.end_time_unix_nano <= delivered.end_time_unix_nano
    common = {
        "messaging.destination.name": "T",
        "messaging.destination.partition.id": "2",
        "messaging.rocketmq.message.offset": 0,
        "aerobee.broker.name": "broker-a",
    }
    assert attributes(stored) == common | {"messaging.operation.name": "store"}
    assert attributes(delivered) == common | {
        "messaging.operation.name": "deliver",
        "messaging.consumer.group.name": "readers",
    }


@pytest.mark.parametrize(
    "pairs",
    [
        {},
        {"traceparent": UNSAMPLED},
        {"traceparent": "nonsense"},
        {"other-traceparent": SAMPLED},
        {"text": f"traceparent {SAMPLED}"},
    ],
)
async def test_without_a_sampled_context_there_are_no_spans(
    traced: Broker, sender: Caller, pairs: dict[str, str]
) -> None:
    await sender.send("T", pairs=pairs)
    await sender.pull("T")
    assert taken(traced) == []


async def test_each_message_of_a_batch_has_its_own(traced: Broker, sender: Caller) -> None:
    entries = [
        Entry(0, b"%d" % number, encode({"traceparent": parent, "UNIQ_KEY": f"{number:032X}"}))
        for number, parent in enumerate((SAMPLED, UNSAMPLED, SAMPLED))
    ]
    answer = await sender.send(
        "T", encode_batch(entries), code=codes.SEND_BATCH_MESSAGE, batch=True
    )
    assert answer.code == 0
    await sender.pull("T")
    found = [
        (span.name, attributes(span)["messaging.rocketmq.message.offset"]) for span in taken(traced)
    ]
    assert found == [("store T", 0), ("store T", 2), ("deliver T", 0), ("deliver T", 2)]


async def test_a_pull_that_waited_delivers_as_well(traced: Broker, sender: Caller) -> None:
    waiting = asyncio.create_task(sender.pull("T", suspend_ms=20_000))
    await parked(traced, 1)
    await sender.send("T", traceparent=SAMPLED)
    assert (await waiting).code == 0
    assert [span.name for span in taken(traced)] == ["store T", "deliver T"]


async def test_a_pop_delivers_as_well(run: Run, clock: Clock, config: Config) -> None:
    broker, caller = await run(config(**TARGET))
    popper = Popper(broker, caller, clock)
    await popper.send(b"one", traceparent=SAMPLED)
    assert len(await popper.pop()) == 1
    names = [span.name for span in taken(broker)]
    assert names[:2] == ["store T", "deliver T"]


async def test_beyond_the_limit_spans_are_dropped_and_counted(
    traced: Broker, sender: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans_module, "WAITING_MAX", 3)
    for _ in range(5):
        await sender.send("T", traceparent=SAMPLED)
    assert traced.spans is not None
    assert traced.spans.dropped == 2
    assert len(taken(traced)) == 3


async def test_without_a_collector_nothing_is_kept(broker: Broker, caller: Caller) -> None:
    await caller.send("T", traceparent=SAMPLED)
    assert broker.spans is None
