"""A push consumer as brokers and its client see it: `ConsumerMember`."""

import asyncio
from abc import ABC, abstractmethod

from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.heartbeat import ConsumerData
from ...protocol.bodies.running import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from ...protocol.bodies.subscription import SubscriptionData
from ...protocol.command import Command
from ..group.inbox import Inbox
from ..group.membership import Membership
from ..group.received import ReceivedMessage
from ..group.running import running_info
from .direct import consume_directly
from .service import PushService, PushSettings


class PushMember(ABC):
    """Handles requests for a consumer; the subclass adds life cycle and messages."""

    group: str
    _membership: Membership
    _settings: PushSettings
    _subscriptions: dict[str, SubscriptionData]
    _inbox: Inbox[ReceivedMessage]
    _started_ms: int

    @abstractmethod
    def _open(self) -> PushService:
        """The running parts; ClosedError before the start."""

    def consumer_data(self) -> ConsumerData:
        """The entry of this member in the heartbeat."""
        where = self._membership.start.where
        return self._membership.consumer_data("CONSUME_PASSIVELY", where, self._subscriptions)

    def rebalance_soon(self) -> None:
        """The group's members have changed."""
        self._open().cluster.rebalance_soon()

    async def persist(self) -> None:
        """Persist the offsets of settled messages; called every 5 s."""
        service = self._open()
        service.stats.sample(asyncio.get_running_loop().time())
        await service.assigned.persist()

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Continue at these offsets in the assigned queues."""
        for queue, offset in offsets.items():
            if offset >= 0:
                await self._open().assigned.reset(queue, offset)

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]:
        """The committed offsets of the assigned queues, of one topic or of all ("")."""
        return self._open().store.clone(topic)

    def running_info(self) -> ConsumerRunningInfo:
        """The running info of this consumer."""
        service = self._open()
        info = running_info(
            service.cluster,
            self.consumer_data(),
            service.assigned.infos(),
            service.stats,
            ordered=self._settings.ordered,
            started_ms=self._started_ms,
            strategy=self._membership.strategy_text,
        )
        if service.popped is not None:
            info.mq_pop_table = service.popped.infos()
        if self._settings.listener is not None:
            threads = str(self._settings.listener.concurrency)
            info.properties["PROP_THREADPOOL_CORE_SIZE"] = threads
        return info

    async def consume_directly(
        self, request: Command, broker_name: str | None
    ) -> ConsumeMessageDirectlyResult:
        """Deliver the record in the request to the application and wait for the result."""
        service = self._open()
        result = await consume_directly(
            request.body or b"",
            broker_name or "",
            self._membership.namespace,
            service.workers,
            self._inbox,
        )
        result.order = self._settings.ordered
        return result
