"""The source of a mirror: another cluster, of RocketMQ or of something else."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.group import SubscriptionGroupConfig
from ...protocol.bodies.topic import TopicConfig
from ...protocol.message import properties as props
from ..base.lifecycle import Startable
from ..base.start_from import StartFrom

# Of a message that is copied: the mirror and the broker that stores the copy add some of their own.
SAFE_PROPERTIES_BYTES = props.PROPERTIES_BYTES_MAX - 1_024


class Copyable(msgspec.Struct, gc=False):
    """One message to be copied. `raw_properties` end in \\x02, or are empty; times are in ms."""

    offset: int
    born_ms: int
    store_ms: int
    body: bytes
    raw_properties: bytes
    flag: int = 0
    sys_flag: int = 0  # what a sender may set of it
    reconsume_times: int = 0


@dataclass(slots=True)
class Found:
    """The messages of one read, and the offset behind all that was read, copyable or not."""

    messages: list[Copyable]
    next_offset: int


class Source(Startable):
    """A cluster that is copied. Every call may raise the errors of `client.errors`."""

    @abstractmethod
    async def name(self) -> str:
        """The name of the cluster in the copies."""

    async def addresses(self) -> set[str]:
        """The addresses of its brokers, as far as RocketMQ's protocol is spoken there."""
        return set()

    @abstractmethod
    async def topics(self) -> list[str]:
        """The topics of users, and the retry and dead letter topics of groups."""

    @abstractmethod
    async def settings(self, topic: str) -> TopicConfig:
        """The settings with which the target makes a topic; their numbers of queues don't count."""

    @abstractmethod
    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic, sorted."""

    @abstractmethod
    async def ends(self, queues: list[MessageQueue]) -> Mapping[MessageQueue, int]:
        """The offset behind the last message of each of these queues, which have one topic."""

    @abstractmethod
    async def first_offset(self, queue: MessageQueue, start: StartFrom, *, is_new: bool) -> int:
        """The offset at which the copy of a queue begins: the mirror's own progress, else `start`.

        `is_new`: the target's queue has never had a message, so no progress counts.
        """

    @abstractmethod
    async def read(self, queue: MessageQueue, offset: int) -> Found:
        """Some of the messages from `offset` on, at least one if there is one."""

    @abstractmethod
    async def groups(self) -> Mapping[str, SubscriptionGroupConfig]:
        """The consumer groups with their settings."""

    @abstractmethod
    async def offsets(
        self, matches: Callable[[str], bool]
    ) -> Mapping[tuple[str, MessageQueue], int]:
        """The offsets of the groups whose names match, by group and queue."""

    @abstractmethod
    async def commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Keep the mirror's own progress, so that tools can show its lag."""
