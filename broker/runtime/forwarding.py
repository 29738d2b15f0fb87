"""Requests that a broker forwards to another: for static topics, whose queues move.

The name servers know the addresses of brokers; these are cached for a while.
"""

import asyncio

from ...protocol import codes
from ...protocol.aio.peers import Peers
from ...protocol.bodies.cluster import ClusterInfo
from ...protocol.bodies.route import MASTER_ID, TopicRouteData
from ...protocol.command import Command
from ...protocol.errors import Refusal
from ...protocol.headers.namesrv import GetRoute
from ...protocol.wire import Header
from ..settings.config import BrokerConfig
from .peers import open_peers

ADDRESSES_S = 10.0  # how long an address is cached
FORWARDS_MAX = 1_024  # requests on their way to other brokers


class Forwarding:
    """Asks other brokers by their names. OSError for an unusable certificate file."""

    def __init__(self, config: BrokerConfig) -> None:
        self._servers = [a for a in (config.namesrv_addr or "").replace(",", ";").split(";") if a]
        self._config = config
        self._peers: Peers | None = None
        self._masters: dict[str, str] = {}
        self._known_until = 0.0
        self._under_way = 0

    async def request(self, broker_name: str, code: int, header: Header) -> Command:
        """The answer of the master of this name, whatever its code; Refusal when there is none."""
        if self._under_way >= FORWARDS_MAX:
            raise Refusal(
                codes.SYSTEM_BUSY,
                f"[OVERLOAD]{self._under_way} requests wait for other brokers, the limit is "
                f"{FORWARDS_MAX}; try again later",
            )
        self._under_way += 1
        try:
            address = await self._address(broker_name)
            return await self._ask(address, code, header)
        except (OSError, TimeoutError) as wrong:
            self._known_until = 0.0  # it may be elsewhere by now
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"{codes.REQUEST_NAMES[code]} is for broker {broker_name}, which can't be asked: "
                f"{wrong}; try again later",
            ) from None
        finally:
            self._under_way -= 1

    async def route(self, topic: str) -> TopicRouteData:
        """The route of a topic; Refusal when no name server has it."""
        try:
            answer = await self._ask_name_servers(
                codes.GET_ROUTEINFO_BY_TOPIC, GetRoute(topic, standard_json=True)
            )
            if answer.code == codes.SUCCESS:
                return TopicRouteData.decode(answer.body)
            wrong = f"{answer.code} {answer.remark}"
        except (OSError, TimeoutError, ValueError) as error:
            wrong = str(error)
        raise Refusal(codes.SYSTEM_ERROR, f"no route of topic {topic}: {wrong}")

    def refusal(self, broker_name: str, code: int, answer: Command) -> Refusal:
        """The Refusal for the client when another broker gave an unexpected answer."""
        return Refusal(
            codes.SYSTEM_ERROR,
            f"{codes.REQUEST_NAMES[code]} was declined by broker {broker_name} with "
            f"{answer.code}: {answer.remark}",
        )

    async def close(self) -> None:
        if self._peers is not None:
            await self._peers.close()

    # --- inside ---------------------------------------------------------------------------------

    async def _address(self, broker_name: str) -> str:
        now = asyncio.get_running_loop().time()
        if broker_name not in self._masters or now >= self._known_until:
            await self._learn()
        address = self._masters.get(broker_name)
        if address is None:
            raise ConnectionError(
                "no name server knows a master of this name; check that it runs and registers "
                f"with {', '.join(self._servers)}"
            )
        return address

    async def _learn(self) -> None:
        answer = await self._ask_name_servers(codes.GET_BROKER_CLUSTER_INFO, None)
        try:
            found = ClusterInfo.decode(answer.body)
        except ValueError as wrong:
            raise ConnectionError(f"what the name server says can't be read: {wrong}") from None
        self._masters = {
            name: broker.broker_addrs[MASTER_ID]
            for name, broker in found.broker_addr_table.items()
            if MASTER_ID in broker.broker_addrs
        }
        self._known_until = asyncio.get_running_loop().time() + ADDRESSES_S

    async def _ask_name_servers(self, code: int, header: Header | None) -> Command:
        """The response of the first name server that answers."""
        wrong: Exception = ConnectionError("there is none: namesrvAddr is empty")
        for server in self._servers:
            try:
                return await self._ask(server, code, header)
            except (OSError, TimeoutError) as error:
                wrong = error
        raise ConnectionError(f"no name server can be asked: {wrong}")

    async def _ask(self, address: str, code: int, header: Header | None) -> Command:
        if self._peers is None:
            self._peers = open_peers(self._config)
        timeout_s = self._config.forward_timeout / 1000
        return await self._peers.request(address, code, header, timeout_s=timeout_s)
