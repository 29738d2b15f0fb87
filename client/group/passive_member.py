"""A consumer without push delivery, as brokers and its client see it."""

from abc import ABC, abstractmethod

from ...protocol import codes
from ...protocol.bodies.heartbeat import ConsumerData
from ...protocol.bodies.running import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from ...protocol.command import Command
from ...protocol.errors import Refusal
from ..cluster import rebalance_service
from ..cluster.cluster import Cluster
from .consume_stats import ConsumeStats
from .running import running_info


class PassiveMember(ABC):
    """Handles requests for a consumer that has no assigned queues and no listener."""

    group: str
    _started_ms: int

    @abstractmethod
    def _open(self) -> Cluster:
        """The client; ClosedError before the start and after the end."""

    @abstractmethod
    def consumer_data(self) -> ConsumerData:
        """The entry of this member in the heartbeat."""

    async def rebalance(self) -> float:
        """Do nothing: there are no queues to be taken or released."""
        return rebalance_service.SECONDS

    def running_info(self) -> ConsumerRunningInfo:
        """The running info of this consumer."""
        return running_info(
            self._open(),
            self.consumer_data(),
            {},
            ConsumeStats(),
            ordered=False,
            started_ms=self._started_ms,
        )

    async def consume_directly(
        self, request: Command, broker_name: str | None
    ) -> ConsumeMessageDirectlyResult:
        """Refused: this consumer has no listener."""
        raise Refusal(
            codes.SYSTEM_ERROR,
            f"The Consumer Group <{self.group}> asks for messages by itself; one can't be given to "
            "it",
        )
