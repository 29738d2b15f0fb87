"""A slave whose name servers say each second which broker is the master."""

import logging
from collections.abc import Callable

from ...protocol import codes
from ...protocol.aio.peers import Peers
from ...protocol.codec import java_properties
from ...protocol.errors import Refusal
from ...protocol.headers.admin import HaAddresses
from ..naming.registration import NO_MASTER, Master
from ..replication.replica import Replica
from ..replication.slave import HaSlave
from ..replication.synchronize import SlaveSynchronize
from ..settings.config import BrokerConfig

log = logging.getLogger(__name__)

ANSWER_SECONDS = 3.0


class PairReplica(Replica):
    """Follows the master that is registered, and the log of one that is about to be."""

    def __init__(
        self,
        sync: SlaveSynchronize,
        follower: HaSlave,
        wake_pulls: Callable[[], None],
        config: BrokerConfig,
        peers: Peers,
    ) -> None:
        super().__init__(sync, follower, config.ha_master_address, wake_pulls)
        self._log = follower
        self._config = config
        self._peers = peers

    async def find(self, addresses: list[str]) -> None:
        """The name servers list a master at these addresses; none: there is no master."""
        if not addresses:
            if self.master():
                self.on_master(NO_MASTER)
        elif self.master() not in addresses:
            found = await self._ask(addresses[0])
            self.on_master(Master(addresses[0], found.master_ha_address or ""))

    async def is_returning(self, told: HaAddresses) -> bool:
        """Whether a master of this name answers at the addresses in this announcement, which
        any peer can send."""
        address, config = told.master_address or "", self._config
        found = await self._ask(address)
        if told.master_ha_address is None or found != HaAddresses(
            told.master_ha_address, found.master_flush_offset, address
        ):
            log.warning(
                "not following the master announced at %s with %s for slaves: asked there, it says "
                "%s and %s",
                address, told.master_ha_address, found.master_address, found.master_ha_address,
            )  # fmt: skip
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
            config.broker_name, config.broker_cluster_name,
        ):  # fmt: skip
            log.warning("not following the master announced at %s: it is %s of %s", address, *name)
            return False
        return True

    def follow_log(self, ha_address: str) -> None:
        """Follow the log of the master there; its tables once it is registered."""
        if not self._fixed:
            self._ha_address = ha_address
        self._log.set_master(self._ha_address)
        self._log.retry()

    async def _ask(self, address: str) -> HaAddresses:
        """The addresses of a master, as it says itself; none when it doesn't."""
        try:
            answer = await self._peers.request(
                address, codes.EXCHANGE_BROKER_HA_INFO, HaAddresses(), timeout_s=ANSWER_SECONDS
            )
            if answer.code == codes.SUCCESS:
                return answer.header(HaAddresses)
            wrong: object = f"it answers {answer.code} {answer.remark}"
        except (OSError, TimeoutError, Refusal) as error:
            wrong = error
        log.info("master %s does not tell its address for slaves: %s", address, wrong)
        return HaAddresses()
