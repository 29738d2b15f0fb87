"""The connected clients: producers and consumers by group, and the consumers' subscriptions.

A client is its connection: when that closes, the client has left, at once. A proxy's connection
has many clients, which are told apart by their ids. Heartbeats name the groups and subscriptions; a
subscription with a later version replaces an earlier one.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ...protocol import codes
from ...protocol.aio.connection import Connection
from ...protocol.bodies.clients import GetConsumerListByGroupResponseBody
from ...protocol.bodies.heartbeat import ConsumerData, HeartbeatData
from ...protocol.bodies.subscription import SubscriptionData
from ...protocol.errors import Refusal
from ...protocol.message.pop_handles import normal_topic, retry_topic
from ...protocol.names import check_client_id
from ...protocol.queues.allocation import sort_ids
from .subscription_check import SubscriptionCheck

GROUPS_MAX = 100_000  # groups with live clients, of producers and of consumers each
GROUPS_PER_CLIENT_MAX = 1_000  # of each kind
PROXIED_MAX = 100_000  # clients behind one connection of a proxy
MEMBERS_MAX = 500_000  # group and client pairs
# Consumer groups that may join have a configuration, whose name has a limit of its own.
JOINED_CHARS_MAX = 255  # of a group in a heartbeat
SHARE_OF_MEMORY = 4  # subscriptions may take this fraction (one part in N) of clientMemoryBytesMax
SUBSCRIPTION_BYTES = 1_000  # of memory for one, with its objects, before its texts
TAG_BYTES = 200
BROADCASTING = "BROADCASTING"


class ClientKey(NamedTuple):
    """One client: its connection, and its id where it is behind a proxy, else ""."""

    connection: Connection
    proxied_id: str = ""


@dataclass(slots=True)
class Member:
    """One client of a group. `last_ms` is its last heartbeat."""

    key: ClientKey
    client_id: str
    language: str
    version: int
    address: str
    last_ms: int

    @property
    def connection(self) -> Connection:
        """The member's connection, or that of its proxy."""
        return self.key.connection

    @property
    def is_proxied(self) -> bool:
        """True if the member is behind a proxy: it pops, and has neither queues nor offsets of its
        own."""
        return bool(self.key.proxied_id)


class Proxied(NamedTuple):
    """A client as the proxy before it describes it: "host:port" and language."""

    address: str
    language: str


@dataclass(slots=True)
class ConsumerGroup:
    """The live members of a consumer group and their subscriptions.

    `subscription_check` has those of each member, `subscriptions` those in force for all.
    """

    name: str
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    members: dict[ClientKey, Member] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    last_ms: int = 0
    weight: int = 0  # bytes of memory for the subscriptions
    _ids: list[str] | None = None
    _sorted_ids: list[str] | None = None
    _id_list: bytes | None = None
    subscription_check: SubscriptionCheck = field(init=False)

    def __post_init__(self) -> None:
        self.subscription_check = SubscriptionCheck(self.name)

    def reads(self, topic: str) -> bool:
        """True if the group subscribes to a topic, or to the retry topic of one that it pops."""
        origin = normal_topic(topic, self.name)
        return topic in self.subscriptions or (
            origin in self.subscriptions
            and topic in (retry_topic(origin, self.name), retry_topic(origin, self.name, v2=True))
        )

    def is_member(self, connection: Connection) -> bool:
        """True if a member has this connection, or is behind it."""
        return ClientKey(connection) in self.members or any(
            key.connection is connection for key in self.members
        )

    def client_ids(self) -> list[str]:
        """The ids of the members; kept, as every member asks for them."""
        if self._ids is None:
            self._ids = list(dict.fromkeys(member.client_id for member in self.members.values()))
        return self._ids

    def sorted_ids(self) -> list[str]:
        """The same in the order in which queues are allocated."""
        if self._sorted_ids is None:
            self._sorted_ids = sort_ids(self.client_ids())
        return self._sorted_ids

    def id_list(self) -> bytes:
        """The same as the body of the answer to 38."""
        if self._id_list is None:
            self._id_list = GetConsumerListByGroupResponseBody(self.client_ids()).encode()
        return self._id_list

    def members_changed(self) -> None:
        """React to a member that joined, left or has another id."""
        self._ids = self._sorted_ids = self._id_list = None


class Clients:
    """All live clients. `on_members(group)` is called when a group's members or topics changed,
    `on_subscriptions(name, subscriptions)` at each heartbeat with a group's subscriptions."""

    def __init__(
        self,
        on_members: Callable[[ConsumerGroup], None],
        on_subscriptions: Callable[[str, list[SubscriptionData]], None] = lambda *_: None,
    ) -> None:
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[ClientKey, Member]] = {}
        self._producer_ids: dict[str, ClientKey] = {}  # by client id
        # The groups of a client by kind, so that a lost connection needs no search.
        self._groups_of: dict[ClientKey, tuple[set[str], set[str]]] = {}
        self._proxied: dict[Connection, dict[str, ClientKey]] = {}  # by id, of proxies only
        self._members = 0  # in all groups
        # Characters in memory: each member's last subscriptions, and those in force in its groups.
        self.bytes = 0
        self._bytes_of: dict[tuple[ClientKey, str], int] = {}
        self._on_members = on_members
        self._on_subscriptions = on_subscriptions

    # --- reading --------------------------------------------------------------------------------

    def consumer_group(self, name: str) -> ConsumerGroup | None:
        """The group, None when no member is connected."""
        return self._consumers.get(name)

    def consumer_groups(self) -> dict[str, ConsumerGroup]:
        return dict(self._consumers)

    def producer_group(self, name: str) -> dict[ClientKey, Member]:
        """The members of a producer group, empty when there is none."""
        return dict(self._producers.get(name, {}))

    def producer_names(self) -> list[str]:
        """The producer groups."""
        return list(self._producers)

    def producers(self) -> dict[str, dict[ClientKey, Member]]:
        return {name: dict(members) for name, members in self._producers.items()}

    def find_producer(self, client_id: str) -> Connection | None:
        """The connection of a client that is in a producer group, None when it isn't there."""
        found = self._producer_ids.get(client_id)
        return None if found is None else found.connection

    def find_consumer(self, group: str, client_id: str) -> Member | None:
        """A member, None when it isn't there."""
        found = self._consumers.get(group)
        if found is not None:
            for member in found.members.values():
                if member.client_id == client_id:
                    return member
        return None

    def differing(self) -> Iterator[tuple[str, str] | None]:
        """Each group whose members subscribe differently, and what each of them wants; None for
        each other group, as a pause in which requests can be served."""
        for name, group in list(self._consumers.items()):
            yield (
                (name, group.subscription_check.describe())
                if group.subscription_check.differs
                else None
            )

    def groups_of_topic(self, topic: str) -> list[str]:
        """The live groups that subscribe to a topic."""
        return [name for name, group in self._consumers.items() if topic in group.subscriptions]

    # --- changing -------------------------------------------------------------------------------

    def register(
        self,
        heartbeat: HeartbeatData,
        connection: Connection,
        language: str,
        version: int,
        now_ms: int,
        admit: Callable[[list[ConsumerData]], list[ConsumerData]],
        proxied: Proxied | None = None,
    ) -> None:
        """Take a heartbeat, which a proxy sends for a `proxied` client. `admit` gives the ones of
        its consumer groups that may join: the others are left out, as in RocketMQ.

        Refusal when it has more than the limit; then nothing of it is taken.
        """
        client_id, address = heartbeat.client_id, connection.address
        key = ClientKey(connection)
        if proxied is not None:
            key = ClientKey(connection, client_id)
            address, language = proxied
        self._check(heartbeat, key)
        if proxied is not None:
            self._proxied.setdefault(connection, {}).setdefault(client_id, key)
        member = Member(key, client_id, language, version, address, now_ms)
        produces, _ = self._groups_of.setdefault(key, (set(), set()))
        for producer in heartbeat.producer_data_set:
            name = producer.group_name
            if name not in produces:
                self._members += 1
                produces.add(name)
            members = self._producers.setdefault(name, {})
            known = members.get(key)
            members[key] = member
            if known is not None and known.client_id != client_id:
                self._forget_producer(known.client_id, key)
            self._producer_ids[client_id] = key
        for consumer in admit(heartbeat.consumer_data_set):
            self._join(consumer, key, member, heartbeat.without_sub)

    def unregister(
        self,
        connection: Connection,
        client_id: str,
        producer_group: str | None,
        consumer_group: str | None,
    ) -> None:
        """Remove a client from these groups: the one on this connection, or with this id behind
        it."""
        key = self._proxied.get(connection, {}).get(client_id) or ClientKey(connection)
        if producer_group:
            self._leave_producers(producer_group, key)
        if consumer_group:
            self._leave_consumers(consumer_group, key)
        if key.proxied_id and not any(self._groups_of[key]):
            self._forget_proxied(key)

    def lost(self, connection: Connection) -> None:
        """Remove the clients of a closed connection from every group."""
        for key in (ClientKey(connection), *self._proxied.pop(connection, {}).values()):
            self._lost(key)

    def expire(self, before_ms: int) -> Iterator[Connection | None]:
        """The connections whose last heartbeat is older, which the caller closes; None for each
        group, after which others may work. A client behind a proxy leaves here."""
        producers = [(name, "", members) for name, members in self._producers.items()]
        consumers = [("", name, group.members) for name, group in self._consumers.items()]
        for producer, consumer, members in [*producers, *consumers]:
            for key, member in list(members.items()):
                if member.last_ms >= before_ms:
                    continue
                if member.is_proxied:
                    self.unregister(key.connection, key.proxied_id, producer, consumer)
                else:
                    yield key.connection
            yield None

    def _lost(self, key: ClientKey) -> None:
        produces, consumes = map(sorted, self._groups_of.pop(key, ((), ())))
        for name in list(produces):
            self._leave_producers(name, key)
        for name in list(consumes):
            self._leave_consumers(name, key)

    def _forget_proxied(self, key: ClientKey) -> None:
        self._groups_of.pop(key, None)
        others = self._proxied.get(key.connection)
        if others is not None:
            others.pop(key.proxied_id, None)
            if not others:
                del self._proxied[key.connection]

    def _join(
        self, consumer: ConsumerData, key: ClientKey, member: Member, without_sub: bool
    ) -> None:
        name = consumer.group_name
        weight = 0 if without_sub else _weight(consumer.subscription_data_set)
        known = self._bytes_of.get((key, name), 0)
        group = self._consumers.get(name)
        if group is None:
            group = self._consumers[name] = ConsumerGroup(name)
        before = group.members.get(key)
        changed = before is None
        self._members += changed
        group.members[key] = member
        if before is None or before.client_id != member.client_id:
            group.members_changed()
        self._groups_of[key][1].add(group.name)
        group.last_ms = member.last_ms
        if not without_sub:
            group.consume_type = consumer.consume_type
            group.message_model = consumer.message_model
            group.consume_from_where = consumer.consume_from_where
            changed = _subscribe(group, consumer.subscription_data_set) or changed
            group.subscription_check.heard(key, member.client_id, consumer)
            holds = _weight(group.subscriptions.values())
            self.bytes += weight - known + holds - group.weight
            self._bytes_of[key, name] = weight
            group.weight = holds
            self._on_subscriptions(group.name, consumer.subscription_data_set)
        if changed:
            self._on_members(group)

    def _leave_producers(self, name: str, key: ClientKey) -> None:
        members = self._producers.get(name)
        if key in self._groups_of:
            self._groups_of[key][0].discard(name)
        if members is not None:
            member = members.pop(key, None)
            self._members -= member is not None
            if not members:
                del self._producers[name]
            if member is not None:
                self._forget_producer(member.client_id, key)

    def _forget_producer(self, client_id: str, key: ClientKey) -> None:
        """Forget the id of a producer that has left a group, unless it is in others under the same
        id."""
        # A client that came back under the same id has another connection by now.
        if self._producer_ids.get(client_id) != key:
            return
        groups = self._groups_of.get(key, ((), ()))[0]
        members = (self._producers.get(name, {}).get(key) for name in groups)
        if all(member is None or member.client_id != client_id for member in members):
            del self._producer_ids[client_id]

    def _leave_consumers(self, name: str, key: ClientKey) -> None:
        group = self._consumers.get(name)
        if group is None or group.members.pop(key, None) is None:
            return
        group.members_changed()
        self._members -= 1
        self.bytes -= self._bytes_of.pop((key, name), 0)
        if key in self._groups_of:
            self._groups_of[key][1].discard(name)
        group.subscription_check.left(key)
        if not group.members:
            del self._consumers[name]
            self.bytes -= group.weight
        self._on_members(group)

    def _check(self, heartbeat: HeartbeatData, key: ClientKey) -> None:
        """Refusal when a heartbeat says more than is kept."""
        check_client_id(heartbeat.client_id)
        self._check_proxied(key)
        produces, consumes = self._groups_of.get(key, (set(), set()))
        names = {producer.group_name for producer in heartbeat.producer_data_set}
        come = self._check_groups("producer", names, produces, self._producers)
        names = {consumer.group_name for consumer in heartbeat.consumer_data_set}
        come += self._check_groups("consumer", names, consumes, self._consumers)
        if come and self._members + come > MEMBERS_MAX:
            raise Refusal(
                codes.SYSTEM_BUSY,
                f"[OVERLOAD]all groups together have {self._members} members, {come} more would "
                f"be over the limit of {MEMBERS_MAX}; end clients that are not needed, or use "
                "more brokers",
            )
        if heartbeat.without_sub:
            return
        more = 0
        for consumer in heartbeat.consumer_data_set:
            known = self._bytes_of.get((key, consumer.group_name), 0)
            more += max(0, _weight(consumer.subscription_data_set) - known)
        limit = key.connection.budget.bytes_max // SHARE_OF_MEMORY
        if more and self.bytes + 2 * more > limit:  # the member's, and its group's
            raise Refusal(
                codes.SYSTEM_BUSY,
                f"[OVERLOAD]the subscriptions of all clients take {self.bytes} bytes, those of "
                f"{heartbeat.client_id} {2 * more} more, the limit is {limit}; subscribe to less, "
                "or raise clientMemoryBytesMax, of which they may have one part in "
                f"{SHARE_OF_MEMORY}",
            )

    def _check_proxied(self, key: ClientKey) -> None:
        known = self._proxied.get(key.connection, {})
        if key.proxied_id and key.proxied_id not in known and len(known) >= PROXIED_MAX:
            raise Refusal(
                codes.SYSTEM_BUSY,
                f"[OVERLOAD]{len(known)} clients are behind this proxy's connection, the limit is "
                f"{PROXIED_MAX}; use more proxies",
            )

    def _check_groups(
        self, kind: str, names: set[str], joined: set[str], groups: Collection[str]
    ) -> int:
        """The number of groups with no client yet that a connection joins; Refusal when it may not
        join."""
        longest = max(map(len, names), default=0)
        if longest > JOINED_CHARS_MAX:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"a {kind} group's name has {longest} characters, the limit is "
                f"{JOINED_CHARS_MAX}; give it a shorter one",
            )
        new = names - joined
        if new and len(joined) + len(new) > GROUPS_PER_CLIENT_MAX:
            raise Refusal(
                codes.SYSTEM_ERROR,
                f"this connection would be in {len(joined) + len(new)} {kind} groups, the limit "
                f"is {GROUPS_PER_CLIENT_MAX}; use several clients",
            )
        come = sum(name not in groups for name in new)
        if come and len(groups) + come > GROUPS_MAX:
            raise Refusal(
                codes.SYSTEM_BUSY,
                f"[OVERLOAD]{len(groups)} {kind} groups have clients, {come} more would be over "
                f"the limit of {GROUPS_MAX}; end clients that are not needed, or use more brokers",
            )
        return len(new)


def _weight(subscriptions: Iterable[SubscriptionData]) -> int:
    """About how many bytes of memory they take."""
    size = sys.getsizeof
    return sum(
        SUBSCRIPTION_BYTES
        + size(data.topic)
        + size(data.sub_string)
        + size(data.expression_type)
        + sum(size(tag) + TAG_BYTES for tag in data.tags_set)
        + TAG_BYTES * len(data.code_set)
        for data in subscriptions
    )


def _subscribe(group: ConsumerGroup, wanted: list[SubscriptionData]) -> bool:
    """Take over new or later subscriptions, drop the ones not named; True when any changed."""
    changed = False
    names = {data.topic for data in wanted}
    for data in wanted:
        known = group.subscriptions.get(data.topic)
        if known is None:
            changed = True
        if known is None or data.sub_version > known.sub_version:
            group.subscriptions[data.topic] = data
    for topic in [topic for topic in group.subscriptions if topic not in names]:
        del group.subscriptions[topic]
        changed = True
    return changed
