"""Exclusive locks of consumers on queues, for groups that consume in order.

A lock that was not renewed for `LOCK_MS` counts as free. The locks are in memory; `LeftLocks` keeps
them from a clean stop to the next start.

Only one broker of a name locks queues. A consumer goes on with a queue for 30 s after its lock was
renewed. So a broker that becomes the one to lock queues gives no lock until each lock of the broker
before it has ended, or until that broker has handed its locks over (`send_locks`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from ...protocol import codes
from ...protocol.aio.peers import Peers
from ...protocol.codec.frame import FRAME_BYTES_MAX
from ...store.base.errors import StoreError
from ...store.files import json_file

log = logging.getLogger(__name__)

# rocketmq.client.rebalance.lockMaxLiveTime, and a second: it counts from the answer's arrival.
CLIENT_LOCK_MS = 31_000
ANSWER_SECONDS = 2.0  # for a broker that locks are handed over to
RETRY_SECONDS = 0.1  # between two tries to hand them over
BODY_BYTES_MAX = FRAME_BYTES_MAX - (64 << 10)  # of the locks that are handed over


class QueueLockGate:
    """Decides when this broker gives locks. Closed at first. `now_ms` is a clock for timeouts.

    Closed, it refuses: a consumer goes on with a lock that it has, which an answer without the
    queue would end.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._from_ms: int | None = None  # when the first lock may be given

    @property
    def is_opening(self) -> bool:
        """True if locks are given, now or soon."""
        return self._from_ms is not None

    @property
    def is_open(self) -> bool:
        """True if locks are given."""
        return self._from_ms is not None and self._now_ms() >= self._from_ms

    def open(self, *, after_ms: int = CLIENT_LOCK_MS) -> None:
        """Give locks after this time; a gate that opens already keeps its time."""
        if self._from_ms is None:
            self._from_ms = self._now_ms() + after_ms

    def close(self) -> None:
        """Give no locks: another broker does."""
        self._from_ms = None

    def refusal(self) -> str | None:
        """The reason why no lock is given at this moment, after which the consumer asks again; None
        while locks are given."""
        if self.is_open:
            return None
        if self._from_ms is None:
            return "this broker gives no locks, another broker of its name does; ask that one"
        return (
            "this broker gives no locks yet: consumers may have locks of the broker before it, "
            f"which end in {self._from_ms - self._now_ms()} ms at the latest; ask again"
        )


LOCK_MS = 60_000
LOCKS_MAX = 200_000  # group and queue pairs


Queue = tuple[str, str, int]  # topic, broker name, queue id


class LockTable(msgspec.Struct, rename="camel"):
    """The locks of one broker at `at_ms`: group, topic, broker name, queue id, client id, and since
    how many ms. `epoch` is that of a master in controller mode, else 0."""

    broker_name: str
    epoch: int
    at_ms: int
    locks: list[tuple[str, str, str, int, str, int]]

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """ValueError when the text is no table."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.DecodeError as wrong:
            raise ValueError(f"no table of queue locks: {wrong}") from None


class Lock(NamedTuple):
    """A client has a queue since `at_ms`, for `lasts_ms` unless it renews the lock."""

    client_id: str
    at_ms: int
    lasts_ms: int = LOCK_MS

    def has_ended(self, now_ms: int) -> bool:
        return now_ms - self.at_ms > self.lasts_ms


class QueueLocks:
    """The locks by group and queue. Times in ms."""

    def __init__(self, locks_max: int = LOCKS_MAX) -> None:
        self._groups: dict[str, dict[Queue, Lock]] = {}
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
            if found is not None and found.client_id != client_id and not found.has_ended(now_ms):
                continue
            self._put(group, queue, Lock(client_id, now_ms))
            held.append(queue)
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[Queue]) -> None:
        """Release the queues that this client holds."""
        locks = self._groups.get(group, {})
        for queue in queues:
            found = locks.get(queue)
            if found is not None and found.client_id == client_id:
                del locks[queue]
                self._count -= 1
        if not locks:
            self._groups.pop(group, None)

    def is_orderly(self, group: str, now_ms: int) -> bool:
        """True if a member of the group holds a lock that has not expired."""
        locks = self._groups.get(group, {})
        return not all(lock.has_ended(now_ms) for lock in locks.values())

    def table(self, now_ms: int, broker_name: str, epoch: int = 0) -> LockTable:
        """All locks; `epoch` is that of the master in controller mode."""
        rows = [
            (group, *queue, lock.client_id, now_ms - lock.at_ms)
            for group, locks in self._groups.items()
            for queue, lock in locks.items()
        ]
        return LockTable(broker_name, epoch, now_ms, rows)

    def restore(self, table: LockTable, now_ms: int) -> None:
        """Have the locks of the table only, each for as long as its client counts on it."""
        self._groups.clear()
        self._count = self._full_until_ms = 0
        then_ms = min(table.at_ms, now_ms)
        for group, topic, broker, queue_id, client_id, age_ms in table.locks[: self._locks_max]:
            lock = Lock(client_id, then_ms - max(0, age_ms), CLIENT_LOCK_MS)
            self._put(group, (topic, broker, queue_id), lock)

    def _put(self, group: str, queue: Queue, lock: Lock) -> None:
        locks = self._groups.setdefault(group, {})
        self._count += queue not in locks
        locks[queue] = lock

    def _has_room(self, now_ms: int) -> bool:
        if self._count < self._locks_max:
            return True
        if now_ms < self._full_until_ms:
            return False  # a search through a million entries per queue would block the loop
        oldest_ms = now_ms
        for group, locks in list(self._groups.items()):
            for queue in [one for one, lock in locks.items() if lock.has_ended(now_ms)]:
                del locks[queue]
                self._count -= 1
            if locks:
                oldest_ms = min(oldest_ms, min(lock.at_ms for lock in locks.values()))
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

    def leave(self, table: LockTable) -> None:
        """Write the file. A failure is logged: the next start waits for the locks to end."""
        try:
            json_file.save(self._path, table.encode())
        except StoreError as wrong:
            log.warning("the next start gives no locks until those of now have ended: %s", wrong)

    def take(self) -> LockTable | None:
        """The table of the last run, whose file is removed; None without a whole one.

        StoreError when the file can't be read or removed.
        """
        data = json_file.read(self._path)
        json_file.remove(self._path)
        try:
            return None if data is None else LockTable.decode(data)
        except ValueError as wrong:
            log.warning("%s is damaged (%s); no queue is locked at first", self._path, wrong)
            return None


def handed_over(table: LockTable) -> bytes:
    """The locks as a body; empty when they are too many for one."""
    body = table.encode()
    if len(body) <= BODY_BYTES_MAX:
        return body
    log.warning(
        "%d locks are not handed over: they take %d bytes, the limit is %d; the next "
        "master gives locks once these have ended",
        len(table.locks),
        len(body),
        BODY_BYTES_MAX,
    )
    return b""


async def send_locks(peers: Peers, address: str, table: LockTable, seconds: float) -> None:
    """Hand the locks over to the broker at this address; tried for so long."""
    body = handed_over(table)
    if not body:
        return
    why = ""
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    answer = await peers.request(
                        address, codes.HAND_OVER_QUEUE_LOCKS, None, body, ANSWER_SECONDS
                    )
                except (ConnectionError, TimeoutError) as wrong:
                    why = str(wrong)
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                if answer.code == codes.SUCCESS:
                    log.info("%d locks are handed over to %s", len(table.locks), address)
                    return
                why = f"it answers {answer.code} {answer.remark}"
                break
    except TimeoutError:
        pass
    log.warning("%s has not taken the locks of queues (%s): it waits for them", address, why)
