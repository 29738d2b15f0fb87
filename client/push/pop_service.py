"""Consumption of popped messages: success acknowledges, failure means redelivery after a while.

ConsumeMessagePopConcurrentlyService. The broker tracks the messages, so nothing is committed here.
Messages that are not settled in time, or whose acknowledgement is lost, are delivered again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from contextlib import suppress

from ..base.identity import monotonic, now_ms
from ..cluster.cluster import Cluster
from ..errors import AerobeeError
from ..group.process_queue import ProcessQueue
from ..group.received import ReceivedMessage, Settler
from ..group.send_back import SendBack
from ..pop import acks as pop_acks
from ..pop.popping import Popped
from .concurrent import Emit
from .listening import Batch, Service, Verdict

log = logging.getLogger(__name__)

# How long a message that failed stays invisible, by how often it failed (popDelayLevel), seconds.
AGAIN_SECONDS = (
    10,
    30,
    60,
    120,
    180,
    240,
    300,
    360,
    420,
    480,
    540,
    600,
    1200,
    1800,
    3600,
    7200,
)

EXPIRED_CHECK_SECONDS = 1.0  # interval of the check for expired messages


class InFlightMessages:
    """The popped messages of one queue in this client, until each is settled or has expired."""

    def __init__(self) -> None:
        self._messages: dict[PoppedReceivedMessage, None] = {}
        self._fewer = asyncio.Event()

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: "PoppedReceivedMessage") -> None:
        """Add a message that was popped."""
        self._messages[message] = None

    def remove(self, message: "PoppedReceivedMessage") -> None:
        """Forget the message: the application has finished it."""
        self._messages.pop(message, None)
        self._fewer.set()

    async def at_most(self, count: int) -> None:
        """Wait until at most this many messages remain."""
        while len(self._messages) > count:
            self._messages = {each: None for each in self._messages if not each.is_expired}
            if len(self._messages) > count:
                self._fewer.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(EXPIRED_CHECK_SECONDS):
                        await self._fewer.wait()


class PoppedReceivedMessage(ReceivedMessage):
    """A popped message with its handle; void once its invisible time is over."""

    __slots__ = ("_expires_at", "_in_flight", "handle")

    def __init__(
        self, popped: Popped, settler: Settler, expires_at: float, in_flight: InFlightMessages
    ) -> None:
        super().__init__(popped.record, popped.process_queue, settler)
        self.reconsume_times = popped.times
        self.handle = popped.handle
        self._expires_at = expires_at
        self._in_flight = in_flight
        in_flight.add(self)

    @property
    def is_void(self) -> bool:
        """True if the message's queue was released, or its invisible time is over."""
        return self.source.dropped or self.is_expired

    @property
    def is_expired(self) -> bool:
        """True if the invisible time is over: the broker may deliver the message elsewhere."""
        return monotonic() >= self._expires_at

    def finished(self) -> None:
        """Forget the message: the application has finished it."""
        self._in_flight.remove(self)


class PopService:
    """Settles the popped messages of one consumer; `times_max` is how often one is tried."""

    def __init__(self, cluster: Cluster, group: str, send_back: SendBack, emit: Emit) -> None:
        self.settler: Service = self
        self._cluster = cluster
        self._group = group
        self._send_back = send_back
        self._emit = emit
        self._tasks: dict[asyncio.Task[None], None] = {}

    def deliver(
        self, found: Iterable[Popped], expires_at: float, in_flight: InFlightMessages
    ) -> None:
        """Hand out popped messages; unwanted ones and those tried too often are settled at once."""
        by_queue: dict[ProcessQueue, list[ReceivedMessage]] = {}
        for popped in found:
            message = PoppedReceivedMessage(popped, self.settler, expires_at, in_flight)
            too_often = popped.times > self._send_back.max_reconsume_times
            if popped.is_wanted and not too_often:
                by_queue.setdefault(popped.process_queue, []).append(message)
                continue
            if too_often:
                log.warning("%r was tried %d times, it is given up", message, popped.times)
            message.finished()
            self._in_background(self._ack(message))
        for process_queue, messages in by_queue.items():
            self._emit(self.settler, process_queue, messages)

    async def close(self) -> None:
        """Wait for pending acknowledgements."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=pop_acks.ACK_SECONDS)

    # --- one message ----------------------------------------------------------------------------

    def taken(self, message: ReceivedMessage) -> None:
        """Do nothing: the broker knows how long the application may have the message."""

    def acknowledge(self, message: ReceivedMessage) -> None:
        """Acknowledge the message, in the background."""
        if self._is_ours(message):
            message.source.stats.ok += 1
            self._in_background(self._ack(message))

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> None:
        """Have the message popped again after a while; -1 sends it to the dead letters."""
        if not self._is_ours(message):
            return
        message.source.stats.failed += 1
        times, last = message.reconsume_times, len(AGAIN_SECONDS) - 1
        if delay_level < 0:
            self._in_background(self._give_up(message))
        elif times < self._send_back.max_reconsume_times:
            seconds = AGAIN_SECONDS[min(delay_level or times, last)]
            self._in_background(self._again_after(message, seconds))
        else:
            age_s = (now_ms() - message.born_ms) / 1000
            if age_s > AGAIN_SECONDS[last] * 2:
                log.warning("%r was tried %d times, it is given up", message, times)
                self._in_background(self._ack(message))
            else:  # tried too quickly: as long again as it is old already
                longer = (each for each in AGAIN_SECONDS if each > age_s)
                self._in_background(self._again_after(message, next(longer, AGAIN_SECONDS[last])))

    def again(self, message: ReceivedMessage) -> None:
        """Hand out again a message that the application released unsettled."""
        if not message.is_void:
            self._emit(self.settler, message.source, [message])

    # --- for a listener -------------------------------------------------------------------------

    def begin(self, batch: Batch) -> None:
        """Do nothing: the broker knows how long the listener may have the batch."""

    async def finish(self, batch: Batch, verdict: Verdict) -> None:
        """Acknowledge the first `verdict.done` messages; the others come again."""
        for message in batch.messages[: verdict.done]:
            message.settle()
        for message in batch.messages[verdict.done :]:
            await message.nack(verdict.context.delay_level)

    # --- inside ---------------------------------------------------------------------------------

    def _is_ours(self, message: ReceivedMessage) -> bool:
        assert isinstance(message, PoppedReceivedMessage)
        message.finished()
        if message.is_void:
            log.info("%r was settled too late, it comes again", message)
            return False
        return True

    async def _ack(self, message: ReceivedMessage) -> None:
        assert isinstance(message, PoppedReceivedMessage)
        handle, offset = message.handle, message.offset
        await pop_acks.ack(self._cluster, self._group, message.queue, handle, offset)

    async def _again_after(self, message: ReceivedMessage, seconds: int) -> None:
        assert isinstance(message, PoppedReceivedMessage)
        handle, offset, ms = message.handle, message.offset, seconds * 1000
        await pop_acks.change_invisible_time(
            self._cluster, self._group, message.queue, handle, offset, ms
        )

    async def _give_up(self, message: ReceivedMessage) -> None:
        await self._send_back.give_back(message, -1)
        await self._ack(message)

    def _in_background(self, telling: Awaitable[None]) -> None:
        task = asyncio.create_task(_told(telling), name=f"pop-ack-{self._group}")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)


async def _told(telling: Awaitable[None]) -> None:
    try:
        await telling
    except AerobeeError as wrong:
        log.warning("a popped message comes again, its broker could not be told: %s", wrong)
