"""The queue locks that the last run of a broker has left, for its next start."""

from ..groups.queue_locks import CLIENT_LOCK_MS, LeftLocks, LockTable
from .parts import Parts


def left_locks(b: Parts) -> LeftLocks:
    """The file in which a broker without a controller leaves its locks."""
    return LeftLocks(b.root / "config" / "queueLocks.json")


def taken(left: LeftLocks) -> LockTable | None:
    """The locks that the last run has left, unless it had a controller. StoreError."""
    table = left.take()
    return None if table is None or table.epoch else table


def restore_young(b: Parts, left: LeftLocks) -> bool:
    """Restore the locks of the last run while no other broker of the name can have given any: later
    a slave may have acted, and stopped. Returns whether this broker knows all locks."""
    table = taken(left)
    is_young = table is not None and 0 <= b.now_ms() - table.at_ms < CLIENT_LOCK_MS
    if table is not None and is_young:
        b.locks.restore(table, b.now_ms())
    return is_young or is_first_start(b)


def is_first_start(b: Parts) -> bool:
    """True if no broker has run on this store before."""
    return b.is_new and not b.has_tables
