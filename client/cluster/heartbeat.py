"""The groups that live in one client, and the heartbeat that tells brokers about them.

A producer group is only a name. A consumer group brings its subscriptions, and it answers what
brokers ask of a consumer; `ConsumerMember` is all that the rest of the client knows of it.
"""

from typing import Protocol
from weakref import WeakValueDictionary

from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from ...protocol.bodies.running import ConsumeMessageDirectlyResult as DirectlyResult
from ...protocol.bodies.running import ConsumerRunningInfo
from ...protocol.command import Command
from ..errors import ClientError


class ConsumerMember(Protocol):
    """A consumer as its client and the brokers see it."""

    group: str

    def consumer_data(self) -> ConsumerData:
        """The entry of this member in the heartbeat."""

    async def rebalance(self) -> float:
        """Take and release queues as the members are now; seconds until the next check."""

    async def persist(self) -> None:
        """Persist the offsets of this member."""

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Go on from these offsets."""

    def offsets_of(self, topic: str) -> dict[MessageQueue, int]:
        """The offset of each queue that this member holds."""

    def running_info(self) -> ConsumerRunningInfo:
        """The running info of this member."""

    async def consume_directly(self, request: Command, broker_name: str | None) -> DirectlyResult:
        """Process the record in the request's body; returns the result."""


# The consumers of this process by name servers, client id and group.
_here: WeakValueDictionary[tuple[str | tuple[str, ...], str, str], ConsumerMember] = (
    WeakValueDictionary()
)


class Members:
    """The groups of one client."""

    def __init__(self, client_id: str, name_servers: str | tuple[str, ...] = ()) -> None:
        self.client_id = client_id
        self._name_servers = name_servers
        self.producers: set[str] = set()
        self.consumers: dict[str, ConsumerMember] = {}

    def __bool__(self) -> bool:
        return bool(self.producers or self.consumers)

    def add_producer(self, group: str) -> None:
        """Add a producer group."""
        self.producers.add(group)

    def add_consumer(self, member: ConsumerMember) -> None:
        """Add a consumer; a client can have one per group."""
        if member.group in self.consumers:
            raise ClientError(
                f"this client has a consumer of group {member.group} already; use another client "
                "for a second one"
            )
        key = (self._name_servers, self.client_id, member.group)
        if _here.setdefault(key, member) is not member:
            # To brokers they would be one member, and each queue would be consumed twice.
            raise ClientError(
                f"this process has a consumer of group {member.group} with the client id "
                f"{self.client_id} already; give each its own instance name or client_id, or none"
            )
        self.consumers[member.group] = member

    def remove_consumer(self, group: str) -> None:
        """The consumer of this group has left."""
        self.consumers.pop(group, None)
        _here.pop((self._name_servers, self.client_id, group), None)

    def body(self) -> bytes:
        """The heartbeat as it is now."""
        return HeartbeatData(
            self.client_id,
            [ProducerData(group) for group in sorted(self.producers)],
            [member.consumer_data() for _, member in sorted(self.consumers.items())],
        ).encode()
