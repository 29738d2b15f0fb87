"""The HTTP endpoint of a name server, a controller or a proxy."""

from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from ..conf.secret import secret_of
from ..console.endpoint import DaemonView, Endpoint
from ..protocol.aio.slices import step_per_tick

if TYPE_CHECKING:
    from ..controller.server import Controller
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
    daemon: "NameServer | Controller", pages: ModuleType, settings: "HttpSettings"
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
        console=settings.console_url,
    )
    return Endpoint(
        settings.http_bind_address,
        settings.http_port,
        view,
        listen_port=daemon.config.listen_port,
        token=secret_of("httpToken", settings.http_token),
    )


def proxy_endpoint(proxy: "Proxy") -> Endpoint:
    """An endpoint, not started yet, of a proxy that listens: it is healthy and ready then."""
    from ..proxy import overview

    view = DaemonView(
        fault=lambda: None,
        not_ready=lambda: None,
        metrics=lambda: overview.families(proxy),
        in_slices=step_per_tick,
        status=lambda with_system: overview.overview(proxy, with_system=with_system),
        note=lambda: overview.note(proxy),
        console=proxy.config.console_url,
    )
    config = proxy.config
    return Endpoint(
        config.http_bind_address,
        config.http_port,
        view,
        listen_port=proxy.port,
        token=secret_of("httpToken", config.http_token),
    )
