"""The exporters of a broker's metrics that its settings ask for: a port for Prometheus, requests to
a collector of OpenTelemetry, or lines of the log."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator

from ..broker.monitoring.metrics_labels import Family, Sample
from ..broker.monitoring.otlp import Differences, Times, requests
from ..broker.settings.config import BrokerConfig
from ..conf.collectors import pairs_of
from ..conf.secret import secret_of
from ..console.exposition import exposition
from .collector import Collector, Export, InSlices, SentExport
from .serving import Part

METRICS = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"

log = logging.getLogger(__name__)

Families = Callable[[], Iterable[Family]]


def exporter(config: BrokerConfig, families: Families, in_slices: InSlices) -> Part | None:
    """What `metricsExporterType` asks for. CommandError when a package for it is missing."""
    labels = [("aggregation", "delta")] if config.metrics_in_delta else []
    labels += pairs_of("metricsLabel", config.metrics_label)

    def found() -> Iterable[Family]:
        return labelled(families(), labels) if labels else families()

    if config.metrics_exporter_type == "PROM":
        from ..console.bearer import Bearer
        from ..console.metrics_port import MetricsPort

        return MetricsPort(
            config.metrics_prom_exporter_host or config.broker_ip1,
            config.metrics_prom_exporter_port,
            lambda: in_slices(exposition(found())),
            setting="metricsPromExporterHost and metricsPromExporterPort",
            check=Bearer(secret_of("httpToken", config.http_token)).check,
        )
    if config.metrics_exporter_type == "OTLP_GRPC":
        return OtlpExport(config, found, in_slices)
    if config.metrics_exporter_type == "LOG":
        return LogExport(config, found, in_slices)
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


class LogExport(Export):
    """Metrics as lines of the log, in the format of Prometheus."""

    def __init__(self, config: BrokerConfig, families: Families, in_slices: InSlices) -> None:
        super().__init__(config.metric_logging_exporter_interval_in_mills)
        self._families = families
        self._in_slices = in_slices

    async def _export(self) -> None:
        for chunk in await self._in_slices(exposition(self._families())):
            lines = chunk.decode().splitlines()
            log.info("metrics:\n%s", "\n".join(line for line in lines if line[:1] != "#"))


class OtlpExport(SentExport):
    """Metrics. With metricsInDelta, what counters grow by while the collector is away is lost, as
    in RocketMQ."""

    def __init__(self, config: BrokerConfig, families: Families, in_slices: InSlices) -> None:
        target = config.metrics_grpc_exporter_target
        super().__init__(
            Collector(config, "metricsGrpcExporterTarget", target),
            config.metric_grpc_exporter_interval_in_mills,
        )
        self._families = families
        self._in_slices = in_slices
        self._start_ns = time.time_ns()
        self._differences = Differences() if config.metrics_in_delta else None

    async def _export(self) -> None:
        times = Times(self._start_ns, time.time_ns())
        made = await self._in_slices(requests(self._families(), times, self._differences))
        if self._differences is not None:
            self._start_ns = times.now_ns
        await self._collector.send(METRICS, made)
