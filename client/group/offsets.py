"""Offsets of a group in its queues: the interface of offset stores, and the store at the brokers.

`OffsetStore` has the operations of RocketMQ's. Settled offsets go to memory at once; `persist`
saves them: at the brokers for a clustering group, in a file for a broadcasting one
(`local_offsets`). After a crash messages settled since the last persist are delivered again; none
is skipped.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from enum import Enum

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.headers.offsets import OffsetResponse, QueryConsumerOffset, UpdateConsumerOffset
from ..base.responses import header_of
from ..cluster.cluster import Cluster
from ..errors import BrokerError, ClientError, NoRouteError

log = logging.getLogger(__name__)

REQUEST_SECONDS = 5.0  # for a group's offset, as Java's client waits
NONE = -1  # the group has no offset there


class ReadFrom(Enum):
    """The place that `OffsetStore.read` reads: RocketMQ's ReadOffsetType."""

    MEMORY = "READ_FROM_MEMORY"
    STORE = "READ_FROM_STORE"
    MEMORY_THEN_STORE = "MEMORY_FIRST_THEN_STORE"


class OffsetStore(ABC):
    """The offsets of one group: a table in memory, and the store behind it."""

    def __init__(self, group: str) -> None:
        self.group = group
        self._memory: dict[MessageQueue, int] = {}

    # --- memory ---------------------------------------------------------------------------------

    def update(self, queue: MessageQueue, offset: int, *, increase_only: bool = True) -> None:
        """Set the group's offset in memory; with `increase_only` only if it is larger."""
        if not increase_only or offset > self._memory.get(queue, NONE):
            self._memory[queue] = offset

    def in_memory(self, queue: MessageQueue) -> int:
        """The offset in memory, -1 when there is none."""
        return self._memory.get(queue, NONE)

    def remove(self, queue: MessageQueue) -> None:
        """Remove the queue from memory, because it is assigned to another member."""
        self._memory.pop(queue, None)

    def clone(self, topic: str = "") -> dict[MessageQueue, int]:
        """A copy of the table, of one topic or (blank) of all."""
        return {
            queue: offset
            for queue, offset in self._memory.items()
            if not topic.strip() or queue.topic == topic
        }

    # --- the store ------------------------------------------------------------------------------

    async def read(self, queue: MessageQueue, where: ReadFrom) -> int:
        """The offset, -1 if the group has none; an offset from the store is then also in memory.

        Raises the errors of the store, because "none" and "unknown" differ.
        """
        found = self.in_memory(queue)
        if where is ReadFrom.MEMORY or (where is ReadFrom.MEMORY_THEN_STORE and found >= 0):
            return found
        found = await self._fetch(queue)
        if found >= 0:
            self.update(queue, found, increase_only=False)
        return found

    @abstractmethod
    async def load(self) -> None:
        """Get ready, before anything else."""

    @abstractmethod
    async def persist_all(self, queues: Iterable[MessageQueue]) -> None:
        """Make the offsets of these queues last, and no others; a failure is logged."""

    @abstractmethod
    async def persist(self, queue: MessageQueue) -> None:
        """Persist one queue. It is saved when this returns, unless a failure was logged."""

    @abstractmethod
    async def update_to_broker(
        self, queue: MessageQueue, offset: int, *, oneway: bool = True
    ) -> None:
        """Send an offset to the queue's broker; raises its errors unless `oneway`."""

    @abstractmethod
    async def _fetch(self, queue: MessageQueue) -> int: ...


class RemoteOffsetStore(OffsetStore):
    """A clustering group's offsets, kept by the brokers: RemoteBrokerOffsetStore."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        super().__init__(group)
        self._cluster = cluster

    async def load(self) -> None:
        """Do nothing: the brokers have the offsets."""

    async def persist_all(self, queues: Iterable[MessageQueue]) -> None:
        """Send one oneway request for each of these queues that has an offset."""
        for queue in list(queues):
            await self._persist(queue, oneway=True)

    async def persist(self, queue: MessageQueue) -> None:
        """Send to the broker and wait for its response."""
        await self._persist(queue, oneway=False)

    async def update_to_broker(
        self, queue: MessageQueue, offset: int, *, oneway: bool = True
    ) -> None:
        """Send an offset to the queue's broker; an unknown broker is looked up once.

        NoRouteError if it isn't found; unless `oneway` also UnreachableError, NoAnswerError and
        BrokerError.
        """
        header = UpdateConsumerOffset(self.group, queue.topic, queue.queue_id, offset)
        address = await self._address(queue)
        code = codes.UPDATE_CONSUMER_OFFSET
        if oneway:
            await self._cluster.oneway(address, code, header)
        else:
            await self._cluster.ask(address, code, header, timeout_s=REQUEST_SECONDS)

    async def _persist(self, queue: MessageQueue, *, oneway: bool) -> None:
        offset = self.in_memory(queue)
        if offset < 0:
            return
        try:
            await self.update_to_broker(queue, offset, oneway=oneway)
        except (ClientError, BrokerError) as wrong:
            log.warning(
                "offset %d of group %s in queue %d of %s is not persisted yet: %s",
                offset,
                self.group,
                queue.queue_id,
                queue.topic,
                wrong,
            )

    async def _fetch(self, queue: MessageQueue) -> int:
        address = await self._address(queue)
        # Java's client leaves out setZeroIfNotFound, so the broker may say 0 for a young queue.
        header = QueryConsumerOffset(self.group, queue.topic, queue.queue_id)
        code = codes.QUERY_CONSUMER_OFFSET
        answer = await self._cluster.request(address, code, header, timeout_s=REQUEST_SECONDS)
        if answer.code == codes.QUERY_NOT_FOUND:
            return NONE
        if answer.code != codes.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address, "tell the group's offset")
        return header_of(answer, OffsetResponse, code).offset

    async def _address(self, queue: MessageQueue) -> str:
        try:
            return self._cluster.address_for(queue, only=False)
        except NoRouteError:
            pass
        failure: ClientError | BrokerError
        try:
            await self._cluster.route(queue.topic, fresh=True)
            return self._cluster.address_for(queue, only=False)
        except (ClientError, BrokerError) as wrong:
            failure = wrong
        raise NoRouteError(
            f"The broker[{queue.broker_name}] not exist: the route of topic {queue.topic} was "
            f"asked for again, and {failure}"
        ) from failure


async def persist_surely(store: OffsetStore, queues: Iterable[MessageQueue]) -> None:
    """Persist these queues and wait for the responses.

    One queue of each topic and broker goes first, the others then concurrently: RocketMQ's broker
    (ConsumerOffsetManager.commitOffset in 5.3.3) loses one of the first two offsets of a group in
    a topic when both arrive together.
    """
    queues = sorted(set(queues))
    first = list({(queue.topic, queue.broker_name): queue for queue in queues}.values())
    for together in (first, [queue for queue in queues if queue not in first]):
        await asyncio.gather(*(store.persist(queue) for queue in together))
