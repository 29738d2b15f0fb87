"""The HTTP door of a name server: which of its functions answer what."""

from ..console.endpoint import Answers, Endpoint
from ..namesrv.overview import families, note, overview
from ..namesrv.server import NameServer


def namesrv_door(server: NameServer, address: str, port: int | None) -> Endpoint:
    """A door, not started yet. A name server that listens is well, and ready as soon as it does."""
    answers = Answers(
        fault=lambda: None,
        not_ready=lambda: None,
        metrics=lambda: families(server),
        in_slices=lambda steps: server.slices.run(steps),
        status=lambda with_system: overview(server, with_system=with_system),
        note=lambda: note(server),
    )
    return Endpoint(address, port, answers, listen_port=server.config.listen_port)
