"""Administration on asyncio: one thin method for each thing an administrator asks for.

What a cluster-wide method asks, it asks of every master that the name servers know, and an error
names the broker it came from. Each answer is the body that RocketMQ's own tools get.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Self

from ..protocol import codes
from ..protocol.bodies.body import MessageQueue
from ..protocol.bodies.clients import ConsumerConnection
from ..protocol.bodies.cluster import ClusterInfo, KVTable
from ..protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from ..protocol.bodies.route import MASTER_ID, TopicRouteData
from ..protocol.bodies.stats import ConsumeStats, TopicStatsTable
from ..protocol.bodies.topic import PERM_READ, PERM_WRITE
from ..protocol.command import Command
from ..protocol.errors import Malformed, Refusal
from ..protocol.headers.clients import ConsumerGroup
from ..protocol.headers.groups import ConsumeStats as ConsumeStatsHeader
from ..protocol.headers.groups import DeleteGroup
from ..protocol.headers.offsets import OffsetAnswer, SearchOffset
from ..protocol.headers.topics import TopicName, UpdateTopic, ViewMessage
from ..protocol.message_id import PORT_BYTES, parse_offset_message_id
from ..protocol.names import check_topic
from ..protocol.record import Record, decode_record
from ..protocol.wire import Header
from .answers import body_of, header_of
from .cluster import Cluster, topic_names
from .errors import BrokerError, ClientError, ClosedError, NoRouteError
from .identity import host_text
from .security import OPEN, Security

READ_WRITE = PERM_READ | PERM_WRITE
QUEUES_MAX = 65_536  # of one topic on one broker
ADMIN_SECONDS = 15.0


class Admin:
    """Asks and changes a cluster.

    async with Admin("127.0.0.1:9876") as admin:
        await admin.create_topic("orders", queues=8)
        print(await admin.topics())
    """

    def __init__(
        self, name_server: str | Iterable[str] | None = None, *, security: Security = OPEN
    ) -> None:
        self._name_server = name_server
        self._security = security
        self._cluster: Cluster | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Make the client; connections are made when they are needed."""
        if self._cluster is None:
            self._cluster = Cluster(self._name_server, security=self._security)

    async def close(self) -> None:
        """Close the connections."""
        if self._cluster is not None:
            await self._cluster.close()

    # --- the cluster ----------------------------------------------------------------------------

    async def cluster_info(self) -> ClusterInfo:
        """All brokers with their addresses, and which of them belong to each cluster."""
        servers = self._open().name_servers
        answer = await servers.ask(codes.GET_BROKER_CLUSTER_INFO)
        return body_of(answer, ClusterInfo, codes.GET_BROKER_CLUSTER_INFO)

    async def masters(
        self, *, cluster: str | None = None, broker: str | None = None
    ) -> dict[str, str]:
        """The masters' addresses by broker name: all, of one cluster, or of one broker name.

        NoRouteError when there is none.
        """
        info = await self.cluster_info()
        names = set(info.broker_addr_table)
        if cluster is not None:
            names &= set(info.cluster_addr_table.get(cluster, ()))
        if broker is not None:
            names &= {broker}
        found = {
            name: data.broker_addrs[MASTER_ID]
            for name, data in sorted(info.broker_addr_table.items())
            if name in names and MASTER_ID in data.broker_addrs
        }
        if not found:
            raise NoRouteError(
                f"no master broker (cluster {cluster or 'any'}, broker {broker or 'any'}); the "
                f"name server knows clusters {sorted(info.cluster_addr_table)} and brokers "
                f"{sorted(info.broker_addr_table)}"
            )
        return found

    async def broker_runtime(self, address: str) -> dict[str, str]:
        """What a broker counts and measures, by RocketMQ's names."""
        answer = await self._ask(address, codes.GET_BROKER_RUNTIME_INFO)
        return body_of(answer, KVTable, codes.GET_BROKER_RUNTIME_INFO).table

    async def broker_config(self, address: str) -> str:
        """A broker's settings as the text of a properties file."""
        answer = await self._ask(address, codes.GET_BROKER_CONFIG)
        return (answer.body or b"").decode()

    # --- topics ---------------------------------------------------------------------------------

    async def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return await topic_names(self._open())

    async def route(self, topic: str) -> TopicRouteData:
        """Which brokers have `topic` and with how many queues; NoRouteError when none has."""
        return await self._open().route_data(topic)

    async def create_topic(
        self,
        topic: str,
        queues: int = 4,
        *,
        perm: int = READ_WRITE,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> None:
        """Make or change `topic` on every master (of a cluster, or of one broker name)."""
        try:
            check_topic(topic)
        except Refusal as refusal:
            raise ClientError(refusal.remark) from None
        if not 0 < queues <= QUEUES_MAX:
            raise ClientError(f"queues is {queues}; give 1 to {QUEUES_MAX}")
        text = ",".join(f"+{name}={value}" for name, value in (attributes or {}).items())
        header = UpdateTopic(
            topic, queues, queues, perm, sys_flag=0, order=order, attributes=text or None
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
        for answer in await self._ask_each(addresses, code, TopicName(topic)):
            part = body_of(answer, TopicStatsTable, code)
            found.offset_table.update(part.offset_table)
            found.topic_put_tps += part.topic_put_tps
        return found

    async def offsets_at(self, topic: str, ms: int) -> dict[MessageQueue, int]:
        """For each readable queue the offset of the first message stored at `ms` or later."""
        route = await self._open().route(topic, fresh=True)
        addresses = await self._masters_of(topic)

        code = codes.SEARCH_OFFSET_BY_TIMESTAMP

        async def search(queue: MessageQueue) -> int:
            header = SearchOffset(topic, queue.queue_id, ms)
            address = addresses[queue.broker_name]
            answer = await self._ask(address, code, header)
            return header_of(answer, OffsetAnswer, code).offset

        queues = [queue for queue in sorted(route.subscribe) if queue.broker_name in addresses]
        offsets = await asyncio.gather(*(search(queue) for queue in queues))
        return dict(zip(queues, offsets, strict=True))

    async def message(self, offset_msg_id: str) -> Record:
        """The stored message with this offset message id, asked of the broker that it names."""
        try:
            host, offset = parse_offset_message_id(offset_msg_id)
        except ValueError as wrong:
            raise ClientError(str(wrong)) from None
        address = host_text(host[:-PORT_BYTES], int.from_bytes(host[-PORT_BYTES:], "big"))
        answer = await self._ask(address, codes.VIEW_MESSAGE_BY_ID, ViewMessage(offset))
        try:
            return decode_record(answer.body or b"")
        except Malformed as wrong:
            raise ClientError(f"{address} gave a broken message: {wrong}") from wrong

    # --- groups ---------------------------------------------------------------------------------

    async def groups(self) -> dict[str, SubscriptionGroupWrapper]:
        """The consumer groups that each master keeps, by broker name."""
        masters = await self.masters()
        code = codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        answers = await self._ask_each(masters, code)
        return {
            name: body_of(answer, SubscriptionGroupWrapper, code)
            for name, answer in zip(masters, answers, strict=True)
        }

    async def update_group(self, config: SubscriptionGroupConfig) -> None:
        """Make a consumer group or replace its settings on every master."""
        body = config.encode()
        masters = await self.masters()
        await self._ask_each(masters, codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)

    async def delete_group(self, group: str, *, clean_offsets: bool = False) -> None:
        """Delete a consumer group, and with `clean_offsets` its progress, on every master."""
        header = DeleteGroup(group, clean_offsets)
        await self._ask_each(await self.masters(), codes.DELETE_SUBSCRIPTIONGROUP, header)

    async def consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """How far `group` is in each queue, in one topic or in all that it has read."""
        found = ConsumeStats()
        header = ConsumeStatsHeader(group, topic)
        masters = await self.masters()
        for answer in await self._ask_each(masters, codes.GET_CONSUME_STATS, header):
            part = body_of(answer, ConsumeStats, codes.GET_CONSUME_STATS)
            found.offset_table.update(part.offset_table)
            found.consume_tps += part.consume_tps
        return found

    async def consumer_connection(self, group: str) -> ConsumerConnection | None:
        """The members of `group` and their subscriptions; None when no broker has a member."""
        for address in (await self.masters()).values():
            code, header = codes.GET_CONSUMER_CONNECTION_LIST, ConsumerGroup(group)
            answer = await self._open().request(address, code, header, timeout_s=ADMIN_SECONDS)
            if answer.code == codes.SUCCESS:
                return body_of(answer, ConsumerConnection, code)
            if answer.code != codes.CONSUMER_NOT_ONLINE:
                raise BrokerError(answer.code, answer.remark, address, f"list members of {group}")
        return None

    # --- inside ---------------------------------------------------------------------------------

    async def _masters_of(self, topic: str) -> dict[str, str]:
        found = {
            broker.broker_name or "": broker.broker_addrs[MASTER_ID]
            for broker in (await self.route(topic)).broker_datas
            if MASTER_ID in broker.broker_addrs
        }
        if not found:
            raise NoRouteError(f"no broker of topic {topic} has a master now; check the brokers")
        return found

    async def _ask(
        self, address: str, code: int, header: Header | None = None, body: bytes = b""
    ) -> Command:
        return await self._open().ask(address, code, header, body, ADMIN_SECONDS)

    async def _ask_each(
        self,
        addresses: Mapping[str, str],
        code: int,
        header: Header | None = None,
        body: bytes = b"",
    ) -> list[Command]:
        work = (self._ask(address, code, header, body) for address in addresses.values())
        return await asyncio.gather(*work)

    def _open(self) -> Cluster:
        if self._cluster is None:
            raise ClosedError("the admin is not started; use `async with` or start()")
        return self._cluster
