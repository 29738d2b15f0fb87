"""Queue locks of ordered groups: taken at the brokers, renewed before they expire.

A broker drops a lock that was not renewed for 60 s; the client stops trusting its lock after 30 s
(`ProcessQueue.is_locked`), so two members never consume one queue at the same time.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.queues import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from ..base.responses import body_of
from ..cluster.cluster import Cluster
from ..errors import BrokerError, ClientError
from .process_queue import ProcessQueue

log = logging.getLogger(__name__)

RENEW_SECONDS = 20.0  # rocketmq.client.rebalance.lockInterval
FIRST_SECONDS = 1.0
REQUEST_SECONDS = 1.0


class QueueLocks:
    """Locks and unlocks queues for one member of a group."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group

    async def lock(
        self, queue: MessageQueue, process_queue: ProcessQueue | None = None
    ) -> float | None:
        """Lock one queue; returns since when, in seconds of the loop's clock, and notes it in
        `process_queue`. None if another member has the lock or the broker can't be reached."""
        asked = asyncio.get_running_loop().time()
        found = await self._lock(self._cluster.leader_of(queue), [queue])
        if found is None:
            return None
        if process_queue is not None:
            _mark(process_queue, queue in found, asked)
        return asked if queue in found else None

    async def renew(self, table: Mapping[MessageQueue, ProcessQueue]) -> None:
        """Renew the locks of these queues, one request per broker; a failure changes nothing."""
        for broker_name, queues in self._by_broker(table):
            asked = asyncio.get_running_loop().time()
            found = await self._lock(broker_name, queues)
            if found is None:
                continue
            for queue in queues:
                process_queue = table[queue]
                if process_queue.locked and queue not in found:
                    log.warning("group %s has lost the lock on %s", self._group, queue)
                _mark(process_queue, queue in found, asked)

    async def unlock(self, queues: Iterable[MessageQueue], *, oneway: bool = True) -> None:
        """Unlock these queues; a failure is logged, as the broker drops expired locks."""
        for broker_name, some in self._by_broker(queues):
            body = UnlockBatchRequestBody(self._group, self._cluster.client_id, mq_set=some)
            try:
                address = self._cluster.address_of(broker_name)
                code, data = codes.UNLOCK_BATCH_MQ, body.encode()
                if oneway:
                    await self._cluster.oneway(address, code, None, data)
                else:
                    await self._cluster.ask(address, code, None, data, REQUEST_SECONDS)
            except (ClientError, BrokerError) as wrong:
                log.warning("queues of group %s are not unlocked: %s", self._group, wrong)

    async def _lock(self, broker_name: str, queues: list[MessageQueue]) -> set[MessageQueue] | None:
        body = LockBatchRequestBody(self._group, self._cluster.client_id, mq_set=queues)
        code = codes.LOCK_BATCH_MQ
        try:
            address = self._cluster.address_of(broker_name)
            answer = await self._cluster.ask(address, code, None, body.encode(), REQUEST_SECONDS)
            return set(body_of(answer, LockBatchResponseBody, code).lock_ok_mq_set)
        except (ClientError, BrokerError) as wrong:
            log.warning("queues of group %s can't be locked now: %s", self._group, wrong)
            return None

    def _by_broker(self, queues: Iterable[MessageQueue]) -> list[tuple[str, list[MessageQueue]]]:
        found: dict[str, list[MessageQueue]] = {}
        for queue in sorted(queues):
            found.setdefault(self._cluster.leader_of(queue), []).append(queue)
        return list(found.items())


def _mark(process_queue: ProcessQueue, locked: bool, asked: float) -> None:
    """The lock counts from the request on: the broker that gave it may be gone since then."""
    process_queue.locked = locked
    if locked:
        process_queue.last_lock = asked
