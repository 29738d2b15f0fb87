"""The elected master, as a slave in controller mode knows it."""

import logging

from ...protocol import codes
from ...protocol.aio.peers import Peers
from ...protocol.errors import Refusal
from ...protocol.headers.admin import HaAddresses

log = logging.getLogger(__name__)

TIMEOUT_S = 3.0


class ElectedMaster:
    """The controllers name its `address` for clients, "" without a master; it tells the rest."""

    def __init__(self, address: str, peers: Peers) -> None:
        self.address = address
        self._peers = peers

    async def ha_address(self) -> str:
        """Its address for replication, as it says itself; "" where it doesn't."""
        try:
            answer = await self._peers.request(
                self.address, codes.EXCHANGE_BROKER_HA_INFO, HaAddresses(), timeout_s=TIMEOUT_S
            )
            found = answer.header(HaAddresses).master_ha_address
        except (ConnectionError, TimeoutError, Refusal) as wrong:
            log.info("master %s does not tell its HA address: %s", self.address, wrong)
            return ""
        return found or "" if answer.code == codes.SUCCESS else ""
