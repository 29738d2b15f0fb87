"""Exclusive locks of consumers on queues, for groups that consume in order.

In memory only: after a restart the members lock again, as they do every 20 s in any case. A lock
that was not renewed for `LOCK_MS` counts as free.
"""

import logging
from collections.abc import Iterable

LOCK_MS = 60_000
LOCKS_MAX = 200_000  # group and queue pairs

log = logging.getLogger(__name__)

Queue = tuple[str, str, int]  # topic, broker name, queue id


class QueueLocks:
    """The locks by group and queue. Times in ms."""

    def __init__(self, locks_max: int = LOCKS_MAX) -> None:
        self._groups: dict[str, dict[Queue, tuple[str, int]]] = {}
        self._count = 0
        self._locks_max = locks_max
        self._full_until_ms = 0  # before that none of a full table expires

    def lock(self, group: str, client_id: str, queues: Iterable[Queue], now_ms: int) -> list[Queue]:
        """Lock the free, expired or own ones of these queues; returns all that the client holds.

        A full table gives no new locks, so that a client waits and asks again.
        """
        held = []
        for queue in queues:
            found = self._groups.get(group, {}).get(queue)
            if found is None and not self._has_room(now_ms):
                continue
            if found is not None and found[0] != client_id and now_ms - found[1] <= LOCK_MS:
                continue
            self._count += found is None
            self._groups.setdefault(group, {})[queue] = client_id, now_ms
            held.append(queue)
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[Queue]) -> None:
        """Release the queues that this client holds."""
        locks = self._groups.get(group, {})
        for queue in queues:
            found = locks.get(queue)
            if found is not None and found[0] == client_id:
                del locks[queue]
                self._count -= 1
        if not locks:
            self._groups.pop(group, None)

    def is_orderly(self, group: str, now_ms: int) -> bool:
        """Whether a member of the group holds a lock that has not expired."""
        locks = self._groups.get(group, {})
        return any(now_ms - locked_ms <= LOCK_MS for _, locked_ms in locks.values())

    def _has_room(self, now_ms: int) -> bool:
        if self._count < self._locks_max:
            return True
        if now_ms < self._full_until_ms:
            return False  # a search through a million entries per queue would block the loop
        oldest_ms = now_ms
        for group, locks in list(self._groups.items()):
            for queue in [q for q, (_, at) in locks.items() if now_ms - at > LOCK_MS]:
                del locks[queue]
                self._count -= 1
            if locks:
                oldest_ms = min(oldest_ms, min(at for _, at in locks.values()))
            else:
                del self._groups[group]
        self._full_until_ms = oldest_ms + LOCK_MS + 1
        if self._count < self._locks_max:
            return True
        log.warning(
            "%d queues are locked, which is the limit: no other is given for %d ms; end consumers "
            "in order that are not needed, or spread them over more brokers",
            self._count,
            self._full_until_ms - now_ms,
        )
        return False
