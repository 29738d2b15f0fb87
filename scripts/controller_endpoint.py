"""The HTTP endpoint of a controller: which of its functions answer what."""

from ..console.endpoint import DaemonView, Endpoint
from ..controller.overview import families, note, overview
from ..controller.server import Controller


def controller_endpoint(controller: Controller, address: str, port: int | None) -> Endpoint:
    """An endpoint, not started yet. A controller is ready as soon as it listens."""
    view = DaemonView(
        fault=lambda: None,
        not_ready=lambda: None,
        metrics=lambda: families(controller),
        in_slices=lambda steps: controller.slices.run(steps),
        status=lambda with_system: overview(controller),
        note=lambda: note(controller),
    )
    return Endpoint(address, port, view, listen_port=controller.config.listen_port)
