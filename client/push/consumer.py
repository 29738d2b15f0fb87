"""The push consumer on asyncio: a group's messages as an async iterator, or to a listener.

True at all times: a message is in the inbox, with the application, or settled; the group's offset
never passes a message that is not settled. Failures of background work are logged and tried again.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace

from ...protocol.bodies.body import MessageQueue
from ...protocol.message.pop_handles import normal_topic
from ...protocol.names import RETRY_PREFIX, with_namespace
from ...protocol.queues.allocation import Strategy
from ..base.failures import log_failure
from ..base.identity import now_ms
from ..base.lifecycle import Startable
from ..base.security import OPEN, Security
from ..base.start_from import Start
from ..base.stop_signals import Stop, stop_signals, until_stopped
from ..cluster import rebalance_service
from ..errors import ClientError, ClosedError, NoRouteError
from ..group.broker_rebalance import changed_retries
from ..group.inbox import Inbox
from ..group.local_offsets import FOLDER
from ..group.membership import Membership, NameServer
from ..group.process_queue import Limits
from ..group.pull import PullSettings
from ..group.rebalance import Share
from ..group.rebalancing import QueuesListener, Rebalancing
from ..group.received import ReceivedMessage
from ..group.subscriptions import (
    Expression,
    Topics,
    check_with_broker,
    subscription_of,
    subscriptions_of,
)
from ..producer.trace import trace_topic
from .concurrent import ConsumeSettings
from .popped_queues import PopSettings
from .receiving import Receiving
from .service import PushService, PushSettings

log = logging.getLogger(__name__)


class Consumer(Startable, Receiving):
    """Consumes topics as a member of a group.

        async with Consumer(
            "127.0.0.1:9876", group="billing", topics={"orders": "paid || refunded"}
        ) as consumer:
            async for message in consumer:
                async with message.process():
                    ...

    or with a listener, called for several messages at the same time:

        consumer = Consumer("127.0.0.1:9876", group="billing", topics=["orders"])

        @consumer.listener(concurrency=20)
        async def bill(message): ...

        await consumer.run()

    `name_server` is "host:port;host:port", a list of addresses, or a `Cluster` to share. `topics`
    is a list of names or a mapping from name to tag expression ("*" for all) or `by_sql("amount >
    10")`. `start` is the start position of a new group: "latest", "earliest", a datetime or ms
    since the epoch; it is ignored once the group has an offset. (Brokers start a new group at the
    oldest message while a queue is young, also for "latest".) With `ordered` each message of a
    queue is delivered after the previous one is settled; a failed message blocks its queue. `model`
    "broadcasting" delivers every message to every member and drops failed messages. `strategy`
    assigns queues to members: "AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH" (for groups whose size
    changes often), or a function as in `protocol.queues.allocation`. `on_queues` is called on
    changes. With `trace` (True, or a topic) deliveries are recorded in the trace topic. Without
    `client_rebalance` the brokers assign the queues, by "AVG" or "AVG_BY_CIRCLE", and messages are
    popped (see `PopSettings`) where an administrator has set that with `mqadmin setConsumeMode` or
    `Admin.set_request_mode`. Ordered and broadcasting consumers always assign their queues
    themselves.

    Every message must be settled, by `process()`, `ack()` or `nack()`; pulling stops at
    `limits.messages_max` unsettled messages per queue, and unsettled messages are delivered again
    after a restart. Several tasks may iterate over one consumer.
    """

    def __init__(
        self,
        name_server: NameServer = None,
        *,
        group: str,
        topics: Topics,
        start: Start = "latest",
        model: str = "clustering",
        ordered: bool = False,
        strategy: str | Strategy = "AVG",
        max_reconsume_times: int | None = None,
        limits: Limits | None = None,
        pull: PullSettings | None = None,
        consume: ConsumeSettings | None = None,
        client_id: str | None = None,
        instance: str | None = None,
        namespace: str = "",
        offsets_folder: str | os.PathLike[str] = FOLDER,
        on_queues: QueuesListener | None = None,
        security: Security = OPEN,
        trace: bool | str = False,
        client_rebalance: bool = True,
        pop: PopSettings | None = None,
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
        self._subscriptions = subscriptions_of(
            self.group,
            topics,
            namespace=namespace,
            with_retries=self._membership.is_clustering,
        )
        consume = consume or ConsumeSettings()
        if max_reconsume_times is not None:
            consume = replace(consume, max_reconsume_times=max_reconsume_times)
        self._settings = PushSettings(
            ordered,
            limits or Limits(),
            pull or PullSettings(),
            consume,
            None,
            trace_topic(trace),
            None if client_rebalance else pop or PopSettings(),
        )
        self._on_queues = on_queues
        self._inbox: Inbox[ReceivedMessage] = Inbox()
        self._rebalancing = Rebalancing()
        self._changing = asyncio.Lock()
        self._ended = asyncio.Event()
        self._started_ms = 0
        self._closed = False
        self._draining = False
        self._service: PushService | None = None

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group and start pulling. UnreachableError if no name server responds.

        ClientError if this process already has a consumer of the group in this client, if a broker
        rejects a condition, or if the offset file of a broadcasting group can't be read. A consumer
        whose start failed is closed.
        """
        if self._closed:
            raise ClosedError("this consumer is closed; make a new one")
        if self._service is not None:
            return
        service = PushService(self._membership, self._settings, self._subscriptions, self._inbox)
        self._service = service
        self._started_ms = now_ms()
        try:
            await self._join(service)
        except BaseException:
            await self.close()
            raise

    async def _join(self, service: PushService) -> None:
        await service.store.load()
        service.cluster.join_consumer(self)
        for topic in self._subscriptions:
            try:
                await service.cluster.route(topic)
            except NoRouteError:
                continue  # it may be made later; the rebalance says so in the log
        await check_with_broker(service.cluster, self.group, self._subscriptions)
        await service.cluster.beat()
        await service.start()
        service.cluster.start()
        service.cluster.rebalance_soon()

    async def run(self, *, handle_signals: bool = True, drain_timeout: float | None = None) -> None:
        """Start, and call the listener until the consumer is stopped.

        SIGINT (Ctrl-C) and SIGTERM stop it: it starts no further call of the listener, waits for
        running calls (at most `drain_timeout` seconds), commits and leaves the group. Messages that
        wait in the client go to other members. A second signal stops at once. Signal handlers are
        not installed with `handle_signals` False, outside the main thread, or in a program with its
        own SIGTERM handler. `drain()` and `close()` from another task stop it, too.
        """
        self._check_listener()
        stop = Stop()
        with stop_signals(stop.tell) if handle_signals else nullcontext():
            async with self:
                await self.run_until(stop, drain_timeout)

    async def run_until(self, stop: Stop, drain_timeout: float | None) -> None:
        """The body of `run` after the start, until `stop` is signalled."""
        self._check_listener()
        name = f"group {self.group}"
        await until_stopped(name, stop, self._ended, lambda: self._finish(drain_timeout))

    def _check_listener(self) -> None:
        if self._settings.listener is None:
            raise ClientError("this consumer has no listener; give it one with @consumer.listener")

    async def drain(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109
        """Stop pulling, wait until all received messages are settled, commit and leave the group.

        False if `timeout` seconds were not enough; open messages are then delivered to other
        members.
        """
        return await self._leave_after(self._open().drain, timeout)

    async def _finish(self, timeout: float | None) -> bool:  # noqa: ASYNC109
        """Like `drain`, but wait only for running calls of the listener."""
        workers = self._open().workers
        assert workers is not None
        return await self._leave_after(workers.finish, timeout)

    async def _leave_after(
        self,
        work: Callable[[], Awaitable[None]],
        timeout: float | None,  # noqa: ASYNC109
    ) -> bool:
        self._draining = True
        try:
            async with asyncio.timeout(timeout):
                async with self._changing:
                    await work()
        except TimeoutError:
            return False
        else:
            return True
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop pulling, commit settled messages, leave the group. May be called twice."""
        if self._closed:
            return
        if self._service is not None:
            self._service.cluster.check_loop()
        self._closed = True
        await self._rebalancing.close()
        self._inbox.close()
        if self._service is not None:
            await self._service.close()
            await self._membership.leave(self._service.cluster, self)
        self._ended.set()

    # --- topics and queues ----------------------------------------------------------------------

    async def subscribe(self, topic: str, expression: str | Expression = "*") -> None:
        """Subscribe a topic, or change the expression of one."""
        name = with_namespace(topic, self._membership.namespace)
        self._subscriptions[name] = subscription_of(name, expression)
        await self._resubscribed()

    async def unsubscribe(self, topic: str) -> None:
        """Unsubscribe a topic; its queues are committed and released."""
        self._subscriptions.pop(with_namespace(topic, self._membership.namespace), None)
        await self._resubscribed()

    async def _resubscribed(self) -> None:
        if self._service is not None and not self._closed:
            cluster = self._service.cluster
            await check_with_broker(cluster, self.group, self._subscriptions)
            await cluster.beat()
            cluster.rebalance_soon()

    @property
    def queues(self) -> list[MessageQueue]:
        """The assigned queues, sorted, without those of the retry topic.

        If a broker lets all members pop all of its queues, there is one queue with the id -1.
        """
        if self._service is None:
            return []
        return sorted(
            queue for queue in self._service.queues if not queue.topic.startswith(RETRY_PREFIX)
        )

    async def rebalance(self) -> float:
        """Rebalance now; returns the seconds until the next rebalance."""
        self._open()
        return await self._rebalancing.run(self._rebalance(), self.group)

    # --- inside ---------------------------------------------------------------------------------

    def _open(self) -> PushService:
        if self._service is None:
            raise ClosedError("this consumer is not started; use `async with` or start()")
        self._service.cluster.check_loop()
        return self._service

    async def _rebalance(self) -> float:
        service, topics = self._open(), list(self._subscriptions)
        async with self._changing:
            if self._closed or self._draining:
                return rebalance_service.SECONDS
            before = set(service.queues)
            complete = await service.keep_topics(topics)
            shares = await service.rebalance.shares(topics)
            self._follow_modes(shares)
            complete &= await service.become(shares)
            changed = {queue.topic for queue in before.symmetric_difference(service.queues)}
        for topic in changed:
            share = shares.get(topic)
            self._tell(topic, share.every if share else [])
        service.compare_members(self._subscriptions)
        if not complete:
            return rebalance_service.MIN_SECONDS
        if len(shares) < len(topics):
            return rebalance_service.MISSING_TOPIC_SECONDS
        return rebalance_service.SECONDS

    def _follow_modes(self, shares: Mapping[str, Share]) -> None:
        """Subscribe the retry topics of topics that changed from pop to pull, and the reverse."""
        service = self._open()
        if service.popped is None:
            return
        for name, is_pulled in changed_retries(shares, self.group, self._subscriptions).items():
            if is_pulled:
                self._subscriptions[name] = subscription_of(name, "*")
                service.assigned.pop_retries[name] = normal_topic(name, self.group)
                service.cluster.rebalance_soon()
            else:
                del self._subscriptions[name]

    def _tell(self, topic: str, every: list[MessageQueue]) -> None:
        if self._on_queues is None or topic.startswith(RETRY_PREFIX):
            return
        try:
            self._on_queues(topic, every, [each for each in self.queues if each.topic == topic])
        except Exception as wrong:
            log_failure(log, wrong, "on_queues failed for topic %s", topic)
