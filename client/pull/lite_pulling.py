"""The pull tasks of a lite pull consumer, one per assigned queue: PullTaskImpl.

A task pulls and puts the messages into the cache that poll reads, until its queue is released. It
rests while its queue is paused or too many messages wait to be polled. Responses that arrive after
the queue was released or after a seek are dropped.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from ...protocol import codes
from ...protocol.bodies.subscription import SubscriptionData
from ..base.identity import now_ms
from ..base.message_view import MessageView
from ..cluster.cluster import Cluster
from ..errors import AerobeeError, BrokerError, ClientError, is_queue_gone
from ..group.first_offset import FirstOffset
from ..group.inbox import Inbox
from ..group.process_queue import BYTES_MAX, MESSAGES_MAX, SPAN_MAX, Limits, ProcessQueue, name_of
from ..group.pull import NOT_HERE_SECONDS, PullResult, PullSettings, pull_by_hand
from .assigned import UNKNOWN, MessageQueueState

log = logging.getLogger(__name__)

TASKS = 20  # pullThreadNums
BATCH = 10  # pullBatchSize
SUSPEND_MS = 20_000  # brokerSuspendMaxTimeMillis
TIMEOUT_SECONDS = 30.0  # consumerTimeoutMillisWhenSuspend
BUSY_SUSPEND_MS = 1_000  # if there are more queues than tasks, so that each queue is served
ALL_MAX = 10_000  # pullThresholdForAll, messages of all queues
PAUSED_SECONDS = 1.0
FULL_SECONDS = 0.05
FLOW_CONTROL_SECONDS = 0.02
FAILED_SECONDS = 1.0  # pullTimeDelayMillsWhenException
NO_OFFSET_SECONDS = 3.0  # when it can't be learnt where to begin
LOG_EACH = 1_000  # log one of this many rests


@dataclass(frozen=True, slots=True)
class LitePullSettings:
    """Settings of a lite pull consumer; the defaults are Java's.

    `tasks` queues are pulled concurrently, at most `batch` messages (1 to 1,024) in one pull. The
    broker parks a pull that finds nothing for `suspend_ms` milliseconds; the client waits
    `timeout_s` seconds for the response. Pulling rests while more than `all_max` messages wait to
    be polled, or a queue has reached one of `limits`. ClientError for values out of range.
    """

    tasks: int = TASKS
    batch: int = BATCH
    suspend_ms: int = SUSPEND_MS
    timeout_s: float = TIMEOUT_SECONDS
    all_max: int = ALL_MAX
    limits: Limits = field(default_factory=lambda: Limits(MESSAGES_MAX, BYTES_MAX, SPAN_MAX))

    def __post_init__(self) -> None:
        if self.tasks < 1:
            raise ClientError(f"tasks is {self.tasks}; give at least 1")
        PullSettings(self.batch, self.suspend_ms, self.timeout_s)  # checks the rest


@dataclass(slots=True)
class Pulled:
    """The messages of one pull, for one poll."""

    state: MessageQueueState
    process_queue: ProcessQueue
    messages: list[MessageView]

    @property
    def is_void(self) -> bool:
        """True if the queue was lost, or the application went elsewhere in it."""
        return self.process_queue.dropped


class PullTasks:
    """Pulls assigned queues into `cache`."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        first_offset: FirstOffset,
        settings: LitePullSettings,
        subscription: Callable[[str], SubscriptionData],
        cache: Inbox[Pulled],
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._first_offset = first_offset
        self._settings = settings
        self._subscription = subscription
        self._cache = cache
        self._turns = asyncio.Semaphore(settings.tasks)
        self._count = 0
        self._rests = 0
        self.active = 0

    def begin(self, state: MessageQueueState) -> None:
        """Start the task of a queue, at once."""
        self._count += 1
        name = f"PullMsgThread-{self._group}{self._count}"
        state.task = asyncio.create_task(self._run(state, state.process_queue), name=name)

    async def _run(self, state: MessageQueueState, process_queue: ProcessQueue) -> None:
        self.active += 1
        try:
            while not process_queue.dropped:
                wait = 0.0
                try:
                    wait = await self._once(state, process_queue)
                except BrokerError as wrong:
                    flow = wrong.code == codes.FLOW_CONTROL
                    wait = FLOW_CONTROL_SECONDS if flow else FAILED_SECONDS
                    if not flow:
                        log.warning("next try in %g s: %s", wait, wrong)
                    if is_queue_gone(wrong.code, wrong.remark):
                        await self._cluster.renew(process_queue.queue.topic)
                        self._cluster.rebalance_soon()
                except ClientError as wrong:
                    wait = FAILED_SECONDS
                    queue = name_of(process_queue.queue)
                    log.warning("pulling %s, next try in %g s: %s", queue, wait, wrong)
                except Exception:
                    wait = FAILED_SECONDS
                    log.exception(
                        "pulling %s failed; next try in %g s", name_of(process_queue.queue), wait
                    )
                if wait:
                    await asyncio.sleep(wait)
        finally:
            self.active -= 1

    async def _once(self, state: MessageQueueState, process_queue: ProcessQueue) -> float:
        """Pull once; returns the seconds to rest after it."""
        if state.paused:
            return PAUSED_SECONDS
        process_queue.last_pull_ms = now_ms()
        if self._is_full(process_queue):
            return FULL_SECONDS
        async with self._turns:
            try:
                offset = await self._next_offset(state)
            except AerobeeError as wrong:
                log.warning(
                    "where to begin in %s is unknown: %s", name_of(process_queue.queue), wrong
                )
                return NO_OFFSET_SECONDS
            settings = self._settings
            busy = self.active > settings.tasks
            suspend_ms = min(settings.suspend_ms, BUSY_SUSPEND_MS) if busy else settings.suspend_ms
            subscription = self._subscription(process_queue.queue.topic)
            result = await pull_by_hand(
                self._cluster,
                self._group,
                process_queue.queue,
                offset,
                subscription,
                PullSettings(settings.batch, suspend_ms, settings.timeout_s),
                lite=True,
            )
        if result.code == codes.PULL_OFFSET_MOVED and not process_queue.dropped:
            result.next_offset = await self._first_offset.after(
                process_queue, offset, result.next_offset, result.max_offset
            )
            if result.next_offset < offset:
                process_queue.restart()
        if not process_queue.dropped:
            self._take(state, process_queue, result)
        return NOT_HERE_SECONDS if result.says_elsewhere(offset) else 0.0

    async def _next_offset(self, state: MessageQueueState) -> int:
        if state.seek_offset != UNKNOWN:
            state.pull_offset = state.consume_offset = state.seek_offset
            state.seek_offset = UNKNOWN
        elif state.pull_offset == UNKNOWN:
            state.pull_offset = await self._first_offset(state.message_queue)
        return state.pull_offset

    def _take(
        self, state: MessageQueueState, process_queue: ProcessQueue, result: PullResult
    ) -> None:
        fresh = process_queue.hold_all(result.records)
        if fresh:
            process_queue.stats.pulls += 1
            process_queue.stats.pulled += len(fresh)
            messages = [MessageView(record, process_queue) for record in fresh]
            self._cache.put([Pulled(state, process_queue, messages)])
        state.pull_offset = result.next_offset

    def _is_full(self, process_queue: ProcessQueue) -> bool:
        waiting = len(self._cache) * self._settings.batch
        if waiting > self._settings.all_max:
            full = f"{len(self._cache)} pulls wait to be polled, about {waiting} messages"
        elif process_queue.is_full:
            name, span = name_of(process_queue.queue), process_queue.span
            full = f"{name} has {process_queue.load} over a span of {span}"
        else:
            return False
        if self._rests % LOG_EACH == 0:
            log.warning(
                "%s: pulling rests until poll() takes some, %d times", full, self._rests + 1
            )
        self._rests += 1
        return True
