"""A slave in controller mode: the controller names its master, the master its HA address."""

import logging
from collections.abc import Callable

from ...protocol import codes
from ...protocol.aio.peers import Peers
from ...protocol.errors import Refusal
from ...protocol.headers.admin import HaAddresses
from ..naming.registration import Master
from ..replication.replica import LogFollower, Replica
from ..replication.synchronize import SlaveSynchronize
from .role import Role

log = logging.getLogger(__name__)

TIMEOUT_S = 3.0


class MemberReplica(Replica):
    """Follows the master of `role`, whatever else name servers say."""

    def __init__(
        self,
        sync: SlaveSynchronize,
        follower: LogFollower,
        wake_pulls: Callable[[], None],
        role: Role,
        peers: Peers,
    ) -> None:
        super().__init__(sync, follower, "", wake_pulls)
        self._peers = peers
        super().on_master(Master(role.master_address, ""))

    def on_master(self, master: Master) -> None:
        """A name server's word counts for the HA address of the elected master."""
        if master.address == self._master.address and master.ha_address:
            super().on_master(master)

    async def tick(self) -> None:
        if self._master.address and not self._follower.connected:
            await self._ask_ha_address(self._master.address)
        await super().tick()

    def sweep(self) -> None:
        super().sweep()
        if self._master.address and not self._follower.connected:
            self._news.set()  # the master may have started by now

    async def _ask_ha_address(self, master: str) -> None:
        try:
            answer = await self._peers.request(
                master, codes.EXCHANGE_BROKER_HA_INFO, HaAddresses(), timeout_s=TIMEOUT_S
            )
            found = answer.header(HaAddresses).master_ha_address
        except (ConnectionError, TimeoutError, Refusal) as wrong:
            log.info("master %s does not tell its HA address: %s", master, wrong)
            return
        if found and answer.code == codes.SUCCESS:
            self._ha_address = found
