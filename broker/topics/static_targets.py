"""Sends to static topics: which physical queue a logical one means, and what its answer says."""

from dataclasses import dataclass, field

from ...protocol import codes
from ...protocol.bodies.topic_queue_mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from ...protocol.errors import Refusal
from ...protocol.queues.logical_queues import to_logical_within
from .static_mappings import StaticTopics
from .topics import Target


@dataclass(slots=True, eq=False)
class LogicalTarget(Target):
    """A static topic as a send sees it: its queue ids are logical, its `keys` physical."""

    items: dict[int, LogicQueueMappingItem] = field(default_factory=dict)

    def offset(self, queue_id: int, physical: int) -> int:
        """The logical offset of a message, -1 while it is not decided."""
        return to_logical_within(self.items[queue_id], physical)


class LogicalTargets:
    """The targets of static topics, each created once and kept until its topic changes."""

    def __init__(self, static: StaticTopics) -> None:
        self._static = static
        self._made: dict[str, tuple[Target, TopicQueueMappingDetail, LogicalTarget]] = {}

    def check(self, topic: str, queue_id: int) -> int:
        """The id of the logical queue, any for one below 0; Refusal when it isn't led here."""
        hosted = self._static.table[topic].hosted_queues
        if queue_id < 0:
            # RocketMQ takes the first that it knows of, even one that it doesn't lead any more.
            led = (each for each in hosted if self._static.led(topic, each))
            queue_id = next(led, queue_id)
        if self._static.led(topic, queue_id) is None:
            raise not_leader(topic, queue_id, self._static.broker_name)
        return queue_id

    def of(self, target: Target, queue_id: int) -> tuple[LogicalTarget, int]:
        """The target for sends to this logical queue, which `check` let through.

        Refusal when the topic has no such physical queue.
        """
        topic = target.name
        detail = self._static.table[topic]
        made = self._made.get(topic)
        if made is None or made[0] is not target or made[1] is not detail:
            if len(self._made) > len(self._static.table):
                self._made.clear()
            made = self._made[topic] = target, detail, self._make(target)
        logical = made[2]
        _, physical = logical.keys[queue_id]
        if physical >= target.queues:
            raise Refusal(
                codes.INVALID_PARAMETER,
                f"request queueId[{physical}] is illegal, topic {topic} has {target.queues} "
                f"queues; logical queue {queue_id} is mapped wrongly (updateStaticTopic)",
            )
        return logical, queue_id

    def _make(self, target: Target) -> LogicalTarget:
        hosted = self._static.table[target.name].hosted_queues
        led = {each: items[-1] for each, items in hosted.items() if items}
        keys = [(target.name, -1)] * (max(led, default=-1) + 1)
        for each, item in led.items():
            keys[each] = target.name, item.queue_id
        return LogicalTarget(
            target.name, target.config, target.queues, True, target.puts, keys, True, led
        )


def not_leader(topic: str, queue_id: int, broker_name: str) -> Refusal:
    """The refusal that makes clients look up the broker that leads a logical queue."""
    return Refusal(
        codes.NOT_LEADER_FOR_QUEUE,
        f"{topic}-{queue_id} does not exit in request process of current broker {broker_name}",
    )
