"""The exporter of a broker's metrics that its settings ask for: a port for Prometheus, or requests
to a collector of OpenTelemetry."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from typing import Any

from ..broker.monitoring.metrics_labels import Family, Sample
from ..broker.monitoring.otlp import Differences, Times, requests
from ..broker.settings.config import BrokerConfig
from ..broker.settings.metrics_settings import pairs_of, target_of
from ..conf.secret import secret_of
from ..console.bearer import Bearer
from ..console.exposition import exposition
from ..console.metrics_port import MetricsPort
from .output.command_error import CommandError
from .serving import Part

EXPORT = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
LOG_EVERY_SECONDS = 60.0  # of failures in a row

log = logging.getLogger(__name__)

InSlices = Callable[[Generator[object, None, list[bytes]]], Awaitable[list[bytes]]]
Families = Callable[[], Iterable[Family]]


def exporter(config: BrokerConfig, families: Families, in_slices: InSlices) -> Part | None:
    """What `metricsExporterType` asks for. CommandError when a package for it is missing."""
    labels = [("aggregation", "delta")] if config.metrics_in_delta else []
    labels += pairs_of("metricsLabel", config.metrics_label)

    def found() -> Iterable[Family]:
        return labelled(families(), labels) if labels else families()

    if config.metrics_exporter_type == "PROM":
        return MetricsPort(
            config.metrics_prom_exporter_host or config.broker_ip1,
            config.metrics_prom_exporter_port,
            lambda: in_slices(exposition(found())),
            setting="metricsPromExporterHost and metricsPromExporterPort",
            check=Bearer(secret_of("httpToken", config.http_token)).check,
        )
    if config.metrics_exporter_type == "OTLP_GRPC":
        return OtlpExport(config, found, in_slices)
    return None


def labelled(families: Iterable[Family], labels: Iterable[tuple[str, str]]) -> Iterator[Family]:
    """The same with more labels; one that a metric has by itself stays."""
    pairs = dict(labels)
    for name, kind, text, names, samples in families:
        more = {label: value for label, value in pairs.items() if label not in names}
        yield name, kind, text, (*names, *more), _with(samples, tuple(more.values()))


def _with(samples: Iterable[Sample | None], values: tuple[str, ...]) -> Iterator[Sample | None]:
    for sample in samples:
        yield sample and ((*sample[0], *values), sample[1])


class OtlpExport:
    """Requests to a collector, one after the other. While it is away there is a warning a minute,
    and with metricsInDelta what counters grow by is lost, as in RocketMQ."""

    def __init__(self, config: BrokerConfig, families: Families, in_slices: InSlices) -> None:
        try:
            import grpc.aio
        except ImportError:
            raise CommandError(
                "metricsExporterType=OTLP_GRPC needs the package grpcio, and it is not installed; "
                "run pip install 'aerobee[otel]'"
            ) from None
        self._grpc: Any = grpc
        self._config = config
        self._families = families
        self._in_slices = in_slices
        self._metadata = [
            (name.lower(), value)
            for name, value in pairs_of(
                "metricsGrpcExporterHeader", config.metrics_grpc_exporter_header
            )
        ]
        self._start_ns = time.time_ns()
        self._differences = Differences() if config.metrics_in_delta else None
        self._warned_at = float("-inf")
        self._channel: Any = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to export."""
        target = target_of(self._config.metrics_grpc_exporter_target)
        aio = self._grpc.aio
        if target.is_tls:
            secrets = self._grpc.ssl_channel_credentials()
            self._channel = aio.secure_channel(target.address, secrets)
        else:
            self._channel = aio.insecure_channel(target.address)
        self._task = asyncio.create_task(self._run(), name="metrics-export")

    async def stop(self) -> None:
        """Export once more, as RocketMQ does, and end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self._export()
            await self._channel.close()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._config.metric_grpc_exporter_interval_in_mills / 1_000)
            try:
                await self._export()
            except Exception:  # the next request may succeed
                log.exception("metrics could not be exported")

    async def _export(self) -> None:
        times = Times(self._start_ns, time.time_ns())
        made = await self._in_slices(requests(self._families(), times, self._differences))
        if self._differences is not None:
            self._start_ns = times.now_ns
        call = self._channel.unary_unary(EXPORT)
        timeout = self._config.metric_grpc_exporter_time_out_in_mills / 1_000
        try:
            for body in made:
                await call(body, timeout=timeout, metadata=self._metadata)
        except self._grpc.RpcError as wrong:
            now = time.monotonic()
            if now - self._warned_at >= LOG_EVERY_SECONDS:
                self._warned_at = now
                log.warning(
                    "metrics did not reach the collector at %s: %s; look at it, or correct "
                    "metricsGrpcExporterTarget",
                    self._config.metrics_grpc_exporter_target,
                    wrong.code().name,
                )
