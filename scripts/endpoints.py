"""The HTTP endpoint of a name server or a controller."""

from types import ModuleType
from typing import TYPE_CHECKING

from ..console.endpoint import DaemonView, Endpoint

if TYPE_CHECKING:
    from ..controller.server import Controller
    from ..namesrv.server import NameServer


def endpoint_of(
    daemon: "NameServer | Controller", pages: ModuleType, address: str, port: int | None
) -> Endpoint:
    """An endpoint, not started yet. Such a daemon is healthy and ready as soon as it listens.

    `pages` is the module `overview` of the daemon's folder.
    """
    view = DaemonView(
        fault=lambda: None,
        not_ready=lambda: None,
        metrics=lambda: pages.families(daemon),
        in_slices=daemon.slices.run,
        status=lambda with_system: pages.overview(daemon, with_system=with_system),
        note=lambda: pages.note(daemon),
    )
    return Endpoint(address, port, view, listen_port=daemon.config.listen_port)
