"""Forwards messages that become due at an acting master: other brokers take them.

Each kind of waiting has a cursor: one for each delay level, the timer's slot, the offset in the
half topic. A cursor passes a message only after another broker has taken it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from ...protocol.message import properties
from ...protocol.message.record import TRANSACTION_MASK, TRANSACTION_PREPARED, Record
from ...store.base.errors import StoreError
from ...store.engine.messages import Message
from ...store.timer.timer_log import WHEEL_TOPIC
from ..scheduled.delays import Delays
from ..scheduled.real_destination import number_of
from ..transactions.transactions import Transactions
from .remote_delivery import MESSAGES_MAX, ForwardedMessage, RemoteDelivery
from .timers import ActingWork

log = logging.getLogger(__name__)

IDLE_SECONDS = 0.05  # how late a message may be sent
CHECK_SECONDS = 1.0  # between two checks of half messages
FAILED_SECONDS = 1.0  # after a read of the store that failed
# They would have the other broker delay the message once more, or name a place on this broker.
WAITING = (
    properties.REAL_TOPIC,
    properties.REAL_QID,
    properties.DELAY,
    properties.TIMER_DELAY_SEC,
    properties.TIMER_DELAY_MS,
    properties.TIMER_DELIVER_MS,
    properties.TIMER_ENQUEUE_MS,
    properties.TIMER_DEQUEUE_MS,
    properties.TIMER_ROLL_TIMES,
    properties.TIMER_OUT_MS,
)
HALF = (
    properties.REAL_TOPIC,
    properties.REAL_QID,
    properties.TRAN_PREPARED_QUEUE_OFFSET,
)

Step = Callable[[], Coroutine[Any, Any, bool]]


class DueForwarding:
    """Begun and ended together with the acting. `transactions()` makes a new walk over the half
    topic, from its cursor. `group` stands for a producer group that is not known."""

    def __init__(
        self,
        remote_delivery: RemoteDelivery,
        delays: Delays,
        timers: ActingWork | None,
        transactions: Callable[[], Transactions],
        precision_ms: int,
        group: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._remote_delivery = remote_delivery
        self._delays = delays
        self._timers = timers
        self._transactions = transactions
        self._precision_ms = precision_ms
        self._group = group
        self._now_ms = now_ms
        self._walk: Transactions | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """Forward due messages until `end`."""
        self._walk = self._transactions()
        steps: list[tuple[Step, float]] = [
            (self.send_delayed, IDLE_SECONDS),
            (self.send_half, CHECK_SECONDS),
        ]
        if self._timers is not None:
            self._timers.begin()
            steps.append((self.send_timed, IDLE_SECONDS))
        self._tasks = [
            asyncio.create_task(_repeat(step, idle_s), name=f"acting {step.__name__}")
            for step, idle_s in steps
        ]

    async def end(self) -> None:
        """Stop. A message that is on its way may be sent once more by the master."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._timers is not None:
            self._timers.end()
        self._walk = None

    async def send_delayed(self) -> bool:
        """Send a part of each delay level; True when there was something."""
        found = False
        for level in range(1, self._delays.levels + 1):
            due = self._delays.due(level, self._now_ms(), MESSAGES_MAX)
            messages = [forwarded_due(one, self._group, self._precision_ms) for one in due.copies]
            done: list[bool] = []
            try:
                await self._remote_delivery.send_all(messages, done)
            finally:
                first = _first_missing(done)
                end = due.offset if first == len(messages) else due.before[first]
                self._delays.passed(level, end)
            found = found or bool(due.size)
        return found

    async def send_timed(self) -> bool:
        """Send the timer messages that are due; True when there were some."""
        timers = self._timers
        if timers is None:
            return False
        offers = timers.offers
        if offers.part is None:
            timers.step(self._now_ms(), MESSAGES_MAX)
        if offers.part is None:
            return False
        copies = offers.part.copies
        messages = [forwarded_due(one, self._group, self._precision_ms) for one, _ in copies]
        done: list[bool] = []
        try:
            await self._remote_delivery.send_all(messages, done)
        finally:
            offers.confirm(_first_missing(done))
        return True

    async def send_half(self) -> bool:
        """Send half messages that are to be checked; True when there may be more."""
        walk = self._walk
        if walk is None:
            return False
        waiting = walk.unresolved(self._now_ms(), MESSAGES_MAX)
        messages: list[ForwardedMessage] = [
            forwarded_half(half, self._group) for _, half in waiting.halves
        ]
        done: list[bool] = []
        try:
            await self._remote_delivery.send_all(messages, done)
        finally:
            first = _first_missing(done)
            walk.passed(waiting.end if first == len(messages) else waiting.halves[first][0])
        return bool(messages)


def _first_missing(done: list[bool]) -> int:
    """The number of messages from the front that are done."""
    return done.index(False) if False in done else len(done)


async def _repeat(step: Step, idle_s: float) -> None:
    while True:
        try:
            is_more = await step()
        except StoreError as wrong:
            log.warning("what is due waits, it goes on in %g s: %s", FAILED_SECONDS, wrong)
            await asyncio.sleep(FAILED_SECONDS)
        except Exception:
            log.exception("sending what is due failed; it goes on in %g s", FAILED_SECONDS)
            await asyncio.sleep(FAILED_SECONDS)
        else:
            await asyncio.sleep(0 if is_more else idle_s)


def forwarded_due(message: Message, group: str, precision_ms: int) -> ForwardedMessage:
    """The message to forward for a due one. One for the wheel's topic is not due yet: it
    goes to the other broker as a timer message for its time. `group` is for one without a producer
    group."""
    pairs = properties.decode(message.properties)
    topic = message.key[0]
    out_ms = number_of(pairs.get(properties.TIMER_OUT_MS), -1)
    real_topic = pairs.get(properties.REAL_TOPIC, "")
    for name in WAITING:
        pairs.pop(name, None)
    if topic == WHEEL_TOPIC:
        topic = real_topic
        # A slot has the messages that are due by the end of its tick.
        pairs[properties.TIMER_DELIVER_MS] = str(out_ms + precision_ms)
    return ForwardedMessage(
        topic,
        pairs.get(properties.PGROUP) or group,
        message.flag,
        message.sys_flag & ~TRANSACTION_MASK,
        message.born_ms,
        bytes(message.body),
        properties.encode(pairs).decode(errors="replace"),
        message.reconsume_times,
    )


def forwarded_half(half: Record, group: str) -> ForwardedMessage:
    """The message to forward for a half message: the other broker asks the producer how its
    transaction ended."""
    pairs = half.properties
    topic = pairs.get(properties.REAL_TOPIC, "")
    for name in HALF:
        pairs.pop(name, None)
    pairs[properties.TRAN_MSG] = "true"
    return ForwardedMessage(
        topic,
        pairs.get(properties.PGROUP) or group,
        half.flag,
        half.sys_flag & ~TRANSACTION_MASK | TRANSACTION_PREPARED,
        half.born_ms,
        bytes(half.body),
        properties.encode(pairs).decode(errors="replace"),
        half.reconsume_times,
    )
