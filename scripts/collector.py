"""Requests to a collector of OpenTelemetry: the connection to it, and the exporter of spans."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Generator, Iterable
from typing import Any, Protocol

from ..conf.collectors import pairs_of, target_of
from ..protocol.message.spans import WAITING_MAX, SpanList
from .output.command_error import CommandError

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
SPANS_MS = 1_000  # between two requests with spans
LOG_EVERY_SECONDS = 60.0  # of failures in a row

log = logging.getLogger(__name__)

InSlices = Callable[[Generator[object, None, list[bytes]]], Awaitable[list[bytes]]]


class CollectorSettings(Protocol):
    """The settings of a daemon that say how a collector is asked."""

    @property
    def metrics_grpc_exporter_header(self) -> str: ...

    @property
    def metric_grpc_exporter_time_out_in_mills(self) -> int: ...

    @property
    def spans_grpc_exporter_target(self) -> str: ...


class Collector:
    """A collector of OpenTelemetry, whose address is the setting `key`. While it is away there is a
    warning a minute. CommandError without the package grpcio."""

    def __init__(self, settings: CollectorSettings, key: str, target: str) -> None:
        try:
            import grpc.aio
        except ImportError:
            raise CommandError(
                f"{key} needs the package grpcio, and it is not installed; run pip install "
                "'aerobee[otel]'"
            ) from None
        self._grpc: Any = grpc
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

    def open(self) -> None:
        """Make the channel, which connects with the first request."""
        target, aio = target_of(self._key, self._target), self._grpc.aio
        if target.is_tls:
            secrets = self._grpc.ssl_channel_credentials()
            self._channel = aio.secure_channel(target.address, secrets)
        else:
            self._channel = aio.insecure_channel(target.address)

    async def close(self) -> None:
        await self._channel.close()

    async def send(self, method: str, bodies: Iterable[bytes]) -> None:
        """Send requests, one after the other, until one fails."""
        call = self._channel.unary_unary(method)
        try:
            for body in bodies:
                await call(body, timeout=self._timeout_s, metadata=self._metadata)
        except self._grpc.RpcError as wrong:
            now = time.monotonic()
            if now - self._warned_at >= LOG_EVERY_SECONDS:
                self._warned_at = now
                log.warning(
                    "a request did not reach the collector at %s: %s; look at it, or correct %s",
                    self._target,
                    wrong.code().name,
                    self._key,
                )


class Export:
    """Something that is exported at an interval, and once more at the end."""

    def __init__(self, interval_ms: float) -> None:
        self._interval_s = interval_ms / 1_000
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to export."""
        self._task = asyncio.create_task(self._run(), name="telemetry-export")

    async def stop(self) -> None:
        """Export once more, and end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self._export()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self._export()
            except Exception:  # the next request may succeed
                log.exception("telemetry could not be exported")

    async def _export(self) -> None:
        raise NotImplementedError


class SentExport(Export):
    """The same by requests to a collector."""

    def __init__(self, collector: Collector, interval_ms: float) -> None:
        super().__init__(interval_ms)
        self._collector = collector

    async def start(self) -> None:
        self._collector.open()
        await super().start()

    async def stop(self) -> None:
        """Export once more, as RocketMQ does, and end."""
        await super().stop()
        await self._collector.close()


class SpanExport(SentExport):
    """The spans of a broker or a proxy; those of a request that fails are lost."""

    def __init__(
        self,
        settings: CollectorSettings,
        spans: Callable[[], SpanList | None],
        in_slices: InSlices,
    ) -> None:
        target = settings.spans_grpc_exporter_target
        super().__init__(Collector(settings, "spansGrpcExporterTarget", target), SPANS_MS)
        self._spans = spans
        self._in_slices = in_slices

    async def _export(self) -> None:
        spans = self._spans()
        if spans is None:
            return
        dropped, spans.dropped = spans.dropped, 0
        if dropped:
            log.warning("%d spans were dropped: %d waited already", dropped, WAITING_MAX)
        await self._collector.send(TRACES, await self._in_slices(spans.requests()))
