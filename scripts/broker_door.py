"""The HTTP door of a broker: which of its functions answer what."""

from ..broker.monitoring.metrics import families
from ..broker.monitoring.overview import fault, not_ready, note, overview
from ..broker.server import Broker
from ..console.endpoint import Answers, Endpoint


def broker_door(broker: Broker) -> Endpoint:
    """A door, not started yet, where the broker's settings say."""
    answers = Answers(
        fault=lambda: fault(broker),
        not_ready=lambda: not_ready(broker),
        metrics=lambda: families(broker),
        in_slices=lambda steps: broker.slices.run(steps),
        status=lambda with_system: overview(broker, with_system=with_system),
        note=lambda: note(broker),
    )
    config = broker.config
    return Endpoint(
        config.http_bind_address, config.http_port, answers, listen_port=config.listen_port
    )
