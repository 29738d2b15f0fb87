"""The HTTP endpoint and the exporter of metrics of a broker, which in controller mode is another
broker after each switch."""

import asyncio
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import TypeVar

from ..broker.member.member import Member
from ..broker.monitoring.metrics import families
from ..broker.monitoring.metrics_labels import Family
from ..broker.monitoring.overview import Overview, fault, not_ready, note, overview
from ..broker.server import Broker
from ..broker.settings.config import BrokerConfig
from ..conf.secret import secret_of
from ..console.endpoint import DaemonView, Endpoint
from .metrics_export import exporter
from .serving import Part

Result = TypeVar("Result")

SWITCHING = "the role of this broker changes"


def broker_endpoint(broker: Broker, console: str | None = None) -> Endpoint:
    """An endpoint, not started yet, at the address of the broker's settings. Its page links to a
    console."""
    return _endpoint(broker.config, lambda: broker, console)


def member_endpoint(member: Member, console: str | None = None) -> Endpoint:
    """The same for a broker in controller mode."""
    return _endpoint(member.config, lambda: member.broker, console)


def broker_exporter(broker: Broker) -> Part | None:
    """What `metricsExporterType` asks for, not started yet."""
    return _exporter(broker.config, lambda: broker)


def member_exporter(member: Member) -> Part | None:
    """The same for a broker in controller mode."""
    return _exporter(member.config, lambda: member.broker)


def _exporter(config: BrokerConfig, current: Callable[[], Broker | None]) -> Part | None:
    return exporter(config, lambda: _families(current), partial(_in_slices, current))


def _families(current: Callable[[], Broker | None]) -> Iterable[Family]:
    return () if (broker := current()) is None else families(broker)


async def _in_slices(
    current: Callable[[], Broker | None], steps: Generator[object, None, Result], /
) -> Result:
    broker = current()
    if broker is not None:
        return await broker.slices.run(steps)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        await asyncio.sleep(0)


def _endpoint(
    config: BrokerConfig, current: Callable[[], Broker | None], console: str | None
) -> Endpoint:
    def read(look: Callable[[Broker], str | None], otherwise: str | None) -> str | None:
        broker = current()
        return otherwise if broker is None else look(broker)

    def status(*, with_system: bool) -> Generator[None, None, Overview]:
        broker = current()
        if broker is not None:
            return (yield from overview(broker, with_system=with_system))
        return f"aerobee broker {config.broker_name}", [("Role", SWITCHING)], []

    view = DaemonView(
        fault=lambda: read(fault, None),
        not_ready=lambda: read(not_ready, SWITCHING),
        metrics=lambda: _families(current),
        in_slices=partial(_in_slices, current),
        status=lambda with_system: status(with_system=with_system),
        note=lambda: read(note, SWITCHING),
        console=console,
    )
    return Endpoint(
        config.http_bind_address,
        config.http_port,
        view,
        listen_port=config.listen_port,
        token=secret_of("httpToken", config.http_token),
    )
