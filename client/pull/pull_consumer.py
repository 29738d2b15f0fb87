"""The pull consumer: the application chooses the offsets to pull and to commit.

DefaultMQPullConsumer. It is a member of its group, so it can compute its queues of a topic
(`balanced_queues`), but it pulls only on request.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass

from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.heartbeat import ConsumerData
from ...protocol.bodies.subscription import SubscriptionData
from ...protocol.names import with_namespace
from ...protocol.queues.allocation import Strategy
from ..base.identity import now_ms
from ..base.lifecycle import Startable
from ..base.message_view import MessageView
from ..base.security import OPEN, Security
from ..base.start_from import LAST
from ..cluster import queue_bounds
from ..cluster.cluster import Cluster
from ..errors import ClosedError
from ..group.local_offsets import FOLDER
from ..group.membership import Membership, NameServer
from ..group.offsets import OffsetStore, ReadFrom
from ..group.passive_member import PassiveMember
from ..group.process_queue import Limits, ProcessQueue
from ..group.pull import BATCH, PULL_SECONDS, PullSettings, pull_by_hand
from ..group.rebalance import Rebalance
from ..group.subscriptions import Expression, subscription_of

TIMEOUT_SECONDS = 10.0  # consumerPullTimeoutMillis


@dataclass(frozen=True, slots=True)
class PullOutcome:
    """The result of a pull: `messages`, and the offset to pull next.

    `code` is 0 (found), 19 (nothing there yet), 20 (no message matches, continue at `next_offset`)
    or 21 (the offset is outside the queue).
    """

    code: int
    messages: list[MessageView]
    next_offset: int
    min_offset: int
    max_offset: int


class PullConsumer(Startable, PassiveMember):
    """Pulls queues at offsets that the caller chooses.

        async with PullConsumer("127.0.0.1:9876", group="audit") as consumer:
            for queue in await consumer.queues("orders"):
                offset = max(await consumer.committed(queue), 0)
                outcome = await consumer.pull(queue, offset)
                await consumer.commit(queue, outcome.next_offset)

    `topics` are those whose queues `balanced_queues` divides among the group.
    """

    def __init__(
        self,
        name_server: NameServer = None,
        *,
        group: str,
        topics: Iterable[str] = (),
        model: str = "clustering",
        strategy: str | Strategy = "AVG",
        client_id: str | None = None,
        namespace: str = "",
        offsets_folder: str | os.PathLike[str] = FOLDER,
        security: Security = OPEN,
    ) -> None:
        self._membership = Membership.read(
            name_server,
            group,
            model=model,
            strategy=strategy,
            client_id=client_id,
            namespace=namespace,
            offsets_folder=offsets_folder,
            security=security,
        )
        self.group = self._membership.group
        names = [with_namespace(topic, namespace) for topic in topics]
        self._subscriptions: dict[str, SubscriptionData] = {
            name: subscription_of(name, "*") for name in names
        }
        self._cluster: Cluster | None = None
        self._store: OffsetStore | None = None
        self._started_ms = 0

    async def start(self) -> None:
        """Join the group."""
        if self._cluster is not None:
            return
        cluster = self._cluster = self._membership.open_cluster()
        self._store = self._membership.store(cluster)
        self._started_ms = now_ms()
        await self._store.load()
        cluster.join_consumer(self)
        for topic in self._subscriptions:
            await cluster.route(topic)
        await cluster.beat()
        cluster.start()

    async def close(self) -> None:
        """Persist committed offsets and leave the group. May be called twice."""
        cluster, self._cluster = self._cluster, None
        if cluster is None:
            return
        if self._store is not None:
            await self._store.persist_all(list(self._store.clone()))
        await self._membership.leave(cluster, self)

    # --- queues ---------------------------------------------------------------------------------

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All readable queues of a topic, sorted; NoRouteError when it is unknown."""
        name = with_namespace(topic, self._membership.namespace)
        return sorted((await self._open().route(name, fresh=True)).subscribe)

    async def balanced_queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that the group's strategy assigns to this member."""
        name = with_namespace(topic, self._membership.namespace)
        strategy = self._membership.strategy if self._membership.is_clustering else None
        shares = await Rebalance(self._open(), self.group, strategy).shares([name])
        return shares[name].mine if name in shares else []

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""
        return await queue_bounds.min_offset(self._open(), queue)

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get."""
        return await queue_bounds.max_offset(self._open(), queue)

    async def offset_for_time(self, queue: MessageQueue, ms: int) -> int:
        """The offset of the first message stored at `ms` (since the epoch) or later."""
        return await queue_bounds.offset_at(self._open(), queue, ms)

    # --- messages and offsets -------------------------------------------------------------------

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        expression: str | Expression = "*",
        *,
        max_messages: int = BATCH,
        wait_ms: int = 0,
    ) -> PullOutcome:
        """The messages from `offset` on; without any the broker waits up to `wait_ms` for some."""
        timeout_s = max(PULL_SECONDS, wait_ms / 1000 + TIMEOUT_SECONDS) if wait_ms else None
        settings = PullSettings(max_messages, wait_ms, timeout_s or TIMEOUT_SECONDS)
        wanted = subscription_of(queue.topic, expression)
        found = await pull_by_hand(self._open(), self.group, queue, offset, wanted, settings)
        process_queue = ProcessQueue(queue, offset, Limits(), namespace=self._membership.namespace)
        messages = [MessageView(record, process_queue) for record in found.records]
        return PullOutcome(
            found.code, messages, found.next_offset, found.min_offset, found.max_offset
        )

    async def committed(self, queue: MessageQueue, *, from_store: bool = False) -> int:
        """The group's offset in a queue, -1 when there is none."""
        self._open()
        assert self._store is not None
        where = ReadFrom.STORE if from_store else ReadFrom.MEMORY_THEN_STORE
        return await self._store.read(queue, where)

    async def commit(self, queue: MessageQueue, offset: int, *, persist: bool = True) -> None:
        """Set the group's offset; without `persist` it is sent to the broker within 5 s."""
        self._open()
        assert self._store is not None
        self._store.update(queue, offset, increase_only=False)
        if persist:
            await self._store.persist(queue)

    def _open(self) -> Cluster:
        if self._cluster is None:
            raise ClosedError("this consumer is not running; use `async with` or start()")
        self._cluster.check_loop()
        return self._cluster

    # --- for brokers and the client: ConsumerMember ---------------------------------------------

    async def persist(self) -> None:
        """Persist the committed offsets; called every 5 s."""
        if self._store is not None:
            await self._store.persist_all(list(self._store.clone()))

    def consumer_data(self) -> ConsumerData:
        """The entry of this member in the heartbeat."""
        return self._membership.consumer_data("CONSUME_ACTIVELY", LAST, self._subscriptions)

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Take these over as the committed ones."""
        assert self._store is not None
        for queue, offset in offsets.items():
            if offset >= 0:
                self._store.update(queue, offset, increase_only=False)

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]:
        """The committed offsets, of one topic or of all ("")."""
        assert self._store is not None
        return self._store.clone(topic)
