"""Exclusive locks of consumers on queues, for groups that consume in order.

A lock that was not renewed for `LOCK_MS` counts as free. The table is in memory; `LeftLocks` keeps
it from a clean stop to the next start.
"""

import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ...store.files import json_file
from .queue_lock_gate import CLIENT_LOCK_MS

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

    def encode(self) -> bytes:
        """All locks as JSON: group, topic, broker name, queue id, client id, when in ms."""
        return msgspec.json.encode(
            [
                (group, *queue, client_id, at_ms)
                for group, locks in self._groups.items()
                for queue, (client_id, at_ms) in locks.items()
            ]
        )

    def restore(self, data: bytes, now_ms: int) -> None:
        """Lock what `encode` gave, for as long as its clients count on it. msgspec.DecodeError."""
        rows = msgspec.json.decode(data, type=list[tuple[str, str, str, int, str, int]])
        for group, topic, broker, queue_id, client_id, at_ms in rows:
            since_ms = min(at_ms, now_ms) - (LOCK_MS - CLIENT_LOCK_MS)
            self.lock(group, client_id, [(topic, broker, queue_id)], since_ms)

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


class LeftLocks:
    """config/queueLocks.json: what a master leaves at a clean stop, for its next start.

    The file is there only between the two: without it consumers may have locks that the next start
    doesn't know.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def leave(self, locks: QueueLocks) -> None:
        """Write the file. StoreError when that fails."""
        json_file.save(self._path, locks.encode())

    def take(self, locks: QueueLocks, now_ms: int) -> bool:
        """Restore the locks of the last run, and remove the file; whether there was a whole one.

        StoreError when the file can't be read or removed.
        """
        data = json_file.read(self._path)
        json_file.remove(self._path)
        try:
            if data:
                locks.restore(data, now_ms)
        except msgspec.DecodeError as wrong:
            log.warning("%s is damaged (%s); no queue is locked at first", self._path, wrong)
            return False
        return bool(data)
