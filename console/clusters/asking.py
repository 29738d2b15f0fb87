"""The client of a console: administration, with requests to one broker about one topic or group."""

from ...client.admin.base import ADMIN_SECONDS
from ...client.base.responses import body_of
from ...client.cluster import queue_bounds
from ...client.errors import BrokerError, ClientError, NoRouteError
from ...protocol import codes
from ...protocol.bodies.body import Body, MessageQueue
from ...protocol.bodies.clients import ConsumerConnection, GroupList
from ...protocol.bodies.group import SubscriptionGroupWrapper
from ...protocol.bodies.route import MASTER_ID
from ...protocol.bodies.stats import (
    ConsumeStats,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicStatsTable,
)
from ...protocol.bodies.topic import TopicConfig
from ...protocol.errors import Malformed
from ...protocol.headers.clients import ConsumerGroup
from ...protocol.headers.groups import ConsumeStats as ConsumeStatsHeader
from ...protocol.headers.topics import QueryConsumeTimeSpan, QueryMessage, TopicName
from ...protocol.message.record import Record, decode_all
from ...protocol.wire import Int32, Int64
from ..texts import Text
from .changing import Changing

EVER_MS = 2**63 - 1


class DelayOffsets(Body):
    """The delivered offset of each delay level, by level (45)."""

    offset_table: dict[Int32, Int64] = {}


class Asking(Changing):
    """Asks brokers that don't know our requests for pages, one topic or group at a time."""

    async def groups_at(self, address: str) -> SubscriptionGroupWrapper:
        """All groups of one broker with their settings."""
        code = codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        return body_of(await self._ask(address, code), SubscriptionGroupWrapper, code)

    async def topic_at(self, address: str, topic: str) -> TopicStatsTable:
        """The queues of a topic on one broker."""
        code = codes.GET_TOPIC_STATS_INFO
        return body_of(await self._ask(address, code, TopicName(topic)), TopicStatsTable, code)

    async def topic_config_at(self, address: str, topic: str) -> TopicConfig:
        """The settings of a topic on one broker."""
        code = codes.GET_TOPIC_CONFIG
        return body_of(await self._ask(address, code, TopicName(topic)), TopicConfig, code)

    async def readable(self, topic: str) -> dict[str, str]:
        """The address at which each broker of a topic is asked: its master's, else a slave's."""
        found = {
            broker.broker_name or "": broker.broker_addrs[min(broker.broker_addrs)]
            for broker in (await self.route(topic)).broker_datas
            if broker.broker_addrs
        }
        if not found:
            raise NoRouteError(
                Text("no broker of topic %(topic)s is there now; check the brokers", topic=topic)
            )
        return found

    async def lacks_master(self, topic: str, broker: str) -> bool:
        """True if the topic's route has this broker without a master."""
        datas = (await self.route(topic)).broker_datas
        return any(one.broker_name == broker and MASTER_ID not in one.broker_addrs for one in datas)

    async def query_at(self, address: str, topic: str, key: str, most: int) -> list[Record]:
        """The messages of a topic with a key or id on one broker, at most `most`."""
        header = QueryMessage(topic, key, most, 0, EVER_MS, None)
        answer = await self._open().request(
            address, codes.QUERY_MESSAGE, header, timeout_s=ADMIN_SECONDS
        )
        if answer.code == codes.QUERY_NOT_FOUND:
            return []
        if answer.code != codes.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address, f"query {key} of {topic}")
        try:
            return decode_all(answer.body or b"")
        except Malformed as wrong:
            raise ClientError(f"{address} gave a broken message: {wrong}") from wrong

    async def readers_at(self, address: str, topic: str) -> list[str]:
        """The groups that have read a topic on one broker."""
        code = codes.QUERY_TOPIC_CONSUME_BY_WHO
        return list(
            body_of(await self._ask(address, code, TopicName(topic)), GroupList, code).group_list
        )

    async def first_offset(self, queue: MessageQueue) -> int:
        """The offset of the first message that a queue still has."""
        return await queue_bounds.min_offset(self._open(), queue)

    async def progress_at(self, address: str, group: str, topic: str | None = None) -> ConsumeStats:
        """The progress of a group on one broker, in one topic or in all."""
        code = codes.GET_CONSUME_STATS
        answer = await self._ask(address, code, ConsumeStatsHeader(group, topic))
        return body_of(answer, ConsumeStats, code)

    async def spans_at(self, address: str, topic: str, group: str) -> list[QueueTimeSpan]:
        """The times of a topic's queues, and of a group's next messages, on one broker."""
        code = codes.QUERY_CONSUME_TIME_SPAN
        answer = await self._ask(address, code, QueryConsumeTimeSpan(topic, group))
        return list(body_of(answer, QueryConsumeTimeSpanBody, code).consume_time_span_set)

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
