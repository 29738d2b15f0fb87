"""The HTTP door of a broker: which of its functions answer what."""

from ..broker.metrics import families
from ..broker.overview import fault, not_ready, overview
from ..broker.server import Broker
from ..console.door import OFF, Answers, Door


def broker_door(broker: Broker) -> Door:
    """A door, not started yet, where the broker's settings say."""
    answers = Answers(
        fault=lambda: fault(broker),
        not_ready=lambda: not_ready(broker),
        metrics=lambda: families(broker),
        in_slices=lambda steps: broker.slices.run(steps),
        status=lambda: overview(broker),
    )
    port = broker.config.http_port
    return Door(broker.config.http_bind_address, OFF if port is None else port, answers)
