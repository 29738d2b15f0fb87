"""Exports of metrics and spans to a collector of OpenTelemetry. CommandError at the import when a
package is missing."""

import logging
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..conf.collectors import pairs_of, target_of
from ..console.endpoint import InSlices
from ..protocol.message.spans import WAITING_MAX, SpanList
from .output.command_error import CommandError
from .telemetry_export import Export, Families

try:
    import grpc.aio
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import MetricsServiceStub
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

    from .otlp import Differences, Times, metric_requests, span_requests
except ImportError:
    raise CommandError(
        "metricsGrpcExporterTarget and spansGrpcExporterTarget need the packages grpcio and "
        "opentelemetry-proto, and one is not installed; run pip install 'aerobee[otel]'"
    ) from None

if TYPE_CHECKING:
    from ..broker.settings.config import BrokerConfig
    from ..proxy.settings.config import ProxyConfig

SPANS_MS = 1_000  # between two requests with spans
LOG_EVERY_SECONDS = 60.0  # of failures in a row

log = logging.getLogger(__name__)


class CollectorExport(Export):
    """An export to a collector, whose address is the setting `key`. While it is away there is a
    warning a minute."""

    def __init__(
        self, settings: "BrokerConfig | ProxyConfig", key: str, target: str, interval_ms: float
    ) -> None:
        super().__init__(interval_ms)
        self._key = key
        self._target = target
        self._timeout_s = settings.metric_grpc_exporter_time_out_in_mills / 1_000
        self._metadata = [
            (name.lower(), value)
            for name, value in pairs_of(
                "metricsGrpcExporterHeader", settings.metrics_grpc_exporter_header
            )
        ]
        self._warned_at = float("-inf")
        self._channel: Any = None

    async def start(self) -> None:
        """Make the channel, which connects with the first request, and begin to export."""
        target = target_of(self._key, self._target)
        if target.is_tls:
            secrets = grpc.ssl_channel_credentials()
            self._channel = grpc.aio.secure_channel(target.address, secrets)
        else:
            self._channel = grpc.aio.insecure_channel(target.address)
        await super().start()

    async def stop(self) -> None:
        """Export once more, and close the channel."""
        await super().stop()
        await self._channel.close()

    async def _send(self, stub: Callable[[Any], Any], requests: Iterable[Any]) -> None:
        """Send requests, one after the other, until one fails."""
        export = stub(self._channel).Export
        try:
            for request in requests:
                await export(request, timeout=self._timeout_s, metadata=self._metadata)
        except grpc.RpcError as wrong:
            now = time.monotonic()
            if now - self._warned_at >= LOG_EVERY_SECONDS:
                self._warned_at = now
                log.warning(
                    "a request did not reach the collector at %s: %s; look at it, or correct %s",
                    self._target,
                    wrong.code().name,
                    self._key,
                )


class OtlpExport(CollectorExport):
    """The metrics of a broker. With metricsInDelta, what counters grow by while the collector is
    away is lost, as in RocketMQ."""

    def __init__(self, config: "BrokerConfig", families: Families, in_slices: InSlices) -> None:
        super().__init__(
            config,
            "metricsGrpcExporterTarget",
            config.metrics_grpc_exporter_target,
            config.metric_grpc_exporter_interval_in_mills,
        )
        self._families = families
        self._in_slices = in_slices
        self._start_ns = time.time_ns()
        self._differences = Differences() if config.metrics_in_delta else None

    async def _export(self) -> None:
        times = Times(self._start_ns, time.time_ns())
        made = await self._in_slices(metric_requests(self._families(), times, self._differences))
        if self._differences is not None:
            self._start_ns = times.now_ns
        await self._send(MetricsServiceStub, made)


class SpanExport(CollectorExport):
    """The spans of a broker or a proxy; those of a request that fails are lost."""

    def __init__(
        self,
        settings: "BrokerConfig | ProxyConfig",
        spans: Callable[[], SpanList | None],
        in_slices: InSlices,
    ) -> None:
        target = settings.spans_grpc_exporter_target
        super().__init__(settings, "spansGrpcExporterTarget", target, SPANS_MS)
        self._spans = spans
        self._in_slices = in_slices

    async def _export(self) -> None:
        spans = self._spans()
        if spans is None:
            return
        dropped, spans.dropped = spans.dropped, 0
        if dropped:
            log.warning("%d spans were dropped: %d waited already", dropped, WAITING_MAX)
        await self._send(TraceServiceStub, await self._in_slices(span_requests(spans)))
