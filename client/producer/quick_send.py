"""The fast path of a send: one future and no coroutine.

It needs a known route, a ready connection with room, and no signature, which is the usual case. All
other sends, and those whose response is not a full success, take the slow path (`Delivery.send`).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ...protocol import codes
from ...protocol.aio.connection import Connection
from ...protocol.aio.requests import Waiter
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.route import MASTER_ID
from ...protocol.command import Command
from ...protocol.headers.send import SendMessageResponse, SendTemplate
from ...protocol.message import properties as props
from ..base.identity import now_ms
from ..base.message import Message
from ..base.receipts import SendReceipt, SendStatus, receipt_of
from ..base.responses import header_of
from ..base.window import Window
from ..cluster.cluster import Cluster
from ..cluster.routes import TEMPLATE_QUEUES_MAX, TEMPLATE_TOPIC, TOPICS_MAX
from ..errors import AerobeeError
from .encoding import EncodedMessage, Packer
from .select_queue import RoundRobin
from .trace import Tracer

SEND = codes.SEND_MESSAGE_V2
# Write to the socket after this many requests of one loop iteration: the broker then stores them
# while the iteration goes on.
FLUSH_REQUESTS = 64


@dataclass(slots=True)
class FirstTry:
    """A completed first try: queue, address, start time (ms), response or error.

    `deadline` (loop clock) is for all tries and was `timeout_s` away at the start.
    """

    queue: MessageQueue
    address: str
    born_ms: int
    deadline: float
    timeout_s: float
    answer: asyncio.Future[Command]


@dataclass(frozen=True, slots=True)
class _Target:
    """A queue and the prepared parts of a send to it. `connection` may be lost by now."""

    queue: MessageQueue
    address: str
    connection: Connection | None
    template: SendTemplate


FallBack = Callable[[EncodedMessage, FirstTry, asyncio.Future[SendReceipt]], None]


class _PendingSend(Waiter, eq=False):
    """A pending send; `result` is the caller's future.

    `encoded` is None for a message with topic, body and flag only, which the following fields
    describe.
    """

    owner: "QuickSends"
    target: _Target
    born_ms: int
    timeout_s: float
    result: asyncio.Future[SendReceipt]
    encoded: EncodedMessage | None
    topic: str
    body: bytes
    flag: int
    msg_id: str

    def answered(self, answer: Command) -> None:
        owner, result = self.owner, self.result
        owner.window.leave()
        if result.done():  # the caller has cancelled
            return
        if answer.code != codes.SUCCESS:
            self._fall_back().set_result(answer)
            return
        target = self.target
        try:
            found = header_of(answer, SendMessageResponse, SEND)
        except AerobeeError as wrong:
            result.set_exception(wrong)
            return
        receipt = receipt_of(found, self.msg_id, target.queue, SendStatus.OK)
        if owner.tracer is not None and found.region is not None and found.trace_on:
            packed, born_ms = self._packed(), self.born_ms
            owner.tracer.sent(packed, receipt, target.address, found.region, born_ms)
        result.set_result(receipt)

    def failed(self, error: Exception) -> None:
        self.owner.window.leave()
        if not self.result.done():
            self._fall_back().set_exception(error)

    def _fall_back(self) -> asyncio.Future[Command]:
        answer = self.result.get_loop().create_future()
        target = self.target
        first = FirstTry(
            target.queue, target.address, self.born_ms, self.deadline, self.timeout_s, answer
        )
        self.owner.fall_back(self._packed(), first, self.result)
        return answer

    def _packed(self) -> EncodedMessage:
        if self.encoded is not None:
            return self.encoded
        text = props.join({props.UNIQ_KEY: self.msg_id})
        return EncodedMessage(
            self.topic, SEND, self.body, text, self.flag, 0, self.msg_id, batch=False
        )


class QuickSends:
    """Starts sends of one producer group; they count in `window` until their response.

    `fall_back` takes over sends that did not succeed at once, with the caller's future.
    """

    def __init__(
        self,
        group: str,
        packer: Packer,
        round_robin: RoundRobin,
        window: Window,
        fall_back: FallBack,
    ) -> None:
        self.window = window
        self.fall_back = fall_back
        self.tracer: Tracer | None = None  # records sends
        self._group = group
        self._packer = packer
        self._round_robin = round_robin
        self._targets: dict[str, list[_Target]] = {}  # by topic, as it was at `_changes`
        self._changes = -1

    def begin(
        self, cluster: Cluster, message: Message, timeout_s: float
    ) -> asyncio.Future[SendReceipt] | None:
        """Send to the next queue, or return None if the slow path is needed.
        IllegalMessageError."""
        window, packer = self.window, self._packer
        topic = packer.topics.get(message.topic)
        if window.under_way >= window.size or topic is None:
            return None
        if cluster.changes != self._changes:
            self._targets.clear()
            self._changes = cluster.changes
        targets = self._targets.get(topic) or self._look_up(cluster, topic)
        if not targets:
            return None
        round_robin = self._round_robin
        round_robin.count += 1
        target = targets[round_robin.count % len(targets)]
        connection = target.connection
        if connection is None or not connection.requests.is_ready:
            round_robin.count -= 1  # the slow path uses the same queue and connects to its broker
            return None
        born_ms, flag, body = now_ms(), message.flag, message.body
        if type(body) is bytes and 0 < len(body) < packer.uncompressed_bytes and message.is_plain:
            encoded, msg_id = None, packer.ids.at(born_ms)
            header = target.template.before_opaque_of_unique(born_ms, flag, msg_id)
        else:
            encoded = packer.pack(message)
            body, msg_id = encoded.body, encoded.msg_id
            header = target.template.before_opaque(
                encoded.sys_flag, born_ms, flag, encoded.properties
            )
        loop = cluster.loop  # asyncio.get_running_loop() calls getpid()
        result: asyncio.Future[SendReceipt] = loop.create_future()
        pending = _PendingSend(
            loop.time() + timeout_s,
            self,
            target,
            born_ms,
            timeout_s,
            result,
            encoded,
            topic,
            body,
            flag,
            msg_id,
        )
        connection.requests.send_prepared(pending, header, body)
        if len(connection.transport.out) >= FLUSH_REQUESTS:
            connection.flush()
        window.under_way += 1
        return result

    def _look_up(self, cluster: Cluster, topic: str) -> list[_Target]:
        if len(self._targets) >= TOPICS_MAX:
            self._targets.clear()
        found = []
        route = cluster.known_route(topic)
        for queue in () if route is None else route.publish:
            address = cluster.known_address(cluster.leader_of(queue), MASTER_ID)
            template = SendTemplate(
                self._group,
                topic,
                TEMPLATE_TOPIC,
                TEMPLATE_QUEUES_MAX,
                queue.queue_id,
                queue.broker_name,
            )
            found.append(_Target(queue, address, cluster.connected(address), template))
        self._targets[topic] = found
        return found
