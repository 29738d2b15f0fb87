"""The HTTP endpoint of a broker."""

from ..broker.monitoring.metrics import families
from ..broker.monitoring.overview import fault, not_ready, note, overview
from ..broker.server import Broker
from ..console.endpoint import DaemonView, Endpoint


def broker_endpoint(broker: Broker) -> Endpoint:
    """An endpoint, not started yet, at the address of the broker's settings."""
    view = DaemonView(
        fault=lambda: fault(broker),
        not_ready=lambda: not_ready(broker),
        metrics=lambda: families(broker),
        in_slices=broker.slices.run,
        status=lambda with_system: overview(broker, with_system=with_system),
        note=lambda: note(broker),
    )
    config = broker.config
    return Endpoint(
        config.http_bind_address, config.http_port, view, listen_port=config.listen_port
    )
