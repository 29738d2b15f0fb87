"""Detects another living master of this broker's name ("split brain").

Two masters of one name each take messages that the other lacks, and a name server's route flips
between them: it knows the master that registered last. So a master asks each name server before it
lets clients in, and again before each of its own registrations. In controller mode the controller
decides which one is the master, and no name server is asked.

A name server knows brokers by their names alone, so a master of another cluster counts, too. A
registration outlives its broker by up to two minutes, and another broker may have the address by
then. An address counts only while a master of the same name answers there.
"""

import asyncio
import logging

from ...protocol import codes
from ...protocol.aio.peers import Peers
from ...protocol.bodies.cluster import GetBrokerMemberGroupResponseBody
from ...protocol.bodies.route import MASTER_ID
from ...protocol.codec import java_properties
from ...protocol.headers.namesrv import MemberGroup
from ..runtime.peers import open_peers
from ..settings.config import SLAVE, BrokerConfig

log = logging.getLogger(__name__)

ANSWER_SECONDS = 3.0  # for a name server, and for another master
ADDRESSES_MAX = 16  # addresses of one name that are checked; the rest is ignored


class DuplicateMasterError(OSError):
    """Raised when this broker may not start, because another master of its name is alive."""


class OtherMasters:
    """`addresses` are the other living masters, as of the last check."""

    def __init__(self, config: BrokerConfig, address: str) -> None:
        """`address` is this broker's own, as it registers."""
        self.addresses: tuple[str, ...] = ()
        self._config = config
        self._own = address
        self._clusters: dict[str, str] = {}  # of the living ones, as far as they tell
        self._named: set[str] = set()  # addresses of masters, as name servers say

    async def check_start(self) -> None:
        """DuplicateMasterError when another master is alive and allowDuplicateMaster is off.

        A name server that does not answer is passed over: it may start later than its brokers.
        """
        config, servers = self._config, self._config.name_servers
        if config.is_slave or config.enable_controller_mode or not servers:
            return
        peers = open_peers(config)
        try:
            await asyncio.gather(*(self.ask(peers, server) for server in servers))
        finally:
            await peers.close()
        await self._refresh()
        if not self.addresses:
            return
        if config.allow_duplicate_master:
            self._warn()
            return
        other = self._shown(self.addresses[0])
        raise DuplicateMasterError(
            f"broker name {config.broker_name} of cluster {config.broker_cluster_name} has a "
            f"living master at {other}, so this broker at {self._own} does not start "
            "as a second one: each would take messages that the other lacks; stop the other one, "
            "or start this one with brokerRole=SLAVE, brokerId=1 and an empty store folder, or "
            "set another brokerName (allowDuplicateMaster=true switches this check off)"
        )

    async def ask(self, peers: Peers, server: str) -> None:
        """Note which master this name server knows."""
        config = self._config
        header = MemberGroup(config.broker_cluster_name, config.broker_name)
        try:
            answer = await peers.request(
                server, codes.GET_BROKER_MEMBER_GROUP, header, timeout_s=ANSWER_SECONDS
            )
            if answer.code != codes.SUCCESS:  # RocketMQ 4 doesn't know the request
                return
            found = GetBrokerMemberGroupResponseBody.decode(answer.body or b"").broker_member_group
        except (ConnectionError, TimeoutError):
            return
        except ValueError as wrong:
            log.warning("name server %s: the members of a broker name: %s", server, wrong)
            return
        master = found.broker_addrs.get(MASTER_ID) if found is not None else None
        if master and master != self._own and len(self._named) < ADDRESSES_MAX:
            self._named.add(master)

    async def check(self) -> None:
        """See which of the masters that name servers know are alive, and warn about each."""
        await self._refresh()
        self._warn()

    async def _refresh(self) -> None:
        if not self._named:
            return
        named = sorted(self._named)
        peers = open_peers(self._config)
        try:
            alive = await asyncio.gather(*(self._is_master(peers, address) for address in named))
        finally:
            await peers.close()
        self.addresses = tuple(one for one, is_alive in zip(named, alive, strict=True) if is_alive)
        # A living one is checked again: a name server knows only the last registration.
        self._named = set(self.addresses)

    def _warn(self) -> None:
        for address in self.addresses:
            log.warning(
                "broker name %s has two masters: this one at %s and another one at %s; each takes "
                "messages that the other lacks; stop one of them",
                self._config.broker_name,
                self._own,
                self._shown(address),
            )

    def _shown(self, address: str) -> str:
        """The address, with its cluster if that is another one."""
        own = self._config.broker_cluster_name
        cluster = self._clusters.get(address, own)
        return address if cluster == own else f"{address} of cluster {cluster}"

    async def _is_master(self, peers: Peers, address: str) -> bool:
        """True if a master of this broker's name answers at the address."""
        try:
            answer = await peers.request(address, codes.GET_BROKER_CONFIG, timeout_s=ANSWER_SECONDS)
        except ConnectionError:
            return False
        except TimeoutError:  # it takes connections, and may go on at any moment
            return True
        if answer.code != codes.SUCCESS:  # a broker that does not let this one ask
            return True
        try:
            settings = java_properties.parse((answer.body or b"").decode())
        except ValueError:
            return True
        self._clusters[address] = settings.get("brokerClusterName", "")
        is_same = settings.get("brokerName") == self._config.broker_name
        return is_same and settings.get("brokerRole") != SLAVE
