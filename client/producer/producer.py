"""The asyncio producer: sends messages and retries with another broker after a failure.

Concurrent sends share a connection and its writes; a send needs no task and no timer. Sends to one
queue keep their order as long as they are started in that order and none is retried.
"""

import asyncio
import random
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.errors import Refusal
from ...protocol.headers.send import RecallMessage, RecallMessageResponse
from ...protocol.message import properties as props
from ...protocol.message import recall_handle
from ...protocol.message.compression import LEVEL
from ...protocol.names import REPLY_TOPIC_SUFFIX, check_group, with_namespace
from ..base import telemetry
from ..base.arguments import check_count, check_timeout, check_type
from ..base.identity import monotonic
from ..base.lifecycle import Startable
from ..base.message import BODY_BYTES_MAX, Message, check_message
from ..base.message_view import MessageView
from ..base.receipts import BatchReceipt, SendReceipt
from ..base.responses import header_of
from ..base.security import OPEN, Security
from ..cluster.cluster import Cluster
from ..errors import (
    AerobeeError,
    BrokerError,
    ClientError,
    ClosedError,
    NoAnswerError,
    is_queue_gone,
)
from .batch import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, Part, send_parts, split
from .broker_requests import ProducerCalls
from .delivery import Delivery
from .encoding import COMPRESS_BYTES_MIN, EncodedMessage, Packer
from .quick_send import QuickSends
from .select_queue import Selector, by_hash
from .trace import Tracer, trace_topic

SEND_SECONDS = 3.0  # sendMsgTimeout, for all tries together
UNDER_WAY_MAX = 1_000  # pending sends of one producer; further ones wait
BEGUN_MAX = 65_536  # sends started by `send_soon` that wait for room
TRIES = 3  # 1 + retryTimesWhenSendFailed
PARTS_UNDER_WAY_MAX = 4  # concurrent requests of one batch
DEFAULT_GROUP = "DEFAULT_PRODUCER"
REPLY_PROPERTIES = (props.CORRELATION_ID, props.REPLY_TO_CLIENT, props.TTL)


class Producer(Startable):
    """Sends messages.

        async with Producer("127.0.0.1:9876", group="shop") as producer:
            receipt = await producer.send(Message("orders", b"...", tags="paid", keys=["o-1"]))

    A failed send is retried with another broker, up to `tries` tries within the timeout. A broker
    that can't be connected or is not in service costs no try: a send waits for a restarting broker
    until its timeout. With `retry_not_stored` a send whose receipt doesn't say OK is retried as
    well (retryAnotherBrokerWhenNotStoreOK). With `latency_faults` brokers that were slow or failed
    are avoided for a while (sendLatencyFaultEnable). Bodies of `compress_bytes_min` bytes and more
    are compressed with `compression`: zlib, lz4 or zstd. With `trace` (True, or a topic) sends are
    recorded in the trace topic. With `namespace` topics and group are inside it. With `vip_channel`
    messages go to the brokers' second port. Any number of tasks may share a producer; sends beyond
    `under_way_max` wait, and their timeouts start when they are sent.
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
        check_type("group", group, str, "give its name")
        group = with_namespace(group, namespace)
        try:
            check_group(group)
        except Refusal as refusal:
            raise ClientError(refusal.remark) from None
        check_count("tries", tries, 1)
        check_count("under_way_max", under_way_max, 1)
        check_count("compress_bytes_min", compress_bytes_min, 0)
        check_count("message_bytes_max", message_bytes_max, 1)
        check_count("batch_bytes_max", batch_bytes_max, 1)
        check_type("security", security, Security, "give client.Security(...)")
        self.group = group
        self._name_server = name_server
        self._client_id = client_id
        self._security = security
        self._namespace = namespace
        self._trace_topic = trace_topic(trace)
        self._tracer: Tracer | None = None
        self._packer = Packer(
            message_bytes_max=message_bytes_max,
            compress_bytes_min=compress_bytes_min,
            compression=compression,
            level=compression_level,
            namespace=namespace,
        )
        self._batch_bytes_max = batch_bytes_max
        self._delivery = delivery = Delivery(
            self._open,
            group,
            tries=tries,
            under_way_max=under_way_max,
            latency_faults=latency_faults,
            retry_not_stored=retry_not_stored,
            vip_channel=vip_channel,
        )
        # The fast path can't choose brokers and has no second port.
        self._may_be_quick = not (latency_faults or vip_channel)
        self._quick = QuickSends(
            group, self._packer, delivery.round_robin, delivery.window, delivery.fall_back
        )
        self._begun: dict[asyncio.Task[SendReceipt], None] = {}
        self._requested: set[str] = set()  # topics that requests were sent to
        self._calls = ProducerCalls()
        self._cluster: Cluster | None = None
        self._closed = False

    async def start(self) -> None:
        """Create the client; connections are made when the first message needs them."""
        if self._closed:
            raise ClosedError("this producer is closed; make a new one")
        if self._cluster is None:
            self._cluster = Cluster(
                self._name_server, client_id=self._client_id, security=self._security
            )
            self._cluster.serve(self._calls.rows())
            self._cluster.join_producer(self.group)
            self._cluster.start()
            if self._trace_topic is not None:
                self._tracer = Tracer(self._trace_topic, self.group, self._of_tracer)
                await self._tracer.start()
                self._quick.tracer = self._delivery.tracer = self._tracer

    async def close(self) -> None:
        """Leave the group and close the connections. Pending sends fail."""
        if self._cluster is not None and not self._closed:
            self._cluster.check_loop()
        self._closed = True
        if self._tracer is not None:
            await self._tracer.close()
        self._calls.close()
        if self._cluster is not None:
            await self._cluster.close()
        await self._delivery.close()
        await asyncio.gather(*self._begun, return_exceptions=True)

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
        """Send and wait until a broker has stored the message.

        The message goes to `queue`; or to the queue that `selector` chooses, a function of (queues,
        message, `selector_arg`); or to the queue of `sharding_key`; or round-robin. Only
        round-robin sends are retried with other queues. Raises IllegalMessageError, NoRouteError,
        UnreachableError, NoAnswerError (the broker may have stored the message) and BrokerError.
        """
        check_message(message)
        check_timeout(timeout)
        if queue is None and selector is None and sharding_key is None:
            sending = self._begin(message, timeout)
            if sending is not None:
                return await sending
        more = {} if sharding_key is None else {props.SHARDING_KEY: sharding_key}
        if queue is None and selector is None and sharding_key is not None:
            selector, selector_arg = by_hash, sharding_key

        async def send() -> SendReceipt:
            encoded = self._packer.pack(message, more)
            if queue is not None or selector is None:
                return await self._delivery.send(encoded, queue, timeout)
            return await self._send_selected(
                encoded, lambda queues: selector(queues, message, selector_arg), timeout
            )

        if not telemetry.is_wanted():
            return await send()
        with telemetry.sending(message.topic, self.group, more) as span:
            receipt = await send()
            span.set_attribute("messaging.message.id", receipt.msg_id)
            return receipt

    def send_soon(
        self, message: Message, *, timeout: float = SEND_SECONDS
    ) -> asyncio.Future[SendReceipt]:
        """Start a send now; the future has the result or exception of `send`.

        The cheapest way to send many messages from one task, because a send needs no task:

            receipts = await asyncio.gather(*map(producer.send_soon, messages))

        Sends beyond `under_way_max` wait in memory, at most 65,536 of them: ClientError for more.
        """
        try:
            check_message(message)
            check_timeout(timeout)
            sending = self._begin(message, timeout)
        except AerobeeError as wrong:
            sending = asyncio.get_running_loop().create_future()
            sending.set_exception(wrong)
        if sending is not None:
            return sending
        if len(self._begun) >= BEGUN_MAX:
            full: asyncio.Future[SendReceipt] = asyncio.get_running_loop().create_future()
            full.set_exception(too_many_begun(len(self._begun)))
            return full
        work = self.send(message, timeout=timeout)
        task = asyncio.create_task(work, name=f"send-{message.topic}")
        self._begun[task] = None
        task.add_done_callback(self._begun.pop)
        return task

    async def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout: float = SEND_SECONDS,  # noqa: ASYNC109
    ) -> MessageView:
        """Send and wait for the `reply` of a consumer; returns it.

        NoAnswerError if none came within the timeout; the request may be consumed nevertheless.
        """
        cluster = self._open()
        check_timeout(timeout)
        deadline = monotonic() + timeout
        correlation_id = str(uuid.UUID(int=random.getrandbits(128), version=4))
        more = {
            props.CORRELATION_ID: correlation_id,
            props.REPLY_TO_CLIENT: cluster.client_id,
            props.TTL: str(round(timeout * 1000)),
        }
        outgoing = self._packer.pack(message, more)
        await self._delivery.route(outgoing.topic)
        if message.topic not in self._requested:
            # Any broker may deliver the reply, so all must know this connection.
            await cluster.beat()
            self._requested.add(message.topic)
        waiting = self._calls.expect(correlation_id)
        try:
            await self._delivery.send(outgoing, queue, deadline - monotonic())
            async with asyncio.timeout(deadline - monotonic()):
                return await waiting
        except TimeoutError as late:
            if isinstance(late, NoAnswerError):
                raise
            raise NoAnswerError(
                f"no reply to request {outgoing.msg_id} of topic {message.topic} within "
                f"{timeout:g} s; check that a consumer of the topic replies, or give it more time"
            ) from None
        finally:
            self._calls.forget(correlation_id)

    async def reply(
        self,
        request: MessageView,
        body: bytes,
        *,
        timeout: float = SEND_SECONDS,  # noqa: ASYNC109
    ) -> SendReceipt:
        """Reply to a received request; BrokerError if the requester is gone."""
        asked = request.stored_properties
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
        return await self._delivery.send(outgoing, None, timeout)

    async def recall(
        self,
        topic: str,
        handle: str | None,
        timeout: float = SEND_SECONDS,  # noqa: ASYNC109
    ) -> str:
        """Take a message back that waits for its delivery time; returns its id.

        `handle` is the `recall_handle` of its receipt; ClientError when that is None. BrokerError
        when the message isn't there any more.
        """
        if handle is None:
            raise ClientError(
                f"the recall_handle of the message to topic {topic} is None: brokers give one "
                "only for a message with delay or deliver_at; send it with one of these"
            )
        try:
            broker_name = recall_handle.decode(handle).broker_name
        except Refusal as refusal:
            raise ClientError(f"{refusal.remark}; give the recall_handle of a receipt") from None
        topic = self._topic(topic)
        await self._delivery.route(topic)
        cluster = self._open()
        address = cluster.address_of(broker_name)
        header = RecallMessage(topic, handle, self.group)
        answer = await cluster.ask(address, codes.RECALL_MESSAGE, header, b"", timeout)
        msg_id = header_of(answer, RecallMessageResponse, codes.RECALL_MESSAGE).msg_id
        if self._tracer is not None:
            self._tracer.recalled(topic, msg_id)
        return msg_id

    async def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send without waiting; whether a broker stored it stays unknown."""
        await self._delivery.send_oneway(self._packer.pack(message), queue)

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
        check_timeout(timeout)
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
            return await self._delivery.send_now(self._packer.pack_part(part), queue, timeout)

        return await send_parts(parts, send, 1 if queue is not None else PARTS_UNDER_WAY_MAX)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that `topic` can be sent to, in their order."""
        return list((await self._delivery.route(self._topic(topic))).publish)

    # --- inside ---------------------------------------------------------------------------------

    def _begin(self, message: Message, timeout: float) -> asyncio.Future[SendReceipt] | None:
        """The pending send on the fast path; None if it needs the slow path."""
        cluster = self._cluster
        if cluster is None or not self._may_be_quick or telemetry.is_wanted():
            return None
        cluster.check_loop()
        return self._quick.begin(cluster, message, timeout)

    async def _send_selected(
        self,
        encoded: EncodedMessage,
        select: Callable[[Sequence[MessageQueue]], MessageQueue],
        timeout_s: float,
    ) -> SendReceipt:
        """Send to the queue that `select` chooses of all; chosen once more if that one is gone."""
        deadline = monotonic() + timeout_s
        queue = select((await self._delivery.route(encoded.topic)).publish)
        try:
            return await self._delivery.send(encoded, queue, timeout_s)
        except BrokerError as wrong:
            if not is_queue_gone(wrong.code, wrong.remark):
                raise
        # Nothing was stored there, and the delivery has fetched the route.
        queue = select((await self._delivery.route(encoded.topic)).publish)
        return await self._delivery.send(encoded, queue, max(deadline - monotonic(), 0.0))

    def _topic(self, name: str) -> str:
        """A topic as brokers know it."""
        return with_namespace(name, self._namespace)

    def _of_tracer(self, group: str) -> "Producer":
        return Producer(self._name_server, group=group, security=self._security)

    def _open(self) -> Cluster:
        if self._cluster is None:
            raise ClosedError("this producer is not started; use `async with` or start()")
        self._cluster.check_loop()
        return self._cluster


def too_many_begun(waiting: int) -> ClientError:
    """The error for a send beyond the limit of waiting sends."""
    return ClientError(
        f"{waiting} sends wait for those under way, the limit is {BEGUN_MAX}; "
        "await the futures of some before you begin more"
    )
