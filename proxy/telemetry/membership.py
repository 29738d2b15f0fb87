"""The clients of the proxy as members of their groups at the brokers.

An aerobee broker keeps the clients behind one connection apart: each gets heartbeats of its own
there, under its id, address and language. RocketMQ's brokers know one client for each connection:
there the proxy itself is a member of the producer groups that checks of transactions are for.
A gRPC producer's group is its topic.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ...client.errors import AerobeeError
from ...protocol import codes
from ...protocol.aio.connection import Connection
from ...protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from ...protocol.bodies.subscription import SQL92, TAG, SubscriptionData, subscription
from ...protocol.command import Command
from ...protocol.headers.clients import Heartbeat, UnregisterClient
from ...protocol.names import PROXIED
from ...protocol.wire import Header
from ..messages import definitions
from ..messages.sending import MIXED, TRANSACTION
from ..messages.status import StatusError
from ..routes.brokers import Brokers
from ..routes.topics import Topics
from .clients import Client, Clients

log = logging.getLogger(__name__)

OWN_ID = "rmq-proxy-producer-client"  # as RocketMQ's proxy
HEARTBEAT_SECONDS = 30.0
REST_SECONDS = 5.0  # of a broker that doesn't answer
HEARTBEATS_MAX = 100  # under way at once
GROUPS_MAX = 1_000  # of one client that are registered; brokers take no more
OWN_GROUPS_MAX = 100  # of one of the proxy's own heartbeats
_FILTERS = definitions.enum("FilterType")

NEVER = -1e9

Group = tuple[str, str]  # a producer's group or "", a consumer's group or ""


@dataclass(slots=True, eq=False)
class _Broker:
    """The heartbeats sent to a broker. `keeps_apart` is None until the broker has answered one."""

    connection: Connection | None = None
    keeps_apart: bool | None = None
    rests_until: float = 0.0
    own_groups: set[str] = field(default_factory=set)
    own_beat_at: float = 0.0


@dataclass(slots=True, eq=False)
class _Told:
    """The heartbeat sent to brokers about a client, and the times, by address."""

    settings: Any
    body: bytes
    groups: list[Group]
    at: dict[str, float] = field(default_factory=dict)


class Membership:
    """Registers the clients, and removes clients that have left."""

    def __init__(
        self,
        brokers: Brokers,
        topics: Topics,
        clients: Clients,
        own_heartbeat_s: float,
    ) -> None:
        self._brokers = brokers
        self._topics = topics
        self._clients = clients
        self.own_heartbeat_s = own_heartbeat_s
        self._loop = asyncio.get_running_loop()
        self._told: dict[str, _Told] = {}
        self._known: dict[str, _Broker] = {}
        self._at_once = asyncio.Semaphore(HEARTBEATS_MAX)

    async def refresh(self) -> None:
        """Send the heartbeats that are due, and remove the clients that have left."""
        self._notice_new_connections()
        gone = [client_id for client_id in self._told if self._clients.get(client_id) is None]
        await asyncio.gather(*(self.leave(client_id) for client_id in gone))
        await asyncio.gather(
            *(self.join(client) for client in self._clients if self._is_due(client))
        )
        await self._beat_for_all()

    async def join(self, client: Client) -> None:
        """Tell the brokers of a client's topics about it; failures are tried again later."""
        told = self._told.get(client.client_id)
        try:
            if told is None or told.settings != client.settings:
                told = await self._changed(client, told)
            told.settings = client.settings  # the newest of equal ones: then it isn't due
            addresses = await self._addresses(client)
        except (StatusError, AerobeeError, ValueError) as wrong:
            log.info("client %s is no member of its groups yet: %s", client.client_id, wrong)
            return
        now = self._loop.time()
        due = [each for each in addresses if now - told.at.get(each, NEVER) >= HEARTBEAT_SECONDS]
        await asyncio.gather(*(self._tell(address, client, told) for address in due))

    async def leave(self, client_id: str) -> None:
        """Remove a client from its groups."""
        told = self._told.pop(client_id, None)
        if told is not None:
            await self._unregister(client_id, told.at, told.groups)

    async def close(self) -> None:
        """Leave everywhere. The clients behind it leave with the connections."""
        leaving = (
            self._own_leave(address, topic)
            for address, broker in self._known.items()
            for topic in broker.own_groups
        )
        await asyncio.gather(*leaving)
        self._known.clear()
        self._told.clear()

    # --- clients --------------------------------------------------------------------------------

    def _is_due(self, client: Client) -> bool:
        if client.settings is None:
            return False
        told = self._told.get(client.client_id)
        if told is None or told.settings is not client.settings or not told.at:
            return True
        return self._loop.time() - min(told.at.values()) >= HEARTBEAT_SECONDS

    def _notice_new_connections(self) -> None:
        """Brokers forget members with their connection."""
        for address, broker in self._known.items():
            connection = self._brokers.cluster.connected(address)
            if connection is broker.connection and not (connection and connection.is_lost):
                continue
            broker.connection, broker.keeps_apart, broker.own_beat_at = None, None, 0.0
            for told in self._told.values():
                if address in told.at:
                    told.at[address] = NEVER

    async def _changed(self, client: Client, before: _Told | None) -> _Told:
        """The heartbeat to send from now on; unregisters the groups that the client has left."""
        settings, now_ms = client.settings, self._brokers.now_ms()
        producers, consumers = _data(client, now_ms)
        groups = [(each.group_name, "") for each in producers]
        groups += [("", each.group_name) for each in consumers]
        body = HeartbeatData(client.client_id, producers, consumers).encode()
        told = self._told[client.client_id] = _Told(settings, body, groups)
        if before is not None:
            left = [group for group in before.groups if group not in groups]
            await self._unregister(client.client_id, before.at, left)
        return told

    async def _addresses(self, client: Client) -> list[str]:
        """The masters of the topics of a client."""
        names: dict[str, None] = {}
        for topic in client.topics or client.subscribed:
            try:
                route = await self._topics.route(topic)
            except StatusError:  # it doesn't exist yet
                continue
            names |= dict.fromkeys(name for name, _ in (*route.readable, *route.writable))
        return [found for name in names if (found := self._brokers.master(name)) is not None]

    async def _tell(self, address: str, client: Client, told: _Told) -> None:
        broker = self._known.setdefault(address, _Broker())
        header = Heartbeat(client.address, client.language)
        if self._loop.time() < broker.rests_until:
            return
        is_first = told.at.get(address, NEVER) == NEVER
        async with self._at_once:
            if broker.keeps_apart is None and not await self._probe(
                address, broker, client, header
            ):
                return
            if broker.keeps_apart:
                answer = await self._ask(address, codes.HEART_BEAT, header, told.body)
                if answer is None:
                    return
        now = self._loop.time()
        if is_first:
            # Clients that come together, or whose broker does, are not due together from now on.
            now -= random.uniform(0.0, HEARTBEAT_SECONDS)  # noqa: S311
        told.at[address] = now

    async def _probe(
        self, address: str, broker: _Broker, client: Client, header: Heartbeat
    ) -> bool:
        """Ask a broker whether it keeps clients apart. Returns whether the broker answered."""
        no_groups = HeartbeatData(client.client_id).encode()
        answer = await self._ask(address, codes.HEART_BEAT, header, no_groups)
        if answer is None:
            return False
        broker.connection = self._brokers.cluster.connected(address)
        broker.keeps_apart = PROXIED in answer.fields()
        return True

    async def _unregister(
        self, client_id: str, addresses: Iterable[str], groups: list[Group]
    ) -> None:
        work: list[Awaitable[Any]] = []
        for address in addresses:
            broker = self._known.get(address)
            if broker is not None and broker.keeps_apart:
                for producer, consumer in groups:
                    header = UnregisterClient(client_id, producer or None, consumer or None)
                    work.append(self._ask(address, codes.UNREGISTER_CLIENT, header))
        await asyncio.gather(*work)

    # --- the proxy itself, for brokers that don't keep clients apart --------------------------

    async def _beat_for_all(self) -> None:
        known = [(address, one) for address, one in self._known.items() if one.keeps_apart is False]
        if not known:
            return
        wanted: dict[str, set[str]] = {address: set() for address, _ in known}
        for topic in self._clients.produced_topics():
            try:
                if await self._topics.type_of(topic) not in (TRANSACTION, MIXED):
                    continue
                route = await self._topics.route(topic)
            except (StatusError, AerobeeError):  # it doesn't exist yet
                continue
            for name in {name for name, _ in route.writable}:
                address = self._brokers.master(name)
                if address in wanted:
                    wanted[address].add(topic)
        await asyncio.gather(
            *(self._own_beat(address, broker, wanted[address]) for address, broker in known)
        )

    async def _own_beat(self, address: str, broker: _Broker, wanted: set[str]) -> None:
        left = broker.own_groups - wanted
        now = self._loop.time()
        is_due = wanted != broker.own_groups or now - broker.own_beat_at >= self.own_heartbeat_s
        if not is_due or now < broker.rests_until:
            return
        groups = sorted(wanted)
        for at in range(0, len(groups), OWN_GROUPS_MAX):
            data = [ProducerData(group) for group in groups[at : at + OWN_GROUPS_MAX]]
            body = HeartbeatData(OWN_ID, data).encode()
            if await self._ask(address, codes.HEART_BEAT, None, body) is None:
                return
        for topic in left:
            await self._own_leave(address, topic)
        broker.own_groups, broker.own_beat_at = wanted, now

    async def _own_leave(self, address: str, topic: str) -> None:
        await self._ask(address, codes.UNREGISTER_CLIENT, UnregisterClient(OWN_ID, topic))

    async def _ask(
        self, address: str, code: int, header: Header | None, body: bytes = b""
    ) -> Command | None:
        """The response; None when there is none, or a refusal."""
        try:
            return await self._brokers.ask(address, code, header, body)
        except StatusError as wrong:
            log.info("broker %s does not take a member: %s", address, wrong.message)
            broker = self._known.get(address)
            if broker is not None:
                broker.rests_until = self._loop.time() + REST_SECONDS
            return None


def _data(client: Client, version: int) -> tuple[list[ProducerData], list[ConsumerData]]:
    """The groups of a client. ValueError for a subscription that can't be read."""
    if not client.group:
        if len(client.topics) > GROUPS_MAX:
            log.warning(
                "client %s publishes to %d topics; brokers show the first %d",
                client.client_id,
                len(client.topics),
                GROUPS_MAX,
            )
        return [ProducerData(topic) for topic in client.topics[:GROUPS_MAX]], []
    wanted = subscriptions_of(client, version)
    data = ConsumerData(
        client.group, client.consume_type, "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", wanted
    )
    return [], [data]


def subscriptions_of(client: Client, version: int) -> list[SubscriptionData]:
    """A consumer's subscriptions; `version` in ms. ValueError for one that can't be read."""
    entries = client.settings.subscription.subscriptions
    return [subscription_of(each.topic.name, each.expression, version) for each in entries]


def subscription_of(topic: str, expression: Any, version: int = 0) -> SubscriptionData:
    """The subscription that a filter stands for. ValueError for one that can't be read."""
    kind = SQL92 if expression.type == _FILTERS["SQL"] else TAG
    return subscription(topic, expression.expression, kind, version)
