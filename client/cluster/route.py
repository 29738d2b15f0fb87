"""Which queues a topic has and where: the client's view of a name server's route answer.

A `Route` is made from the answer and never changes; a newer answer makes a newer one. Its queues
are in the order that RocketMQ's clients use, because the order decides which queue a key means.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.route import MASTER_ID, QueueData, TopicRouteData
from ...protocol.bodies.topic import PERM_READ, PERM_WRITE
from ...protocol.bodies.topic_queue_mapping import TopicQueueMappingInfo
from ...protocol.queues.logical_queues import leaders, mock_broker_name

__all__ = ["QUEUES_MAX", "MessageQueue", "Route", "read_route"]

QUEUES_MAX = 65_536  # queues of one topic on one broker; each is an object here


@dataclass(frozen=True, slots=True)
class Route:
    """A topic's queues and its brokers' addresses.

    `publish` are the writable queues of brokers with a master, in broker order, or in that of the
    topic's order configuration (then `ordered`). `subscribe` are the readable queues. `brokers`
    maps a broker's name to its addresses by broker id (0 is the master).

    The queues of a static topic are logical: their broker name is a placeholder. `leaders` maps
    each to the name of the broker that leads it.
    """

    topic: str
    publish: tuple[MessageQueue, ...]
    subscribe: tuple[MessageQueue, ...]
    brokers: Mapping[str, Mapping[int, str]]
    ordered: bool = False
    leaders: Mapping[MessageQueue, str] = field(default_factory=dict)

    @property
    def lacks_master(self) -> bool:
        """True if no queue can be written, and a broker of the topic has no master now."""
        return not self.publish and any(MASTER_ID not in each for each in self.brokers.values())

    @property
    def broker_names(self) -> list[str]:
        """The brokers that have messages of the topic, sorted."""
        if self.leaders:
            return sorted(self.brokers)
        return sorted({queue.broker_name for queue in self.subscribe})


def read_route(topic: str, answer: TopicRouteData, queues_max: int | None = None) -> Route:
    """The route of `topic` in a name server's answer.

    `queues_max` cuts the queues per broker: so a topic that does not exist yet borrows the route
    of TBW102. Raises ValueError when the topic's order configuration can't be read,
    or when a broker has more queues than `QUEUES_MAX`.
    """
    brokers = {
        broker.broker_name or "": dict(broker.broker_addrs) for broker in answer.broker_datas
    }
    led = _leaders(topic, answer.topic_queue_mapping_by_broker or {})
    if led:
        logical = tuple(led)
        if answer.order_topic_conf:
            ordered = _ordered(topic, answer.order_topic_conf)
            return Route(topic, ordered, logical, brokers, ordered=True, leaders=led)
        by_id = tuple(sorted(logical, key=lambda queue: queue.queue_id))
        return Route(topic, by_id, logical, brokers, leaders=led)
    subscribe = tuple(
        MessageQueue(topic, row.broker_name or "", queue_id)
        for row in answer.queue_datas
        if row.perm & PERM_READ
        for queue_id in range(_queues(row, row.read_queue_nums, queues_max))
    )
    if answer.order_topic_conf:
        ordered = _ordered(topic, answer.order_topic_conf)
        return Route(topic, ordered, subscribe, brokers, ordered=True)
    publish = tuple(
        MessageQueue(topic, row.broker_name or "", queue_id)
        for row in sorted(answer.queue_datas, key=lambda row: row.broker_name or "")
        if row.perm & PERM_WRITE and MASTER_ID in brokers.get(row.broker_name or "", ())
        for queue_id in range(_queues(row, row.write_queue_nums, queues_max))
    )
    return Route(topic, publish, subscribe, brokers)


def _leaders(
    topic: str, mapping_by_broker: Mapping[str, TopicQueueMappingInfo]
) -> dict[MessageQueue, str]:
    """The logical queues of a static topic and their leaders; empty for any other topic."""
    for broker, info in mapping_by_broker.items():
        _check_number(info.total_queues, broker)
    return {
        MessageQueue(topic, mock_broker_name(scope), queue_id): leader
        for scope, queues in leaders(mapping_by_broker).items()
        for queue_id, leader in queues.items()
    }


def _queues(row: QueueData, queues: int, queues_max: int | None) -> int:
    # Java's client limits both numbers by the read queues.
    found = queues if queues_max is None else min(row.read_queue_nums, queues_max)
    _check_number(found, row.broker_name or "")
    return found


def _ordered(topic: str, text: str) -> tuple[MessageQueue, ...]:
    # "broker-a:4;broker-b:4": this order, whatever the queue data say
    found: list[MessageQueue] = []
    for part in filter(None, text.split(";")):
        name, _, queues = part.partition(":")
        if not queues.isdecimal():
            raise ValueError(
                f"the order configuration {text!r} of topic {topic} can't be read; it has the form "
                "broker:queues;broker:queues (mqadmin updateOrderConf sets it)"
            )
        _check_number(int(queues), name)
        found += (MessageQueue(topic, name, queue_id) for queue_id in range(int(queues)))
    return tuple(found)


def _check_number(queues: int, broker: str) -> None:
    if queues > QUEUES_MAX:
        raise ValueError(f"broker {broker} has {queues} queues, the limit is {QUEUES_MAX}")
