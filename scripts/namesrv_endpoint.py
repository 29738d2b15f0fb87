"""The HTTP endpoint of a name server."""

from ..console.endpoint import DaemonView, Endpoint
from ..namesrv.overview import families, note, overview
from ..namesrv.server import NameServer


def namesrv_endpoint(server: NameServer, address: str, port: int | None) -> Endpoint:
    """An endpoint, not started yet. A name server that listens is healthy and ready."""
    view = DaemonView(
        fault=lambda: None,
        not_ready=lambda: None,
        metrics=lambda: families(server),
        in_slices=lambda steps: server.slices.run(steps),
        status=lambda with_system: overview(server, with_system=with_system),
        note=lambda: note(server),
    )
    return Endpoint(address, port, view, listen_port=server.config.listen_port)
