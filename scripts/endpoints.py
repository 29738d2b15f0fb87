"""The HTTP endpoint of a daemon, at the address of its settings."""

from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from ..conf.secret import secret_of
from ..console.endpoint import DaemonView, Endpoint, InSlices

if TYPE_CHECKING:
    from ..controller.server import Controller
    from ..lake.service import Lake
    from ..namesrv.server import NameServer
    from ..proxy.server import Proxy


class HttpSettings(Protocol):
    """The settings of an endpoint."""

    @property
    def http_port(self) -> int | None: ...
    @property
    def http_bind_address(self) -> str: ...
    @property
    def http_token(self) -> str: ...
    @property
    def console_url(self) -> str: ...


def endpoint_of(
    daemon: "NameServer | Controller | Proxy | Lake",
    pages: ModuleType,
    settings: HttpSettings,
    in_slices: InSlices,
    listen_port: int,
) -> Endpoint:
    """An endpoint, not started yet. Such a daemon is healthy and ready as soon as it listens.

    `pages` is the module `overview` of the daemon's folder.
    """
    view = DaemonView(
        fault=lambda: None,
        not_ready=lambda: None,
        metrics=lambda: pages.families(daemon),
        in_slices=in_slices,
        status=lambda with_system: pages.overview(daemon, with_system=with_system),
        note=lambda: pages.note(daemon),
        console=settings.console_url,
    )
    return endpoint_at(settings, view, listen_port)


def endpoint_at(settings: HttpSettings, view: DaemonView, listen_port: int) -> Endpoint:
    """An endpoint, not started yet, at the address of the settings."""
    return Endpoint(
        settings.http_bind_address,
        settings.http_port,
        view,
        listen_port=listen_port,
        token=secret_of("httpToken", settings.http_token),
    )
