"""The client of a console: administration, with requests to one broker about one topic or group."""

from ...client.admin.admin import Admin
from ...client.base.responses import body_of
from ...client.errors import BrokerError
from ...protocol import codes
from ...protocol.bodies.body import Body
from ...protocol.bodies.clients import ConsumerConnection
from ...protocol.bodies.group import SubscriptionGroupWrapper
from ...protocol.bodies.stats import ConsumeStats, TopicStatsTable
from ...protocol.headers.clients import ConsumerGroup
from ...protocol.headers.groups import ConsumeStats as ConsumeStatsHeader
from ...protocol.headers.topics import TopicName
from ...protocol.wire import Int32, Int64


class DelayOffsets(Body):
    """How far each delay level is delivered, by level (45)."""

    offset_table: dict[Int32, Int64] = {}


class Asking(Admin):
    """What brokers without our requests for pages are asked one by one."""

    async def groups_at(self, address: str) -> SubscriptionGroupWrapper:
        """All groups of one broker with their settings."""
        code = codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        return body_of(await self._ask(address, code), SubscriptionGroupWrapper, code)

    async def topic_at(self, address: str, topic: str) -> TopicStatsTable:
        """The queues of a topic on one broker."""
        code = codes.GET_TOPIC_STATS_INFO
        return body_of(await self._ask(address, code, TopicName(topic)), TopicStatsTable, code)

    async def progress_at(self, address: str, group: str) -> ConsumeStats:
        """The progress of a group on one broker."""
        code = codes.GET_CONSUME_STATS
        answer = await self._ask(address, code, ConsumeStatsHeader(group, None))
        return body_of(answer, ConsumeStats, code)

    async def members_at(self, address: str, group: str) -> ConsumerConnection | None:
        """The members of a group that one broker knows; None without any."""
        code = codes.GET_CONSUMER_CONNECTION_LIST
        try:
            answer = await self._ask(address, code, ConsumerGroup(group))
        except BrokerError as wrong:
            if wrong.code == codes.CONSUMER_NOT_ONLINE:
                return None
            raise
        return body_of(answer, ConsumerConnection, code)

    async def delays_at(self, address: str) -> dict[int, int]:
        """The offset of the next message of each delay level on one broker."""
        code = codes.GET_ALL_DELAY_OFFSET
        return dict(body_of(await self._ask(address, code), DelayOffsets, code).offset_table)
