"""A message that a consumer received. It is open until it is settled, once.

Settled means acknowledged or given back to its broker. The group's offset stays before a message
that is open.
"""

import logging
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Any, Protocol

from ...protocol.message.record import Record
from ...protocol.names import without_namespace
from ..base import telemetry
from ..base.failures import log_failure
from ..base.message_view import MessageView
from .process_queue import ProcessQueue

log = logging.getLogger(__name__)

FAILED = "processing %r failed; it comes again, unless this was its last try"


class Settler(Protocol):
    """Settles messages: the consumer that received them."""

    def taken(self, message: "ReceivedMessage") -> None:
        """Note that the application has the message now."""

    def acknowledge(self, message: "ReceivedMessage") -> None:
        """Acknowledge the message: the group may move past it."""

    async def send_back(self, message: "ReceivedMessage", delay_level: int) -> None:
        """Send the message back for a later try."""

    def again(self, message: "ReceivedMessage") -> None:
        """Take back a message that the application released unsettled, to hand it out again."""


class ReceivedMessage(MessageView):
    """A received message with `process()`, `ack()` and `nack()`."""

    __slots__ = ("_open", "settler")
    source: ProcessQueue

    def __init__(self, record: Record, process_queue: ProcessQueue, settler: Settler) -> None:
        # The body of MessageView.__init__, inlined: this runs for each message.
        self.record = record
        self.source = process_queue
        self.reconsume_times = record.reconsume_times
        self._stored = None
        self._body = None
        topic = process_queue.topic
        if topic is None:
            topic = without_namespace(self.sent_topic, process_queue.namespace)
        self.topic = topic
        self.settler = settler
        self._open = True

    @property
    def is_open(self) -> bool:
        """True until the message is settled."""
        return self._open

    def process(self) -> "Processing":
        """A context for the work on the message: leaving it acknowledges the message.

        An Exception raised inside is logged, and the message is sent back for a later try; the loop
        around continues. If the task is cancelled, the message will be received again.
        """
        return Processing(self)

    async def ack(self) -> None:
        """Acknowledge the message: the group may move past it. No effect if it was settled."""
        self.settle()

    async def nack(self, delay_level: int = 0) -> None:
        """Send the message back for a later try, by default after a time that grows each time.

        `delay_level` is 1 to 18, or -1 for the dead letter topic at once. No effect if it was
        settled.
        """
        if self._open:
            self._open = False
            await self.settler.send_back(self, delay_level)

    def settle(self) -> None:
        """Like `ack`, for callers that can't await."""
        if self._open:
            self._open = False
            self.settler.acknowledge(self)

    def release(self) -> None:
        """Release the message unsettled; this consumer may receive it again at once."""
        if self._open:
            self.settler.again(self)

    def reopen(self) -> None:
        """Open the message again, because it could not be sent back."""
        self._open = True


def finish(messages: Iterable[ReceivedMessage]) -> list[int]:
    """Mark messages as settled; returns the offsets of the open ones. Called by settlers."""
    offsets = []
    for message in messages:
        if message._open:
            message._open = False
            offsets.append(message.record.queue_offset)
    return offsets


class Processing:
    """The work on one message, as `async with`; see `ReceivedMessage.process`."""

    __slots__ = ("_message", "_span")

    def __init__(self, message: ReceivedMessage) -> None:
        self._message = message
        self._span: AbstractContextManager[Any] | None = None

    async def __aenter__(self) -> ReceivedMessage:
        message = self._message
        if telemetry.is_wanted(message.record.raw_properties):
            self._span = telemetry.processing(
                message.topic,
                message.msg_id,
                message.queue_id,
                message.offset,
                message.stored_properties,
            )
            self._span.__enter__()
        return message

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if self._span is not None:
            with suppress(BaseException):  # a span records the error, then raises it again
                self._span.__exit__(kind, error, traceback)
        if error is None:
            self._message.settle()
        elif isinstance(error, Exception):
            log_failure(log, error, FAILED, self._message)
            await self._message.nack()
            return True
        else:
            self._message.release()
        return False
