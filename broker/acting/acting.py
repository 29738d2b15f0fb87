"""The slave that acts for its master while that is away.

Each second it asks the name servers which brokers of its name are alive. It acts while they list it
with the smallest id, and the master is silent on the connection for replication, too: a master that
is alive but not listed goes on delivering. Acting, it locks queues for consumers, its offsets count
as newer than the master's, and with enableRemoteEscape it sends what is due to other brokers. It
stores nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from ...protocol.bodies.route import MASTER_ID
from ...protocol.headers.admin import HaAddresses
from ..replication.replica import Replica
from ..replication.slave import HaSlave
from ..settings.config import BrokerConfig
from .due_forwarding import DueForwarding
from .master_finder import MasterFinder
from .members import Group, Members
from .pair_locks import PairLocks

log = logging.getLogger(__name__)

POLL_SECONDS_MIN = 0.1  # between two polls, however often the name servers give notice
# For how long a master that returns has been announced it gets no rival: by then it replicates.
RETURN_MS = 10_000
REGISTER_MS = 10_000  # between two registrations of a broker that no name server lists


class Copy(Protocol):
    """A copy of a master's table. With `follows` its version is the master's."""

    follows: bool

    def lead(self) -> None:
        """Count as newer than the master's table from now on."""


class ActingMaster:
    """`copies` are the tables that this broker leads while it acts. `save_progress()` saves how far
    the sending of due messages came, before a master takes it back. `address` is this broker's
    own."""

    def __init__(
        self,
        config: BrokerConfig,
        address: str,
        members: Members,
        follower: HaSlave,
        replica: Replica,
        finder: MasterFinder,
        copies: tuple[Copy, ...],
        locks: PairLocks,
        due_forwarding: DueForwarding | None,
        save_progress: Callable[[], Awaitable[None]],
        now_ms: Callable[[], int],
    ) -> None:
        self.is_acting = False
        self.locks = locks
        self._config = config
        self._address = address
        self._members = members
        self._follower = follower
        self._replica = replica
        self._finder = finder
        self._copies = copies
        self._due_forwarding = due_forwarding
        self._save_progress = save_progress
        self._now_ms = now_ms
        self._answered_ms = -1  # when a name server answered last
        self._group: Group | None = None  # its answer
        self._return_ms = -RETURN_MS  # when a master announced its return
        self._news = asyncio.Event()
        self._polling = asyncio.Lock()
        self._is_verifying = False
        self._told = ""  # why it does not act, as last logged
        for copy in copies:
            copy.follows = True

    async def run(self, register: Callable[[], Awaitable[None]]) -> None:
        """Poll the name servers each second until cancelled; register again if none lists this
        one."""
        period_s = self._config.sync_broker_member_group_period / 1000
        registered_ms = self._now_ms()
        while True:
            await self.tick()
            is_missing = self._group is not None and self._config.broker_id not in self._group
            if is_missing and self._now_ms() - registered_ms >= REGISTER_MS:
                registered_ms = self._now_ms()
                await register()
            await asyncio.sleep(min(period_s, POLL_SECONDS_MIN))
            try:
                async with asyncio.timeout(max(0.0, period_s - POLL_SECONDS_MIN)):
                    await self._news.wait()
            except TimeoutError:
                continue
            self._news.clear()

    async def stop(self) -> None:
        """Act no more."""
        async with self._polling:
            await self._change("this broker stops")

    def poll_name_servers(self) -> None:
        """Poll the name servers soon, since a notice says that the smallest id has changed."""
        self._news.set()

    async def returning(self, told: HaAddresses) -> None:
        """Stop acting before this returns, if a master that announces its return is there
        indeed."""
        if not self._follower.connected:
            if self._is_verifying:
                return
            self._is_verifying = True
            try:
                if not await self._finder.is_returning(told):
                    return
            finally:
                self._is_verifying = False
        log.info("the master returns at %s", told.master_address)
        async with self._polling:
            self._return_ms = self._now_ms()
            await self._change("the master returns")
        if not self._follower.connected:
            self._replica.follow_log(told.master_ha_address or "")

    async def tick(self) -> None:
        """See which brokers are alive, and begin or end to act."""
        async with self._polling:
            group = await self._members.ask()
            if group is not None:
                self._answered_ms, self._group = self._now_ms(), group
                await self._finder.find(group.get(MASTER_ID, []))
            await self._change(self._why_not(self._now_ms()))

    def _why_not(self, now_ms: int) -> str:
        """The reason why this broker may not act; "" when it may."""
        config, silence_ms = self._config, self._config.broker_not_active_timeout_millis
        if self._group is None or now_ms - self._answered_ms > silence_ms:
            return "no name server answers"
        slave = self._follower
        if slave.connected and now_ms - slave.heard_ms <= silence_ms:
            return "the master is alive, it sends its log"
        if now_ms - self._return_ms < RETURN_MS:
            return "the master returns"
        return not_smallest(config.broker_id, self._address, self._group)

    async def _change(self, why_not: str) -> None:
        name = self._config.broker_name
        if why_not and why_not != self._told and (self.is_acting or "brokerId" in why_not):
            log.warning("broker %s does not act as master: %s", name, why_not)
        self._told = why_not
        if self.is_acting == (not why_not):
            return
        self.is_acting = not why_not
        if self.is_acting:
            log.warning("broker %s acts as master: its master is gone", name)
            for copy in self._copies:
                copy.lead()
            self.locks.begin()
            if self._due_forwarding is not None:
                self._due_forwarding.begin()
            return
        self.locks.end()
        if self._due_forwarding is not None:
            await self._due_forwarding.end()
        for copy in self._copies:
            copy.follows = True
        await self._save_progress()


def not_smallest(own_id: int, own_address: str, group: Group) -> str:
    """The reason why the broker with this id and address is not the one to act; "" when it is."""
    listed = group.get(own_id, [])
    others = [address for address in listed if address != own_address]
    if others:
        return (
            f"brokerId {own_id} is that of another broker, too, at {others[0]}; give each broker "
            "of a name its own"
        )
    if not listed:
        return "no name server lists it"
    smallest = min(group)
    if smallest < own_id:
        return f"broker {smallest} is alive at {group[smallest][0]}"
    return ""
