"""The lite pull consumer: the application asks for messages with poll(), and commits offsets.

Either it subscribes topics and shares their queues with its group, or it assigns itself queues;
never both. What poll() gave is committed with a later poll (or by `commit`), so a crash in between
gives it again.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable

from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.subscription import SubscriptionData
from ...protocol.names import with_namespace
from ...protocol.queues.allocation import Strategy
from ..base.failures import log_failure
from ..base.identity import now_ms
from ..base.lifecycle import Startable
from ..base.message_view import MessageView
from ..base.security import OPEN, Security
from ..base.start_from import Start
from ..cluster import rebalance_service
from ..cluster.cluster import every
from ..errors import ClientError, ClosedError, NoRouteError
from ..group.inbox import Inbox
from ..group.local_offsets import FOLDER
from ..group.membership import Membership, NameServer
from ..group.offsets import persist_surely
from ..group.rebalancing import QueuesListener, Rebalancing
from ..group.subscriptions import Expression, check_with_broker, subscription_of
from ..producer.trace import trace_topic
from ..push.tracing import ConsumeReturn
from .assigned import UNKNOWN
from .lite_offsets import LiteOffsets
from .lite_pulling import LitePullSettings, Pulled
from .lite_service import LiteService

log = logging.getLogger(__name__)

AUTO_COMMIT_SECONDS = 5.0
POLL_SECONDS = 5.0
TOPIC_CHECK_SECONDS, FIRST_TOPIC_CHECK_SECONDS = 30.0, 10.0  # topicMetadataCheckIntervalMillis

# Called with a topic and all of its queues.
TopicListener = Callable[[str, list[MessageQueue]], None]


class LitePullConsumer(Startable, LiteOffsets):
    """Polls topics or queues.

        async with LitePullConsumer("127.0.0.1:9876", group="billing") as consumer:
            await consumer.subscribe("orders", "paid || refunded")
            while True:
                for message in await consumer.poll():
                    ...

    The arguments have the meaning they have for `Consumer`. With `auto_commit` poll commits the
    polled messages every `auto_commit_s` seconds; otherwise call `commit`. With `trace` (True, or a
    topic) polled messages are recorded in the trace topic.
    """

    def __init__(
        self,
        name_server: NameServer = None,
        *,
        group: str,
        start: Start = "latest",
        model: str = "clustering",
        strategy: str | Strategy = "AVG",
        auto_commit: bool = True,
        auto_commit_s: float = AUTO_COMMIT_SECONDS,
        pull: LitePullSettings | None = None,
        client_id: str | None = None,
        instance: str | None = None,
        namespace: str = "",
        offsets_folder: str | os.PathLike[str] = FOLDER,
        security: Security = OPEN,
        trace: bool | str = False,
    ) -> None:
        self._membership = Membership.read(
            name_server,
            group,
            model=model,
            start=start,
            strategy=strategy,
            client_id=client_id,
            instance=instance,
            namespace=namespace,
            offsets_folder=offsets_folder,
            security=security,
        )
        self.group = self._membership.group
        self.auto_commit = auto_commit
        self._auto_commit_s = auto_commit_s
        self._next_commit = 0.0
        self._settings = pull or LitePullSettings()
        self._trace_topic = trace_topic(trace)
        self._mode = ""
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._expressions: dict[str, SubscriptionData] = {}  # of assigned topics
        self._assigned: list[MessageQueue] = []
        self._listeners: dict[str, QueuesListener] = {}
        self._topic_listeners: dict[str, TopicListener] = {}
        self._topic_queues: dict[str, list[MessageQueue]] = {}
        self._cache: Inbox[Pulled] = Inbox()
        self._changing = asyncio.Lock()
        self._rebalancing = Rebalancing()
        self._upkeep: asyncio.Task[None] | None = None
        self._started_ms = 0
        self._closed = False
        self._service: LiteService | None = None

    # --- life -----------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """True from the start of this consumer until it is closed."""
        return self._service is not None and not self._closed

    async def start(self) -> None:
        """Join the group and start pulling the topics or queues chosen before.

        A consumer whose start failed is closed.
        """
        if self._closed:
            raise ClosedError("this consumer is closed; make a new one")
        if self._service is not None:
            return
        service = LiteService(
            self._membership, self._settings, self._subscription, self._cache, self._trace_topic
        )
        self._service = service
        self._started_ms = now_ms()
        try:
            await self._join(service)
        except BaseException:
            await self.close()
            raise

    async def _join(self, service: LiteService) -> None:
        await service.store.load()
        service.cluster.join_consumer(self)
        await self._resubscribed()
        await service.start()
        service.cluster.start()
        if self._assigned:
            await self._look_up(queue.topic for queue in self._assigned)
            service.queues.become(self._assigned)
        for topic in self._topic_listeners:
            self._topic_queues[topic] = await self.fetch_queues(topic)
        watching = every(
            TOPIC_CHECK_SECONDS, self._check_topics, "checking topics", FIRST_TOPIC_CHECK_SECONDS
        )
        self._upkeep = asyncio.create_task(watching, name=f"topics-{self.group}")

    async def close(self) -> None:
        """Stop pulling, persist committed offsets, leave the group. May be called twice."""
        if self._closed:
            return
        if self._service is not None:
            self._service.cluster.check_loop()
        self._closed = True
        if self._upkeep is not None:
            self._upkeep.cancel()
            await asyncio.gather(self._upkeep, return_exceptions=True)
        await self._rebalancing.close()
        self._cache.close()
        if self._service is None:
            return
        await self._service.close()
        await self._membership.leave(self._service.cluster, self)

    # --- topics and queues ----------------------------------------------------------------------

    async def subscribe(
        self,
        topic: str,
        expression: str | Expression = "*",
        on_queues: QueuesListener | None = None,
    ) -> None:
        """Subscribe a topic, whose queues are divided among the group; `on_queues` is called on
        changes.

        ClientError if this consumer assigns its queues itself.
        """
        self._set_mode("subscribe")
        name = with_namespace(topic, self._membership.namespace)
        self._subscriptions[name] = subscription_of(name, expression)
        if on_queues is not None:
            self._listeners[name] = on_queues
        await self._resubscribed()

    async def unsubscribe(self, topic: str) -> None:
        """Commit and release a topic's queues."""
        name = with_namespace(topic, self._membership.namespace)
        self._subscriptions.pop(name, None)
        if self._service is not None:
            await self._let_go(self._service.queues.become((), name))

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Pull exactly these queues, independent of other members; ClientError after a
        subscribe."""
        wanted = list(queues)
        if not wanted:
            raise ClientError("no queues are given to be assigned; give at least one")
        self._set_mode("assign")
        self._assigned = wanted
        if self._service is not None:
            await self._look_up(queue.topic for queue in wanted)
            self._service.queues.become(wanted)

    def set_expression_for_assign(self, topic: str, expression: str | Expression) -> None:
        """Which messages of an assigned topic are wanted; before the start."""
        if self._service is not None:
            raise ClientError("the expression of an assigned topic is set before the start")
        self._set_mode("assign")
        name = with_namespace(topic, self._membership.namespace)
        self._expressions[name] = subscription_of(name, expression)

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues being pulled, sorted."""
        return sorted(self._open().queues.queues)

    async def fetch_queues(self, topic: str) -> list[MessageQueue]:
        """All readable queues of a topic as they are now; NoRouteError when it is unknown."""
        name = with_namespace(topic, self._membership.namespace)
        return sorted((await self._open().cluster.route(name, fresh=True)).subscribe)

    async def on_topic_change(self, topic: str, listener: TopicListener) -> None:
        """Call `listener` with a topic's queues when they change; checked each 30 s."""
        self._topic_listeners[topic] = listener
        if self._service is not None:
            self._topic_queues[topic] = await self.fetch_queues(topic)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop pulling these until `resume`; messages already received are still polled."""
        self._open().queues.pause(queues, True)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these again."""
        self._open().queues.pause(queues, False)

    # --- messages -------------------------------------------------------------------------------

    async def poll(self, timeout: float = POLL_SECONDS) -> list[MessageView]:  # noqa: ASYNC109
        """Messages of one queue, in order; an empty list after `timeout` seconds without any.

        What earlier polls gave is committed now and then, if `auto_commit` is set.
        """
        service = self._open()
        if timeout < 0:
            raise ClientError(f"timeout is {timeout:g}; give seconds of 0 or more")
        now = asyncio.get_running_loop().time()
        if self.auto_commit and now >= self._next_commit:
            self._note_consumed(service.queues.queues)
            self._next_commit = now + self._auto_commit_s
        pulled = self._cache.take_now()
        if pulled is None and timeout:
            try:
                async with asyncio.timeout(timeout):
                    pulled = await self._cache.take()
            except TimeoutError:
                return []
        if pulled is None:
            return []
        process_queue = pulled.process_queue
        offset = UNKNOWN
        for message in pulled.messages:
            offset = process_queue.settle(message.offset)
        process_queue.last_settle_ms = now_ms()
        process_queue.stats.ok += len(pulled.messages)
        pulled.state.consume_offset = offset
        if service.trace is not None:
            service.trace.before(pulled.messages)
            service.trace.after(pulled.messages, ConsumeReturn.SUCCESS)
        return pulled.messages

    # --- inside ---------------------------------------------------------------------------------

    def _open(self) -> LiteService:
        if self._service is None or self._closed:
            raise ClosedError("this consumer is not running; use `async with` or start()")
        self._service.cluster.check_loop()
        return self._service

    def _set_mode(self, mode: str) -> None:
        if self._mode not in ("", mode):
            raise ClientError(
                f"this consumer has used {self._mode}; subscribe and assign exclude each other, "
                "make a second consumer"
            )
        self._mode = mode

    def _subscription(self, topic: str) -> SubscriptionData:
        known = self._subscriptions if self._mode == "subscribe" else self._expressions
        return known.get(topic) or subscription_of(topic, "*")

    async def _look_up(self, topics: Iterable[str]) -> None:
        for topic in dict.fromkeys(topics):
            try:
                await self._open().cluster.route(topic)
            except NoRouteError as unknown:
                log.warning("group %s waits for topic %s: %s", self.group, topic, unknown)

    async def _resubscribed(self) -> None:
        if self._service is None:
            return
        cluster = self._service.cluster
        await self._look_up(self._subscriptions)
        await check_with_broker(cluster, self.group, self._subscriptions)
        await cluster.beat()
        cluster.rebalance_soon()

    async def _check_topics(self) -> None:
        for topic, listener in self._topic_listeners.items():
            found = await self.fetch_queues(topic)
            if found != self._topic_queues.get(topic):
                self._topic_queues[topic] = found
                listener(topic, found)

    async def _let_go(self, lost: list[MessageQueue]) -> None:
        store = self._open().store
        await persist_surely(store, lost)
        for queue in lost:
            store.remove(queue)

    # --- queues that come and go ----------------------------------------------------------------

    async def rebalance(self) -> float:
        """Take and release queues as the members are now; seconds until the next check."""
        return await self._rebalancing.run(self._rebalance(), self.group)

    async def _rebalance(self) -> float:
        topics = list(self._subscriptions)
        if self._closed or self._mode != "subscribe":
            return rebalance_service.SECONDS
        async with self._changing:
            service = self._open()
            shares = await service.rebalance.shares(topics)
            for topic, share in shares.items():
                before = {queue for queue in service.queues.queues if queue.topic == topic}
                if topic not in self._subscriptions or before == set(share.mine):
                    continue
                await self._let_go(service.queues.become(share.mine, topic))
                listener = self._listeners.get(topic)
                if listener is not None:
                    try:
                        listener(topic, share.every, share.mine)
                    except Exception as wrong:
                        log_failure(log, wrong, "on_topic_change failed for topic %s", topic)
        if len(shares) < len(topics):
            return rebalance_service.MISSING_TOPIC_SECONDS
        return rebalance_service.SECONDS
