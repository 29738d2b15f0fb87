"""Base class of clients with their own `Cluster`, created at start and closed at the end."""

from collections.abc import Iterable
from typing import ClassVar

from ..base.lifecycle import Startable
from ..base.security import OPEN, Security
from ..errors import ClosedError
from .cluster import Cluster


class OwnCluster(Startable):
    """A client with its own `Cluster`. Every call may raise the errors of `client.errors`.

    With `_keeps_routes` the routes in use are refreshed each 30 s.
    """

    _keeps_routes: ClassVar[bool] = False

    def __init__(
        self, name_server: str | Iterable[str] | None = None, *, security: Security = OPEN
    ) -> None:
        self._name_server = name_server
        self._security = security
        self._cluster: Cluster | None = None

    async def start(self) -> None:
        """Make the client; connections are made when they are needed."""
        if self._cluster is None:
            self._cluster = Cluster(self._name_server, security=self._security)
            if self._keeps_routes:
                self._cluster.start()

    async def close(self) -> None:
        """Close the connections."""
        if self._cluster is not None:
            await self._cluster.close()

    def _open(self) -> Cluster:
        if self._cluster is None:
            name = type(self).__name__.lower()
            raise ClosedError(f"the {name} is not started; use `async with` or start()")
        self._cluster.check_loop()
        return self._cluster
