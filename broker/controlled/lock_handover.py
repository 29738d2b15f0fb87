"""Queue locks on their way from the master of one epoch to the master of the next.

A new master gives no locks until those of the master before have ended, which it does not know. It
need not wait when the master before, which gives none any more, sends it all of them. Epochs follow
each other without a gap, so no other master can have given locks between the two.

A master that is alone in its set leaves its locks in a file when it stops. It takes them back as
long as no other master can have given locks: no master was elected since, or this one was elected
next, or the locks are younger than a new master waits.
"""

import logging
from collections.abc import Callable

import msgspec

from ...protocol.aio.peers import Peers
from ..groups.queue_locks import CLIENT_LOCK_MS, LeftLocks, LockTable, send_locks
from .election import Election

log = logging.getLogger(__name__)

SEND_SECONDS = 10.0  # at most, until the next master has taken the locks

Take = Callable[[LockTable], None]


class LockHandover:
    """One for the life of a member. `wall_ms` is the time since 1970 in ms."""

    def __init__(
        self, name: str, left: LeftLocks, peers: Peers, wall_ms: Callable[[], int]
    ) -> None:
        self._name = name
        self._left = left
        self._peers = peers
        self._wall_ms = wall_ms
        self._stored: LockTable | None = None  # by the last run
        self._came: LockTable | None = None  # from the master before
        self._before = self._now = Election(0)
        self._take: Take | None = None  # gives the locks to the present master

    def load(self) -> None:
        """Take what the last run has left. StoreError."""
        self._stored = self._left.take()

    def leave(self, table: LockTable) -> None:
        """Keep the locks for the next start."""
        self._left.leave(table)

    def switch(self, before: Election, now: Election) -> None:
        """Note that this member takes another role."""
        self._before, self._now, self._take = before, now, None

    def ask(self, take: Take) -> None:
        """Have `take` called with the locks of the master before, which may come later or never."""
        self._take = take
        self._match()

    def come(self, table: LockTable) -> None:
        """Receive the locks of a master that gives none any more. Its clock may differ from this
        one."""
        if table.broker_name != self._name:
            log.warning("locks of %s were sent to %s", table.broker_name, self._name)
            return
        self._came = msgspec.structs.replace(table, at_ms=self._wall_ms())
        self._match()

    async def send(self, address: str, table: LockTable) -> None:
        """Hand the locks to the next master, at this address; tried for `SEND_SECONDS`."""
        await send_locks(self._peers, address, table, SEND_SECONDS)

    def _match(self) -> None:
        """Give the present master the locks that are those of the master before it."""
        take = self._take
        table = None if take is None else self._found()
        if take is not None and table is not None:
            self._take = None
            take(table)

    def _found(self) -> LockTable | None:
        before, now = self._before.epoch, self._now.epoch
        if before:  # else this member may have given locks in this epoch before its start
            came, self._came = self._came, None
            return came if came is not None and came.epoch == before == now - 1 else None
        stored, self._stored = self._stored, None
        if stored is None or stored.broker_name != self._name:
            return None
        is_next = stored.epoch in (now, now - 1)
        is_young = 0 <= self._wall_ms() - stored.at_ms < CLIENT_LOCK_MS
        return stored if is_next or is_young else None
