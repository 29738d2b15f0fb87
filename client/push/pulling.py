"""The pull loop of one queue: runs as long as the queue is assigned and has room.

Failures are logged and retried after a pause. An offset outside the queue is reported to the owner,
which restarts where the broker says.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from ...protocol import codes
from ...protocol.bodies.subscription import SubscriptionData
from ...protocol.message.record import Record
from ..base.identity import now_ms
from ..cluster.cluster import Cluster
from ..errors import BrokerError, ClientError, is_queue_gone
from ..group.first_offset import FirstOffset
from ..group.process_queue import ProcessQueue, name_of
from ..group.pull import LOST_US, OffsetMoved, Puller

log = logging.getLogger(__name__)

PULL_AGAIN_SECONDS = (1.0, 2.0, 4.0)  # pullTimeDelayMillsWhenException, then growing
FLOW_CONTROL_SECONDS = 0.02  # pullTimeDelayMillsWhenBrokerFlowControl
GONE_SECONDS = 2.0  # more than a rebalance takes to let go of a queue that is gone
NOT_LOCKED_SECONDS = 1.0  # until the next check of the lock on a queue in order
SAY_AGAIN_SECONDS = 300.0  # log an unknown subscription again after this time
NO_ROOM_SECONDS = 60.0  # log a queue that is full for this long

Deliver = Callable[[ProcessQueue, list[Record]], None]
Moved = Callable[[int], None]


class PullLoop:
    """Pulls each assigned queue and passes the messages to `deliver`.

    `is_explained` says whether differing subscriptions in the group are logged already; then errors
    about an unknown subscription are not logged again.
    """

    def __init__(
        self,
        cluster: Cluster,
        puller: Puller,
        subscriptions: Mapping[str, SubscriptionData],
        deliver: Deliver,
        first_offset: FirstOffset,
        *,
        interval_s: float = 0.0,
        in_order: bool = False,
        is_explained: Callable[[], bool] = lambda: False,
    ) -> None:
        self._cluster = cluster
        self._puller = puller
        self._subscriptions = subscriptions
        self._deliver = deliver
        self._first_offset = first_offset
        self._interval_s = interval_s
        self._in_order = in_order
        self._is_explained = is_explained
        self._said_at: dict[str, float] = {}  # by topic, that the broker doesn't know of it
        self._going = asyncio.Event()
        self._going.set()

    def pause(self) -> None:
        """Start no pull until `resume`; a pending one still arrives."""
        self._going.clear()

    def resume(self) -> None:
        """Continue pulling."""
        self._going.set()

    async def going(self) -> None:
        """Wait until it isn't paused."""
        await self._going.wait()

    async def run(self, process_queue: ProcessQueue, moved: Moved) -> None:
        """Pull a queue until it is dropped; `moved` is called with an offset to restart at."""
        try:
            await self._run(process_queue, moved)
        finally:
            self._puller.abandon(process_queue)

    async def _run(self, process_queue: ProcessQueue, moved: Moved) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while not process_queue.dropped:
            wait = PULL_AGAIN_SECONDS[min(failures, len(PULL_AGAIN_SECONDS) - 1)]
            try:
                is_ahead = self._puller.is_ahead(process_queue)
                if not is_ahead and not await self._may_pull(process_queue, loop):
                    continue
                process_queue.last_pull = loop.time()
                process_queue.last_pull_ms = now_ms()
                subscription = self._subscriptions.get(process_queue.queue.topic)
                if subscription is None:
                    return  # unsubscribed: the next rebalance lets go of the queue
                try:
                    records = await self._puller.pull(
                        process_queue, subscription, self._may_pull_ahead
                    )
                except OffsetMoved as gone:
                    offset = await self._first_offset.after(
                        process_queue, process_queue.next_offset, gone.offset, gone.end
                    )
                    if not process_queue.dropped:
                        moved(offset)
                    return
                failures = 0
                if records:
                    self._deliver(process_queue, records)
                if self._interval_s:
                    await asyncio.sleep(self._interval_s)
                continue
            except BrokerError as wrong:
                if wrong.code == codes.FLOW_CONTROL:
                    wait = FLOW_CONTROL_SECONDS
                elif wrong.code in LOST_US:
                    self._say_lost(process_queue.queue.topic, wrong, failures, loop.time())
                elif is_queue_gone(wrong.code, wrong.remark):
                    # Usual once for each queue of a topic that gets fewer: the rebalance drops it.
                    wait = max(wait, GONE_SECONDS)
                    log.log(logging.WARNING if failures else logging.INFO, "%s", wrong)
                    await self._renew_route(process_queue.queue.topic)
                    self._cluster.rebalance_soon()
                else:
                    log.warning("next try in %g s: %s", wait, wrong)
            except ClientError as wrong:
                process_queue.suggested_broker_id = 0
                log.warning(
                    "pulling %s, next try in %g s: %s", name_of(process_queue.queue), wait, wrong
                )
                await self._renew_route(process_queue.queue.topic)  # the broker may have moved
            except Exception:
                log.exception(
                    "pulling %s failed; next try in %g s", name_of(process_queue.queue), wait
                )
            failures += 1
            await asyncio.sleep(wait)

    async def _may_pull(self, process_queue: ProcessQueue, loop: asyncio.AbstractEventLoop) -> bool:
        """Wait until a pull is possible; False if the caller must check again."""
        process_queue.last_pull = loop.time()
        if not self._going.is_set():
            await self._awake(process_queue, self._going)
            return False
        if process_queue.is_full:
            await self._room(process_queue)
            return False
        if self._in_order and not process_queue.is_locked(loop.time()):
            await asyncio.sleep(NOT_LOCKED_SECONDS)
            return False
        return True

    def _may_pull_ahead(self) -> bool:
        """True if only the queue's limits can delay the next pull: no pause, order or interval."""
        return self._going.is_set() and not self._in_order and not self._interval_s

    async def _awake(self, process_queue: ProcessQueue, event: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(NO_ROOM_SECONDS):
                await event.wait()
        except TimeoutError:
            log.debug("%s is still paused", name_of(process_queue.queue))

    async def _room(self, process_queue: ProcessQueue) -> None:
        try:
            async with asyncio.timeout(NO_ROOM_SECONDS):
                await process_queue.room()
        except TimeoutError:
            log.warning(
                "%s has been full for %g s with %s; settle messages with process(), ack() or "
                "nack(), or raise the consumer's limits",
                name_of(process_queue.queue),
                NO_ROOM_SECONDS,
                process_queue.load,
            )

    def _say_lost(self, topic: str, wrong: BrokerError, failures: int, now: float) -> None:
        """Log that the broker does not know the subscription, if it persists after a heartbeat."""
        log.debug("pulling %s failed: %s", topic, wrong)
        said_at = self._said_at.get(topic)
        is_said = said_at is not None and now - said_at < SAY_AGAIN_SECONDS
        if not failures or is_said or self._is_explained():
            return
        self._said_at[topic] = now
        log.warning(
            "%s; it goes on like this while another member of the group subscribes to other topics "
            "or expressions: give all members the same, or each its own group. Trying again, "
            "without a word for %g s",
            wrong,
            SAY_AGAIN_SECONDS,
        )

    async def _renew_route(self, topic: str) -> None:
        try:
            await self._cluster.route(topic, fresh=True)
        except (ClientError, BrokerError) as wrong:
            log.debug("keeping the last known route of topic %s: %s", topic, wrong)
