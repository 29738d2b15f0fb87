"""The queues assigned to this member: each has a `ProcessQueue` and one task that pulls it.

Release order: drop all queues, so that nothing is pulled or settled any more; persist their
offsets; release them. An ordered queue is not released or unlocked while one of its messages is
being consumed (20 s at most), and it is only taken once the broker has locked it. Failures in
between are logged and retried. A lock that was requested for a queue no longer wanted is released,
as it would block other members for a minute.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.running import ProcessQueueInfo
from ...protocol.names import without_namespace
from ..errors import BrokerError, ClientError
from ..group.consume_stats import ConsumeStats
from ..group.first_offset import FirstOffset
from ..group.offsets import OffsetStore, persist_surely
from ..group.process_queue import Limits, ProcessQueue, UnderWay, name_of
from ..group.queue_locks import QueueLocks
from .pulling import PullLoop

log = logging.getLogger(__name__)

UNLOCK_SECONDS = 20.0  # rocketmq.client.unlockDelayTimeMills: a hanging listener blocks no longer


class AssignedQueues:
    """Takes and releases queues for one group. `locks` are for an ordered group."""

    def __init__(
        self,
        store: OffsetStore,
        loop: PullLoop,
        first_offset: FirstOffset,
        limits: Limits,
        stats: ConsumeStats,
        locks: QueueLocks | None = None,
        namespace: str = "",
    ) -> None:
        self._store = store
        self._loop = loop
        self._first_offset = first_offset
        self._limits = limits
        self._stats = stats
        self._locks = locks
        self._namespace = namespace
        self.pop_retries: dict[str, str] = {}  # by retry topic: the messages' topic
        self._queues: dict[MessageQueue, tuple[ProcessQueue, asyncio.Task[None]]] = {}
        self._half_taken: set[MessageQueue] = set()  # locks requested, maybe granted

    @property
    def queues(self) -> list[MessageQueue]:
        """The assigned queues."""
        return [
            queue for queue, (process_queue, _) in self._queues.items() if not process_queue.dropped
        ]

    @property
    def table(self) -> dict[MessageQueue, ProcessQueue]:
        """The process queues of the assigned queues."""
        return {
            queue: process_queue
            for queue, (process_queue, _) in self._queues.items()
            if not process_queue.dropped
        }

    async def become(self, assigned: Mapping[str, Iterable[MessageQueue]]) -> bool:
        """Assign exactly these queues, by topic; other topics are not affected.

        False if one could not be taken or released yet.
        """
        wanted = {queue for queues in assigned.values() for queue in queues}
        return await self._change(wanted, lambda queue: queue.topic in assigned)

    async def keep_topics(self, topics: Iterable[str]) -> bool:
        """Release the queues of all other topics, which are not subscribed any more."""
        known = set(topics)
        wanted = {queue for queue in self._queues if queue.topic in known}
        return await self._change(wanted, lambda queue: queue.topic not in known)

    async def reset(self, queue: MessageQueue, offset: int) -> None:
        """Continue at `offset`, which may be smaller, if the queue is assigned here."""
        if queue in self._queues:
            self._begin_again(queue, offset)
            await self._store.persist(queue)

    async def persist(self) -> None:
        """Persist the offsets of all assigned queues."""
        await self._store.persist_all(self.queues)

    def infos(self) -> dict[MessageQueue, ProcessQueueInfo]:
        """The state of the assigned queues for brokers."""
        return {
            queue: process_queue.info(self._store.in_memory(queue))
            for queue, process_queue in self.table.items()
        }

    async def drain(self) -> None:
        """Stop pulling and wait until all received messages are settled."""
        tasks = [task for _, task in self._queues.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for process_queue, _ in list(self._queues.values()):
            await process_queue.idle()
            await process_queue.under_way.none()

    async def close(self) -> None:
        """Stop pulling, drop all queues, persist their offsets and give back their locks."""
        tasks = [task for _, task in self._queues.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        queues = self.queues
        for process_queue, _ in self._queues.values():
            process_queue.drop()
        await persist_surely(self._store, queues)
        if self._locks is not None and (locked := self._queues.keys() | self._half_taken):
            await self._locks.unlock(locked, oneway=False)
        self._queues.clear()
        self._half_taken.clear()

    # --- inside ---------------------------------------------------------------------------------

    async def _change(
        self, wanted: set[MessageQueue], in_question: Callable[[MessageQueue], bool]
    ) -> bool:
        now = asyncio.get_running_loop().time()
        before = set(self.queues)
        going = []
        for queue, (process_queue, task) in self._queues.items():
            if not in_question(queue):
                continue
            if queue in wanted and not process_queue.dropped:
                if not process_queue.is_pull_expired(now):
                    continue
                log.error("%s was not pulled for too long; it is taken anew", name_of(queue))
            process_queue.drop()
            task.cancel()
            going.append(queue)
        if self._locks is not None and (
            unwanted := {queue for queue in self._half_taken - wanted if in_question(queue)}
        ):
            self._half_taken -= unwanted
            await self._locks.unlock(unwanted)
        complete = True
        for queue in going:
            complete &= await self._let_go(queue)
        for queue in sorted(wanted - self._queues.keys()):
            complete &= await self._take(queue)
        if set(self.queues) != before:
            limits = self._limits.shared_by(len(self._queues))
            for process_queue, _ in self._queues.values():
                process_queue.limit(limits)
        return complete

    async def _let_go(self, queue: MessageQueue) -> bool:
        process_queue, _ = self._queues[queue]
        await self._store.persist(queue)
        if self._locks is not None:
            now = asyncio.get_running_loop().time()
            if process_queue.under_way.count and now - process_queue.last_lock <= UNLOCK_SECONDS:
                return False
            process_queue.locked = False
            await self._locks.unlock([queue])
        self._store.remove(queue)
        del self._queues[queue]
        log.info("released %s", name_of(queue))
        return True

    async def _take(self, queue: MessageQueue) -> bool:
        locked: float | None = None
        if self._locks is not None:
            self._half_taken.add(queue)
            locked = await self._locks.lock(queue)
            if locked is None:
                log.info(
                    "can't take %s yet: its broker has not locked it for this member; another "
                    "member has its lock, the broker gives no locks yet, or the request failed",
                    name_of(queue),
                )
                return False
        self._store.remove(queue)  # left from an earlier assignment
        try:
            offset = await self._first_offset(queue)
        except (ClientError, BrokerError) as wrong:
            log.warning("can't take %s yet: %s", name_of(queue), wrong)
            return False
        self._begin(queue, offset, locked)
        return True

    def _begin(
        self,
        queue: MessageQueue,
        offset: int,
        locked: float | None,
        under_way: UnderWay | None = None,
    ) -> None:
        """Pull from here on; `locked` is since when this consumer has the queue's lock."""
        process_queue = ProcessQueue(
            queue,
            offset,
            self._limits.shared_by(len(self._queues) + (queue not in self._queues)),
            self._stats.of(queue.topic),
            self._namespace,
            under_way,
        )
        if queue.topic in self.pop_retries:
            process_queue.topic = without_namespace(self.pop_retries[queue.topic], self._namespace)
        process_queue.last_pull = asyncio.get_running_loop().time()
        if locked is not None:
            process_queue.locked, process_queue.last_lock = True, locked
        work = self._loop.run(process_queue, lambda moved: self._begin_again(queue, moved))
        task = asyncio.create_task(work, name=f"pull {name_of(queue)}")
        self._queues[queue] = (process_queue, task)
        self._half_taken.discard(queue)
        log.info("taking %s at offset %d", name_of(queue), offset)

    def _begin_again(self, queue: MessageQueue, offset: int) -> None:
        process_queue, task = self._queues[queue]
        process_queue.drop()
        self._store.update(queue, offset, increase_only=False)
        locked = process_queue.last_lock if process_queue.locked else None
        self._begin(queue, offset, locked, process_queue.under_way)
        if task is not asyncio.current_task():
            task.cancel()
