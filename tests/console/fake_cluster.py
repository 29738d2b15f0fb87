"""A name server and a broker whose names and messages are what a test says; with `is_java` the
broker does not know our requests for pages, as Java's doesn't."""

from aerobee.protocol import codes
from aerobee.protocol.bodies.body import Body, MessageQueue
from aerobee.protocol.bodies.clients import (
    Connection,
    ConsumerConnection,
    GroupList,
    ProducerInfo,
    ProducerTableInfo,
)
from aerobee.protocol.bodies.cluster import ClusterInfo, KVTable
from aerobee.protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from aerobee.protocol.bodies.ha import HAConnectionRuntimeInfo, HARuntimeInfo
from aerobee.protocol.bodies.route import BrokerData
from aerobee.protocol.bodies.running import ConsumerRunningInfo
from aerobee.protocol.bodies.stats import (
    ConsumeStats,
    OffsetWrapper,
    TopicOffset,
    TopicStatsTable,
)
from aerobee.protocol.bodies.subscription import SubscriptionData
from aerobee.protocol.bodies.summaries import (
    GroupSummaries,
    GroupSummary,
    GroupTopicSummary,
    TopicSummaries,
    TopicSummary,
)
from aerobee.protocol.bodies.topic import TopicConfig, TopicConfigSerializeWrapper, TopicList
from aerobee.protocol.codec import java_properties
from aerobee.protocol.command import Command, Response
from aerobee.protocol.names import DLQ_PREFIX

from ..client.fakes import Answer, FakeCluster, pulled, record

QUEUES = 2


class Shop(FakeCluster):
    """One topic, one group and one member, all of this name."""

    def __init__(self, name: str, *, is_java: bool = False, body: bytes = b"body") -> None:
        super().__init__()
        self.name = name
        self.body = body
        self.broker.name = name
        topics = [name, DLQ_PREFIX + name]
        self.topics = dict.fromkeys(topics, QUEUES)
        self.answers[codes.GET_BROKER_CLUSTER_INFO] = self._clusters
        self.answers[codes.GET_ALL_TOPIC_LIST_FROM_NAMESERVER] = _told(TopicList(topics))
        answers = self.broker.answers
        table = {"brokerVersionDesc": name, "putTps": "1.5 1 1", name: name}
        answers[codes.GET_BROKER_RUNTIME_INFO] = _told(KVTable(table))
        settings = java_properties.dump({name: name, "secretKey": "the secret"})
        answers[codes.GET_BROKER_CONFIG] = lambda *_: Response(body=settings.encode())
        slave = HAConnectionRuntimeInfo(name, 5, 7, False)
        answers[codes.GET_BROKER_HA_STATUS] = _told(HARuntimeInfo(True, 12, 0, [slave]))
        if not is_java:
            summaries = [TopicSummary(one, 2, 2, 6, name, 4, 1, 9, 4, 0.5) for one in topics]
            answers[codes.GET_TOPIC_SUMMARIES] = _told(TopicSummaries(summaries))
            group = GroupSummary(name, True, 1, name, name, 2, name)
            group.topics = [GroupTopicSummary(name, False, 3, 1, 5_000, 0.5)]
            answers[codes.GET_GROUP_SUMMARIES] = _told(GroupSummaries([group]))
        configs = {one: TopicConfig(one, 2, 2, attributes={name: name}) for one in topics}
        answers[codes.GET_ALL_TOPIC_CONFIG] = _told(TopicConfigSerializeWrapper(configs))
        answers[codes.GET_TOPIC_CONFIG] = _told(configs[name])
        groups = SubscriptionGroupWrapper({name: SubscriptionGroupConfig(name)})
        answers[codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG] = _told(groups)
        queue = MessageQueue(name, name, 0)
        bounds = {queue: TopicOffset(1, 5, 77_000)}
        answers[codes.GET_TOPIC_STATS_INFO] = _told(TopicStatsTable(bounds, 2.5))
        progress = ConsumeStats({queue: OffsetWrapper(5, 2, 2, 66_000)}, 1.0)
        answers[codes.GET_CONSUME_STATS] = _told(progress)
        wanted = {name: SubscriptionData(name, name, {name}, {1}, 1)}
        online = ConsumerConnection([Connection(name, name, name, 3)], wanted, name, name)
        answers[codes.GET_CONSUMER_CONNECTION_LIST] = by_group({name: online})
        producers = ProducerTableInfo({name: [ProducerInfo(name, name, name, 3, 9)]})
        answers[codes.GET_ALL_PRODUCER_INFO] = _told(producers)
        running = ConsumerRunningInfo({name: name}, jstack=name)
        answers[codes.GET_CONSUMER_RUNNING_INFO] = _told(running)
        answers[codes.QUERY_TOPIC_CONSUME_BY_WHO] = _told(GroupList([name]))
        answers[codes.GET_MIN_OFFSET] = lambda *_: Response(fields={"offset": "3"})
        answers[codes.GET_MAX_OFFSET] = lambda *_: Response(fields={"offset": "4"})
        answers[codes.SEARCH_OFFSET_BY_TIMESTAMP] = lambda *_: Response(fields={"offset": "3"})
        answers[codes.PULL_MESSAGE] = self._pull
        answers[codes.QUERY_MESSAGE] = lambda *_: Response(body=self.record())

    def record(self) -> bytes:
        """The message at offset 3: properties of this name, and one that is no UTF-8."""
        name = self.name.replace("\x01", "").replace("\x02", "").encode("utf-8", "replace")
        pairs = [(b"TAGS", name), (b"KEYS", name), (b"UNIQ_KEY", name), (name, b"\xff\xfe" + name)]
        raw = b"".join(key + b"\x01" + value + b"\x02" for key, value in pairs)
        return record(3, self.body, self.name[:60], raw)

    def _pull(self, command: Command, _: object) -> Response:
        if command.fields()["queueOffset"] != "3":
            return pulled([], 4, codes.PULL_NOT_FOUND)
        return pulled([self.record()], 4)

    def _clusters(self, *_: object) -> Response:
        data = BrokerData(self.name, self.name, {0: self.broker.address})
        return Response(body=ClusterInfo({self.name: data}, {self.name: [self.name]}).encode())


def by_group(found: dict[str, ConsumerConnection]) -> Answer:
    """What a broker, or a proxy, knows of the members of groups (203)."""

    def answer(command: Command, _: object) -> Response:
        online = found.get(command.fields()["consumerGroup"])
        if online is None:
            return Response(codes.CONSUMER_NOT_ONLINE, remark="not online")
        return Response(body=online.encode())

    return answer


def _told(body: Body) -> Answer:
    text = body.encode()
    return lambda *_: Response(body=text)
