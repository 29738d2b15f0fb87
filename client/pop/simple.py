"""The simple consumer: messages are invisible for a while and return unless acknowledged.

Pop consumption. The broker tracks each message and assigns no queues, so any number of members may
read the same queue, and a slow one does not block the others.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable

from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.heartbeat import ConsumerData
from ...protocol.bodies.route import MASTER_ID
from ...protocol.message import pop_handles
from ..base.identity import monotonic, now_ms
from ..base.lifecycle import Startable
from ..base.message_view import MessageView
from ..base.security import OPEN, Security
from ..base.start_from import FIRST, Start
from ..cluster.cluster import Cluster
from ..errors import AerobeeError, ClientError, ClosedError, NoRouteError
from ..group.membership import Membership, NameServer
from ..group.passive_member import PassiveMember
from ..group.subscriptions import Topics, subscriptions_of
from . import acks as pop_acks
from .popping import Popped, pop

log = logging.getLogger(__name__)

INVISIBLE_SECONDS = 60.0  # popInvisibleTime
INVISIBLE_SECONDS_MIN, INVISIBLE_SECONDS_MAX = 0.01, 12 * 3600.0
WAIT_SECONDS = 15.0  # brokerSuspendMaxTimeMillis
BATCH_MAX = 32  # messages, of one pop; brokers refuse more
FAILED_SECONDS = 1.0  # pause after a failure of a broker


class PoppedMessage(MessageView):
    """A message that is invisible to others until `visible_again_ms`; `ack()` it before that."""

    __slots__ = ("_consumer", "_expires_at", "handle", "visible_again_ms")

    def __init__(self, popped: Popped, consumer: "SimpleConsumer") -> None:
        super().__init__(popped.record, popped.process_queue)
        self._consumer = consumer
        self.reconsume_times = popped.times
        self._take(popped.handle, popped.came_at)

    def _take(self, handle: str, since: float) -> None:
        self.handle = handle
        parsed = pop_handles.parse_handle(handle)
        self.visible_again_ms = parsed.pop_ms + parsed.invisible_ms
        self._expires_at = since + parsed.invisible_ms / 1000  # whatever the broker's clock shows

    @property
    def is_expired(self) -> bool:
        """Others may have it by now."""
        return monotonic() >= self._expires_at

    async def ack(self) -> None:
        """Acknowledge it; BrokerError or ClientError if that fails."""
        await self._consumer.ack(self)

    async def change_invisible_time(self, seconds: float) -> None:
        """Extend the invisible time from now; a short time releases it early."""
        await self._consumer.change_invisible_time(self, seconds)


class SimpleConsumer(Startable, PassiveMember):
    """Takes messages of topics as a member of a group.

        async with SimpleConsumer("127.0.0.1:9876", group="mail", topics=["orders"]) as consumer:
            for message in await consumer.receive(max_messages=16):
                ...
                await message.ack()

    `topics` and `start` are as for `Consumer`.
    """

    def __init__(
        self,
        name_server: NameServer = None,
        *,
        group: str,
        topics: Topics,
        start: Start = "latest",
        client_id: str | None = None,
        namespace: str = "",
        security: Security = OPEN,
    ) -> None:
        self._membership = Membership.read(
            name_server,
            group,
            start=start,
            client_id=client_id,
            namespace=namespace,
            security=security,
        )
        self.group = self._membership.group
        self._wanted = subscriptions_of(self.group, topics, namespace=namespace, with_retries=False)
        self._pending: dict[tuple[str, str], asyncio.Task[list[Popped]]] = {}
        self._ready: deque[PoppedMessage] = deque()
        self._failed: dict[tuple[str, str], float] = {}
        self._acks: dict[asyncio.Task[None], None] = {}  # of messages with another tag
        self._cluster: Cluster | None = None
        self._closed = False
        self._started_ms = 0

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group. UnreachableError if no name server responds."""
        if self._closed:
            raise ClosedError("this consumer is closed; make a new one")
        if self._cluster is not None:
            return
        cluster = self._cluster = self._membership.open_cluster()
        self._started_ms = now_ms()
        cluster.join_consumer(self)
        for topic in self._wanted:
            try:
                await cluster.route(topic)
            except NoRouteError as unknown:
                log.warning("group %s waits for topic %s: %s", self.group, topic, unknown)
        await cluster.beat()
        cluster.start()

    async def close(self) -> None:
        """Leave the group; unacknowledged messages return when their time is up."""
        if self._closed:
            return
        if self._cluster is not None:
            self._cluster.check_loop()
        if self._acks:
            await asyncio.wait(self._acks, timeout=pop_acks.ACK_SECONDS)
        self._closed = True
        pending = [*self._pending.values(), *self._acks]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        cluster = self._cluster
        if cluster is None:
            return
        await self._membership.leave(cluster, self)

    # --- messages -------------------------------------------------------------------------------

    async def receive(
        self,
        max_messages: int = BATCH_MAX,
        *,
        invisible: float = INVISIBLE_SECONDS,
        timeout: float = WAIT_SECONDS,  # noqa: ASYNC109
    ) -> list[PoppedMessage]:
        """Receive 1 to `max_messages` messages; none after `timeout` seconds without any.

        They are invisible to the other members for `invisible` seconds.
        """
        self._open()
        if not 1 <= max_messages <= BATCH_MAX:
            raise ClientError(f"max_messages is {max_messages}; give 1 to {BATCH_MAX}")
        if timeout < 0:
            raise ClientError(f"timeout is {timeout:g}; give seconds of 0 or more")
        invisible_ms = _checked_ms(invisible)
        time = asyncio.get_running_loop().time
        deadline = time() + timeout
        while not self._ready:
            left = deadline - time()
            await self._ask_all(max_messages, invisible_ms, max(0, round(left * 1000)))
            if not self._pending:
                if left <= FAILED_SECONDS:
                    break
                await asyncio.sleep(FAILED_SECONDS)
                continue
            done, _ = await asyncio.wait(
                self._pending.values(),
                timeout=max(left, 0) + pop_acks.ACK_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
            self._gather(done)
            if time() >= deadline and not self._ready:
                break
        found: list[PoppedMessage] = []
        while self._ready and len(found) < max_messages:
            message = self._ready.popleft()
            if not message.is_expired:
                found.append(message)
        return found

    async def ack(self, message: PoppedMessage) -> None:
        """Acknowledge a message; BrokerError or ClientError if that fails."""
        await pop_acks.ack(self._open(), self.group, message.queue, message.handle, message.offset)

    async def change_invisible_time(self, message: PoppedMessage, seconds: float) -> None:
        """Extend a message's invisible time from now; a short time releases it early."""
        began = monotonic()
        message._take(
            await pop_acks.change_invisible_time(
                self._open(),
                self.group,
                message.queue,
                message.handle,
                message.offset,
                _checked_ms(seconds),
            ),
            began,
        )

    # --- inside ---------------------------------------------------------------------------------

    async def _ask_all(self, max_messages: int, invisible_ms: int, poll_ms: int) -> None:
        """Keep one pop pending for each topic and broker that may have messages."""
        cluster, now = self._open(), asyncio.get_running_loop().time()
        for topic, wanted in self._wanted.items():
            try:
                route = await cluster.route(topic)
            except AerobeeError as wrong:
                log.debug("topic %s is not there: %s", topic, wrong)
                continue
            for name in route.broker_names:
                place = (topic, name)
                if place in self._pending or MASTER_ID not in route.brokers.get(name, ()):
                    continue
                if now - self._failed.get(place, -FAILED_SECONDS) < FAILED_SECONDS:
                    continue
                work = pop(
                    cluster,
                    self.group,
                    topic,
                    name,
                    wanted,
                    max_messages=max_messages,
                    invisible_ms=invisible_ms,
                    poll_ms=poll_ms,
                    from_start=self._membership.start.where == FIRST,
                    namespace=self._membership.namespace,
                )
                task = asyncio.create_task(work, name=f"pop {topic} on {name}")
                self._pending[place] = task

    def _gather(self, done: "Iterable[asyncio.Task[list[Popped]]]") -> None:
        finished = set(done)
        for place, task in list(self._pending.items()):
            if task not in finished:
                continue
            del self._pending[place]
            try:
                for popped in task.result():
                    message = PoppedMessage(popped, self)
                    if popped.is_wanted:
                        self._ready.append(message)
                    else:  # the group does not subscribe to it, so it must not return
                        self._in_background(message)
            except (AerobeeError, ValueError) as wrong:
                log.warning("next try in %g s: %s", FAILED_SECONDS, wrong)
                self._failed[place] = asyncio.get_running_loop().time()

    def _in_background(self, message: PoppedMessage) -> None:
        async def acknowledge() -> None:
            try:
                await message.ack()
            except AerobeeError as wrong:
                log.warning("%r, whose tag is not wanted, comes again: %s", message, wrong)

        task = asyncio.create_task(acknowledge(), name=f"pop-ack-{self.group}")
        self._acks[task] = None
        task.add_done_callback(self._acks.pop)

    def _open(self) -> Cluster:
        if self._cluster is None or self._closed:
            raise ClosedError("this consumer is not running; use `async with` or start()")
        self._cluster.check_loop()
        return self._cluster

    # --- for brokers and the client: ConsumerMember ---------------------------------------------

    async def persist(self) -> None:
        """Do nothing: the broker keeps track."""

    def consumer_data(self) -> ConsumerData:
        """The entry of this member in the heartbeat."""
        where = self._membership.start.where
        return self._membership.consumer_data("CONSUME_POP", where, self._wanted)

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Do nothing: the broker has reset them."""

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]:
        """None: the broker has them."""
        return {}


def _checked_ms(seconds: float) -> int:
    if not INVISIBLE_SECONDS_MIN <= seconds <= INVISIBLE_SECONDS_MAX:
        raise ClientError(
            f"the invisible time is {seconds:g} s; give {INVISIBLE_SECONDS_MIN:g} to "
            f"{INVISIBLE_SECONDS_MAX:g}"
        )
    return round(seconds * 1000)
