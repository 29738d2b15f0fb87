"""Sends messages of an acting master to brokers of other names.

An acting master can't store what becomes due: its log is a copy of its master's. So it sends the
message to another broker of the topic, or of the cluster, and goes on once that has it. It never
gives up: after a failure it tries the next broker, with a growing pause.

Check points of pops are not sent: another broker's would mean its own messages. The master that
returns revives them.
"""

import asyncio
import logging
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from ...protocol import codes
from ...protocol.aio.peers import Peers
from ...protocol.bodies.cluster import ClusterInfo
from ...protocol.bodies.route import MASTER_ID, TopicRouteData
from ...protocol.bodies.topic import PERM_WRITE
from ...protocol.headers.namesrv import GetRoute
from ...protocol.headers.send import SendMessage
from ..settings.config import BrokerConfig

log = logging.getLogger(__name__)

MESSAGES_MAX = 64  # messages on their way to other brokers at once, for each kind of waiting
SEND_SECONDS = 3.0
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.1, 10.0  # after a failure, doubled with each in a row
ROUTES_SECONDS = 10.0  # how long a route is used
ROUTES_MAX = 1_000  # topics
WARN_SECONDS = 10.0  # between two warnings about a topic
DEFAULT_TOPIC, DEFAULT_QUEUES = "TBW102", 8  # from which a broker makes a topic that it lacks
REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"
# The message is stored there; the last three say that a disk or a slave is late.
STORED = frozenset(
    {
        codes.SUCCESS,
        codes.FLUSH_DISK_TIMEOUT,
        codes.FLUSH_SLAVE_TIMEOUT,
        codes.SLAVE_NOT_AVAILABLE,
    }
)


def stays(topic: str) -> bool:
    """True if messages of this topic wait for the master: check points of pops do."""
    return topic.startswith(REVIVE_PREFIX)


@dataclass(frozen=True, slots=True)
class ForwardedMessage:
    """A message as it is sent to the other broker. Times in ms."""

    topic: str
    group: str  # of the producer
    flag: int
    sys_flag: int
    born_ms: int
    body: bytes
    properties: str
    reconsume_times: int


@dataclass(frozen=True, slots=True)
class Target:
    """A queue of another broker."""

    address: str
    broker_name: str
    queues: int


@dataclass(slots=True, eq=False)
class RemoteDelivery:
    """Sends messages to brokers of other names; caches where each topic's messages can go."""

    _config: BrokerConfig
    _peers: Peers
    _routes: dict[str, tuple[float, list[Target]]] = field(init=False, default_factory=dict)
    _next: int = field(init=False, default=0)  # counts up; which target and queue are next
    _warned: dict[str, float] = field(init=False, default_factory=dict)  # by topic

    async def send_all(self, messages: Sequence[ForwardedMessage], done: list[bool]) -> None:
        """Send up to `MESSAGES_MAX` messages side by side; returns once all are stored.

        `done` gets True for each that is stored, also when this is cancelled meanwhile.
        """
        done[:] = [False] * len(messages)

        async def one(number: int, message: ForwardedMessage) -> None:
            await self.send(message)
            done[number] = True

        async with asyncio.TaskGroup() as tasks:
            for number, message in enumerate(messages):
                tasks.create_task(one(number, message))

    async def send(self, message: ForwardedMessage) -> None:
        """Send a message; returns once a broker of another name has stored it. Check points of pops
        are not sent."""
        if stays(message.topic):
            return
        pause_s = PAUSE_SECONDS
        while True:
            wrong = "no broker of another name takes its messages"
            try:
                targets = await self._targets(message.topic)
            except ValueError as malformed:
                targets, wrong = [], f"what a name server says can't be read: {malformed}"
            for target in targets:
                wrong = await self._try(message, target)
                if not wrong:
                    return
            self._routes.pop(message.topic, None)
            self._warn(message.topic, wrong)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1))  # noqa: S311
            pause_s = min(2 * pause_s, PAUSE_SECONDS_MAX)

    async def _try(self, message: ForwardedMessage, target: Target) -> str:
        """Send a message to a queue; returns what went wrong, "" when it is stored."""
        self._next += 1
        header = SendMessage(
            message.group,
            message.topic,
            DEFAULT_TOPIC,
            DEFAULT_QUEUES,
            self._next % max(1, target.queues),
            message.sys_flag,
            message.born_ms,
            message.flag,
            message.properties,
            message.reconsume_times,
            batch=False,
            broker_name=target.broker_name,
        )
        try:
            answer = await self._peers.request(
                target.address, codes.SEND_MESSAGE_V2, header, message.body, SEND_SECONDS
            )
        except (OSError, TimeoutError) as wrong:
            return f"broker {target.broker_name}: {wrong}"
        if answer.code in STORED:
            return ""
        return f"broker {target.broker_name} answers {answer.code} {answer.remark}"

    async def _targets(self, topic: str) -> list[Target]:
        """The queues to try, beginning with the next one each time."""
        loop = asyncio.get_running_loop()
        until, found = self._routes.get(topic, (0.0, []))
        if loop.time() >= until:
            found = await self._on_route(topic) or await self._in_cluster()
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            self._routes[topic] = loop.time() + ROUTES_SECONDS, found
        at = self._next % len(found) if found else 0
        return found[at:] + found[:at]

    async def _on_route(self, topic: str) -> list[Target]:
        """The brokers of other names that take messages of this topic."""
        data = await self._ask(codes.GET_ROUTEINFO_BY_TOPIC, GetRoute(topic, standard_json=True))
        route = TopicRouteData() if data is None else TopicRouteData.decode(data)
        masters = {
            broker.broker_name: broker.broker_addrs[MASTER_ID]
            for broker in route.broker_datas
            if MASTER_ID in broker.broker_addrs
        }
        return [
            Target(masters[name], name, queue.write_queue_nums)
            for queue in route.queue_datas
            if (name := queue.broker_name or "") in masters
            and name != self._config.broker_name
            and queue.perm & PERM_WRITE
        ]

    async def _in_cluster(self) -> list[Target]:
        """All other masters of the cluster: one may make the topic."""
        data = await self._ask(codes.GET_BROKER_CLUSTER_INFO, None)
        info = ClusterInfo() if data is None else ClusterInfo.decode(data)
        config = self._config
        found = []
        for name in info.cluster_addr_table.get(config.broker_cluster_name, []):
            broker = info.broker_addr_table.get(name)
            address = None if broker is None else broker.broker_addrs.get(MASTER_ID)
            if address and name != config.broker_name:
                found.append(Target(address, name, 1))
        return found

    async def _ask(self, code: int, header: GetRoute | None) -> bytes | None:
        """The body of the first successful response of a name server; None without one."""
        for server in self._config.name_servers:
            with suppress(OSError, TimeoutError):
                answer = await self._peers.request(server, code, header, timeout_s=SEND_SECONDS)
                if answer.code == codes.SUCCESS:
                    return bytes(answer.body or b"")
        return None

    def _warn(self, topic: str, wrong: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._warned.get(topic, -WARN_SECONDS) < WARN_SECONDS:
            return
        if len(self._warned) >= ROUTES_MAX:
            self._warned.clear()
        self._warned[topic] = now
        log.warning(
            "what is due of topic %s waits: %s; it is tried until another broker takes it "
            "(create the topic on a broker of another name, or start the master)",
            topic,
            wrong,
        )
