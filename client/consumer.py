"""The push consumer on asyncio: a group's messages as an async iterator.

True at all times: a message is in the inbox, with the application, or settled; the group's offset
never passes a message that is not settled. Failures of background work are logged and tried again.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from ..protocol import codes
from ..protocol.assign import STRATEGIES, Strategy
from ..protocol.bodies.body import MessageQueue
from ..protocol.bodies.heartbeat import ConsumerData
from ..protocol.bodies.running import ConsumerRunningInfo
from ..protocol.bodies.subscription import SubscriptionData, subscription
from ..protocol.command import VERSION, Command
from ..protocol.errors import Refusal
from ..protocol.headers.send import ConsumerSendMsgBack
from ..protocol.names import RETRY_PREFIX, check_group, check_topic
from ..protocol.record import Record, decode_record
from .cluster import Cluster, every
from .errors import BrokerError, ClientError, ClosedError, NoRouteError
from .held_queues import HeldQueues
from .identity import now_ms
from .inbox import Inbox
from .offsets import GroupOffsets
from .process_queue import Limits, ProcessQueue
from .pull import Puller, PullSettings
from .rebalance import Rebalance
from .received import ReceivedMessage
from .start_from import Start, StartFrom

log = logging.getLogger(__name__)

REBALANCE_SECONDS = 20.0
UNBALANCED_SECONDS = 1.0  # until the next try when a queue could not be taken
MISSING_TOPIC_SECONDS = 5.0  # until the next look for a topic without a route
PERSIST_SECONDS = 5.0  # persistConsumerOffsetInterval
SEND_BACK_SECONDS = 5.0
RETRY_LOCALLY_SECONDS = 5.0  # before a message that could not be sent back comes again
DIRECT_SECONDS = 60.0  # for a message that an administrator wants consumed now
RECONSUME_TIMES_MAX = 16  # what Java's concurrent consumers say for "the default"


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a started consumer is made of."""

    cluster: Cluster
    offsets: GroupOffsets
    held: HeldQueues
    rebalance: Rebalance


class Consumer:
    """Consumes topics as a member of a group, in clustering mode.

        async with Consumer(
            "127.0.0.1:9876", group="billing", topics={"orders": "paid || refunded"}
        ) as consumer:
            async for message in consumer:
                async with message.process():
                    ...

    `topics` is a list of names or a mapping from name to tag expression ("*" for all). `start` says
    where a new group begins: "latest", "earliest", a datetime or ms since the epoch; once the group
    has an offset, that counts. (Brokers give the oldest message to a new group while a queue is
    young, also for "latest".) Every message must be settled: by `process()`, `ack()` or `nack()`;
    unsettled ones stop the flow after `limits.messages_max` per queue and come again after a
    restart. Several tasks may iterate over one consumer.
    """

    def __init__(
        self,
        name_server: str | Iterable[str] | None = None,
        *,
        group: str,
        topics: Iterable[str] | Mapping[str, str],
        start: Start = "latest",
        strategy: str | Strategy = "AVG",
        max_reconsume_times: int = RECONSUME_TIMES_MAX,
        limits: Limits | None = None,
        pull: PullSettings | None = None,
        client_id: str | None = None,
    ) -> None:
        try:
            check_group(group)
        except Refusal as refusal:
            raise ClientError(refusal.remark) from None
        self.group = group
        self._name_server = name_server
        self._client_id = client_id
        self._start_from = StartFrom.read(start)
        self._strategy = _strategy(strategy)
        self._subscriptions = _subscriptions(group, topics)
        self._max_reconsume_times = max_reconsume_times
        self._limits = limits or Limits()
        self._pull_settings = pull or PullSettings()
        self._inbox: Inbox[ReceivedMessage] = Inbox()
        self._timers: set[asyncio.TimerHandle] = set()
        self._background: list[asyncio.Task[None]] = []
        self._notice = asyncio.Event()
        self._started_ms = 0
        self._closed = False
        self._parts: _Parts | None = None

    # --- life -----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Join the group and begin to pull. UnreachableError when no name server answers."""
        if self._closed:
            raise ClosedError("this consumer is closed; make a new one")
        if self._parts is not None:
            return
        cluster = Cluster(self._name_server, client_id=self._client_id)
        offsets = GroupOffsets(cluster, self.group)
        puller = Puller(cluster, self.group, offsets, self._pull_settings, self._deliver)
        held = HeldQueues(
            cluster, offsets, puller, self._subscriptions, self._start_from, self._limits
        )
        rebalance = Rebalance(cluster, self.group, self._strategy)
        self._parts = _Parts(cluster, offsets, held, rebalance)
        self._started_ms = now_ms()
        cluster.join_consumer(self)
        for topic in self._subscriptions:
            try:
                await cluster.route(topic)
            except NoRouteError:
                continue  # it may be made later; the rebalance says so in the log
        await cluster.beat()
        cluster.start()
        persisting = every(PERSIST_SECONDS, held.persist, f"persisting offsets of {self.group}")
        self._background = [
            asyncio.create_task(self._keep_balanced(), name=f"rebalance-{self.group}"),
            asyncio.create_task(persisting, name=f"offsets-{self.group}"),
        ]

    async def close(self) -> None:
        """Stop pulling, commit what is settled, leave the group. May be called twice."""
        if self._closed:
            return
        self._closed = True
        for timer in self._timers:
            timer.cancel()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self._inbox.close()
        if self._parts is not None:
            await self._parts.held.close()
            await self._parts.cluster.close()

    # --- messages -------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        message = self._inbox.take_now()
        if message is None:
            self._open()
            message = await self._inbox.take()
        if message is None:
            raise StopAsyncIteration
        return message

    async def receive(
        self,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> ReceivedMessage | None:
        """The next message; None after `timeout` seconds without one, or once closed."""
        message = self._inbox.take_now()
        if message is not None:
            return message
        self._open()
        try:
            async with asyncio.timeout(timeout):
                return await self._inbox.take()
        except TimeoutError:
            return None

    async def receive_batch(
        self,
        messages_max: int = 32,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> list[ReceivedMessage]:
        """The next messages, at least one and at most so many; none as `receive` gives None."""
        first = await self.receive(timeout)
        found = [] if first is None else [first]
        while found and len(found) < messages_max:
            message = self._inbox.take_now()
            if message is None:
                break
            found.append(message)
        return found

    def _deliver(self, held: ProcessQueue, records: list[Record]) -> None:
        self._inbox.put([ReceivedMessage(record, held, self) for record in records])

    def _open(self) -> _Parts:
        if self._parts is None:
            raise ClosedError("this consumer is not started; use `async with` or start()")
        return self._parts

    # --- settling: called by messages -----------------------------------------------------------

    def acknowledge(self, message: ReceivedMessage) -> None:
        """The message is done: the group may move past it."""
        held = message.held
        offset = held.settle(message.offset)
        if offset >= 0:
            self._open().offsets.update(held.queue, offset)

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> None:
        """Give the message back to its broker, which delivers it later; else it waits here."""
        if message.is_void:
            return
        cluster = self._open().cluster
        header = ConsumerSendMsgBack(
            message.record.log_offset,
            self.group,
            delay_level,
            message.msg_id,
            message.topic,
            max_reconsume_times=self._max_reconsume_times,
        )
        try:
            address = cluster.address_of(message.held.queue.broker_name)
            code = codes.CONSUMER_SEND_MSG_BACK
            await cluster.ask(address, code, header, timeout_s=SEND_BACK_SECONDS)
        except (ClientError, BrokerError) as wrong:
            log.warning(
                "message %s could not be sent back, it comes again here in %g s: %s",
                message.msg_id,
                RETRY_LOCALLY_SECONDS,
                wrong,
            )
            self._again_later(message)
        else:
            self.acknowledge(message)

    def again(self, message: ReceivedMessage) -> None:
        """The application let go of the message unsettled: it may be taken again at once."""
        if not self._closed and not message.is_void:
            self._inbox.put_first(message)

    def _again_later(self, message: ReceivedMessage) -> None:
        def come() -> None:
            self._timers.discard(timer)
            message.reconsume_times += 1
            message.reopen()
            self.again(message)

        if not self._closed:
            timer = asyncio.get_running_loop().call_later(RETRY_LOCALLY_SECONDS, come)
            self._timers.add(timer)

    # --- queues ---------------------------------------------------------------------------------

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues this member holds now, sorted, without those of its retry topic."""
        if self._parts is None:
            return []
        queues = self._parts.held.queues
        return sorted(queue for queue in queues if not queue.topic.startswith(RETRY_PREFIX))

    async def rebalance(self) -> float:
        """Take and release queues as the group's members are now; seconds until the next look."""
        parts = self._open()
        assigned = await parts.rebalance.assigned(self._subscriptions)
        if not await parts.held.become(assigned):
            return UNBALANCED_SECONDS
        if len(assigned) < len(self._subscriptions):
            return MISSING_TOPIC_SECONDS
        return REBALANCE_SECONDS

    async def _keep_balanced(self) -> None:
        while True:
            self._notice.clear()
            wait = UNBALANCED_SECONDS
            try:
                wait = await self.rebalance()
            except Exception:
                log.exception("rebalance of group %s failed; next try in %g s", self.group, wait)
            try:
                async with asyncio.timeout(wait):
                    await self._notice.wait()
            except TimeoutError:
                continue

    # --- for brokers: ConsumerMember ------------------------------------------------------------

    def consumer_data(self) -> ConsumerData:
        """What the heartbeat says about this consumer."""
        return ConsumerData(
            self.group,
            "CONSUME_PASSIVELY",
            "CLUSTERING",
            self._start_from.where,
            list(self._subscriptions.values()),
        )

    def rebalance_soon(self) -> None:
        """The group's members have changed."""
        self._notice.set()

    def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Go on from these offsets in the queues that are held here."""
        for queue, offset in offsets.items():
            if offset >= 0:
                self._open().held.reset(queue, offset)

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]:
        """The committed offsets of the queues held here, of one topic or of all ("")."""
        parts = self._open()
        return {
            queue: parts.offsets.read(queue)
            for queue in parts.held.queues
            if topic in ("", queue.topic)
        }

    def running_info(self) -> ConsumerRunningInfo:
        """What this consumer holds and does."""
        parts = self._open()
        return ConsumerRunningInfo(
            properties={
                "PROP_NAMESERVER_ADDR": ";".join(parts.cluster.name_servers.addresses),
                "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
                "PROP_CONSUMEORDERLY": "false",
                "PROP_THREADPOOL_CORE_SIZE": "1",
                "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
                "PROP_CLIENT_VERSION": str(VERSION),
            },
            subscription_set=list(self._subscriptions.values()),
            mq_table=parts.held.infos(),
        )

    async def consume_directly(self, request: Command, broker_name: str | None) -> str:
        """Hand the record in the request to the application and wait for what becomes of it."""
        record = decode_record(request.body or b"")
        queue = MessageQueue(record.topic, broker_name or "", record.queue_id)
        once = _Once()
        held = ProcessQueue(queue, record.queue_offset, self._limits)
        held.hold(record.queue_offset, len(record.body))
        self._inbox.put_first(ReceivedMessage(record, held, once))
        try:
            async with asyncio.timeout(DIRECT_SECONDS):
                return await once.result
        except TimeoutError:
            held.drop()
            return "CR_LATER"


class _Once:
    """Settles one message that an administrator sent; nothing is committed for it."""

    def __init__(self) -> None:
        self.result: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def acknowledge(self, message: ReceivedMessage) -> None:
        self._set("CR_SUCCESS")

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> None:
        self._set("CR_LATER")

    def again(self, message: ReceivedMessage) -> None:
        self._set("CR_LATER")

    def _set(self, result: str) -> None:
        if not self.result.done():
            self.result.set_result(result)


def _strategy(strategy: str | Strategy) -> Strategy:
    if not isinstance(strategy, str):
        return strategy
    found = STRATEGIES.get(strategy)
    if found is None:
        raise ClientError(
            f"strategy {strategy!r} is unknown; known are {', '.join(sorted(STRATEGIES))}, or give "
            "a function of (own id, queues, ids)"
        )
    return found


def _subscriptions(
    group: str, topics: Iterable[str] | Mapping[str, str]
) -> dict[str, SubscriptionData]:
    if isinstance(topics, str):
        raise ClientError(f"topics is the text {topics!r}; give a list of names or a mapping")
    pairs = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, "*")
    if not pairs:
        raise ClientError(f"group {group} has no topics; give at least one")
    version = now_ms()
    found: dict[str, SubscriptionData] = {}
    for topic, expression in pairs.items():
        try:
            check_topic(topic)
            found[topic] = subscription(topic, expression, version=version)
        except Refusal as refusal:
            raise ClientError(refusal.remark) from None
        except ValueError as wrong:
            raise ClientError(str(wrong)) from None
    retries = RETRY_PREFIX + group
    found.setdefault(retries, subscription(retries, "*", version=version))
    return found
