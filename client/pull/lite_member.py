"""A lite pull consumer as brokers and its client see it: `ConsumerMember`."""

import asyncio
from abc import ABC, abstractmethod

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.heartbeat import ConsumerData
from ...protocol.bodies.running import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from ...protocol.bodies.subscription import SubscriptionData
from ...protocol.command import Command
from ...protocol.errors import Refusal
from ..base.start_from import LAST
from ..group.membership import Membership
from ..group.running import running_info
from .lite_service import LiteService


class LiteMember(ABC):
    """Handles requests for a consumer; the subclass adds life cycle and messages."""

    group: str
    _membership: Membership
    _subscriptions: dict[str, SubscriptionData]
    _started_ms: int

    @abstractmethod
    def _open(self) -> LiteService:
        """The running service; ClosedError before the start and after the end."""

    def consumer_data(self) -> ConsumerData:
        """The entry of this member in the heartbeat."""
        # Whatever the start position is, as Java's client.
        return self._membership.consumer_data("CONSUME_ACTIVELY", LAST, self._subscriptions)

    async def persist(self) -> None:
        """Persist the committed offsets; called every 5 s."""
        service = self._open()
        service.stats.sample(asyncio.get_running_loop().time())
        await service.store.persist_all(service.queues.queues)

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Continue at these offsets in the assigned queues."""
        service = self._open()
        for queue, offset in offsets.items():
            state = service.queues.state(queue)
            if state is not None and offset >= 0:
                service.store.update(queue, offset, increase_only=False)
                state.seek_offset = offset
                service.queues.renew(state)
                await service.store.persist(queue)

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]:
        """The committed offsets, of one topic or of all ("")."""
        return self._open().store.clone(topic)

    def running_info(self) -> ConsumerRunningInfo:
        """The running info of this consumer."""
        service = self._open()
        infos = {
            state.message_queue: state.process_queue.info(
                service.store.in_memory(state.message_queue)
            )
            for state in service.queues.states
        }
        return running_info(
            service.cluster,
            self.consumer_data(),
            infos,
            service.stats,
            ordered=False,
            started_ms=self._started_ms,
            strategy=self._membership.strategy_text,
        )

    async def consume_directly(
        self, request: Command, broker_name: str | None
    ) -> ConsumeMessageDirectlyResult:
        """Refused: this consumer has no listener."""
        raise Refusal(
            codes.SYSTEM_ERROR,
            f"The Consumer Group <{self.group}> pulls by itself; a message can't be given to it",
        )
