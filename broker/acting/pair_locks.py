"""Queue locks of a pair: one of master and slave gives them, until it hands them over to the other.

A broker that begins to give locks doesn't know the locks of the broker before, and waits until they
have ended. It need not wait if the broker before hands all of them over: a master to its slave when
it stops, an acting master to the master that returns. They are handed over once.
"""

from collections.abc import Callable

import msgspec

from ..groups.queue_locks import CLIENT_LOCK_MS, LockTable, QueueLockGate, QueueLocks


class PairLocks:
    """The locks of one broker of a pair, and the `gate` that says whether it gives them.

    `wall_ms` is the time since 1970, as locks have it. `alone_ms` is for how long locks that are
    known are all there are: a third broker of the name may have begun to act unseen.
    """

    def __init__(
        self,
        gate: QueueLockGate,
        locks: QueueLocks,
        name: str,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        alone_ms: int,
    ) -> None:
        self.gate = gate
        self._locks = locks
        self._name = name
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._alone_ms = alone_ms
        self._known_ms: int | None = None  # since when no lock is given, and all are known here
        self._came = False  # they were handed over to this broker

    def begin(self, *, after_ms: int = CLIENT_LOCK_MS) -> None:
        """Give locks: at once where the broker before has handed its locks over, else after this
        time."""
        is_known = self._came and self._is_known
        self._known_ms = None
        self.gate.open(after_ms=0 if is_known else after_ms)

    def end(self) -> None:
        """Give no locks any more."""
        if self.gate.is_open:
            self._known_ms, self._came = self._now_ms(), False
        self.gate.close()

    def take(self, table: LockTable) -> None:
        """Take the locks that the broker before gave, which gives none any more. ValueError when
        that is impossible."""
        if table.broker_name != self._name:
            raise ValueError(f"the locks are of broker {table.broker_name}, this is {self._name}")
        if self.gate.is_opening:
            raise ValueError(f"this broker of {self._name} gives locks itself; stop one of the two")
        now_ms = self._wall_ms()  # the clock of the broker before may be another one
        self._locks.restore(msgspec.structs.replace(table, at_ms=now_ms), now_ms)
        self._known_ms, self._came = self._now_ms(), True

    def give(self) -> LockTable | None:
        """Give up all locks, once; returns them for the next broker that gives locks. None when
        this broker doesn't know all of them."""
        is_known, self._known_ms = self._is_known, None
        return self._locks.table(self._wall_ms(), self._name) if is_known else None

    @property
    def _is_known(self) -> bool:
        since_ms = self._known_ms
        return since_ms is not None and self._now_ms() - since_ms < self._alone_ms
