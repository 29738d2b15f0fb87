"""The controllers, as a member of a broker name asks them.

All controllers get heartbeats. Everything else goes to the leader, which any of them names.
"""

import asyncio
import logging
from collections.abc import Callable

from ...protocol import codes
from ...protocol.aio.peers import Peers
from ...protocol.command import Command
from ...protocol.errors import Refusal
from ...protocol.headers.controller import ControllerHeartbeat, GetMetadataResponse
from ...protocol.wire import Header

log = logging.getLogger(__name__)

TIMEOUT_S = 3.0


class NoLeaderError(ConnectionError):
    """No controller leads at the moment, or the leader does not answer."""


class Controllers:
    """The controllers at `addresses` ("host:port"). `leader` is "" while none is known."""

    def __init__(self, addresses: list[str], peers: Peers) -> None:
        self.leader = ""
        self._addresses = addresses
        self._peers = peers
        self._silent: set[str] = set()  # controllers that get no heartbeats, logged once
        self._fault = ""  # what was logged last

    async def ask(self, code: int, header: Header | None, body: bytes = b"") -> Command:
        """The leader's response, whatever its code. NoLeaderError without a leader."""
        if not self.leader:
            await self.find_leader()
        leader = self.leader
        try:
            found = await self._peers.request(leader, code, header, body, TIMEOUT_S)
        except (ConnectionError, TimeoutError) as wrong:
            self._forget(leader)
            raise self._no_leader(f"controller {leader}: {wrong}") from None
        if found.code == codes.CONTROLLER_NOT_LEADER:
            self._forget(leader)
            raise self._no_leader(f"controller {leader} does not lead any more")
        if self._fault:
            self._fault = ""
            log.info("controller %s leads", leader)
        return found

    async def find_leader(self) -> None:
        """Ask the controllers, one after the other, for the leader; NoLeaderError."""
        faults = []
        for address in self._addresses:
            try:
                answer = await self._peers.ask(
                    address, codes.CONTROLLER_GET_METADATA_INFO, timeout_s=TIMEOUT_S
                )
                found = answer.header(GetMetadataResponse)
            except (ConnectionError, TimeoutError, Refusal) as wrong:
                faults.append(f"{address} ({wrong})")
                continue
            # The one that was asked is reachable at this address, whatever it calls itself.
            leader = address if found.is_leader else found.controller_leader_address or ""
            if leader:
                self.leader = leader
                return
            faults.append(f"{address} (it knows no leader)")
        raise self._no_leader(f"no controller leads: {', '.join(faults)}")

    async def beat(
        self, address: str, seconds: float, heartbeat: Callable[[], ControllerHeartbeat | None]
    ) -> None:
        """Send heartbeats to one controller until cancelled; None skips one."""
        while True:
            header = heartbeat()
            try:
                if header is not None:
                    await self._peers.oneway(address, codes.BROKER_HEARTBEAT, header)
            except ConnectionError as wrong:
                if address not in self._silent:
                    self._silent.add(address)
                    log.warning(
                        "controller %s gets no heartbeats: %s; trying again", address, wrong
                    )
            else:
                self._silent.discard(address)
            await asyncio.sleep(seconds)

    def _forget(self, leader: str) -> None:
        if self.leader == leader:
            self.leader = ""

    def _no_leader(self, why: str) -> NoLeaderError:
        if not self._fault:
            log.warning("%s; trying again, nobody is elected meanwhile", why)
        self._fault = why
        return NoLeaderError(why)
