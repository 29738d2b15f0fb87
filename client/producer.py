"""The producer on asyncio: sends messages, tries another broker when one fails.

Sends that are under way at the same time share a connection and its writes; none of them has a task
or a timer. Order of sends to one queue is kept as long as they are started in that order and none
is tried again.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Self, TypeVar

from ..protocol import codes, recall_handle
from ..protocol import properties as props
from ..protocol.bodies.body import MessageQueue
from ..protocol.command import Command
from ..protocol.compression import LEVEL
from ..protocol.errors import Refusal
from ..protocol.headers.recall import RecallMessage, RecallMessageAnswer
from ..protocol.headers.send import SendMessageAnswer
from ..protocol.names import check_group, with_namespace
from . import telemetry
from .answers import header_of
from .batch import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, Part, split
from .cluster import Cluster
from .errors import (
    AerobeeError,
    BatchError,
    BrokerError,
    ClientError,
    ClosedError,
    NoAnswerError,
    NoRouteError,
    UnreachableError,
)
from .latency import LatencyFaults
from .message import BODY_BYTES_MAX, Message
from .outgoing import COMPRESS_BYTES_MIN, Outgoing, Packer
from .quick_send import Begun, QuickSends
from .receipts import STATUS_OF_CODE, BatchReceipt, SendReceipt, SendStatus, receipt_of
from .received import MessageView
from .route import Route
from .security import OPEN, Security
from .select_queue import RoundRobin, Selector, by_hash
from .trace import Tracer, trace_topic
from .window import Window

log = logging.getLogger(__name__)

SEND_SECONDS = 3.0  # sendMsgTimeout, for all tries together
UNDER_WAY_MAX = 1_000  # sends of one producer without an answer yet; more wait their turn
BEGUN_MAX = 65_536  # sends begun by `send_soon` that wait for their turn
TRIES = 3  # 1 + retryTimesWhenSendFailed
PARTS_UNDER_WAY_MAX = 4  # requests of one batch sent at the same time
DEFAULT_GROUP = "DEFAULT_PRODUCER"
VIP_PORT_DISTANCE = 2  # a broker's port for sends alone is its usual one minus this
REPLY_TOPIC_SUFFIX = "_REPLY_TOPIC"  # behind the name of the cluster
REPLY_PROPERTIES = (props.CORRELATION_ID, props.REPLY_TO_CLIENT, props.TTL)

Sent = TypeVar("Sent")


class Producer:
    """Sends messages.

        async with Producer("127.0.0.1:9876", group="shop") as producer:
            receipt = await producer.send(Message("orders", b"...", tags="paid", keys=["o-1"]))

    A failed send is tried again with another broker, `tries` in all, within the timeout; with
    `retry_not_stored` also one whose receipt doesn't say OK (retryAnotherBrokerWhenNotStoreOK).
    With `latency_faults` brokers that were slow or failed are left alone for a while
    (sendLatencyFaultEnable). Bodies from `compress_bytes_min` bytes on are compressed with
    `compression`: zlib, lz4 or zstd. With `trace` (True, or a topic) what becomes of the messages
    is told in the trace topic. With `namespace` topics and group are those inside it. With
    `vip_channel` messages go to the brokers' second port. Any number of tasks may send through one
    producer at the same time; beyond `under_way_max` they wait, and their timeouts begin when it is
    their turn.
    """

    def __init__(
        self,
        name_server: str | Iterable[str] | None = None,
        *,
        group: str = DEFAULT_GROUP,
        tries: int = TRIES,
        compress_bytes_min: int = COMPRESS_BYTES_MIN,
        compression: str = "zlib",
        compression_level: int = LEVEL,
        message_bytes_max: int = BODY_BYTES_MAX,
        batch_bytes_max: int = BATCH_BYTES_MAX,
        under_way_max: int = UNDER_WAY_MAX,
        latency_faults: bool = False,
        retry_not_stored: bool = False,
        client_id: str | None = None,
        security: Security = OPEN,
        trace: bool | str = False,
        namespace: str = "",
        vip_channel: bool = False,
    ) -> None:
        group = with_namespace(group, namespace)
        try:
            check_group(group)
        except Refusal as refusal:
            raise ClientError(refusal.remark) from None
        if tries < 1:
            raise ClientError(f"tries is {tries}; a send takes at least 1")
        self.group = group
        self._name_server = name_server
        self._client_id = client_id
        self._security = security
        self._namespace = namespace
        self._vip_channel = vip_channel
        self._trace_topic = trace_topic(trace)
        self._tracer: Tracer | None = None
        self._tries = tries
        self._packer = Packer(
            message_bytes_max=message_bytes_max,
            compress_bytes_min=compress_bytes_min,
            compression=compression,
            level=compression_level,
            namespace=namespace,
        )
        self._batch_bytes_max = batch_bytes_max
        self._turn = RoundRobin()
        self._faults = LatencyFaults(time.monotonic) if latency_faults else None
        self._retry_not_stored = retry_not_stored
        self._window = Window(under_way_max)
        self._quick = QuickSends(self.group, self._packer, self._turn, self._window, self._go_on)
        self._going_on: set[asyncio.Task[SendReceipt]] = set()
        self._begun: set[asyncio.Task[SendReceipt]] = set()
        self._asked: set[str] = set()  # topics that requests were sent to
        self._cluster: Cluster | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Make the client; connections are made when the first message needs them."""
        if self._closed:
            raise ClosedError("this producer is closed; make a new one")
        if self._cluster is None:
            self._cluster = Cluster(
                self._name_server, client_id=self._client_id, security=self._security
            )
            self._cluster.join_producer(self.group)
            self._cluster.start()
            if self._trace_topic is not None:
                self._tracer = Tracer(self._trace_topic, self.group, self._of_tracer)
                await self._tracer.start()
                self._quick.tracer = self._tracer

    async def close(self) -> None:
        """Leave the group and close the connections. Sends still under way fail."""
        self._closed = True
        if self._tracer is not None:
            await self._tracer.close()
        if self._cluster is not None:
            await self._cluster.close()
        await asyncio.gather(*self._going_on, *self._begun, return_exceptions=True)

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        selector_arg: Any = None,
        sharding_key: str | None = None,
        timeout: float = SEND_SECONDS,  # noqa: ASYNC109
    ) -> SendReceipt:
        """Send and wait until a broker has it.

        Goes to `queue`; or to the one that `selector` chooses, a function of (queues, message,
        `selector_arg`); or to the one that `sharding_key` always goes to; or to the next in turn.
        Only the last kind is tried with other queues. Raises IllegalMessageError, NoRouteError,
        UnreachableError, NoAnswerError (the broker may have the message all the same) and
        BrokerError.
        """
        if queue is None and selector is None and sharding_key is None:
            sending = self._begin(message, timeout)
            if sending is not None:
                return await sending
        more = {} if sharding_key is None else {props.SHARDING_KEY: sharding_key}
        if queue is None and selector is None and sharding_key is not None:
            selector, selector_arg = by_hash, sharding_key
        if queue is None and selector is not None:
            queues = (await self._route(self._topic(message.topic))).publish
            queue = selector(queues, message, selector_arg)
        if not telemetry.is_wanted():
            return await self._deliver(self._packer.pack(message, more), queue, timeout)
        with telemetry.sending(message.topic, self.group, more) as span:
            receipt = await self._deliver(self._packer.pack(message, more), queue, timeout)
            span.set_attribute("messaging.message.id", receipt.msg_id)
            return receipt

    def send_soon(
        self, message: Message, *, timeout: float = SEND_SECONDS
    ) -> asyncio.Future[SendReceipt]:
        """Begin to send, now, and get a future that gives what `send` returns or raises.

        The cheapest way to send many messages from one task, since none of them needs a task:

            receipts = await asyncio.gather(*map(producer.send_soon, messages))

        Beyond `under_way_max` they wait in memory, at most 65,536 of them: ClientError for more.
        """
        try:
            sending = self._begin(message, timeout)
        except AerobeeError as wrong:
            sending = asyncio.get_running_loop().create_future()
            sending.set_exception(wrong)
        if sending is not None:
            return sending
        if len(self._begun) >= BEGUN_MAX:
            full: asyncio.Future[SendReceipt] = asyncio.get_running_loop().create_future()
            full.set_exception(
                ClientError(
                    f"{len(self._begun)} sends wait for those under way, the limit is {BEGUN_MAX}; "
                    "await the futures of some before you begin more"
                )
            )
            return full
        work = self.send(message, timeout=timeout)
        task = asyncio.create_task(work, name=f"send-{message.topic}")
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)
        return task

    async def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout: float = SEND_SECONDS,  # noqa: ASYNC109
    ) -> MessageView:
        """Send, and wait until whoever consumes it has sent a `reply`; returns that.

        NoAnswerError when none came within the timeout: the request may be consumed all the same.
        """
        cluster = self._open()
        deadline = time.monotonic() + timeout
        correlation_id = str(uuid.uuid4())
        more = {
            props.CORRELATION_ID: correlation_id,
            props.REPLY_TO_CLIENT: cluster.client_id,
            props.TTL: str(round(timeout * 1000)),
        }
        outgoing = self._packer.pack(message, more)
        await self._route(outgoing.topic)
        if message.topic not in self._asked:
            # The reply may come from any broker, so all must know our connection.
            await cluster.beat()
            self._asked.add(message.topic)
        waiting = cluster.producer_calls.expect(correlation_id)
        try:
            await self._deliver(outgoing, queue, deadline - time.monotonic())
            async with asyncio.timeout(deadline - time.monotonic()):
                return await waiting
        except TimeoutError as late:
            if isinstance(late, NoAnswerError):
                raise
            raise NoAnswerError(
                f"no reply to request {outgoing.msg_id} of topic {message.topic} within "
                f"{timeout:g} s; check that a consumer of the topic replies, or give it more time"
            ) from None
        finally:
            cluster.producer_calls.forget(correlation_id)

    async def reply(
        self,
        request: MessageView,
        body: bytes,
        *,
        timeout: float = SEND_SECONDS,  # noqa: ASYNC109
    ) -> SendReceipt:
        """Answer a request that was received; BrokerError when the requester isn't there."""
        asked = request.properties
        try:
            topic = asked[props.CLUSTER] + REPLY_TOPIC_SUFFIX
            more = {name: asked[name] for name in REPLY_PROPERTIES} | {props.MSG_TYPE: "reply"}
        except KeyError as missing:
            raise ClientError(
                f"message {request.msg_id} has no property {missing.args[0]}, so it is no request; "
                "reply to what `Producer.request` sent"
            ) from None
        code = codes.SEND_REPLY_MESSAGE_V2
        outgoing = self._packer.pack(Message(topic, body), more, code=code)
        return await self._deliver(outgoing, None, timeout)

    async def recall(self, topic: str, handle: str, timeout: float = SEND_SECONDS) -> str:  # noqa: ASYNC109
        """Take a message back that waits for its delivery time; returns its id.

        `handle` is the `recall_handle` of its receipt. BrokerError when it isn't there any more.
        """
        try:
            broker_name = recall_handle.decode(handle).broker_name
        except Refusal as refusal:
            raise ClientError(f"{refusal.remark}; give the recall_handle of a receipt") from None
        topic = self._topic(topic)
        await self._route(topic)
        cluster = self._open()
        address = cluster.address_of(broker_name)
        header = RecallMessage(topic, handle, self.group)
        answer = await cluster.ask(address, codes.RECALL_MESSAGE, header, b"", timeout)
        msg_id = header_of(answer, RecallMessageAnswer, codes.RECALL_MESSAGE).msg_id
        if self._tracer is not None:
            self._tracer.recalled(topic, msg_id)
        return msg_id

    def _begin(self, message: Message, timeout: float) -> asyncio.Future[SendReceipt] | None:
        """The send under way, in the window; None when it needs the long way."""
        cluster = self._cluster
        if (
            cluster is None
            or self._faults is not None
            or self._vip_channel
            or telemetry.is_wanted()
        ):
            return None
        return self._quick.begin(cluster, message, timeout)

    def _go_on(self, outgoing: Outgoing, begun: Begun, result: asyncio.Future[SendReceipt]) -> None:
        """Take a send the long way whose first try didn't succeed; `result` is its caller's."""

        def done(task: asyncio.Task[SendReceipt]) -> None:
            self._going_on.discard(task)
            wrong = None if task.cancelled() else task.exception()
            if result.done():
                return
            if task.cancelled():
                result.cancel()
            elif wrong is not None:
                result.set_exception(wrong)
            else:
                result.set_result(task.result())

        work = self._deliver(outgoing, None, begun.timeout_s, begun)
        task = asyncio.create_task(work, name=f"send-{outgoing.msg_id}")
        self._going_on.add(task)
        task.add_done_callback(done)
        result.add_done_callback(lambda _: task.cancel())

    async def _deliver(
        self,
        outgoing: Outgoing,
        queue: MessageQueue | None,
        timeout: float,  # noqa: ASYNC109
        begun: Begun | None = None,
    ) -> SendReceipt:
        window = self._window
        if window.is_full:
            await window.room()
        else:
            window.enter()
        try:
            if queue is not None:
                return await self._send_there(queue, outgoing, timeout)
            return await self._send_in_turn(outgoing, timeout, begun)
        finally:
            window.leave()

    async def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send and don't wait: whether a broker took it stays unknown."""
        outgoing = self._packer.pack(message)
        cluster = self._open()
        if queue is None:
            queue = self._turn.next((await self._route(outgoing.topic)).publish)
        header = outgoing.header(self.group, queue).to_fields()
        address = await self._address(cluster, queue)
        await cluster.oneway(address, outgoing.code, header, outgoing.body)

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        timeout: float = SEND_SECONDS,  # noqa: ASYNC109
    ) -> BatchReceipt:
        """Send many messages of one topic in few requests; `timeout` is for each request.

        With `queue` the parts go there one after the other, so their order is kept. BatchError
        when some parts were sent and others not: it says which.
        """
        self._open()
        parts = list(
            split(
                messages,
                self._packer.ids.next,
                self._packer.message_bytes_max,
                self._batch_bytes_max,
                BATCH_MESSAGES_MAX,
            )
        )

        async def send(part: Part) -> SendReceipt:
            outgoing = self._packer.pack_part(part)
            if queue is not None:
                return await self._send_there(queue, outgoing, timeout)
            return await self._send_in_turn(outgoing, timeout)

        width = 1 if queue is not None else PARTS_UNDER_WAY_MAX
        results = await _each(parts, send, width)
        receipts = [each for each in results if isinstance(each, SendReceipt)]
        failures = [each for each in results if isinstance(each, AerobeeError)]
        if failures and not receipts:
            raise failures[0]
        if failures:
            sent = zip(parts, results, strict=False)
            done = {id(part) for part, each in sent if isinstance(each, SendReceipt)}
            unsent = [each for part in parts if id(part) not in done for each in part.messages]
            raise BatchError(receipts, unsent, failures[0])
        return BatchReceipt(receipts)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that `topic` can be sent to, in their order."""
        return list((await self._route(self._topic(topic))).publish)

    # --- inside ---------------------------------------------------------------------------------

    async def _send_in_turn(
        self, outgoing: Outgoing, timeout_s: float, begun: Begun | None = None
    ) -> SendReceipt:
        """Try until it is stored; `begun` is the first try, if that is through already."""
        clock = asyncio.get_running_loop().time
        deadline = begun.deadline if begun else clock() + timeout_s
        failure: AerobeeError | None = None
        stored: SendReceipt | None = None
        tried: list[str] = []
        avoid: str | None = None
        resting: dict[str, float] = {}  # brokers that nobody may connect until then
        while len(tried) < self._tries:
            left = deadline - clock()
            if begun is not None:
                queue, left = begun.queue, timeout_s
            elif failure is not None and left <= 0:
                break
            else:
                route = await self._route(outgoing.topic)
                queue = self._turn.next(route.publish, avoid, self._faults)
            avoid = queue.broker_name
            tried.append(avoid)
            begun, first = None, begun
            try:
                if first is None:
                    receipt = await self._send_to(queue, outgoing, left)
                else:
                    receipt = await self._send_once(queue, outgoing, left, first)
                if receipt.status is SendStatus.OK or not self._retry_not_stored:
                    return receipt
                stored = receipt
            except (UnreachableError, NoAnswerError, BrokerError, NoRouteError) as wrong:
                if not wrong.retriable:
                    raise
                log.debug("sending to %s failed: %s", queue.broker_name, wrong)
                failure = wrong
                if isinstance(wrong, UnreachableError) and wrong.rest_s:
                    tried.pop()  # nothing was tried
                    resting[avoid] = clock() + wrong.rest_s
                    queues = (await self._route(outgoing.topic)).publish
                    if resting.keys() >= {each.broker_name for each in queues}:
                        until = min(resting.values())
                        if until >= deadline:
                            break
                        await asyncio.sleep(until - clock())
                        resting.clear()
        if stored is not None:
            return stored
        assert failure is not None
        failure.add_note(f"{len(tried)} tries within {timeout_s:g} s, at {', '.join(tried)}")
        raise failure

    async def _send_there(
        self, queue: MessageQueue, outgoing: Outgoing, timeout_s: float
    ) -> SendReceipt:
        """Send to this queue once, as soon as its broker may be connected."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_s
        while True:
            try:
                return await self._send_to(queue, outgoing, deadline - clock())
            except UnreachableError as wrong:
                if not wrong.rest_s or clock() + wrong.rest_s >= deadline:
                    raise
                rest_s = wrong.rest_s
            await asyncio.sleep(rest_s)

    async def _send_to(
        self, queue: MessageQueue, outgoing: Outgoing, timeout_s: float
    ) -> SendReceipt:
        faults = self._faults
        if faults is None:
            return await self._send_once(queue, outgoing, timeout_s)
        began = time.monotonic()
        try:
            receipt = await self._send_once(queue, outgoing, timeout_s)
        except BrokerError:
            faults.failed(queue.broker_name, answered=True)
            raise
        except (UnreachableError, NoAnswerError):
            faults.failed(queue.broker_name, answered=False)
            raise
        faults.done(queue.broker_name, (time.monotonic() - began) * 1000)
        return receipt

    async def _send_once(
        self,
        queue: MessageQueue,
        outgoing: Outgoing,
        timeout_s: float,
        begun: Begun | None = None,
    ) -> SendReceipt:
        cluster = self._open()
        address = begun.address if begun else await self._address(cluster, queue)
        header = outgoing.header(self.group, queue)
        if begun:
            header.born_ms = begun.born_ms
        answer = await cluster.request(
            address,
            outgoing.code,
            header,
            outgoing.body,
            timeout_s,
            begun.answer if begun else None,
        )
        return self._receipt(answer, outgoing, queue, address, header.born_ms)

    def _receipt(
        self, answer: Command, outgoing: Outgoing, queue: MessageQueue, address: str, born_ms: int
    ) -> SendReceipt:
        """What the answer to a send says; BrokerError when the message isn't stored."""
        status = STATUS_OF_CODE.get(answer.code)
        if status is None:
            raise BrokerError(answer.code, answer.remark, address, f"send to {outgoing.topic}")
        found = header_of(answer, SendMessageAnswer, outgoing.code)
        receipt = receipt_of(found, outgoing.msg_id, queue, status)
        if self._tracer is not None and found.region is not None and found.trace_on:
            self._tracer.sent(outgoing, receipt, address, found.region, born_ms)
        return receipt

    async def _route(self, topic: str) -> Route:
        cluster = self._open()
        route = cluster.known_route(topic) or await cluster.publish_route(topic)
        if not route.publish:
            raise NoRouteError(
                f"topic {topic} has no queue that can be written now: its permission forbids it, "
                "or its brokers have no master; check the topic's perm and the brokers"
            )
        return route

    async def _address(self, cluster: Cluster, queue: MessageQueue) -> str:
        found = await self._main_address(cluster, queue)
        if self._vip_channel:
            host, _, port = found.rpartition(":")
            return f"{host}:{int(port) - VIP_PORT_DISTANCE}"
        return found

    async def _main_address(self, cluster: Cluster, queue: MessageQueue) -> str:
        try:
            return cluster.address_of(queue.broker_name)
        except NoRouteError:
            if cluster.known_route(queue.topic) is None:
                await cluster.publish_route(queue.topic)
            else:
                await cluster.route(queue.topic, fresh=True)
            return cluster.address_of(queue.broker_name)

    def _topic(self, name: str) -> str:
        """A topic as brokers know it."""
        return with_namespace(name, self._namespace)

    def _of_tracer(self, group: str) -> "Producer":
        return Producer(self._name_server, group=group, security=self._security)

    def _open(self) -> Cluster:
        if self._cluster is None:
            raise ClosedError("this producer is not started; use `async with` or start()")
        return self._cluster


async def _each(
    parts: list[Part], send: Callable[[Part], Awaitable[Sent]], width: int
) -> list[Sent | BaseException]:
    """What `send` gave or raised for each part, `width` at a time; stops after a failure."""
    results: list[Sent | BaseException] = []
    for at in range(0, len(parts), width):
        work = (send(part) for part in parts[at : at + width])
        results += await asyncio.gather(*work, return_exceptions=True)
        if any(isinstance(each, BaseException) for each in results[at:]):
            break
    return results
