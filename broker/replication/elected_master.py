"""A master that a slave asks itself where its log can be followed."""

import logging

from ...protocol import codes
from ...protocol.aio.peers import Peers
from ...protocol.errors import Refusal
from ...protocol.headers.admin import HaAddresses

log = logging.getLogger(__name__)

ANSWER_SECONDS = 3.0


class ElectedMaster:
    """The controllers name its `address` for clients, "" without a master; it tells the rest."""

    def __init__(self, address: str, peers: Peers) -> None:
        self.address = address
        self._peers = peers

    async def ha_address(self) -> str:
        """Its address for replication, as it says itself; "" where it doesn't."""
        return (await addresses_of(self.address, self._peers)).master_ha_address or ""


async def addresses_of(master: str, peers: Peers) -> HaAddresses:
    """The addresses of the master at this one, as it says itself; none where it doesn't."""
    try:
        answer = await peers.ask(
            master, codes.EXCHANGE_BROKER_HA_INFO, HaAddresses(), ANSWER_SECONDS
        )
        return answer.header(HaAddresses)
    except (OSError, TimeoutError, Refusal) as wrong:
        log.info("master %s does not tell its address for slaves: %s", master, wrong)
        return HaAddresses()
