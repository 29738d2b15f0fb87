"""Topics and groups as the proxy knows them: queues, types of messages, settings of groups."""

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

from ...client.base.responses import body_of
from ...client.errors import BrokerError, ClientError, NoRouteError
from ...protocol import codes
from ...protocol.bodies.group import SubscriptionGroupConfig
from ...protocol.bodies.route import MASTER_ID, TopicRouteData
from ...protocol.bodies.topic import PERM_READ, PERM_WRITE, TopicConfigAndQueueMapping
from ...protocol.headers.groups import GroupName
from ...protocol.headers.topics import GetTopicConfig, UpdateTopic
from ...protocol.message.tags import string_hash
from ..messages.status import Code, StatusError, of_error
from ..settings.config import ProxyConfig
from .brokers import Brokers
from .cache import Cache

TYPE_ATTRIBUTE = "message.type"
NEW_TOPIC_QUEUES = 4  # defaultTopicQueueNums
CURSORS_MAX = 50_000  # topics whose next queue is remembered
_NO_GROUP = (codes.SUBSCRIPTION_GROUP_NOT_EXIST,)


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """A topic's queues. `readable` are the brokers with a master and readable queues, with the
    number of these; `writable` the queues of masters, by broker name and queue id."""

    topic: str
    data: TopicRouteData
    readable: tuple[tuple[str, int], ...]
    writable: tuple[tuple[str, int], ...]


def route_of(topic: str, data: TopicRouteData) -> TopicRoute:
    """The route in a name server's answer."""
    masters = {
        broker.broker_name for broker in data.broker_datas if MASTER_ID in broker.broker_addrs
    }
    serving = {broker.broker_name for broker in data.broker_datas if broker.broker_addrs}
    rows = sorted(data.queue_datas, key=lambda row: row.broker_name or "")
    readable = tuple(
        (row.broker_name or "", row.read_queue_nums)
        for row in rows
        if row.perm & PERM_READ and row.read_queue_nums > 0 and row.broker_name in serving
    )
    writable = tuple(
        (row.broker_name or "", queue_id)
        for row in rows
        if row.perm & PERM_WRITE and row.broker_name in masters
        for queue_id in range(row.write_queue_nums)
    )
    return TopicRoute(topic, data, readable, writable)


class Topics:
    """Routes, types and groups, each kept for some seconds."""

    def __init__(self, brokers: Brokers, config: ProxyConfig) -> None:
        self._brokers = brokers
        self.routes = Cache(self._load_route, config.topic_route_cache_refresh_seconds)
        self.types = Cache(self._load_type, config.topic_config_cache_refresh_seconds)
        self.groups = Cache(
            self._load_group, config.subscription_group_config_cache_refresh_seconds
        )
        self._cursors: dict[str, Callable[[], int]] = {}

    async def route(self, topic: str) -> TopicRoute:
        """The route; StatusError TOPIC_NOT_FOUND without one, UNSUPPORTED for a static topic."""
        return await self.routes.get(topic)

    async def address(self, broker_name: str, topic: str) -> str | None:
        """The address of a broker, which the route of the topic may tell; None without one."""
        found = self._brokers.address(broker_name)
        if found is None:
            await self.route(topic)
            found = self._brokers.address(broker_name)
        return found

    async def is_there(self, topic: str) -> bool:
        """True if the topic has a route; StatusError when that can't be known."""
        try:
            await self.routes.get(topic)
        except StatusError as wrong:
            if wrong.code != Code.TOPIC_NOT_FOUND:
                raise
            return False
        return True

    async def type_of(self, topic: str) -> str:
        """The topic's type of messages, NORMAL if none is set."""
        return await self.types.get(topic)

    async def group(self, group: str) -> SubscriptionGroupConfig:
        """The settings of a group; the defaults of one that isn't there."""
        return await self.groups.get(group)

    def queue_for(self, route: TopicRoute, message_group: str) -> tuple[str, int]:
        """Broker and queue id for a message: by its group, or each in turn."""
        queues = route.writable
        if not queues:
            raise StatusError(
                Code.FORBIDDEN, f"no writable queue of topic {route.topic}; check its permission"
            )
        if message_group:
            return queues[consistent_hash(string_hash(message_group), len(queues))]
        cursor = self._cursors.get(route.topic)
        if cursor is None:
            while len(self._cursors) >= CURSORS_MAX:
                del self._cursors[next(iter(self._cursors))]
            start = random.randrange(len(queues))  # noqa: S311
            cursor = self._cursors[route.topic] = itertools.count(start).__next__
        return queues[cursor() % len(queues)]

    async def create(self, topic: str, kind: str) -> TopicRoute:
        """Make a topic of this type on each broker, as its first message does by option."""
        await self._brokers.learn_all()
        header = UpdateTopic(
            topic,
            NEW_TOPIC_QUEUES,
            NEW_TOPIC_QUEUES,
            PERM_READ | PERM_WRITE,
            attributes=f"+{TYPE_ATTRIBUTE}={kind}",
        )
        for name in self._brokers.names():
            address = self._brokers.address(name)
            if address is not None:
                await self._brokers.ask(address, codes.UPDATE_AND_CREATE_TOPIC, header)
        self.routes.forget(topic)
        self.types.forget(topic)
        return await self.route(topic)

    async def close(self) -> None:
        """Cancel what is being asked for."""
        for cache in (self.routes, self.types, self.groups):
            await cache.close()

    async def _load_route(self, topic: str) -> TopicRoute:
        try:
            data = await self._brokers.cluster.route_data(topic)
        except NoRouteError as wrong:
            raise StatusError(
                Code.TOPIC_NOT_FOUND,
                f"No topic route info in name server for the topic: {topic}; create it: mqadmin "
                f"updateTopic -t {topic} -a +message.type=NORMAL, or aerobee topics create {topic}",
            ) from wrong
        except (ClientError, BrokerError) as wrong:
            raise of_error(wrong) from wrong
        if data.topic_queue_mapping_by_broker:
            raise StatusError(
                Code.UNSUPPORTED,
                f"topic {topic} is static: its queues move between brokers, and gRPC clients can't "
                "use it; use it with remoting clients, or send to a topic that mqadmin updateTopic "
                "makes",
            )
        self._brokers.learn(data)
        return route_of(topic, data)

    async def _load_type(self, topic: str) -> str:
        route = await self.route(topic)
        names = [name for name, _ in (*route.readable, *route.writable)]
        addresses = [found for name in names if (found := self._brokers.address(name)) is not None]
        code, header = codes.GET_TOPIC_CONFIG, GetTopicConfig(topic)
        if addresses:
            answer = await self._brokers.ask_one_of(addresses, code, header)
        else:
            answer = await self._brokers.ask_any(code, header)
        config = body_of(answer, TopicConfigAndQueueMapping, code)
        return config.attributes.get(TYPE_ATTRIBUTE) or "NORMAL"

    async def _load_group(self, group: str) -> SubscriptionGroupConfig:
        code = codes.GET_SUBSCRIPTIONGROUP_CONFIG
        accepted = (codes.SUCCESS, *_NO_GROUP)
        answer = await self._brokers.ask_any(code, GroupName(group), accepted)
        if answer.code in _NO_GROUP or not answer.body:
            return SubscriptionGroupConfig(group)
        return body_of(answer, SubscriptionGroupConfig, code)


def consistent_hash(seed: int, buckets: int) -> int:
    """The bucket that Guava's Hashing.consistentHash gives."""
    state, candidate = seed & 0xFFFFFFFFFFFFFFFF, 0
    while True:
        state = (2862933555777941757 * state + 1) & 0xFFFFFFFFFFFFFFFF
        fraction = ((state >> 33) + 1) / (1 << 31)
        following = int((candidate + 1) / fraction)
        if not 0 <= following < buckets:
            return candidate
        candidate = following
