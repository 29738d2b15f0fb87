"""The consume service of a consumer with both pulled and popped topics.

Each message is settled by the service that delivered it.
"""

from ..group.received import ReceivedMessage, Settler
from .listening import Batch, Verdict
from .pop_service import PoppedReceivedMessage, PopService
from .tracing import Service


class HybridService:
    """Dispatches to the services of pulled and of popped messages."""

    def __init__(self, pulled: Service, popped: PopService) -> None:
        self._pulled = pulled
        self._popped = popped

    @property
    def settler(self) -> Settler:
        """The settler of the messages of both."""
        return self._pulled.settler

    @settler.setter
    def settler(self, settler: Settler) -> None:
        self._pulled.settler = self._popped.settler = settler

    def taken(self, message: ReceivedMessage) -> None:
        """The application has it now."""
        self._of(message).taken(message)

    def acknowledge(self, message: ReceivedMessage) -> None:
        """The message is done."""
        self._of(message).acknowledge(message)

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> None:
        """The message is to come again."""
        await self._of(message).send_back(message, delay_level)

    def again(self, message: ReceivedMessage) -> None:
        """The application let go of it unsettled."""
        self._of(message).again(message)

    def begin(self, batch: Batch) -> None:
        """The listener has it now."""
        self._of(batch.messages[0]).begin(batch)

    async def finish(self, batch: Batch, verdict: Verdict) -> None:
        """The listener has returned."""
        await self._of(batch.messages[0]).finish(batch, verdict)

    def _of(self, message: ReceivedMessage) -> Service:
        return self._popped if isinstance(message, PoppedReceivedMessage) else self._pulled
