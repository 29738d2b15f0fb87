"""The HTTP endpoint and the exporters of a broker, which in controller mode is another
broker after each switch."""

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import TypeVar

from ..broker.member.member import Member
from ..broker.monitoring.metrics import families
from ..broker.monitoring.metrics_labels import Family
from ..broker.monitoring.overview import Overview, fault, not_ready, note, overview
from ..broker.runtime.spans import Spans
from ..broker.server import Broker
from ..broker.settings.config import BrokerConfig
from ..conf.secret import secret_of
from ..console.endpoint import DaemonView, Endpoint
from ..protocol.aio.slices import step_per_tick
from .collector import SpanExport
from .serving import Part
from .telemetry_export import exporter

Result = TypeVar("Result")

SWITCHING = "the role of this broker changes"


def broker_endpoint(broker: Broker) -> Endpoint:
    """An endpoint, not started yet, at the address of the broker's settings."""
    return _endpoint(broker.config, lambda: broker)


def member_endpoint(member: Member[Broker]) -> Endpoint:
    """The same for a broker in controller mode."""
    return _endpoint(member.config, lambda: member.broker)


def broker_exporters(broker: Broker) -> list[Part]:
    """What the settings ask for, not started yet."""
    return _exporters(broker.config, lambda: broker)


def member_exporters(member: Member[Broker]) -> list[Part]:
    """The same for a broker in controller mode."""
    return _exporters(member.config, lambda: member.broker)


def _exporters(config: BrokerConfig, current: Callable[[], Broker | None]) -> list[Part]:
    in_slices = partial(_in_slices, current)
    found = exporter(config, lambda: _families(current), in_slices)
    parts = [] if found is None else [found]
    if config.spans_grpc_exporter_target:
        parts.append(SpanExport(config, lambda: _spans(current), in_slices))
    return parts


def _spans(current: Callable[[], Broker | None]) -> Spans | None:
    return None if (broker := current()) is None else broker.spans


def _families(current: Callable[[], Broker | None]) -> Iterable[Family]:
    return () if (broker := current()) is None else families(broker)


async def _in_slices(
    current: Callable[[], Broker | None], steps: Generator[object, None, Result], /
) -> Result:
    broker = current()
    if broker is not None:
        return await broker.slices.run(steps)
    return await step_per_tick(steps)


def _endpoint(config: BrokerConfig, current: Callable[[], Broker | None]) -> Endpoint:
    def read(look: Callable[[Broker], str | None], otherwise: str | None) -> str | None:
        broker = current()
        return otherwise if broker is None else look(broker)

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
    return Endpoint(
        config.http_bind_address,
        config.http_port,
        view,
        listen_port=config.listen_port,
        token=secret_of("httpToken", config.http_token),
    )
