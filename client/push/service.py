"""The service of a running push consumer: offsets, pulling, assigned queues, settling, upkeep.

Created by the consumer's `start` and closed by its `close`.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.subscription import SubscriptionData
from ..base.start_from import FIRST
from ..cluster.cluster import Cluster, every
from ..group.broker_rebalance import BrokerRebalance
from ..group.consume_stats import ConsumeStats
from ..group.first_offset import FirstOffset
from ..group.inbox import Inbox
from ..group.membership import Membership
from ..group.offsets import OffsetStore
from ..group.process_queue import Limits, ProcessQueue
from ..group.pull import Puller, PullSettings
from ..group.queue_locks import FIRST_SECONDS, RENEW_SECONDS, QueueLocks
from ..group.rebalance import Rebalance, Share
from ..group.received import ReceivedMessage
from ..group.send_back import SendBack
from ..group.subscription_check import SubscriptionCheck
from ..producer.trace import Tracer
from .assigned_queues import AssignedQueues
from .concurrent import ConcurrentService, ConsumeSettings
from .listening import Batch, Listener, Service, Workers
from .orderly import TIMES_WITHOUT_END, OrderlyService
from .pop_service import PopService
from .popped_queues import PoppedQueues, PopSettings
from .pulling import PullLoop
from .tracing import ConsumeTrace, TracedService, tracing_producer

RECONSUME_TIMES_MAX = 16  # what Java's concurrent consumers say for "the default"


@dataclass(frozen=True, slots=True)
class PushSettings:
    """The settings of a push consumer.

    With `pop` the brokers assign the queues and decide which are popped.
    """

    ordered: bool
    limits: Limits
    pull: PullSettings
    consume: ConsumeSettings
    listener: Listener | None
    trace_topic: str | None = None
    pop: PopSettings | None = None


class PushService:
    """A running push consumer. `wanted` are its subscriptions, which may change."""

    def __init__(
        self,
        membership: Membership,
        settings: PushSettings,
        wanted: Mapping[str, SubscriptionData],
        inbox: Inbox[ReceivedMessage],
    ) -> None:
        group, clustering = membership.group, membership.is_clustering
        self.cluster: Cluster = membership.open_cluster()
        self.store: OffsetStore = membership.store(self.cluster)
        self.stats = ConsumeStats()
        self.subscription_check = SubscriptionCheck(self.cluster, group, membership.model)
        by_broker = settings.pop is not None and clustering and not settings.ordered
        strategy = membership.strategy if clustering else None
        self.rebalance = (
            BrokerRebalance(self.cluster, group, membership.strategy_name)
            if by_broker
            else Rebalance(self.cluster, group, strategy)
        )
        self.locks = QueueLocks(self.cluster, group) if settings.ordered and clustering else None
        self._group = group
        self._consume = settings.consume
        self._inbox = inbox
        self._background: list[asyncio.Task[None]] = []
        times = settings.consume.max_reconsume_times
        if times is None:
            times = TIMES_WITHOUT_END if settings.ordered else RECONSUME_TIMES_MAX
        send_back = SendBack(self.cluster, group, times) if clustering else None
        self.consume_service = self._consume_service(settings, send_back, times)
        pops: PopService | None = None
        if by_broker and send_back is not None:
            pops = PopService(self.cluster, group, send_back, self._emit)
        self.tracer: Tracer | None = None
        if settings.trace_topic is not None:
            make = tracing_producer(self.cluster)
            self.tracer = Tracer(settings.trace_topic, group, make, "CONSUME")
            trace = ConsumeTrace(self.tracer, settings.consume.timeout_s, membership.namespace)
            TracedService(self.consume_service, trace)
            if pops is not None:
                TracedService(pops, trace)
        self.workers: Workers | None = None
        if settings.listener is not None:
            self.workers = Workers(group, settings.listener)
        self._batch_max = (settings.listener and settings.listener.batch_max) or 1
        puller = Puller(self.cluster, group, self.store, settings.pull, clustering=clustering)
        first_offset = FirstOffset(self.cluster, self.store, membership.start)
        self.loop = self._pull_loop(puller, settings.pull, wanted, first_offset)
        self.assigned = AssignedQueues(
            self.store,
            self.loop,
            first_offset,
            settings.limits,
            self.stats,
            self.locks,
            membership.namespace,
        )
        self.popped: PoppedQueues | None = None
        if pops is not None and settings.pop is not None:
            self.popped = PoppedQueues(
                self.cluster,
                group,
                pops,
                settings.pop,
                wanted,
                self.loop,
                self.stats,
                from_start=membership.start.where == FIRST,
                namespace=membership.namespace,
            )

    async def start(self) -> None:
        """Start the periodic tasks."""
        if self.tracer is not None:
            await self.tracer.start()
        group, seconds = self._group, self._consume.timeout_s
        if isinstance(self.consume_service, ConcurrentService):
            expire = every(seconds, self.consume_service.give_up_expired, f"giving up of {group}")
            self.in_background(asyncio.create_task(expire, name=f"expire-{group}"))
        if self.locks is not None:
            renew = every(RENEW_SECONDS, self._renew, f"locking queues of {group}", FIRST_SECONDS)
            self.in_background(asyncio.create_task(renew, name=f"lock-{group}"))
        if self.workers is not None:
            self.workers.start()

    def in_background(self, task: "asyncio.Task[None]") -> None:
        """Track a task that is cancelled with the consumer at the latest."""
        self._background = [each for each in self._background if not each.done()]
        self._background.append(task)

    def compare_members(self, wanted: Mapping[str, SubscriptionData]) -> None:
        """Compare the subscriptions of the group's members, in the background."""

        async def check() -> None:
            await self.subscription_check.check(list(self.rebalance.members), dict(wanted))

        self.in_background(asyncio.create_task(check(), name=f"agreement-{self._group}"))

    @property
    def queues(self) -> list[MessageQueue]:
        """The pulled and the popped queues."""
        return [*self.assigned.queues, *(self.popped.queues if self.popped is not None else ())]

    async def keep_topics(self, topics: Iterable[str]) -> bool:
        """Release the queues of all other topics; False when one could not be released yet."""
        if self.popped is not None:
            self.popped.keep_topics(topics)
        return await self.assigned.keep_topics(topics)

    async def become(self, shares: Mapping[str, Share]) -> bool:
        """Assign these queues; False if a queue could not be taken or released yet."""
        complete = await self.assigned.become(
            {topic: share.mine for topic, share in shares.items()}
        )
        if self.popped is not None:
            self.popped.become({topic: share.popped for topic, share in shares.items()})
        return complete

    async def drain(self) -> None:
        """Stop requesting messages and wait until all received ones are settled."""
        await self.assigned.drain()
        if self.popped is not None:
            await self.popped.drain()

    async def close(self) -> None:
        """Stop consuming and pulling, commit, release the queues."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self._inbox.close()
        if self.workers is not None:
            await self.workers.close()
        self.consume_service.close()
        if self.popped is not None:
            await self.popped.close()
        await self.assigned.close()
        if self.tracer is not None:
            await self.tracer.close()

    # --- inside ---------------------------------------------------------------------------------

    def _pull_loop(
        self,
        puller: Puller,
        settings: PullSettings,
        wanted: Mapping[str, SubscriptionData],
        first_offset: FirstOffset,
    ) -> PullLoop:
        return PullLoop(
            self.cluster,
            puller,
            wanted,
            self.consume_service.deliver,
            first_offset,
            interval_s=settings.interval_s,
            in_order=self.locks is not None,
            is_explained=lambda: self.subscription_check.is_broken,
        )

    def _consume_service(
        self, settings: PushSettings, send_back: SendBack | None, times: int
    ) -> ConcurrentService | OrderlyService:
        if not settings.ordered:
            return ConcurrentService(self.store, send_back, settings.consume, self._emit)
        return OrderlyService(
            self.store,
            send_back,
            replace(settings.consume, max_reconsume_times=times),
            self._emit,
            self.locks,
            self.cluster.rebalance_soon,
            (settings.listener and settings.listener.batch_max) or 1,
        )

    def _emit(
        self, service: Service, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]
    ) -> None:
        if self.workers is None:
            self._inbox.put(messages)
            return
        size = self._batch_max
        self.workers.inbox.put(
            Batch(process_queue, list(messages[at : at + size]), service)
            for at in range(0, len(messages), size)
        )

    async def _renew(self) -> None:
        assert self.locks is not None
        await self.locks.renew(self.assigned.table)
