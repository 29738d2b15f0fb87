"""The service of a running lite pull consumer: offsets, assigned queues, pull tasks."""

import asyncio
import math
from collections.abc import Callable

from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.subscription import SubscriptionData
from ..cluster.cluster import Cluster
from ..group.consume_stats import ConsumeStats
from ..group.first_offset import FirstOffset
from ..group.inbox import Inbox
from ..group.membership import Membership
from ..group.offsets import OffsetStore, ReadFrom, persist_surely
from ..group.process_queue import ProcessQueue
from ..group.rebalance import Rebalance
from ..producer.trace import Tracer
from ..push.tracing import ConsumeTrace, tracing_producer
from .assigned import AssignedQueues
from .lite_pulling import LitePullSettings, Pulled, PullTasks


class LiteService:
    """A running lite pull consumer; `subscription` gives the subscription of a topic."""

    def __init__(
        self,
        membership: Membership,
        settings: LitePullSettings,
        subscription: Callable[[str], SubscriptionData],
        cache: Inbox[Pulled],
        trace_topic: str | None = None,
    ) -> None:
        group = membership.group
        self.cluster: Cluster = membership.open_cluster()
        self.store: OffsetStore = membership.store(self.cluster)
        self.stats = ConsumeStats()
        strategy = membership.strategy if membership.is_clustering else None
        self.rebalance = Rebalance(self.cluster, group, strategy)
        first = FirstOffset(self.cluster, self.store, membership.start, ReadFrom.MEMORY_THEN_STORE)
        self.tasks = PullTasks(self.cluster, group, first, settings, subscription, cache)
        self.queues = AssignedQueues(self._make, self.tasks.begin)
        self._limits = settings.limits
        self._namespace = membership.namespace
        self._tracer: Tracer | None = None
        self.trace: ConsumeTrace | None = None
        if trace_topic is not None:
            make = tracing_producer(self.cluster)
            self._tracer = Tracer(trace_topic, group, make, "CONSUME")
            self.trace = ConsumeTrace(self._tracer, math.inf, membership.namespace)

    async def start(self) -> None:
        """Begin the work that is repeated."""
        if self._tracer is not None:
            await self._tracer.start()

    async def close(self) -> None:
        """Stop pulling and persist committed offsets."""
        queues, states = self.queues.queues, self.queues.states
        self.queues.become(())
        tasks = [state.task for state in states if state.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        await persist_surely(self.store, queues)
        if self._tracer is not None:
            await self._tracer.close()

    def _make(self, queue: MessageQueue) -> ProcessQueue:
        stats = self.stats.of(queue.topic)
        return ProcessQueue(queue, 0, self._limits, stats, self._namespace)
