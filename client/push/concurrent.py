"""Concurrent consumption: every message is handed out as soon as it arrives.

ConsumeMessageConcurrentlyService. A failed message is sent back to its broker and then done here;
one that can't be sent back stays open and is handed out again after 5 s. The group's offset never
passes an open message. A broadcasting group sends nothing back: failed messages are logged and
dropped.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...protocol.message.record import Record
from ..base.arguments import check_count, check_type
from ..errors import AerobeeError, ClientError
from ..group.offsets import OffsetStore
from ..group.process_queue import ProcessQueue
from ..group.received import ReceivedMessage, finish
from ..group.send_back import SendBack
from .listening import Batch, Service, Verdict

log = logging.getLogger(__name__)

RETRY_LOCALLY_SECONDS = 5.0  # pause before a message that could not be sent back is redelivered
CONSUME_SECONDS = 15 * 60.0  # consumeTimeout
SUSPEND_SECONDS = 1.0  # suspendCurrentQueueTimeMillis, for queues in order
EXPIRED_LEVEL = 3  # the delay level of a message that took too long
EXPIRED_MAX = 16  # of one queue and one check

# Called with messages for the application, their queue, and the service that settles them.
Emit = Callable[[Service, ProcessQueue, Sequence[ReceivedMessage]], None]


@dataclass(frozen=True, slots=True)
class ConsumeSettings:
    """Settings of tries: how long one lasts, and how many a message has.

    A message that the application has for `timeout_s` seconds goes back to the broker, which sends
    it again (not with `ordered`). With `ordered`, a queue rests `suspend_s` seconds before its
    message is tried again. After `max_reconsume_times` further tries a message goes to the dead
    letters; None is Java's default: 16, and with `ordered` without end. ClientError for values out
    of range.
    """

    timeout_s: float = CONSUME_SECONDS
    suspend_s: float = SUSPEND_SECONDS
    max_reconsume_times: int | None = None

    def __post_init__(self) -> None:
        check_type("timeout_s", self.timeout_s, (int, float), "give seconds above 0")
        check_type("suspend_s", self.suspend_s, (int, float), "give seconds")
        if self.timeout_s <= 0:
            raise ClientError(f"timeout_s is {self.timeout_s:g}; give seconds above 0")
        if self.max_reconsume_times is not None:
            check_count("max_reconsume_times", self.max_reconsume_times, 0)


class ConcurrentService:
    """Settles the messages of one consumer. `send_back` None is for a broadcasting group."""

    def __init__(
        self, store: OffsetStore, send_back: SendBack | None, settings: ConsumeSettings, emit: Emit
    ) -> None:
        self.settler: Service = self  # the settler of the messages
        self._store = store
        self._send_back = send_back
        self._settings = settings
        self._emit = emit
        self._timers: dict[asyncio.TimerHandle, None] = {}
        # With the application since the last check, and since the one before. No times: reading a
        # clock for each message would cost more than a precise age is worth.
        self._young: dict[ReceivedMessage | Batch, None] = {}
        self._old: dict[ReceivedMessage | Batch, None] = {}
        self._closed = False

    def deliver(self, process_queue: ProcessQueue, records: list[Record]) -> None:
        """Hand out pulled messages, in this order."""
        settler = self.settler
        messages = [ReceivedMessage(record, process_queue, settler) for record in records]
        self._emit(settler, process_queue, messages)

    def taken(self, message: ReceivedMessage) -> None:
        """Note that the application has taken the message."""
        self._young[message] = None

    def close(self) -> None:
        """Hand nothing out any more."""
        self._closed = True
        for timer in self._timers:
            timer.cancel()
        self._young.clear()
        self._old.clear()

    # --- one message ----------------------------------------------------------------------------

    def acknowledge(self, message: ReceivedMessage) -> None:
        """Acknowledge the message: the group may move past it."""
        self._young.pop(message, None)
        if self._old:
            self._old.pop(message, None)
        process_queue = message.source
        offset = process_queue.settle(message.offset)
        if offset >= 0:
            process_queue.stats.ok += 1
            self._store.update(process_queue.queue, offset)

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> None:
        """Send the message back to its broker, which delivers it later; on failure it waits
        here."""
        self._forget(message)
        process_queue = message.source
        if message.is_void:
            return
        process_queue.stats.failed += 1
        if self._send_back is None:
            log.warning("BROADCASTING, consuming %r failed, it is dropped", message)
        else:
            try:
                await self._send_back.give_back(message, delay_level)
            except AerobeeError as wrong:
                log.warning(
                    "message %s could not be sent back, it comes again here in %g s: %s",
                    message.msg_id,
                    RETRY_LOCALLY_SECONDS,
                    wrong,
                )
                self._again_later(message)
                return
        offset = process_queue.settle(message.offset)
        if offset >= 0:
            self._store.update(process_queue.queue, offset)

    def again(self, message: ReceivedMessage) -> None:
        """Hand out again, at once, a message that the application released unsettled."""
        self._forget(message)
        if not self._closed and not message.is_void:
            self._emit(self.settler, message.source, [message])

    def _again_later(self, message: ReceivedMessage) -> None:
        def come() -> None:
            self._timers.pop(timer, None)
            message.reconsume_times += 1
            message.reopen()
            self.again(message)

        if not self._closed:
            timer = asyncio.get_running_loop().call_later(RETRY_LOCALLY_SECONDS, come)
            self._timers[timer] = None

    # --- for a listener -------------------------------------------------------------------------

    def begin(self, batch: Batch) -> None:
        """Note that the listener has the batch now."""
        self._young[batch] = None

    async def finish(self, batch: Batch, verdict: Verdict) -> None:
        """Acknowledge the first `verdict.done` messages and send the others back."""
        self._forget(batch)
        self._acknowledge_all(batch.process_queue, batch.messages[: verdict.done])
        for message in batch.messages[verdict.done :]:
            await message.nack(verdict.context.delay_level)

    def _acknowledge_all(
        self, process_queue: ProcessQueue, messages: list[ReceivedMessage]
    ) -> None:
        """Acknowledge those of the messages that are still open."""
        count, offset = process_queue.settle_all(finish(messages))
        if count:
            process_queue.stats.ok += count
            self._store.update(process_queue.queue, offset)

    # --- upkeep ---------------------------------------------------------------------------------

    async def give_up_expired(self) -> None:
        """Send back messages that the application has had for too long; called once per timeout."""
        expired, self._old, self._young = self._old, self._young, {}
        seen: dict[ProcessQueue, int] = {}
        for message in _messages(expired):
            process_queue = message.source
            if message.is_void or not message.is_open:
                continue
            seen[process_queue] = seen.get(process_queue, 0) + 1
            if seen[process_queue] > EXPIRED_MAX:
                self._old[message] = None  # the next time
                continue
            log.warning(
                "%r is with the application for more than %g s; it is sent back",
                message,
                self._settings.timeout_s,
            )
            await message.nack(EXPIRED_LEVEL)

    def _forget(self, taken: ReceivedMessage | Batch) -> None:
        self._young.pop(taken, None)
        self._old.pop(taken, None)


def _messages(taken: Iterable[ReceivedMessage | Batch]) -> Iterator[ReceivedMessage]:
    for each in taken:
        if isinstance(each, Batch):
            yield from each.messages
        else:
            yield each
