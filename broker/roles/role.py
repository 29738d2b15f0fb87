"""The role of a broker: what differs between masters and slaves, alone, in a pair, or controlled.

`Broker` asks its role these questions, and has no condition on it. A new role is a class with these
methods and a line in `choice`.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from ...protocol.aio.connection import Row
from ..access.gates import RequestGates
from ..groups.queue_locks import LockTable
from ..naming.registration import MasterAddresses
from ..pull.role import PullRole
from ..runtime.periodic import Job
from ..scheduled.timers import Timers

if TYPE_CHECKING:
    from ..send.fast_path import CompiledSends

Facts = dict[str, object]  # what `/status` tells


class Role(Protocol):
    """The questions, as far as possible in the order in which `Broker` asks them."""

    needs_authority: bool = False  # to take changes: `change_refusal` says when it is lacking
    takes_slaves: bool = True  # whether other brokers may follow this one

    def open(self, slaves: asyncio.Server) -> None:
        """Make the ends of replication; `slaves` listens for them. The store is open, its tables
        are not."""

    def open_timers(self) -> Timers | None:
        """Make the timers; None when they are off. StoreError when their files can't be read."""

    def pull_role(self) -> PullRole:
        """The decisions of this role about pulls."""

    def make_parts(self, gates: RequestGates) -> list[Row]:
        """Make the parts that only this role has, and set its gates; returns its own requests."""

    async def prepare(self) -> None:
        """Do what must be done before clients come, and let slaves in."""

    def jobs(self) -> Iterable[Job]:
        """The periodic work that only this role has."""

    async def join(self) -> None:
        """Follow a master, register with the name servers. Clients are let in already."""

    def use_compiled(self, compiled: "type[CompiledSends]") -> None:
        """Use machine code from now on."""

    # --- while it runs --------------------------------------------------------------------------

    @property
    def on_master(self) -> Callable[[MasterAddresses], None] | None:
        """The callback for a master that a name server names; None on a master."""
        return None

    def change_refusal(self) -> str | None:
        """The reason why changes are refused at this moment; None while they are accepted, or
        without `needs_authority`."""
        return None

    def may_deliver(self) -> bool:
        """True if a broker that delivers due messages may do so now."""
        return True

    def reads_all(self) -> bool:
        """True if the whole log of the last run is readable. Timers and revivals would take what
        can't be read for lost."""
        return True

    def facts(self) -> Facts:
        """The facts about this role in `/status`."""

    def note(self) -> str | None:
        """A note for the operator about a broker that is well; None for nothing."""
        return None

    # --- for the member that has made the broker for this role ----------------------------------

    def refuse_changes(self, reason: str) -> None:
        """Refuse all requests that change something from now on; reads go on."""
        return

    def take_sync_set(self, members: Iterable[int], set_epoch: int) -> None:
        """Take over the sync state set that the controller has confirmed."""
        return

    def release_locks(self) -> LockTable | None:
        """Give no locks any more. Returns all locks, None while this broker doesn't know all."""
        return None
