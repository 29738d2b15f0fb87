"""Listeners: the application's function for messages, and its results.

Batches wait in an inbox; workers take from it and call the function. A coroutine function runs on
the loop, an ordinary one in a thread. Returning None (or Outcome.SUCCESS) acknowledges;
Outcome.LATER or an exception means redelivery. Any other result is logged and counts as LATER,
because a message must not be lost to a mistake.
"""

import asyncio
import contextvars
import inspect
import logging
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from ...protocol.bodies.body import MessageQueue
from ..base import telemetry
from ..base.arguments import check_count
from ..base.failures import log_failure
from ..base.identity import now_ms
from ..errors import ClientError
from ..group.inbox import Inbox
from ..group.process_queue import ProcessQueue
from ..group.received import ReceivedMessage, Settler

log = logging.getLogger(__name__)

FAILED = "consuming %r failed; it comes again, unless this was its last try"

CONCURRENCY = 20  # consumeThreadMin and consumeThreadMax
CONCURRENCY_MAX = 1_000
BATCH_MAX = 1_024  # Java's client takes no larger consumeMessageBatchMaxSize
ALL = sys.maxsize  # every message of the batch, however many those are


class Outcome(Enum):
    """The result of a listener: SUCCESS, or LATER for redelivery."""

    SUCCESS = "CONSUME_SUCCESS"
    LATER = "RECONSUME_LATER"


@dataclass(slots=True)
class Context:
    """Goes along with a batch to the listener, which may set all but `queue`.

    `ack_index` is the position in the batch of the last message that is done; -1 means that none
    is. `delay_level` says when the others come again: 0 leaves it to the broker, 1 to 18 are
    RocketMQ's delay levels, -1 makes them dead letters at once.
    `suspend_s` is the pause in seconds of a queue in order before its messages come again.
    """

    queue: MessageQueue
    ack_index: int = ALL
    delay_level: int = 0
    suspend_s: float | None = None


Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Listener:
    """A function and how it is called.

    It gets one message (`batch_max` None) or a list and a `Context`, in at most `concurrency`
    concurrent calls; each batch comes from one queue.
    """

    function: Function
    batch_max: int | None = None
    concurrency: int = CONCURRENCY

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ClientError(f"the listener is {self.function!r}; give a function")
        check_count("concurrency", self.concurrency, 1, CONCURRENCY_MAX, "workers")
        if self.batch_max is not None:
            check_count("batch_max", self.batch_max, 1, BATCH_MAX, "messages")


@dataclass(slots=True, eq=False)
class Batch:
    """Messages of one queue that are consumed together, and settled by `service`."""

    process_queue: ProcessQueue
    messages: list[ReceivedMessage]
    service: "Service"

    @property
    def is_void(self) -> bool:
        """True if the messages are assigned to another consumer now."""
        return self.messages[0].is_void


@dataclass(slots=True)
class Verdict:
    """The result of a call: the first `done` messages are acknowledged, the others come again.

    `result` is its name in RocketMQ's CMResult, `error` the listener's exception.
    """

    done: int
    result: str
    context: Context
    error: Exception | None = field(default=None)


class Service(Settler, Protocol):
    """A consume service: it settles messages, and batches after the listener. The messages that it
    delivers are settled by `settler`: itself, or what records its work."""

    settler: "Service"

    def begin(self, batch: Batch) -> None:
        """Note that the listener is called with the batch."""

    async def finish(self, batch: Batch, verdict: Verdict) -> None:
        """Settle each message of the batch."""


def done_of(outcome: Outcome, ack_index: int, size: int) -> int:
    """The number of messages of a batch that are done: through `ack_index`, 0 for LATER."""
    if outcome is Outcome.LATER:
        return 0
    return max(0, min(ack_index, size - 1) + 1)


class Workers:
    """Calls a listener for the batches of an inbox."""

    def __init__(self, group: str, listener: Listener) -> None:
        self.listener = listener
        self.inbox: Inbox[Batch] = Inbox()
        self._group = group
        self._tasks: list[asyncio.Task[None]] = []
        self._threads: ThreadPoolExecutor | None = None
        if not _is_coroutine_function(listener.function):
            self._threads = ThreadPoolExecutor(
                listener.concurrency, thread_name_prefix=f"ConsumeMessageThread_{group}"
            )

    def start(self) -> None:
        """Begin to take batches."""
        self._tasks = [
            asyncio.create_task(self._work(), name=f"ConsumeMessage_{self._group}_{number}")
            for number in range(1, self.listener.concurrency + 1)
        ]

    async def finish(self) -> None:
        """Take no more batches, and wait until running calls have returned and are settled."""
        self.inbox.close()
        await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        """Take no more batches and cancel; calls in threads run on, but their results are
        ignored."""
        self.inbox.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def call(
        self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]
    ) -> Verdict:
        """Call the listener once."""
        context = Context(process_queue.queue)
        began = asyncio.get_running_loop().time()
        try:
            answer = await self._answer(messages, context)
            outcome = Outcome.SUCCESS if answer is None else answer
            result = "CR_SUCCESS" if outcome is Outcome.SUCCESS else "CR_LATER"
            if not isinstance(outcome, Outcome):
                log.error(
                    "the listener of group %s returned %r for %r; return nothing, Outcome.SUCCESS "
                    "or Outcome.LATER; the messages come again",
                    self._group,
                    answer,
                    messages[0],
                )
                outcome, result = Outcome.LATER, "CR_RETURN_NULL"
            error = None
        except Exception as raised:
            log_failure(log, raised, FAILED, messages[0])
            outcome, result, error = Outcome.LATER, "CR_THROW_EXCEPTION", raised
        process_queue.last_settle_ms = now_ms()
        process_queue.stats.consumed += 1
        process_queue.stats.consume_seconds += asyncio.get_running_loop().time() - began
        done = done_of(outcome, context.ack_index, len(messages))
        return Verdict(done, result, context, error)

    async def _answer(self, messages: Sequence[ReceivedMessage], context: Context) -> Any:
        function = self.listener.function
        if self.listener.batch_max is None:
            arguments: tuple[Any, ...] = (messages[0],)
        else:
            arguments = (list(messages), context)
        if telemetry.is_wanted(messages[0].record.raw_properties):
            with self._span(messages):
                return await self._call(function, arguments)
        return await self._call(function, arguments)

    async def _call(self, function: Function, arguments: tuple[Any, ...]) -> Any:
        if self._threads is None:
            return await function(*arguments)
        loop = asyncio.get_running_loop()
        # In its own context, so that its spans are children of this one.
        run = contextvars.copy_context().run
        return await loop.run_in_executor(self._threads, run, function, *arguments)

    def _span(self, messages: Sequence[ReceivedMessage]) -> AbstractContextManager[Any]:
        first = messages[0]
        if self.listener.batch_max is not None:
            properties = [each.stored_properties for each in messages]
            return telemetry.processing_batch(first.topic, first.queue_id, properties)
        return telemetry.processing(
            first.topic, first.msg_id, first.queue_id, first.offset, first.stored_properties
        )

    async def _work(self) -> None:
        while (batch := await self.inbox.take()) is not None:
            batch.service.begin(batch)
            verdict = await self.call(batch.process_queue, batch.messages)
            try:
                await batch.service.finish(batch, verdict)
            except Exception:
                log.exception("settling %r failed; it comes again", batch.messages[0])


def _is_coroutine_function(function: Function) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
    )
