"""The messages that a broker still has to hand out before it is taken away."""

from collections.abc import Iterator
from typing import NamedTuple

from ...protocol import codes
from ...protocol.bodies.stats import TopicStatsTable
from ...protocol.headers.topics import TopicName
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from ..base.concurrent import each
from .brokers import BrokerAdmin
from .groups import GroupAdmin
from .topics import TopicAdmin

HALF_TOPIC, HALF_GROUP = "RMQ_SYS_TRANS_HALF_TOPIC", "CID_RMQ_SYS_TRANS"
REVIVE_PREFIX, REVIVE_GROUP = "rmq_sys_REVIVE_LOG_", "CID_RMQ_SYS_REVIVE_GROUP"
DELAY_TOPIC, DELAY_PREFIX = "SCHEDULE_TOPIC_XXXX", "scheduleMessageOffset_"
TIMERS = ("timerOffsetBehind", "timerCongestNum")

GROUP, HALF, DELAY, TIMER, POPPED = "group", "half messages", "delay level", "timers", "popped"
NOBODY, DEAD = "no group", "dead letters"
NOT_WAITED_FOR = (NOBODY, DEAD)


class Left(NamedTuple):
    """Messages that a broker still has to hand out. `what` is one of the texts above; `queue` is -1
    for all queues. `is_waited_for`: they keep the broker from being empty."""

    what: str
    group: str
    topic: str
    queue: int
    messages: int

    @property
    def is_waited_for(self) -> bool:
        """False for messages that no group reads."""
        return self.what not in NOT_WAITED_FOR

    def __str__(self) -> str:
        where = self.topic + (f" queue {self.queue}" if self.queue >= 0 else "")
        return " ".join(part for part in (self.what, self.group, where) if part)


class DrainAdmin(BrokerAdmin, TopicAdmin, GroupAdmin):
    """The call about a broker that is to become empty."""

    async def left_to_read(self, address: str) -> list[Left]:
        """The messages that the broker at "host:port" still has to hand out.

        They are counted by group, topic and queue. A group counts for each topic of which it has
        offsets on that broker.
        """
        offsets = (await self.all_offsets(address)).offset_table
        names = list((await self.topic_configs(address)).topic_config_table)
        pairs = _pairs(names, offsets)

        async def of_topic(topic: str) -> list[Left]:
            bounds = await self._bounds(address, topic)
            return list(_left(topic, bounds, pairs.get(topic, []), offsets))

        found = [
            left for part in await each(sorted(filter(_is_read, names)), of_topic) for left in part
        ]
        return found + await self._waiting_at(address)

    async def _bounds(self, address: str, topic: str) -> dict[int, tuple[int, int]]:
        """The first and the next offset of each queue."""
        code, header = codes.GET_TOPIC_STATS_INFO, TopicName(topic)
        stats = (await self._body(address, code, TopicStatsTable, header)).offset_table
        return {queue.queue_id: (one.min_offset, one.max_offset) for queue, one in stats.items()}

    async def _waiting_at(self, address: str) -> list[Left]:
        """Messages with a delay, by level, and those of the timer wheel."""
        table = await self.broker_runtime(address)
        found = []
        for queue, (first, end) in sorted((await self._bounds(address, DELAY_TOPIC)).items()):
            level = queue + 1
            done, _, _ = table.get(f"{DELAY_PREFIX}{level}", "0").partition(",")
            left = end - max(int(done), first)
            if left > 0:
                found.append(Left(DELAY, str(level), "", -1, left))
        timers = sum(int(table.get(key, "0")) for key in TIMERS)
        return [*found, Left(TIMER, "", "", -1, timers)] if timers else found


def _is_read(topic: str) -> bool:
    """True if this topic's messages have readers: it is no system topic, or the broker reads it."""
    return topic == HALF_TOPIC or topic.startswith(REVIVE_PREFIX) or not is_system_topic(topic)


def _pairs(topics: list[str], offsets: dict[str, dict[int, int]]) -> dict[str, list[str]]:
    """The groups by topic: those with offsets, and the readers that a topic's name says."""
    found: dict[str, list[str]] = {}
    for key in offsets:
        topic, _, group = key.rpartition("@")
        found.setdefault(topic, []).append(group)
    for topic in topics:
        reader = ""
        if topic == HALF_TOPIC:
            reader = HALF_GROUP
        elif topic.startswith(REVIVE_PREFIX):
            reader = REVIVE_GROUP
        elif topic.startswith(RETRY_PREFIX) and topic not in found:
            reader = topic.removeprefix(RETRY_PREFIX)
        if reader and reader not in found.setdefault(topic, []):
            found[topic].append(reader)
    return found


def _left(
    topic: str,
    bounds: dict[int, tuple[int, int]],
    groups: list[str],
    offsets: dict[str, dict[int, int]],
) -> Iterator[Left]:
    """The messages of one topic that are left; `bounds` are each queue's first and next offset."""
    is_revive = topic.startswith(REVIVE_PREFIX)
    for group in groups:
        known = offsets.get(f"{topic}@{group}", {})
        for queue, (first, end) in sorted(bounds.items()):
            # The offset of a revive queue is the last finished entry, others are the next message.
            done = known.get(queue, -1) + (1 if is_revive else 0)
            left = end - max(done, first)
            if left > 0:
                what = HALF if topic == HALF_TOPIC else POPPED if is_revive else GROUP
                yield Left(what, group if what == GROUP else "", topic, queue, left)
    messages = sum(max(0, end - first) for first, end in bounds.values())
    if not groups and messages:
        yield Left(DEAD if topic.startswith(DLQ_PREFIX) else NOBODY, "", topic, -1, messages)
