"""The slow path of a send: looks up routes, retries, waits for room in the window.

Invariants: the tries of a message are sequential, and none starts after a failure once the timeout
for all tries has passed. Sends start on the fast path (`quick_send`) if possible and come here only
if it fails.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from ...protocol import codes
from ...protocol.aio.peers import PAUSE_SECONDS
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.route import MASTER_ID
from ...protocol.command import Command
from ...protocol.headers.send import SendMessageResponse
from ...protocol.message.record import TRANSACTION_MASK, TRANSACTION_PREPARED
from ..base.identity import monotonic
from ..base.latency import LatencyFaults
from ..base.receipts import STATUS_OF_CODE, SendReceipt, SendStatus, receipt_of
from ..base.responses import header_of
from ..base.window import Window
from ..cluster.cluster import Cluster
from ..cluster.route import Route
from ..cluster.routes import RENEW_SECONDS
from ..errors import (
    BrokerError,
    ClientError,
    NoAnswerError,
    NoRouteError,
    RequesterGoneError,
    UnreachableError,
    is_queue_gone,
)
from .encoding import EncodedMessage
from .quick_send import FirstTry
from .select_queue import RoundRobin
from .trace import Tracer
from .tries import Tries

log = logging.getLogger(__name__)

NO_REQUESTER = "channel of <"  # in the remark of a broker that does not know the requester
VIP_PORT_DISTANCE = 2  # a broker's port for sends alone is its usual one minus this


class Delivery:
    """Sends for the producer group `group`, over the cluster from `open_cluster` (or ClosedError).

    The options are those of `Producer`. `window` and `round_robin` are shared with the fast path.
    """

    def __init__(
        self,
        open_cluster: Callable[[], Cluster],
        group: str,
        *,
        tries: int,
        under_way_max: int,
        latency_faults: bool,
        retry_not_stored: bool,
        vip_channel: bool,
    ) -> None:
        self.window = Window(under_way_max)
        self.round_robin = RoundRobin()
        self.tracer: Tracer | None = None  # records what was sent
        self._open = open_cluster
        self._group = group
        self._tries = tries
        self._faults = LatencyFaults(monotonic) if latency_faults else None
        self._retry_not_stored = retry_not_stored
        self._vip_channel = vip_channel
        self._going_on: dict[asyncio.Task[SendReceipt], None] = {}

    async def close(self) -> None:
        """Wait for sends taken over from the fast path; the cluster must be closed."""
        await asyncio.gather(*self._going_on, return_exceptions=True)

    # --- one message ----------------------------------------------------------------------------

    async def send(
        self,
        encoded: EncodedMessage,
        queue: MessageQueue | None,
        timeout_s: float,
        first_try: FirstTry | None = None,
    ) -> SendReceipt:
        """Send to `queue`, or round-robin, inside the window; the timeout starts once there is
        room."""
        window = self.window
        if window.is_full:
            await window.room()
        else:
            window.enter()
        try:
            return await self.send_now(encoded, queue, timeout_s, first_try)
        finally:
            window.leave()

    async def send_oneway(self, encoded: EncodedMessage, queue: MessageQueue | None) -> None:
        """Write it to a connection, without a place in the window, and don't wait."""
        cluster = self._open()
        if queue is None:
            queue = self.round_robin.next((await self.route(encoded.topic)).publish)
        header = encoded.header(self._group, queue).to_fields()
        address = await self._address(cluster, queue)
        await cluster.oneway(address, encoded.code, header, encoded.body)

    def fall_back(
        self, encoded: EncodedMessage, first_try: FirstTry, result: asyncio.Future[SendReceipt]
    ) -> None:
        """Take over a send whose first try was on the fast path; `result` is the caller's
        future."""

        def done(task: asyncio.Task[SendReceipt]) -> None:
            self._going_on.pop(task, None)
            wrong = None if task.cancelled() else task.exception()
            if result.done():
                return
            if task.cancelled():
                result.cancel()
            elif wrong is not None:
                result.set_exception(wrong)
            else:
                result.set_result(task.result())

        work = self.send(encoded, None, first_try.timeout_s, first_try)
        task = asyncio.create_task(work, name=f"send-{encoded.msg_id}")
        self._going_on[task] = None
        task.add_done_callback(done)
        result.add_done_callback(lambda _: task.cancel())

    async def route(self, topic: str) -> Route:
        """The route to send to `topic`; NoRouteError when no queue of it can be written."""
        cluster = self._open()
        route = cluster.known_route(topic) or await cluster.publish_route(topic)
        if not route.publish:
            raise NoRouteError(
                f"topic {topic} has no queue that can be written now: its permission forbids it, "
                "or its brokers have no master; check the topic's perm and the brokers"
            )
        return route

    # --- tries ----------------------------------------------------------------------------------

    async def send_now(
        self,
        encoded: EncodedMessage,
        wanted: MessageQueue | None,
        timeout_s: float,
        first_try: FirstTry | None = None,
    ) -> SendReceipt:
        """Send without waiting for room in the window; `first_try` is a try that is already
        complete. The errors are those of `Producer.send`."""
        clock = asyncio.get_running_loop().time
        deadline = first_try.deadline if first_try else clock() + timeout_s
        tries = Tries(self._tries if wanted is None else 1, timeout_s, deadline)
        stored: SendReceipt | None = None
        while not tries.are_over(clock()):
            first, first_try = first_try, None
            try:
                queue = first.queue if first else wanted or await self._next(encoded.topic, tries)
            except NoRouteError:
                route = self._open().known_route(encoded.topic)
                if route is None or not route.lacks_master:
                    raise
                if not await self._one_may_be_tried(encoded.topic, wanted, tries):
                    raise
                continue
            tries.begin(self._open().leader_of(queue))
            try:
                if first is None:
                    receipt = await self._send_to(queue, encoded, deadline - clock())
                else:
                    receipt = await self._send_once(queue, encoded, timeout_s, first)
                if receipt.status is SendStatus.OK or not self._retry_not_stored:
                    return receipt
                stored = receipt
            except (UnreachableError, NoAnswerError, BrokerError, NoRouteError) as wrong:
                if isinstance(wrong, BrokerError) and is_queue_gone(wrong.code, wrong.remark):
                    await self._renew_route(encoded.topic, deadline)
                    if wanted is not None:
                        raise
                    tries.found_gone(queue, wrong)
                    continue
                if not wrong.retriable and not isinstance(wrong, RequesterGoneError):
                    raise
                log.debug("sending to %s failed: %s", queue.broker_name, wrong)
                tries.failed(wrong, clock())
                if not await self._one_may_be_tried(encoded.topic, wanted, tries):
                    break
        if stored is not None:
            return stored
        raise tries.error()

    async def _next(self, topic: str, tries: Tries) -> MessageQueue:
        queues: Sequence[MessageQueue] = (await self.route(topic)).publish
        if tries.gone:
            queues = [queue for queue in queues if queue not in tries.gone]
            if not queues:
                raise tries.error()
        now = asyncio.get_running_loop().time()
        free = tries.candidates(queues, now, self._open().leader_of)
        return self.round_robin.next(free or queues, tries.last, self._faults)

    async def _renew_route(self, topic: str, deadline: float) -> None:
        """Fetch the route of a topic that has fewer queues by now; on failure the old one stays."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._open().route(topic, fresh=True)
        except (TimeoutError, ClientError, BrokerError) as wrong:
            log.debug("keeping the last known route of topic %s: %s", topic, wrong)

    async def _one_may_be_tried(
        self, topic: str, wanted: MessageQueue | None, tries: Tries
    ) -> bool:
        """Wait until a broker of the topic may be tried; False if that is after the deadline.

        Meanwhile the route is fetched again: a broker may have moved, or another one may be the
        master.
        """
        loop, cluster = asyncio.get_running_loop(), self._open()
        while True:
            route = cluster.known_route(topic)
            queues = [wanted] if wanted is not None else () if route is None else route.publish
            names = set(map(cluster.leader_of, queues))
            # Without a queue, the brokers of the topic have no master for the moment.
            end = loop.time() + (tries.pause(names, loop.time()) if names else PAUSE_SECONDS)
            if end <= loop.time():
                return True
            if end >= tries.deadline:
                return False
            before = [cluster.known_address(name, MASTER_ID) for name in names]
            with suppress(TimeoutError):
                async with asyncio.timeout_at(end):
                    await cluster.renew(topic)
            if before != [cluster.known_address(name, MASTER_ID) for name in names]:
                tries.forget_pauses()
                continue
            await asyncio.sleep(min(end - loop.time(), RENEW_SECONDS))

    async def _send_to(
        self, queue: MessageQueue, encoded: EncodedMessage, timeout_s: float
    ) -> SendReceipt:
        """Send once, and note for `latency_faults` how that went."""
        faults = self._faults
        if faults is None:
            return await self._send_once(queue, encoded, timeout_s)
        began = monotonic()
        try:
            receipt = await self._send_once(queue, encoded, timeout_s)
        except BrokerError:
            faults.failed(queue.broker_name, answered=True)
            raise
        except (UnreachableError, NoAnswerError):
            faults.failed(queue.broker_name, answered=False)
            raise
        faults.done(queue.broker_name, (monotonic() - began) * 1000)
        return receipt

    async def _send_once(
        self,
        queue: MessageQueue,
        encoded: EncodedMessage,
        timeout_s: float,
        first_try: FirstTry | None = None,
    ) -> SendReceipt:
        cluster = self._open()
        address = first_try.address if first_try else await self._address(cluster, queue)
        header = encoded.header(self._group, queue)
        if first_try:
            header.born_ms = first_try.born_ms
        began = cluster.loop.time()
        answer = await cluster.request(
            address,
            encoded.code,
            header,
            encoded.body,
            timeout_s,
            first_try.answer if first_try else None,
        )
        if answer.code == codes.NOT_LEADER_FOR_QUEUE:  # moved: Java's clients fail here
            await cluster.route(queue.topic, fresh=True)
            address = await self._address(cluster, queue)
            left = timeout_s - (cluster.loop.time() - began)
            answer = await cluster.request(address, encoded.code, header, encoded.body, left)
        return self._receipt(answer, encoded, queue, address, header.born_ms)

    def _receipt(
        self,
        answer: Command,
        encoded: EncodedMessage,
        queue: MessageQueue,
        address: str,
        born_ms: int,
    ) -> SendReceipt:
        """The receipt for a response to a send; BrokerError if the message isn't stored."""
        status = STATUS_OF_CODE.get(answer.code)
        if status is None:
            is_reply = encoded.code == codes.SEND_REPLY_MESSAGE_V2
            is_gone = is_reply and NO_REQUESTER in (answer.remark or "")
            kind = RequesterGoneError if is_gone else BrokerError
            raise kind(answer.code, answer.remark, address, f"send to {encoded.topic}")
        found = header_of(answer, SendMessageResponse, encoded.code)
        in_transaction = encoded.sys_flag & TRANSACTION_MASK == TRANSACTION_PREPARED
        receipt = receipt_of(found, encoded.msg_id, queue, status, in_transaction=in_transaction)
        if self.tracer is not None and found.region is not None and found.trace_on:
            self.tracer.sent(encoded, receipt, address, found.region, born_ms)
        return receipt

    # --- addresses ------------------------------------------------------------------------------

    async def _address(self, cluster: Cluster, queue: MessageQueue) -> str:
        found = await self._main_address(cluster, queue)
        if self._vip_channel:
            host, _, port = found.rpartition(":")
            return f"{host}:{int(port) - VIP_PORT_DISTANCE}"
        return found

    async def _main_address(self, cluster: Cluster, queue: MessageQueue) -> str:
        try:
            return cluster.address_for(queue)
        except NoRouteError:
            if cluster.known_route(queue.topic) is None:
                await cluster.publish_route(queue.topic)
            else:
                await cluster.route(queue.topic, fresh=True)
            return cluster.address_for(queue)
