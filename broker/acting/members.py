"""The living brokers of this name, as the name servers know them (901, 904)."""

import asyncio
import logging

from ...protocol import codes
from ...protocol.aio.peers import Peers
from ...protocol.bodies.cluster import GetBrokerMemberGroupResponseBody
from ...protocol.bodies.route import MASTER_ID
from ...protocol.headers.namesrv import BrokerHeartbeat, MemberGroup
from ..runtime.periodic import Job
from ..settings.config import BrokerConfig

log = logging.getLogger(__name__)

ANSWER_SECONDS = 3.0
MEMBERS_MAX = 64  # brokers of one name that are considered

# Addresses by broker id. There are several where name servers don't agree.
Group = dict[int, list[str]]


class Members:
    """Asks the name servers about the brokers of one name. `address` is this broker's own."""

    def __init__(self, config: BrokerConfig, peers: Peers, address: str) -> None:
        self._config = config
        self._peers = peers
        self._address = address
        self._faults: dict[str, str] = {}  # by name server, each logged once

    def reports(self) -> Job:
        """The job that calls `report`."""
        return Job(self._config.broker_heartbeat_interval / 1000, self.report)

    async def report(self) -> None:
        """Tell every name server that this broker is alive."""
        config = self._config
        header = BrokerHeartbeat(
            config.broker_cluster_name, self._address, config.broker_name, config.broker_id
        )
        timeout_s = config.send_heartbeat_timeout_millis / 1000
        await asyncio.gather(
            *(
                self._peers.request(server, codes.BROKER_HEARTBEAT, header, timeout_s=timeout_s)
                for server in config.name_servers
            ),
            return_exceptions=True,  # which of them are away is logged by `ask`
        )

    async def ask(self) -> Group | None:
        """The living brokers of this name, this one included; None when no name server answers."""
        answers = await asyncio.gather(*map(self._ask, self._config.name_servers))
        known = [answer for answer in answers if answer is not None]
        if not known:
            return None
        found: Group = {}
        for answer in known:
            for broker_id, address in list(answer.items())[:MEMBERS_MAX]:
                addresses = found.setdefault(broker_id, [])
                if broker_id >= MASTER_ID and address not in addresses:
                    addresses.append(address)
        return {broker_id: found[broker_id] for broker_id in sorted(found) if found[broker_id]}

    async def _ask(self, server: str) -> dict[int, str] | None:
        config = self._config
        header = MemberGroup(config.broker_cluster_name, config.broker_name)
        try:
            answer = await self._peers.ask(
                server, codes.GET_BROKER_MEMBER_GROUP, header, ANSWER_SECONDS
            )
            group = GetBrokerMemberGroupResponseBody.decode(answer.body or b"").broker_member_group
        except (OSError, TimeoutError, ValueError) as wrong:
            if self._faults.get(server) != type(wrong).__name__:
                self._faults[server] = type(wrong).__name__
                log.warning(
                    "name server %s does not say which brokers named %s are alive: %s",
                    server,
                    config.broker_name,
                    wrong,
                )
            return None
        self._faults.pop(server, None)
        return {} if group is None else dict(group.broker_addrs)
