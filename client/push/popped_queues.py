"""The popped queues of this member: one task per assignment, which pops in a loop.

A popped queue has no owner: there is no offset to continue from and no hand-over. A released queue
is not popped any more, and its messages in this client are ignored.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.running import PopProcessQueueInfo
from ...protocol.bodies.subscription import SubscriptionData
from ..base.arguments import check_count, check_type
from ..base.identity import monotonic, now_ms
from ..cluster.cluster import Cluster
from ..errors import AerobeeError, BrokerError, ClientError
from ..group.consume_stats import ConsumeStats
from ..group.process_queue import ProcessQueue, name_of
from ..pop.popping import pop
from .pop_service import InFlightMessages, PopService
from .pulling import FLOW_CONTROL_SECONDS, PullLoop

log = logging.getLogger(__name__)

INVISIBLE_SECONDS = 60.0  # popInvisibleTime
INVISIBLE_SECONDS_MIN, INVISIBLE_SECONDS_MAX = 5.0, 300.0
BATCH = 32  # popBatchNums; brokers refuse more
OPEN_MAX = 96  # popThresholdForQueue, messages
POLL_MS = 15_000  # brokerSuspendMaxTimeMillis
AGAIN_SECONDS = 1.0  # pullTimeDelayMillsWhenException


@dataclass(frozen=True, slots=True)
class PopSettings:
    """Settings of a push consumer's pops, which it does where its broker tells it to pop.

    A message stays invisible to the other members for `invisible_s` seconds. At most `batch`
    messages come at a time, 1 to 32, and none while more than `messages_max` of a queue are
    unsettled. ClientError for values out of range.
    """

    invisible_s: float = INVISIBLE_SECONDS
    batch: int = BATCH
    messages_max: int = OPEN_MAX

    def __post_init__(self) -> None:
        check_type("invisible_s", self.invisible_s, (int, float), "give seconds")
        if not INVISIBLE_SECONDS_MIN <= self.invisible_s <= INVISIBLE_SECONDS_MAX:
            raise ClientError(
                f"invisible_s is {self.invisible_s:g}; give {INVISIBLE_SECONDS_MIN:g} to "
                f"{INVISIBLE_SECONDS_MAX:g} seconds"
            )
        check_count("batch", self.batch, 1, BATCH, "messages")
        check_count("messages_max", self.messages_max, 1)


@dataclass(slots=True, eq=False)
class _Place:
    """One assignment: its process queues by id, and its messages in this client."""

    queue: MessageQueue
    process_queues: dict[int, ProcessQueue] = field(default_factory=dict)
    in_flight: InFlightMessages = field(default_factory=InFlightMessages)
    last_pop_ms: int = 0
    task: asyncio.Task[None] | None = None


class PoppedQueues:
    """Pops for one group; `wanted` are its subscriptions, `loop` says whether it is paused."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        service: PopService,
        settings: PopSettings,
        wanted: Mapping[str, SubscriptionData],
        loop: PullLoop,
        stats: ConsumeStats,
        *,
        from_start: bool,
        namespace: str,
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._service = service
        self._settings = settings
        self._wanted = wanted
        self._loop = loop
        self._stats = stats
        self._from_start = from_start
        self._namespace = namespace
        self._places: dict[MessageQueue, _Place] = {}

    @property
    def queues(self) -> list[MessageQueue]:
        """The assignments that are popped now."""
        return list(self._places)

    def become(self, assigned: Mapping[str, Iterable[MessageQueue]]) -> None:
        """Pop the queues of `assigned`, by topic, and no others of these topics."""
        wanted = {queue for queues in assigned.values() for queue in queues}
        self._leave(lambda queue: queue.topic in assigned and queue not in wanted)
        for queue in sorted(wanted - self._places.keys()):
            place = self._places[queue] = _Place(queue)
            place.task = asyncio.create_task(self._run(place), name=f"pop {name_of(queue)}")
            log.info("popping %s", name_of(queue))

    def keep_topics(self, topics: Iterable[str]) -> None:
        """Release all other topics, which are not subscribed any more."""
        known = set(topics)
        self._leave(lambda queue: queue.topic not in known)

    def infos(self) -> dict[MessageQueue, PopProcessQueueInfo]:
        """The state of each assignment, as brokers ask for it."""
        return {
            queue: PopProcessQueueInfo(len(place.in_flight), False, place.last_pop_ms)
            for queue, place in self._places.items()
        }

    async def drain(self) -> None:
        """Stop popping and wait until all received messages are settled or have expired."""
        await self._stop(self._places.values())
        for place in self._places.values():
            await place.in_flight.at_most(0)

    async def close(self) -> None:
        """Stop popping; unsettled messages return when their time is up."""
        places = list(self._places.values())
        self._leave(lambda _: True)
        await self._stop(places)
        await self._service.close()

    # --- inside ---------------------------------------------------------------------------------

    def _leave(self, is_going: Callable[[MessageQueue], bool]) -> None:
        for queue in [queue for queue in self._places if is_going(queue)]:
            place = self._places.pop(queue)
            for process_queue in place.process_queues.values():
                process_queue.drop()
            assert place.task is not None
            place.task.cancel()
            log.info("popping %s no more", name_of(queue))

    async def _stop(self, places: Iterable[_Place]) -> None:
        tasks = [place.task for place in places if place.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, place: _Place) -> None:
        queue = place.queue
        while True:
            await self._loop.going()
            await place.in_flight.at_most(self._settings.messages_max)
            subscription = self._wanted.get(queue.topic)
            if subscription is None:
                return  # unsubscribed: the next rebalance lets go of it
            try:
                await self._pop(place, subscription)
                continue
            except BrokerError as wrong:
                wait = AGAIN_SECONDS
                if wrong.code == codes.FLOW_CONTROL:
                    wait = FLOW_CONTROL_SECONDS
                else:
                    log.warning("next try in %g s: %s", wait, wrong)
            except AerobeeError as wrong:
                wait = AGAIN_SECONDS
                log.warning("popping %s, next try in %g s: %s", name_of(queue), wait, wrong)
            except Exception:
                wait = AGAIN_SECONDS
                log.exception("popping %s failed; next try in %g s", name_of(queue), wait)
            await asyncio.sleep(wait)

    async def _pop(self, place: _Place, subscription: SubscriptionData) -> None:
        queue, settings, stats = place.queue, self._settings, self._stats.of(place.queue.topic)
        began = monotonic()
        place.last_pop_ms = now_ms()
        found = await pop(
            self._cluster,
            self._group,
            queue.topic,
            queue.broker_name,
            subscription,
            max_messages=settings.batch,
            invisible_ms=round(settings.invisible_s * 1000),
            poll_ms=POLL_MS,
            from_start=self._from_start,
            namespace=self._namespace,
            queue_id=queue.queue_id,
            process_queues=place.process_queues,
            stats=stats,
        )
        if found:
            came = monotonic()
            stats.pulls += 1
            stats.pulled += len(found)
            stats.pull_seconds += came - began
            self._service.deliver(found, came + settings.invisible_s, place.in_flight)
