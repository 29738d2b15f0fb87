"""A lite pull consumer as brokers and its client see it: what `ConsumerMember` asks for."""

import asyncio
from abc import ABC, abstractmethod

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.heartbeat import ConsumerData
from ...protocol.bodies.running import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from ...protocol.bodies.subscription import SubscriptionData
from ...protocol.command import Command
from ...protocol.errors import Refusal
from ..group.membership import Membership
from ..group.running import running_info
from .lite_service import LiteParts


class LiteMember(ABC):
    """Answers for a consumer; the consumer itself adds its life and its messages."""

    group: str
    _membership: Membership
    _subscriptions: dict[str, SubscriptionData]
    _started_ms: int

    @abstractmethod
    def _open(self) -> LiteParts:
        """The running parts; ClosedError before the start and after the end."""

    def consumer_data(self) -> ConsumerData:
        """What the heartbeat says about this consumer."""
        return ConsumerData(
            self.group,
            "CONSUME_ACTIVELY",
            self._membership.model,
            "CONSUME_FROM_LAST_OFFSET",  # whatever the start is: Java's answer
            list(self._subscriptions.values()),
        )

    async def persist(self) -> None:
        """Carry what is committed to where it lasts; done every 5 s by itself."""
        parts = self._open()
        parts.stats.sample(asyncio.get_running_loop().time())
        await parts.store.persist_all(parts.queues.queues)

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Go on from these offsets in the queues that are assigned here."""
        parts = self._open()
        for queue, offset in offsets.items():
            state = parts.queues.state(queue)
            if state is not None and offset >= 0:
                parts.store.update(queue, offset, increase_only=False)
                state.seek_offset = offset
                parts.queues.renew(state)
                await parts.store.persist(queue)

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]:
        """The committed offsets, of one topic or of all ("")."""
        return self._open().store.clone(topic)

    def running_info(self) -> ConsumerRunningInfo:
        """What this consumer holds and does."""
        parts = self._open()
        infos = {
            state.message_queue: state.process_queue.info(
                parts.store.in_memory(state.message_queue)
            )
            for state in parts.queues.states
        }
        data = self.consumer_data()
        return running_info(
            parts.cluster, data, infos, parts.stats, ordered=False, started_ms=self._started_ms
        )

    async def consume_directly(
        self, request: Command, broker_name: str | None
    ) -> ConsumeMessageDirectlyResult:
        """Refused: nobody here waits to be given a message."""
        raise Refusal(
            codes.SYSTEM_ERROR,
            f"The Consumer Group <{self.group}> pulls by itself; a message can't be given to it",
        )
