"""The clusters of a console, by the names that its operator gave them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from ...client.base.security import OPEN, Security
from ...client.pull.reader import Reader
from .asking import Asking
from .collector import Collector
from .history import BYTES_MAX, History
from .kept_history import KeptHistory
from .lakes import Lakes
from .proxies import PORT


@dataclass(slots=True)
class Watched:
    """One cluster: its client, its reader of messages, its samples; its name servers, with the
    security settings of both clients; and its lakes."""

    name: str
    admin: Asking
    reader: Reader
    collector: Collector = field(repr=False)
    servers: str | None = None
    security: Security = OPEN
    lakes: Lakes = field(default_factory=Lakes)

    def addresses(self) -> set[str]:
        """The brokers that the name servers listed: no other address is ever asked."""
        return {one.address for one in self.collector.brokers.values()}


class Clusters:
    """All clusters, started together. `servers` maps each name to its name servers. With `data`
    histories are kept in that folder. RocketMQ's proxies are asked at `proxy_port`. `lakes`
    has those of clusters, by the same names."""

    def __init__(
        self,
        servers: Mapping[str, str | None],
        security: Security = OPEN,
        history: int = BYTES_MAX,
        *,
        data: Path | None = None,
        proxy_port: int = PORT,
        lakes: Mapping[str, Lakes] = MappingProxyType({}),
    ) -> None:
        self.by_name: dict[str, Watched] = {}
        self._kept: list[KeptHistory] = []
        for name, address in servers.items():
            admin = Asking(address, security=security)
            reader = Reader(address, security=security)
            figures = History(history // len(servers))
            collector = Collector(name, admin, figures, proxy_port=proxy_port)
            if data is not None:
                self._kept.append(KeptHistory(figures, data / f"{name}.history"))
            self.by_name[name] = Watched(
                name, admin, reader, collector, address, security, lakes.get(name) or Lakes()
            )

    async def start(self) -> None:
        """Begin to sample; brokers that don't answer are marks on the pages."""
        for kept in self._kept:
            await kept.start()
        for one in self.by_name.values():
            await one.admin.start()
            await one.reader.start()
            one.collector.start()

    async def stop(self) -> None:
        """Stop sampling and close all connections."""
        for one in self.by_name.values():
            await one.collector.stop()
            await one.reader.close()
            await one.admin.close()
            await one.lakes.close()
        for kept in self._kept:
            await kept.stop()
