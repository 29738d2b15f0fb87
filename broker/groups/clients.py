"""The connected clients: producers and consumers by group, and the consumers' subscriptions.

A client is its connection: when that closes, the client has left, at once. Heartbeats name the
groups and subscriptions; a subscription with a later version replaces an earlier one.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

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
GROUPS_PER_CLIENT_MAX = 1_000  # of each kind, on one connection
MEMBERS_MAX = 500_000  # group and connection pairs
# Consumer groups that may join have a configuration, whose name has a limit of its own.
JOINED_CHARS_MAX = 255  # of a group in a heartbeat
SHARE_OF_MEMORY = 4  # subscriptions may take this fraction (one part in N) of clientMemoryBytesMax
SUBSCRIPTION_BYTES = 1_000  # of memory for one, with its objects, before its texts
TAG_BYTES = 200
BROADCASTING = "BROADCASTING"


@dataclass(slots=True)
class Member:
    """One client of a group. `last_ms` is its last heartbeat."""

    client_id: str
    language: str
    version: int
    address: str
    last_ms: int


@dataclass(slots=True)
class ConsumerGroup:
    """The live members of a consumer group and their subscriptions.

    `subscription_check` has those of each member, `subscriptions` those in force for all.
    """

    name: str
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    members: dict[Connection, Member] = field(default_factory=dict)
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
        """Whether the group subscribes to a topic, or to the retry topic of one that it pops."""
        origin = normal_topic(topic, self.name)
        return topic in self.subscriptions or (
            origin in self.subscriptions
            and topic in (retry_topic(origin, self.name), retry_topic(origin, self.name, v2=True))
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
        """A member joined, left or has another id."""
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
        self._producers: dict[str, dict[Connection, Member]] = {}
        self._producer_ids: dict[str, Connection] = {}  # by client id
        # The groups of a connection by kind, so that a lost connection needs no search.
        self._groups_of: dict[Connection, tuple[set[str], set[str]]] = {}
        self._members = 0  # in all groups
        # Characters in memory: each member's last subscriptions, and those in force in its groups.
        self.bytes = 0
        self._bytes_of: dict[tuple[Connection, str], int] = {}
        self._on_members = on_members
        self._on_subscriptions = on_subscriptions

    # --- reading --------------------------------------------------------------------------------

    def consumer_group(self, name: str) -> ConsumerGroup | None:
        """The group, None when no member is connected."""
        return self._consumers.get(name)

    def consumer_groups(self) -> dict[str, ConsumerGroup]:
        return dict(self._consumers)

    def producer_group(self, name: str) -> dict[Connection, Member]:
        """The members of a producer group, empty when there is none."""
        return dict(self._producers.get(name, {}))

    def producer_names(self) -> list[str]:
        """The producer groups."""
        return list(self._producers)

    def producers(self) -> dict[str, dict[Connection, Member]]:
        return {name: dict(members) for name, members in self._producers.items()}

    def find_producer(self, client_id: str) -> Connection | None:
        """The connection of a client that is in a producer group, None when it isn't there."""
        return self._producer_ids.get(client_id)

    def find_consumer(self, group: str, client_id: str) -> Connection | None:
        """The connection of a member, None when it isn't there."""
        found = self._consumers.get(group)
        if found is not None:
            for connection, member in found.members.items():
                if member.client_id == client_id:
                    return connection
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
    ) -> None:
        """Take a heartbeat. `admit` gives the ones of its consumer groups that may join: the others
        are left out, as in RocketMQ.

        Refusal when it has more than the limit; then nothing of it is taken.
        """
        self._check(heartbeat, connection)
        member = Member(heartbeat.client_id, language, version, connection.address, now_ms)
        produces, _ = self._groups_of.setdefault(connection, (set(), set()))
        for producer in heartbeat.producer_data_set:
            name = producer.group_name
            if name not in produces:
                self._members += 1
                produces.add(name)
            members = self._producers.setdefault(name, {})
            known = members.get(connection)
            members[connection] = member
            if known is not None and known.client_id != member.client_id:
                self._forget_producer(known.client_id, connection)
            self._producer_ids[member.client_id] = connection
        for consumer in admit(heartbeat.consumer_data_set):
            self._join(consumer, connection, member, heartbeat.without_sub)

    def unregister(
        self, connection: Connection, producer_group: str | None, consumer_group: str | None
    ) -> None:
        """The client on this connection leaves these groups."""
        if producer_group:
            self._leave_producers(producer_group, connection)
        if consumer_group:
            self._leave_consumers(consumer_group, connection)

    def lost(self, connection: Connection) -> None:
        """The connection closed: its client leaves every group."""
        produces, consumes = map(sorted, self._groups_of.pop(connection, ((), ())))
        for name in list(produces):
            self._leave_producers(name, connection)
        for name in list(consumes):
            self._leave_consumers(name, connection)

    def expire(self, before_ms: int) -> Iterator[Connection | None]:
        """The connections whose last heartbeat is older, which the caller closes; None for each
        group, after which others may work."""
        members = [*self._producers.values(), *(one.members for one in self._consumers.values())]
        for of_group in members:
            for connection, member in list(of_group.items()):
                if member.last_ms < before_ms:
                    yield connection
            yield None

    def _join(
        self, consumer: ConsumerData, connection: Connection, member: Member, without_sub: bool
    ) -> None:
        name = consumer.group_name
        weight = 0 if without_sub else _weight(consumer.subscription_data_set)
        known = self._bytes_of.get((connection, name), 0)
        group = self._consumers.get(name)
        if group is None:
            group = self._consumers[name] = ConsumerGroup(name)
        before = group.members.get(connection)
        changed = before is None
        self._members += changed
        group.members[connection] = member
        if before is None or before.client_id != member.client_id:
            group.members_changed()
        self._groups_of[connection][1].add(group.name)
        group.last_ms = member.last_ms
        if not without_sub:
            group.consume_type = consumer.consume_type
            group.message_model = consumer.message_model
            group.consume_from_where = consumer.consume_from_where
            changed = _subscribe(group, consumer.subscription_data_set) or changed
            group.subscription_check.heard(connection, member.client_id, consumer)
            holds = _weight(group.subscriptions.values())
            self.bytes += weight - known + holds - group.weight
            self._bytes_of[connection, name] = weight
            group.weight = holds
            self._on_subscriptions(group.name, consumer.subscription_data_set)
        if changed:
            self._on_members(group)

    def _leave_producers(self, name: str, connection: Connection) -> None:
        members = self._producers.get(name)
        if connection in self._groups_of:
            self._groups_of[connection][0].discard(name)
        if members is not None:
            member = members.pop(connection, None)
            self._members -= member is not None
            if not members:
                del self._producers[name]
            if member is not None:
                self._forget_producer(member.client_id, connection)

    def _forget_producer(self, client_id: str, connection: Connection) -> None:
        """It is not in one of its groups any more under this id; perhaps it is in others."""
        # A client that came back under the same id has another connection by now.
        if self._producer_ids.get(client_id) is not connection:
            return
        groups = self._groups_of.get(connection, ((), ()))[0]
        members = (self._producers.get(name, {}).get(connection) for name in groups)
        if all(member is None or member.client_id != client_id for member in members):
            del self._producer_ids[client_id]

    def _leave_consumers(self, name: str, connection: Connection) -> None:
        group = self._consumers.get(name)
        if group is None or group.members.pop(connection, None) is None:
            return
        group.members_changed()
        self._members -= 1
        self.bytes -= self._bytes_of.pop((connection, name), 0)
        if connection in self._groups_of:
            self._groups_of[connection][1].discard(name)
        group.subscription_check.left(connection)
        if not group.members:
            del self._consumers[name]
            self.bytes -= group.weight
        self._on_members(group)

    def _check(self, heartbeat: HeartbeatData, connection: Connection) -> None:
        """Refusal when a heartbeat says more than is kept."""
        check_client_id(heartbeat.client_id)
        produces, consumes = self._groups_of.get(connection, (set(), set()))
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
            known = self._bytes_of.get((connection, consumer.group_name), 0)
            more += max(0, _weight(consumer.subscription_data_set) - known)
        limit = connection.budget.bytes_max // SHARE_OF_MEMORY
        if more and self.bytes + 2 * more > limit:  # the member's, and its group's
            raise Refusal(
                codes.SYSTEM_BUSY,
                f"[OVERLOAD]the subscriptions of all clients take {self.bytes} bytes, those of "
                f"{heartbeat.client_id} {2 * more} more, the limit is {limit}; subscribe to less, "
                "or raise clientMemoryBytesMax, of which they may have one part in "
                f"{SHARE_OF_MEMORY}",
            )

    def _check_groups(
        self, kind: str, names: set[str], joined: set[str], groups: Collection[str]
    ) -> int:
        """How many groups a connection joins with these; Refusal when they may not come."""
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
