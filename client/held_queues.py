"""The queues that this member holds: each has a `ProcessQueue` and one task that pulls it.

A queue is taken at the group's offset and released in this order: dropped, so that nothing is
settled any more; its offset persisted; let go. What fails in between is logged and tried again.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from ..protocol import codes
from ..protocol.bodies.body import MessageQueue
from ..protocol.bodies.running import ProcessQueueInfo
from ..protocol.bodies.subscription import SubscriptionData
from .cluster import Cluster
from .errors import BrokerError, ClientError
from .identity import now_ms
from .offsets import GroupOffsets
from .process_queue import Limits, ProcessQueue
from .pull import OffsetMoved, Puller
from .start_from import StartFrom, first_offset

log = logging.getLogger(__name__)

PULL_AGAIN_SECONDS = (1.0, 2.0, 4.0)  # pullTimeDelayMillsWhenException, then growing
FLOW_CONTROL_SECONDS = 0.02
NO_ROOM_SECONDS = 60.0  # a queue full for so long is worth a word


class HeldQueues:
    """Takes and releases queues for one group."""

    def __init__(
        self,
        cluster: Cluster,
        offsets: GroupOffsets,
        puller: Puller,
        subscriptions: Mapping[str, SubscriptionData],
        start: StartFrom,
        limits: Limits,
    ) -> None:
        self._cluster = cluster
        self._offsets = offsets
        self._puller = puller
        self._subscriptions = subscriptions
        self._start = start
        self._limits = limits
        self._held: dict[MessageQueue, tuple[ProcessQueue, asyncio.Task[None]]] = {}

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are held now."""
        return list(self._held)

    async def become(self, assigned: Mapping[str, Iterable[MessageQueue]]) -> bool:
        """Hold these queues, by topic, and no others of these topics.

        False when one could not be taken yet.
        """
        wanted = {queue for queues in assigned.values() for queue in queues}
        surplus = [queue for queue in self._held if queue.topic in assigned and queue not in wanted]
        for queue in surplus:
            await self._release(queue)
        complete = True
        for queue in sorted(wanted - self._held.keys()):
            complete &= await self._take(queue)
        return complete

    def reset(self, queue: MessageQueue, offset: int) -> None:
        """Go on at `offset`, which may be smaller, if the queue is held here."""
        if queue in self._held:
            self._begin_again(queue, offset)

    async def persist(self, *, sure: bool = False) -> None:
        """Carry the offsets of all held queues to their brokers; see GroupOffsets."""
        await self._offsets.persist(list(self._held), sure=sure)

    def infos(self) -> dict[MessageQueue, ProcessQueueInfo]:
        """What brokers may be told about the held queues."""
        return {
            queue: held.info(self._offsets.read(queue)) for queue, (held, _) in self._held.items()
        }

    async def close(self) -> None:
        """Stop pulling, drop all queues and persist their offsets."""
        tasks = [task for _, task in self._held.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for held, _ in self._held.values():
            held.drop()
        await self.persist(sure=True)
        self._held.clear()

    async def _take(self, queue: MessageQueue) -> bool:
        try:
            offset = await first_offset(self._cluster, self._offsets, queue, self._start)
        except (ClientError, BrokerError) as wrong:
            log.warning("can't take %s yet: %s", name_of(queue), wrong)
            return False
        self._begin(queue, offset)
        return True

    def _begin(self, queue: MessageQueue, offset: int) -> None:
        held = ProcessQueue(queue, offset, self._limits)
        task = asyncio.create_task(self._keep_pulling(held), name=f"pull {name_of(queue)}")
        self._held[queue] = (held, task)
        log.info("taking %s at offset %d", name_of(queue), offset)

    def _begin_again(self, queue: MessageQueue, offset: int) -> None:
        held, task = self._held[queue]
        held.drop()
        self._offsets.update(queue, offset, increase_only=False)
        self._begin(queue, offset)
        if task is not asyncio.current_task():
            task.cancel()

    async def _release(self, queue: MessageQueue) -> None:
        held, task = self._held[queue]
        held.drop()
        task.cancel()
        await self._offsets.persist([queue], sure=True)
        self._offsets.forget(queue)
        del self._held[queue]
        log.info("released %s", name_of(queue))

    async def _keep_pulling(self, held: ProcessQueue) -> None:
        subscription = self._subscriptions[held.queue.topic]
        failures = 0
        while not held.dropped:
            wait = PULL_AGAIN_SECONDS[min(failures, len(PULL_AGAIN_SECONDS) - 1)]
            try:
                await self._room(held)
                held.last_pull_ms = now_ms()
                await self._puller.pull(held, subscription)
                failures = 0
                continue
            except OffsetMoved as moved:
                log.warning(
                    "going on at offset %d of %s instead of %d: it was out of range, or an "
                    "administrator has reset it",
                    moved.offset,
                    name_of(held.queue),
                    held.next_offset,
                )
                self._begin_again(held.queue, moved.offset)
                return
            except BrokerError as wrong:
                if wrong.code == codes.FLOW_CONTROL:
                    wait = FLOW_CONTROL_SECONDS
                else:
                    log.warning("next try in %g s: %s", wait, wrong)
            except ClientError as wrong:
                held.suggested_broker_id = 0
                log.warning("pulling %s, next try in %g s: %s", name_of(held.queue), wait, wrong)
                await self._look_again(held.queue.topic)  # the broker may have moved
            except Exception:
                log.exception("pulling %s failed; next try in %g s", name_of(held.queue), wait)
            failures += 1
            await asyncio.sleep(wait)

    async def _look_again(self, topic: str) -> None:
        try:
            await self._cluster.route(topic, fresh=True)
        except (ClientError, BrokerError) as wrong:
            log.debug("keeping the last known route of topic %s: %s", topic, wrong)

    async def _room(self, held: ProcessQueue) -> None:
        while held.is_full and not held.dropped:
            try:
                async with asyncio.timeout(NO_ROOM_SECONDS):
                    await held.room()
            except TimeoutError:
                log.warning(
                    "%s has been full for %g s with %s; settle messages with process(), ack() or "
                    "nack(), or raise the consumer's limits",
                    name_of(held.queue),
                    NO_ROOM_SECONDS,
                    held.load,
                )


def name_of(queue: MessageQueue) -> str:
    """A queue in words, for logs and errors."""
    return f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"
