"""The exporters of a broker's metrics, as metricsExporterType asks for them."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Generator
from typing import Any

import aiohttp
import grpc.aio
import pytest
from aerobee.broker.monitoring.metrics_labels import Family
from aerobee.broker.settings.config import BrokerConfig, load_broker
from aerobee.conf.sources import ConfigError
from aerobee.protocol.message.spans import Context, Span, SpanList
from aerobee.scripts.broker_endpoint import exporter
from aerobee.scripts.collector import SpanExport
from aerobee.scripts.output.command_error import CommandError
from aerobee.scripts.telemetry_export import labelled
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)

from ..steps import result_of
from ..waiting import PROCESS


def figures() -> list[Family]:
    return [("rocketmq_topic_number", "gauge", "Topics", ("cluster",), [(("c",), 7)])]


async def in_slices(steps: Generator[object, None, Any], /) -> Any:
    return result_of(steps)


class Collector(MetricsServiceServicer, TraceServiceServicer):
    """A collector on the loopback that keeps what it is sent."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[ExportMetricsServiceRequest] = asyncio.Queue()
        self.spans: asyncio.Queue[ExportTraceServiceRequest] = asyncio.Queue()
        self.metadata: list[dict[str, str]] = []
        self.port = 0

    async def Export(self, request: Any, context: Any) -> Any:
        self.metadata.append(dict(context.invocation_metadata()))
        if isinstance(request, ExportMetricsServiceRequest):
            self.requests.put_nowait(request)
            return ExportMetricsServiceResponse()
        self.spans.put_nowait(request)
        return ExportTraceServiceResponse()

    async def next(self) -> ExportMetricsServiceRequest:
        async with asyncio.timeout(PROCESS):
            return await self.requests.get()


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    found, server = Collector(), grpc.aio.server()
    add_MetricsServiceServicer_to_server(found, server)  # type: ignore[no-untyped-call]
    add_TraceServiceServicer_to_server(found, server)  # type: ignore[no-untyped-call]
    found.port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield found
    await server.stop(None)


async def test_prom_is_a_port_with_the_labels_of_the_settings() -> None:
    config = BrokerConfig(
        metrics_exporter_type="PROM",
        metrics_prom_exporter_port=0,
        metrics_label="team:shop,cluster:mine",
    )
    port: Any = exporter(config, figures, in_slices)
    await port.start()
    try:
        assert port.address == "127.0.0.1"  # brokerIP1
        async with aiohttp.ClientSession() as session, session.get(port.url) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            text = await answer.text()
        assert 'rocketmq_topic_number{cluster="c",team="shop"} 7.0' in text
    finally:
        await port.stop()


async def test_otlp_requests_come_at_the_interval_and_once_more_at_the_end(
    collector: Collector,
) -> None:
    config = BrokerConfig(
        metrics_exporter_type="OTLP_GRPC",
        metrics_grpc_exporter_target=f"http://127.0.0.1:{collector.port}",
        metrics_grpc_exporter_header="Authorization:Bearer x,team:shop",
        metric_grpc_exporter_interval_in_mills=10,
        metrics_in_delta=True,
    )
    found = exporter(config, figures, in_slices)
    assert found is not None
    await found.start()
    try:
        request = await collector.next()
        await collector.next()
    finally:
        before = len(collector.metadata)
        await found.stop()
    assert len(collector.metadata) > before
    metric = request.resource_metrics[0].scope_metrics[0].metrics[0]
    assert metric.name == "rocketmq_topic_number"
    labels = {one.key: one.value.string_value for one in metric.gauge.data_points[0].attributes}
    assert labels == {"cluster": "c", "aggregation": "delta"}
    assert collector.metadata[0]["authorization"] == "Bearer x"
    assert collector.metadata[0]["team"] == "shop"


async def test_a_collector_that_is_away_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    config = BrokerConfig(
        metrics_exporter_type="OTLP_GRPC",
        metrics_grpc_exporter_target="http://127.0.0.1:1",
        metric_grpc_exporter_time_out_in_mills=2_000,
    )
    found: Any = exporter(config, figures, in_slices)
    with caplog.at_level(logging.WARNING):
        await found.start()
        await found.stop()
        assert "did not reach the collector at http://127.0.0.1:1" in caplog.text


def test_without_a_type_there_is_no_exporter() -> None:
    assert exporter(BrokerConfig(), figures, in_slices) is None
    (own,) = labelled(figures(), [("cluster", "other")])
    assert (own[3], list(own[4])) == (("cluster",), [(("c",), 7)])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["metricsExporterType=OTLP_GRPC"], "metricsGrpcExporterTarget is ''; give the collector"),
        (["spansGrpcExporterTarget=http://h:99999"], "spansGrpcExporterTarget is 'http://h:99999'"),
        (["metricsExporterType=PROMETHEUS"], "metricsExporterType"),
        (["metricsLabel=a=b"], "metricsLabel has a part of 3 characters that is no name:value"),
        (["metricsGrpcExporterHeader=a:b:c"], "metricsGrpcExporterHeader has a part"),
        (
            ["metricsExporterType=OTLP_GRPC", "metricsGrpcExporterTarget=http://h:99999"],
            "give the collector's address",
        ),
    ],
)
def test_settings_that_can_not_be_used_are_refused(options: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=r"metrics|spans") as wrong:
        load_broker(options=options, environ={})
    assert says in str(wrong.value)


def test_without_its_packages_a_collector_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc.aio", None)
    monkeypatch.delitem(sys.modules, "aerobee.scripts.collector")
    target = "http://127.0.0.1:1"
    config = BrokerConfig(metrics_exporter_type="OTLP_GRPC", metrics_grpc_exporter_target=target)
    with pytest.raises(CommandError, match=r"pip install 'aerobee\[otel\]'"):
        exporter(config, figures, in_slices)


async def test_log_writes_metrics_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    config = BrokerConfig(metrics_exporter_type="LOG")
    found: Any = exporter(config, figures, in_slices)
    with caplog.at_level(logging.INFO):
        await found.start()
        await found.stop()
    assert 'metrics:\nrocketmq_topic_number{cluster="c"} 7.0' in caplog.messages


def test_headers_of_requests_are_not_shown() -> None:
    config = BrokerConfig(metrics_grpc_exporter_header="Authorization:geheim")
    assert "geheim" not in str(config.as_properties())


async def test_spans_go_to_their_collector(collector: Collector) -> None:
    config = BrokerConfig(
        spans_grpc_exporter_target=f"http://127.0.0.1:{collector.port}",
        metrics_grpc_exporter_header="team:shop",
    )
    waiting = SpanList("aerobee.test")
    waiting.add(Span(Context(b"t" * 16, b"p" * 8), "store", "T", 1, 2, {}))
    waiting.dropped = 2
    found = SpanExport(config, lambda: waiting, in_slices)
    await found.start()
    await found.stop()
    (spans,) = (await collector.spans.get()).resource_spans
    assert [one.name for one in spans.scope_spans[0].spans] == ["store T"]
    assert collector.metadata[0]["team"] == "shop"
    assert waiting.dropped == 0
