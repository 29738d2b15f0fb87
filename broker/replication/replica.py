"""A broker as a slave: it finds its master, copies its tables, and knows whether the master is up.

`HaSlave` follows the log itself. It gets the master's address after the topics have been copied, so
that messages can be read as soon as they arrive.
"""

import asyncio
import logging
from collections.abc import Callable

from ...protocol import codes
from ...protocol.aio.peers import Peers
from ...protocol.errors import Refusal
from ...protocol.headers.admin import HaAddresses
from ..naming.registration import NO_MASTER, MasterAddresses
from .slave import HaSlave
from .synchronize import TICK_SECONDS, SlaveSynchronize

log = logging.getLogger(__name__)

ANSWER_SECONDS = 3.0


class ElectedMaster:
    """The master that the controllers name: its `address` for clients, "" without a master. The
    master itself tells the rest."""

    def __init__(self, address: str, peers: Peers) -> None:
        self.address = address
        self._peers = peers

    async def ha_address(self) -> str:
        """The master's address for replication, as the master says it; "" when it does not say."""
        return (await addresses_of(self.address, self._peers)).master_ha_address or ""


async def addresses_of(master: str, peers: Peers) -> HaAddresses:
    """The addresses of the master at this address, as it says itself; none when it does not."""
    try:
        answer = await peers.ask(
            master, codes.EXCHANGE_BROKER_HA_INFO, HaAddresses(), ANSWER_SECONDS
        )
        return answer.header(HaAddresses)
    except (OSError, TimeoutError, Refusal) as wrong:
        log.info("master %s does not tell its address for slaves: %s", master, wrong)
        return HaAddresses()


class Replica:
    """`wake_pulls()` runs all parked pulls again.

    `ha_master_address` is haMasterAddress: where it is set, name servers aren't asked for it. With
    `elected` a name server's word counts only for the HA address of that master.
    """

    def __init__(
        self,
        sync: SlaveSynchronize,
        follower: HaSlave,
        wake_pulls: Callable[[], None],
        *,
        ha_master_address: str = "",
        elected: ElectedMaster | None = None,
    ) -> None:
        self.sync = sync
        self._follower = follower
        self._fixed = ha_master_address
        self._elected = elected
        self._wake_pulls = wake_pulls
        self._ha_address = ha_master_address
        self._master = NO_MASTER
        self._news = asyncio.Event()
        self._was_there = False
        if elected is not None:
            self._take(MasterAddresses(elected.address, ""))

    def master(self) -> str:
        """The address of the master, "" when none is known."""
        return self._master.address

    def is_master_there(self) -> bool:
        """True if a reader can be sent to the master."""
        return self._follower.connected

    def on_master(self, master: MasterAddresses) -> None:
        """Take the master's addresses from a name server, which may say that there is none."""
        elected = self._elected
        if elected is None or (master.address == elected.address and master.ha_address):
            self._take(master)

    def follow_log(self, ha_address: str) -> None:
        """Follow the log of the master there; its tables once it is registered."""
        if not self._fixed:
            self._ha_address = ha_address
        self._follower.set_master(self._ha_address)
        self._follower.retry()

    async def run(self) -> None:
        """Follow the master until cancelled."""
        while True:
            await self.tick()
            try:
                async with asyncio.timeout(TICK_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                continue
            self._news.clear()

    async def tick(self) -> None:
        """Do one round: the tables, then, the first time, the log."""
        missed = self._missed
        if missed is not None:
            self._ha_address = await missed.ha_address() or self._ha_address
        await self.sync.tick()
        if self._ha_address:
            self._follower.set_master(self._ha_address)

    def sweep(self) -> None:
        """Send waiting pulls to a master that is back. To be called every second."""
        is_there = self._follower.connected
        if is_there and not self._was_there:
            self._wake_pulls()
        self._was_there = is_there
        if self._missed is not None:
            self._news.set()  # the master may have started by now

    # --- inside ---------------------------------------------------------------------------------

    @property
    def _missed(self) -> ElectedMaster | None:
        """The elected master while its log isn't followed."""
        elected = self._elected
        is_missed = elected is not None and elected.address and not self._follower.connected
        return elected if is_missed else None

    def _take(self, master: MasterAddresses) -> None:
        self._master = master
        self.sync.set_master(master.address)
        if master.ha_address and not self._fixed:
            self._ha_address = master.ha_address  # a master that is gone may come back there
        self._news.set()
