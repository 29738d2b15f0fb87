"""Ordered consumption: one message (or batch) of each queue at a time, in offset order.

ConsumeMessageOrderlyService. The next one is handed out when the previous one is settled. A failed
message is retried after a pause, during which its queue waits; after too many tries it goes to the
retry topic, where the broker makes it a dead letter. In a clustering group nothing is handed out
unless this client owns the broker's lock on the queue.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from ...protocol.message.record import Record
from ..errors import AerobeeError
from ..group.offsets import OffsetStore
from ..group.process_queue import ProcessQueue, name_of
from ..group.queue_locks import QueueLocks
from ..group.received import ReceivedMessage
from ..group.send_back import SendBack
from .concurrent import ConsumeSettings, Emit
from .listening import Batch, Service, Verdict

log = logging.getLogger(__name__)

SUSPEND_SECONDS_MIN, SUSPEND_SECONDS_MAX = 0.01, 30.0
RELOCK_SECONDS = 0.1  # until the queue is locked again
LOCKED_ELSEWHERE_SECONDS = 3.0
TIMES_WITHOUT_END = (1 << 31) - 1  # Integer.MAX_VALUE


class _Line:
    """The messages of one ordered queue: waiting, and with the application."""

    __slots__ = ("is_locking", "process_queue", "timer", "under_way", "waiting")

    def __init__(self, process_queue: ProcessQueue) -> None:
        self.process_queue = process_queue
        self.waiting: deque[ReceivedMessage] = deque()
        self.under_way: list[ReceivedMessage] = []
        self.timer: asyncio.TimerHandle | None = None
        self.is_locking = False

    @property
    def is_at_rest(self) -> bool:
        """True if no message of this queue is with the application or about to be handed out."""
        return not self.under_way and self.timer is None and not self.is_locking


class OrderlyService:
    """Settles the messages of one consumer in order.

    `locks` and `send_back` are None for a broadcasting group. `freed` is called when the last
    message of a dropped queue is back, so that the queue can be let go.
    """

    def __init__(
        self,
        store: OffsetStore,
        send_back: SendBack | None,
        settings: ConsumeSettings,
        emit: Emit,
        locks: QueueLocks | None,
        freed: Callable[[], None],
        batch_max: int = 1,
    ) -> None:
        self.settler: Service = self  # the settler of the messages
        self._store = store
        self._send_back = send_back
        self._settings = settings
        self._emit = emit
        self._locks = locks
        self._freed = freed
        self._batch_max = batch_max
        self._lines: dict[ProcessQueue, _Line] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._closed = False

    def deliver(self, process_queue: ProcessQueue, records: list[Record]) -> None:
        """Queue pulled messages, in this order, and hand out the first if the queue is at rest."""
        line = self._lines.get(process_queue)
        if line is None:
            dropped = [each for each in self._lines if each.dropped]
            for other in dropped:
                if not other.under_way.count:
                    del self._lines[other]
            line = self._lines[process_queue] = _Line(process_queue)
        line.waiting.extend(
            ReceivedMessage(record, process_queue, self.settler) for record in records
        )
        if line.is_at_rest:
            self._next(line)

    def taken(self, message: ReceivedMessage) -> None:
        """Keep the queue from being released until the application has settled the message."""
        message.source.under_way.begin(1)

    def close(self) -> None:
        """Hand nothing out any more."""
        self._closed = True
        for line in self._lines.values():
            if line.timer is not None:
                line.timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._lines.clear()

    # --- one message ----------------------------------------------------------------------------

    def acknowledge(self, message: ReceivedMessage) -> None:
        """Acknowledge the message and hand out the next one of its queue."""
        process_queue = message.source
        offset = process_queue.settle(message.offset)
        if offset >= 0:
            process_queue.stats.ok += 1
            self._store.update(process_queue.queue, offset, increase_only=False)
        self._leave(message)

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> None:
        """Try the message again after a rest of the queue; -1 sends it to the dead letters."""
        await self._failed([message], None, for_good=delay_level < 0)

    def again(self, message: ReceivedMessage) -> None:
        """Hand out again, at once, a message that the application released unsettled."""
        line = self._lines.get(message.source)
        if line is not None and message in line.under_way:
            self._rest(line, [message], 0.0)

    # --- for a listener -------------------------------------------------------------------------

    def begin(self, batch: Batch) -> None:
        """Keep the queue from being released until the listener has finished the batch."""
        batch.process_queue.under_way.begin(len(batch.messages))

    async def finish(self, batch: Batch, verdict: Verdict) -> None:
        """Settle or repeat the whole batch: order allows nothing else.

        Messages that the listener has settled itself stay settled.
        """
        line = self._lines.get(batch.process_queue)
        left = [each for each in batch.messages if line is None or each in line.under_way]
        if verdict.done == len(batch.messages):
            for message in left:
                message.settle()
        elif any(message.is_open for message in left):
            await self._failed(left, verdict.context.suspend_s)

    # --- inside ---------------------------------------------------------------------------------

    @property
    def _times_max(self) -> int:
        times = self._settings.max_reconsume_times
        return TIMES_WITHOUT_END if times is None else times

    async def _failed(
        self,
        messages: Sequence[ReceivedMessage],
        suspend_s: float | None,
        *,
        for_good: bool = False,
    ) -> None:
        process_queue = messages[0].source
        line = self._lines.get(process_queue)
        process_queue.stats.failed += len(messages)
        kept = []
        for message in messages:
            is_last = for_good or message.reconsume_times >= self._times_max
            if is_last and await self._given_up(message, for_good=for_good):
                offset = process_queue.settle(message.offset)
                if offset >= 0:
                    self._store.update(process_queue.queue, offset, increase_only=False)
                self._leave(message, following=False)
                continue
            message.reconsume_times += 1
            message.reopen()
            kept.append(message)
        if line is None:
            return
        if kept:
            self._rest(line, kept, self._settings.suspend_s if suspend_s is None else suspend_s)
        elif not line.under_way:
            self._next(line)

    async def _given_up(self, message: ReceivedMessage, *, for_good: bool) -> bool:
        if self._send_back is None:
            log.warning("BROADCASTING, consuming %r failed for good, it is dropped", message)
            return True
        try:
            await self._send_back.send_to_retry_topic(message, for_good=for_good)
        except AerobeeError as wrong:
            log.warning("%r can't be given up yet: %s", message, wrong)
            return False
        return True

    def _leave(self, message: ReceivedMessage, *, following: bool = True) -> None:
        line = self._lines.get(message.source)
        if line is None or message not in line.under_way:
            return
        line.under_way.remove(message)
        line.process_queue.under_way.end(1)
        if not line.under_way and following:
            self._next(line)

    def _rest(self, line: _Line, messages: list[ReceivedMessage], seconds: float) -> None:
        line.waiting.extendleft(reversed(messages))
        line.under_way = [each for each in line.under_way if each not in messages]
        line.process_queue.under_way.end(len(messages))
        if not line.is_at_rest:
            return
        if seconds and not line.process_queue.dropped:
            seconds = min(max(seconds, SUSPEND_SECONDS_MIN), SUSPEND_SECONDS_MAX)
            self._next_later(line, seconds)
        else:
            self._next(line)

    def _next_later(self, line: _Line, seconds: float) -> None:
        def come() -> None:
            line.timer = None
            self._next(line)

        if not self._closed:
            line.timer = asyncio.get_running_loop().call_later(seconds, come)

    def _next(self, line: _Line) -> None:
        process_queue = line.process_queue
        if process_queue.dropped or self._closed:
            self._lines.pop(process_queue, None)
            self._freed()
            for other in list(self._lines.values()):  # the queue's line since its offset was reset
                if other.process_queue.under_way is process_queue.under_way and other.is_at_rest:
                    self._next(other)
            return
        if not line.waiting or process_queue.under_way.count:
            return
        now = asyncio.get_running_loop().time()
        if self._locks is not None and not process_queue.is_locked(now):
            line.is_locking = True
            task = asyncio.create_task(
                self._lock_again(line), name=f"lock {name_of(process_queue.queue)}"
            )
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)
            return
        size = min(self._batch_max, len(line.waiting))
        line.under_way = [line.waiting.popleft() for _ in range(size)]
        self._emit(self.settler, process_queue, list(line.under_way))

    async def _lock_again(self, line: _Line) -> None:
        assert self._locks is not None
        since = await self._locks.lock(line.process_queue.queue, line.process_queue)
        line.is_locking = False
        if line.is_at_rest:
            self._next_later(line, LOCKED_ELSEWHERE_SECONDS if since is None else RELOCK_SECONDS)
