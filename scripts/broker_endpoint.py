"""The HTTP endpoint of a broker, which in controller mode is another one after each switch."""

import asyncio
from collections.abc import Callable, Generator
from typing import TypeVar

from ..broker.member.member import Member
from ..broker.monitoring.metrics import families
from ..broker.monitoring.overview import Overview, fault, not_ready, note, overview
from ..broker.server import Broker
from ..broker.settings.config import BrokerConfig
from ..console.endpoint import DaemonView, Endpoint

Result = TypeVar("Result")

SWITCHING = "the role of this broker changes"


def broker_endpoint(broker: Broker) -> Endpoint:
    """An endpoint, not started yet, at the address of the broker's settings."""
    return _endpoint(broker.config, lambda: broker)


def member_endpoint(member: Member) -> Endpoint:
    """The same for a broker in controller mode."""
    return _endpoint(member.config, lambda: member.broker)


def _endpoint(config: BrokerConfig, current: Callable[[], Broker | None]) -> Endpoint:
    async def in_slices(steps: Generator[object, None, Result], /) -> Result:
        broker = current()
        if broker is not None:
            return await broker.slices.run(steps)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            await asyncio.sleep(0)

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
        metrics=lambda: () if (broker := current()) is None else families(broker),
        in_slices=in_slices,
        status=lambda with_system: status(with_system=with_system),
        note=lambda: read(note, SWITCHING),
    )
    return Endpoint(
        config.http_bind_address, config.http_port, view, listen_port=config.listen_port
    )
