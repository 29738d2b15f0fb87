"""Administration of topics: create, change, delete, inspect."""

import asyncio
from collections.abc import Mapping

from ...protocol import codes
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.clients import GroupList
from ...protocol.bodies.queues import QueryConsumeQueueResponseBody
from ...protocol.bodies.stats import QueryConsumeTimeSpanBody, QueueTimeSpan, TopicStatsTable
from ...protocol.bodies.summaries import TopicSummaries
from ...protocol.bodies.topic import (
    PERM_READ,
    PERM_WRITE,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
)
from ...protocol.errors import Refusal
from ...protocol.headers.groups import SummaryPage
from ...protocol.headers.namesrv import TopicsByCluster
from ...protocol.headers.offsets import OffsetResponse, SearchOffset
from ...protocol.headers.topics import (
    QueryConsumeQueue,
    QueryConsumeTimeSpan,
    TopicName,
    UpdateTopic,
)
from ...protocol.names import check_topic
from ..base.responses import body_of, header_of
from ..cluster.cluster import topic_names
from ..cluster.route import QUEUES_MAX
from ..errors import ClientError
from .base import Asking

READ_WRITE = PERM_READ | PERM_WRITE


class TopicAdmin(Asking):
    """The calls about topics."""

    async def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return await topic_names(self._open())

    async def create_topic(
        self,
        topic: str,
        queues: int = 4,
        *,
        read_queues: int | None = None,
        perm: int = READ_WRITE,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> None:
        """Make or change `topic` on every master (of a cluster, or of one broker name).

        `queues` is the number of queues per broker. With `read_queues` it is the number of those
        that take messages, and `read_queues` of those that are read. Attributes that are not named
        stay. ClientError for a number out of range; `shrink_topic` takes queues away.
        """
        try:
            check_topic(topic)
        except Refusal as refusal:
            raise ClientError(refusal.remark) from None
        reads = queues if read_queues is None else read_queues
        for name, number in (("queues", queues), ("read_queues", reads)):
            if not 0 < number <= QUEUES_MAX:
                raise ClientError(f"{name} is {number}; give 1 to {QUEUES_MAX}")
        text = ",".join(f"+{name}={value}" for name, value in (attributes or {}).items())
        header = UpdateTopic(
            topic, reads, queues, perm, sys_flag=0, order=order, attributes=text or None
        )
        masters = await self.masters(cluster=cluster, broker=broker)
        await self._ask_each(masters, codes.UPDATE_AND_CREATE_TOPIC, header)

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete `topic` with its messages from every master, then from every name server."""
        masters = await self.masters(cluster=cluster)
        await self._ask_each(masters, codes.DELETE_TOPIC_IN_BROKER, TopicName(topic))
        servers = self._open().name_servers
        await servers.ask_all(codes.DELETE_TOPIC_IN_NAMESRV, TopicName(topic))

    async def topic_stats(self, topic: str) -> TopicStatsTable:
        """The bounds of each queue and the time of its last message."""
        found = TopicStatsTable()
        code = codes.GET_TOPIC_STATS_INFO
        addresses = await self._masters_of(topic)
        for part in (
            await self._bodies(addresses, code, TopicStatsTable, TopicName(topic))
        ).values():
            found.offset_table.update(part.offset_table)
            found.topic_put_tps += part.topic_put_tps
        return found

    async def offsets_at(self, topic: str, ms: int) -> dict[MessageQueue, int]:
        """The offset of the first message stored at `ms` or later, by readable queue."""
        route = await self._open().route(topic, fresh=True)
        addresses = await self._masters_of(topic)

        code = codes.SEARCH_OFFSET_BY_TIMESTAMP
        leader_of = self._open().leader_of

        async def search(queue: MessageQueue) -> int:
            header = SearchOffset(topic, queue.queue_id, ms)
            answer = await self._ask(addresses[leader_of(queue)], code, header)
            return header_of(answer, OffsetResponse, code).offset

        queues = [queue for queue in sorted(route.subscribe) if leader_of(queue) in addresses]
        offsets = await asyncio.gather(*(search(queue) for queue in queues))
        return dict(zip(queues, offsets, strict=True))

    async def topics_of_cluster(self, cluster: str) -> list[str]:
        """The names of the topics that a cluster's brokers have, sorted."""
        code = codes.GET_TOPICS_BY_CLUSTER
        answer = await self._open().name_servers.ask(code, TopicsByCluster(cluster))
        return sorted(body_of(answer, TopicList, code).topic_list)

    async def topic_configs(self, address: str) -> TopicConfigSerializeWrapper:
        """All topics of one broker with their settings."""
        return await self._body(address, codes.GET_ALL_TOPIC_CONFIG, TopicConfigSerializeWrapper)

    async def topic_summaries(
        self, address: str, after: str = "", count: int = 200
    ) -> TopicSummaries | None:
        """A page, of up to 1,000 rows, of what a broker tells of all its topics; None where it does
        not know this request, which only aerobee's brokers do."""
        code, header = codes.GET_TOPIC_SUMMARIES, SummaryPage(after, count)
        return await self._body_if_known(address, code, TopicSummaries, header)

    async def topic_config(self, topic: str) -> dict[str, TopicConfig]:
        """The settings of a topic on each master that has it, by broker name."""
        code, addresses = codes.GET_TOPIC_CONFIG, await self._masters_of(topic)
        return await self._bodies(addresses, code, TopicConfig, TopicName(topic))

    async def groups_of_topic(self, topic: str) -> list[str]:
        """The consumer groups that read a topic or have read it, sorted."""
        code, addresses = codes.QUERY_TOPIC_CONSUME_BY_WHO, await self._masters_of(topic)
        answers = await self._bodies(addresses, code, GroupList, TopicName(topic))
        return sorted({group for answer in answers.values() for group in answer.group_list})

    async def time_span(self, topic: str, group: str) -> list[QueueTimeSpan]:
        """The times of each queue's first and last message, and of the group's next one."""
        code, addresses = codes.QUERY_CONSUME_TIME_SPAN, await self._masters_of(topic)
        header = QueryConsumeTimeSpan(topic, group)
        answers = await self._bodies(addresses, code, QueryConsumeTimeSpanBody, header)
        return [span for answer in answers.values() for span in answer.consume_time_span_set]

    async def queue_entries(
        self, queue: MessageQueue, offset: int, count: int = 32, group: str | None = None
    ) -> QueryConsumeQueueResponseBody:
        """Entries of a consume queue; with a group also whether its subscription matches them."""
        address = (await self._masters_of(queue.topic)).get(queue.broker_name)
        if address is None:
            raise ClientError(
                f"topic {queue.topic} is not on a broker {queue.broker_name} with a master; see "
                "`route`"
            )
        code = codes.QUERY_CONSUME_QUEUE
        header = QueryConsumeQueue(queue.topic, queue.queue_id, offset, count, group)
        return await self._body(address, code, QueryConsumeQueueResponseBody, header)

    async def clean_unused_topics(self, address: str) -> None:
        """Have a broker delete the queues of topics that it doesn't have any more."""
        await self._ask(address, codes.CLEAN_UNUSED_TOPIC)
