"""Finds the master of a slave that may act for it: asks the broker itself who it is."""

import logging

from ...protocol import codes
from ...protocol.aio.peers import Peers
from ...protocol.codec import java_properties
from ...protocol.headers.admin import HaAddresses
from ..naming.registration import NO_MASTER, MasterAddresses
from ..replication.replica import ANSWER_SECONDS, Replica, addresses_of
from ..settings.config import BrokerConfig

log = logging.getLogger(__name__)


class MasterFinder:
    """Tells `replica` which master is registered, and the log of which is to be followed before."""

    def __init__(self, replica: Replica, config: BrokerConfig, peers: Peers) -> None:
        self._replica = replica
        self._config = config
        self._peers = peers

    async def find(self, addresses: list[str]) -> None:
        """Follow the master that the name servers list at these addresses; without any there is no
        master."""
        replica = self._replica
        if not addresses:
            if replica.master():
                replica.on_master(NO_MASTER)
        elif replica.master() not in addresses:
            found = await addresses_of(addresses[0], self._peers)
            replica.on_master(MasterAddresses(addresses[0], found.master_ha_address or ""))

    async def is_returning(self, told: HaAddresses) -> bool:
        """True if a master of this name answers at the addresses in this announcement, which any
        peer can send."""
        address, config = told.master_address or "", self._config
        found = await addresses_of(address, self._peers)
        if told.master_ha_address is None or found != HaAddresses(
            told.master_ha_address, found.master_flush_offset, address
        ):
            log.warning(
                "not following the master announced at %s with %s for slaves: asked there, it says "
                "%s and %s",
                address,
                told.master_ha_address,
                found.master_address,
                found.master_ha_address,
            )
            return False
        try:
            answer = await self._peers.request(
                address, codes.GET_BROKER_CONFIG, timeout_s=ANSWER_SECONDS
            )
            settings = java_properties.parse((answer.body or b"").decode())
        except (OSError, TimeoutError, ValueError) as wrong:
            log.warning("not following the master announced at %s: %s", address, wrong)
            return False
        name = settings.get("brokerName"), settings.get("brokerClusterName")
        if answer.code == codes.SUCCESS and name != (
            config.broker_name,
            config.broker_cluster_name,
        ):
            log.warning("not following the master announced at %s: it is %s of %s", address, *name)
            return False
        return True
