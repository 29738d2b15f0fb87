"""Connections for administrative calls, and requests to one, each or any broker."""

import asyncio
from collections.abc import Iterable, Mapping

from ...protocol import codes
from ...protocol.bodies.cluster import ClusterInfo
from ...protocol.bodies.route import MASTER_ID, TopicRouteData
from ...protocol.command import Command
from ...protocol.names import DLQ_PREFIX, REPLY_TOPIC_SUFFIX, RETRY_PREFIX, is_system_topic
from ...protocol.wire import Header
from ..base.responses import AnyBody, body_of
from ..base.security import Security
from ..cluster.own_cluster import OwnCluster
from ..errors import BrokerError, NoRouteError

ADMIN_SECONDS = 15.0


def application_topics(names: Iterable[str], info: ClusterInfo) -> list[str]:
    """The topics of applications among `names`: not those of the system, of the cluster's brokers,
    of replies, retries and dead letters."""
    own = {*info.broker_addr_table, *info.cluster_addr_table}
    own |= {f"{cluster}{REPLY_TOPIC_SUFFIX}" for cluster in info.cluster_addr_table}
    return [
        name
        for name in names
        if not (name in own or is_system_topic(name) or name.startswith((RETRY_PREFIX, DLQ_PREFIX)))
    ]


class Asking(OwnCluster):
    """The requests of all parts of `Admin`."""

    @property
    def security(self) -> Security:
        """The credentials and the TLS settings of this client."""
        return self._security

    # --- the cluster ----------------------------------------------------------------------------

    async def cluster_info(self) -> ClusterInfo:
        """All brokers with their addresses, and which of them belong to each cluster."""
        servers = self._open().name_servers
        answer = await servers.ask(codes.GET_BROKER_CLUSTER_INFO)
        return body_of(answer, ClusterInfo, codes.GET_BROKER_CLUSTER_INFO)

    async def masters(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> dict[str, str]:
        """The masters' addresses by broker name: all, of one cluster, or of one broker name.

        NoRouteError when there is none.
        """
        info = await self.cluster_info()
        names = set(info.broker_addr_table)
        if cluster is not None:
            names &= set(info.cluster_addr_table.get(cluster, ()))
        if broker is not None:
            names &= {broker}
        found = {
            name: data.broker_addrs[MASTER_ID]
            for name, data in sorted(info.broker_addr_table.items())
            if name in names and MASTER_ID in data.broker_addrs
        }
        if not found:
            raise NoRouteError(
                f"no master broker (cluster {cluster or 'any'}, broker {broker or 'any'}); the "
                f"name server knows clusters {sorted(info.cluster_addr_table)} and brokers "
                f"{sorted(info.broker_addr_table)}{_only_slaves(info)}"
            )
        return found

    async def route(self, topic: str) -> TopicRouteData:
        """Which brokers have `topic` and with how many queues; NoRouteError when none has."""
        return await self._open().route_data(topic)

    # --- inside ---------------------------------------------------------------------------------

    async def _masters_of(self, topic: str) -> dict[str, str]:
        found = {
            broker.broker_name or "": broker.broker_addrs[MASTER_ID]
            for broker in (await self.route(topic)).broker_datas
            if MASTER_ID in broker.broker_addrs
        }
        if not found:
            raise NoRouteError(f"no broker of topic {topic} has a master now; check the brokers")
        return found

    async def _ask(
        self, address: str, code: int, header: Header | None = None, body: bytes = b""
    ) -> Command:
        return await self._open().ask(address, code, header, body, ADMIN_SECONDS)

    async def _ask_each(
        self,
        addresses: Mapping[str, str],
        code: int,
        header: Header | None = None,
        body: bytes = b"",
    ) -> dict[str, Command]:
        """The responses of several brokers, by broker name as in `addresses`."""
        work = (self._ask(address, code, header, body) for address in addresses.values())
        return dict(zip(addresses, await asyncio.gather(*work), strict=True))

    async def _body(
        self, address: str, code: int, kind: type[AnyBody], header: Header | None = None
    ) -> AnyBody:
        """The body of a broker's response."""
        return body_of(await self._ask(address, code, header), kind, code)

    async def _bodies(
        self,
        addresses: Mapping[str, str],
        code: int,
        kind: type[AnyBody],
        header: Header | None = None,
    ) -> dict[str, AnyBody]:
        """The bodies of the responses of several brokers, by broker name."""
        answers = await self._ask_each(addresses, code, header)
        return {name: body_of(answer, kind, code) for name, answer in answers.items()}

    async def _body_if_known(
        self, address: str, code: int, kind: type[AnyBody], header: Header
    ) -> AnyBody | None:
        """The body; None from a broker that does not know this request."""
        what, missing = codes.REQUEST_NAMES[code], (codes.REQUEST_CODE_NOT_SUPPORTED,)
        return await self._body_of_any([address], code, kind, header, missing, what)

    async def _body_of_master(
        self, code: int, kind: type[AnyBody], header: Header, missing: tuple[int, ...], doing: str
    ) -> AnyBody | None:
        """The body of the first master whose code is not in `missing`; None without any."""
        addresses = (await self.masters()).values()
        return await self._body_of_any(addresses, code, kind, header, missing, doing)

    async def _body_of_any(
        self,
        addresses: Iterable[str],
        code: int,
        kind: type[AnyBody],
        header: Header,
        missing: tuple[int, ...],
        doing: str,
    ) -> AnyBody | None:
        for address in addresses:
            answer = await self._open().request(address, code, header, timeout_s=ADMIN_SECONDS)
            if answer.code == codes.SUCCESS:
                return body_of(answer, kind, code)
            if answer.code not in missing:
                raise BrokerError(answer.code, answer.remark, address, doing)
        return None


def _only_slaves(info: ClusterInfo) -> str:
    """The error for brokers with slaves but no master."""
    alone = [
        name for name, data in info.broker_addr_table.items() if MASTER_ID not in data.broker_addrs
    ]
    if not alone:
        return ""
    return f"; {', '.join(sorted(alone))} have slaves only: start a master there"
