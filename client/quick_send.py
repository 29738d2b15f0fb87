"""The quick way of a send: one future, no coroutine, when everything it needs is at hand.

That is the usual case: the route is known, the connection to the broker is there, it has room, and
nothing is signed. What came of it, if it is not plain success, and all other sends go the long way
(`Producer._send_in_turn`), which knows what to do.
"""

import asyncio
from dataclasses import dataclass

from ..protocol import codes
from ..protocol.bodies.body import MessageQueue
from ..protocol.bodies.route import MASTER_ID
from ..protocol.command import Command
from ..protocol.headers.send import SendTemplate
from .cluster import TEMPLATE_QUEUES_MAX, TEMPLATE_TOPIC, TOPICS_MAX, Cluster
from .identity import now_ms
from .outgoing import Outgoing
from .select_queue import RoundRobin


@dataclass(slots=True)
class Begun:
    """A send under way: where to, since when (ms), until when (the loop's clock), its answer."""

    queue: MessageQueue
    address: str
    born_ms: int
    deadline: float
    answer: asyncio.Future[Command]


class QuickSends:
    """Begins sends of one producer group."""

    def __init__(self, group: str, turn: RoundRobin) -> None:
        self._group = group
        self._turn = turn
        self._templates: dict[str, SendTemplate] = {}

    def begin(self, cluster: Cluster, outgoing: Outgoing, timeout_s: float) -> Begun | None:
        """Send to the next queue in turn, if that is possible at once."""
        route = cluster.known_route(outgoing.topic)
        if route is None or not route.publish:
            return None
        queue = self._turn.next(route.publish)
        address = cluster.known_address(queue.broker_name, MASTER_ID)
        connection = cluster.connected(address)
        if connection is None or not connection.is_ready:
            return None
        template = self._templates.get(outgoing.topic)
        if template is None:
            template = self._template(outgoing.topic)
        born_ms = now_ms()
        frame = template.request(
            queue.broker_name,
            queue.queue_id,
            outgoing.sys_flag,
            born_ms,
            outgoing.flag,
            outgoing.properties,
            outgoing.body,
        )
        deadline = asyncio.get_running_loop().time() + timeout_s
        answer = connection.ask_now(codes.SEND_MESSAGE_V2, frame, deadline)
        return Begun(queue, address, born_ms, deadline, answer)

    def _template(self, topic: str) -> SendTemplate:
        if len(self._templates) >= TOPICS_MAX:
            self._templates.clear()
        template = SendTemplate(self._group, topic, TEMPLATE_TOPIC, TEMPLATE_QUEUES_MAX)
        self._templates[topic] = template
        return template
