"""The queues that this member holds: each has a `ProcessQueue` and one task that pulls it.

Queues are released in this order: all dropped, so that nothing is pulled or settled any more; their
offsets persisted; let go. A queue in order is not let go, nor unlocked, while a message of it is
being consumed (or 20 s, whatever is shorter), and is only taken once the broker has locked it for
us. What fails in between is logged and tried again; a lock that was asked for meanwhile is given
back once the queue is not wanted any more, as it would keep the others out for a minute.
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
from ..group.process_queue import Limits, ProcessQueue, name_of
from ..group.queue_locks import QueueLocks
from .pulling import PullLoop

log = logging.getLogger(__name__)

UNLOCK_SECONDS = 20.0  # rocketmq.client.unlockDelayTimeMills: a hanging listener blocks no longer


class HeldQueues:
    """Takes and releases queues for one group. `locks` are for a group that consumes in order."""

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
        self.pop_retries: dict[str, str] = {}  # retry topics of pop, and whose messages they have
        self._held: dict[MessageQueue, tuple[ProcessQueue, asyncio.Task[None]]] = {}
        self._half_taken: set[MessageQueue] = set()  # a lock was asked for, and may be ours

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are held now."""
        return [queue for queue, (held, _) in self._held.items() if not held.dropped]

    @property
    def table(self) -> dict[MessageQueue, ProcessQueue]:
        """The held queues themselves."""
        return {queue: held for queue, (held, _) in self._held.items() if not held.dropped}

    async def become(self, assigned: Mapping[str, Iterable[MessageQueue]]) -> bool:
        """Hold these queues, by topic, and no others of these topics.

        False when one could not be taken or released yet.
        """
        wanted = {queue for queues in assigned.values() for queue in queues}
        return await self._change(wanted, lambda queue: queue.topic in assigned)

    async def keep_topics(self, topics: Iterable[str]) -> bool:
        """Release the queues of all other topics: nobody subscribes to them any more."""
        known = set(topics)
        wanted = {queue for queue in self._held if queue.topic in known}
        return await self._change(wanted, lambda queue: queue.topic not in known)

    async def reset(self, queue: MessageQueue, offset: int) -> None:
        """Go on at `offset`, which may be smaller, if the queue is held here."""
        if queue in self._held:
            self._begin_again(queue, offset)
            await self._store.persist(queue)

    async def persist(self) -> None:
        """Carry the offsets of all held queues to where they last."""
        await self._store.persist_all(self.queues)

    def infos(self) -> dict[MessageQueue, ProcessQueueInfo]:
        """What brokers may be told about the held queues."""
        return {
            queue: held.info(self._store.in_memory(queue)) for queue, held in self.table.items()
        }

    async def drain(self) -> None:
        """Pull no more, and wait until everything that is held is settled."""
        tasks = [task for _, task in self._held.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for held in list(self.table.values()):
            await held.idle()

    async def close(self) -> None:
        """Stop pulling, drop all queues, persist their offsets and give back their locks."""
        tasks = [task for _, task in self._held.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        queues = self.queues
        for held, _ in self._held.values():
            held.drop()
        await persist_surely(self._store, queues)
        if self._locks is not None and (locked := self._held.keys() | self._half_taken):
            await self._locks.unlock(locked, oneway=False)
        self._held.clear()
        self._half_taken.clear()

    # --- inside ---------------------------------------------------------------------------------

    async def _change(
        self, wanted: set[MessageQueue], in_question: Callable[[MessageQueue], bool]
    ) -> bool:
        now = asyncio.get_running_loop().time()
        before = set(self.queues)
        going = []
        for queue, (held, task) in self._held.items():
            if not in_question(queue):
                continue
            if queue in wanted and not held.dropped:
                if not held.is_pull_expired(now):
                    continue
                log.error("%s was not pulled for too long; it is taken anew", name_of(queue))
            held.drop()
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
        for queue in sorted(wanted - self._held.keys()):
            complete &= await self._take(queue)
        if set(self.queues) != before:
            limits = self._limits.shared_by(len(self._held))
            for held, _ in self._held.values():
                held.limit(limits)
        return complete

    async def _let_go(self, queue: MessageQueue) -> bool:
        held, _ = self._held[queue]
        await self._store.persist(queue)
        if self._locks is not None:
            now = asyncio.get_running_loop().time()
            if held.under_way and now - held.last_lock <= UNLOCK_SECONDS:
                return False
            held.locked = False
            await self._locks.unlock([queue])
        self._store.remove(queue)
        del self._held[queue]
        log.info("released %s", name_of(queue))
        return True

    async def _take(self, queue: MessageQueue) -> bool:
        if self._locks is not None:
            self._half_taken.add(queue)
            if not await self._locks.lock(queue):
                log.info("can't take %s yet: another member still has its lock", name_of(queue))
                return False
        self._store.remove(queue)  # from an earlier time here
        try:
            offset = await self._first_offset(queue)
        except (ClientError, BrokerError) as wrong:
            log.warning("can't take %s yet: %s", name_of(queue), wrong)
            return False
        self._begin(queue, offset)
        return True

    def _begin(self, queue: MessageQueue, offset: int) -> None:
        held = ProcessQueue(
            queue,
            offset,
            self._limits.shared_by(len(self._held) + (queue not in self._held)),
            self._stats.of(queue.topic),
            self._namespace,
        )
        if queue.topic in self.pop_retries:
            held.topic = without_namespace(self.pop_retries[queue.topic], self._namespace)
        held.last_pull = held.last_lock = asyncio.get_running_loop().time()
        held.locked = self._locks is not None
        work = self._loop.run(held, lambda moved: self._begin_again(queue, moved))
        task = asyncio.create_task(work, name=f"pull {name_of(queue)}")
        self._held[queue] = (held, task)
        self._half_taken.discard(queue)
        log.info("taking %s at offset %d", name_of(queue), offset)

    def _begin_again(self, queue: MessageQueue, offset: int) -> None:
        held, task = self._held[queue]
        held.drop()
        self._store.update(queue, offset, increase_only=False)
        self._begin(queue, offset)
        if task is not asyncio.current_task():
            task.cancel()
