"""A broker as a slave: it finds its master, copies its tables, and knows whether the master is up.

`HaSlave` follows the log itself. It gets the master's address after the topics have been copied, so
that messages can be read as soon as they arrive.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from ..naming.registration import NO_MASTER, Master
from .synchronize import TICK_SECONDS, SlaveSynchronize

log = logging.getLogger(__name__)


class LogFollower(Protocol):
    """A component that follows a master's log."""

    @property
    def connected(self) -> bool:
        """Whether the master is there."""
        ...

    def set_master(self, address: str | None) -> None:
        """Follow this one, "host:port" of its port for replication."""
        ...


class Replica:
    """`ha_master_address` is haMasterAddress: where it is set, name servers aren't asked for it.
    `wake_pulls()` runs all parked pulls again."""

    def __init__(
        self,
        sync: SlaveSynchronize,
        follower: LogFollower,
        ha_master_address: str,
        wake_pulls: Callable[[], None],
    ) -> None:
        self.sync = sync
        self._follower = follower
        self._fixed = ha_master_address
        self._wake_pulls = wake_pulls
        self._ha_address = ha_master_address
        self._master = NO_MASTER
        self._news = asyncio.Event()
        self._was_there = False

    def master(self) -> str:
        """The address of the master, "" when none is known."""
        return self._master.address

    def is_master_there(self) -> bool:
        """Whether a reader can be sent to the master."""
        return self._follower.connected

    def on_master(self, master: Master) -> None:
        """A name server says where the master is, or that there is none."""
        self._master = master
        self.sync.set_master(master.address)
        if master.ha_address and not self._fixed:
            self._ha_address = master.ha_address  # a master that is gone may come back there
        self._news.set()

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
        """One round: the tables, then, the first time, the log."""
        await self.sync.tick()
        if self._ha_address:
            self._follower.set_master(self._ha_address)

    def sweep(self) -> None:
        """Send waiting pulls to a master that is back. To be called every second."""
        is_there = self._follower.connected
        if is_there and not self._was_there:
            self._wake_pulls()
        self._was_there = is_there
