"""The HTTP endpoint and the exporters of a broker, which in controller mode is another
broker after each switch."""

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import TypeVar

from ..broker.monitoring.metrics import families
from ..broker.monitoring.metrics_labels import Family
from ..broker.monitoring.overview import Overview, fault, not_ready, note, overview
from ..broker.runtime.spans import Spans
from ..broker.server import Broker
from ..broker.settings.config import BrokerConfig
from ..conf.collectors import pairs_of
from ..conf.secret import secret_of
from ..console.endpoint import DaemonView, Endpoint, InSlices
from ..console.exposition import exposition
from ..protocol.aio.slices import step_per_tick
from .endpoints import endpoint_at
from .serving import Part
from .telemetry_export import Families, LogExport, labelled

Result = TypeVar("Result")
Current = Callable[[], Broker | None]  # None while the role of a broker in controller mode changes

SWITCHING = "the role of this broker changes"


def broker_endpoint(config: BrokerConfig, current: Current) -> Endpoint:
    """An endpoint, not started yet, at the address of the settings."""

    def read(ask: Callable[[Broker], str | None], otherwise: str | None) -> str | None:
        broker = current()
        return otherwise if broker is None else ask(broker)

    def status(*, with_system: bool) -> Generator[None, None, Overview]:
        broker = current()
        if broker is not None:
            return (yield from overview(broker, with_system=with_system))
        return {"daemon": "broker", "name": config.broker_name, "role": SWITCHING}

    view = DaemonView(
        fault=lambda: read(fault, None),
        not_ready=lambda: read(not_ready, SWITCHING),
        metrics=lambda: _families(current),
        in_slices=partial(_in_slices, current),
        status=lambda with_system: status(with_system=with_system),
        note=lambda: read(note, SWITCHING),
        console=config.console_url,
    )
    return endpoint_at(config, view, config.listen_port)


def broker_exporters(config: BrokerConfig, current: Current) -> list[Part]:
    """The exporters that the settings ask for, not started yet."""
    in_slices = partial(_in_slices, current)
    found = exporter(config, lambda: _families(current), in_slices)
    parts = [] if found is None else [found]
    if config.spans_grpc_exporter_target:
        from .collector import SpanExport

        parts.append(SpanExport(config, lambda: _spans(current), in_slices))
    return parts


def exporter(config: BrokerConfig, families: Families, in_slices: InSlices) -> Part | None:
    """The exporter that `metricsExporterType` asks for: a port for Prometheus, requests to a
    collector of OpenTelemetry, or lines of the log. CommandError if its package is missing."""
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
        from .collector import OtlpExport

        return OtlpExport(config, found, in_slices)
    if config.metrics_exporter_type == "LOG":
        return LogExport(config.metric_logging_exporter_interval_in_mills, found, in_slices)
    return None


def _spans(current: Current) -> Spans | None:
    return None if (broker := current()) is None else broker.spans


def _families(current: Current) -> Iterable[Family]:
    return () if (broker := current()) is None else families(broker)


async def _in_slices(current: Current, steps: Generator[object, None, Result], /) -> Result:
    broker = current()
    if broker is not None:
        return await broker.slices.run(steps)
    return await step_per_tick(steps)
