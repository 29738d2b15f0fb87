"""Finds the route of sends, once for each topic and queue.

A route stays known while its topic and its queue stay the same. Sends without one (unknown
topics, static topics, queues that are full or don't exist yet, delays that are refused) are
exceptional: they are handled one by one (`handlers.py`), and `target` finds the queue of each.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ...protocol import codes
from ...protocol.aio.connection import Connection
from ...protocol.aio.rpc_latency import ONEWAY, rpc_key
from ...protocol.bodies.group import SubscriptionGroupConfig
from ...protocol.command import Command
from ...protocol.errors import Refusal
from ...protocol.headers.send import SendMessage, SendMessageV1
from ...protocol.message import properties
from ...protocol.message.record import MULTI_TAGS
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX
from ...store.engine.store import MessageStore
from ...store.queues.consume_queue import ConsumeQueue
from ..groups.groups import Groups
from ..groups.queue_locks import QueueLocks
from ..runtime.arrivals import DELAY, FIFO, NORMAL
from ..runtime.stats import Stats
from ..scheduled.delivery_policy import DeliveryPolicy, without
from ..topics.static_targets import LogicalTargets
from ..topics.topics import MULTI_TAG, Target, Topics, is_compacted

if TYPE_CHECKING:
    from ...protocol.kernels.send_table import Group

# Under what the requests that succeed are counted.
SEND_V2_OK = rpc_key(codes.SEND_MESSAGE_V2, codes.SUCCESS)
SEND_BATCH_OK = rpc_key(codes.SEND_BATCH_MESSAGE, codes.SUCCESS)
RECONSUME_VERSION_MIN = 121  # V3_4_9: from here on a client's maxReconsumeTimes counts


class SendRoute(NamedTuple):
    """The queue for a group of sends: its topic, its key, and the queue itself. Behind the
    properties of each message comes `properties_suffix`. What waits is delivered `delay_ms` after
    it is stored, -1 if that is not known now, or at `slot_ms` of the timer wheel, 0 for none.
    `kind` is the type of the messages, and `answer` is the key under which the metrics count the
    requests."""

    target: Target
    key: tuple[str, int]
    queue: ConsumeQueue
    properties_suffix: bytes
    delay_ms: int
    slot_ms: int
    kind: str
    answer: int


class Router:
    """The routes of groups of sends, by the numbers of the groups."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        groups: Groups,
        locks: QueueLocks,
        delivery_policy: DeliveryPolicy,
        stats: Stats,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._locks = locks
        self._delivery_policy = delivery_policy
        self._stats = stats
        self._now_ms = now_ms
        self._logical = LogicalTargets(topics.static)
        self._suffix = b""
        self._known: dict[int, SendRoute] = {}

    def forget(self, suffix: bytes) -> None:
        """Forget all routes: from now on this comes behind the properties of each message."""
        self._suffix = suffix
        self.forget_groups()

    def forget_groups(self) -> None:
        """Forget all routes: the groups get other numbers."""
        self._known.clear()

    def find(self, number: int, group: "Group", messages: int, now_ms: int) -> SendRoute | None:
        """The route of this many messages of a group; None if they are exceptional."""
        known = self._known.get(number)
        if known is not None and self._is_valid(known):
            return known
        found = self._find(group, messages, now_ms)
        if found is not None and not group.waits:  # else it holds for this moment only
            self._known[number] = found
        return found

    def target(
        self, header: SendMessage | SendMessageV1, command: Command, connection: Connection
    ) -> tuple[Target, int]:
        """The topic and queue of one send that is exceptional; Refusal when there is none."""
        topic = header.topic
        is_static = topic in self._topics.static.table
        if is_static:
            header.queue_id = self._logical.check(topic, header.queue_id)
        target = self._topics.for_send(header, connection.address)
        self._topics.check_open(target)
        queue_id = header.queue_id
        if is_static:
            target, queue_id = self._logical.of(target, queue_id)
        elif queue_id >= target.queues:
            raise Refusal(
                codes.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, topic {topic} has {target.queues} "
                f"queues, so 0 to {target.queues - 1} are there; refresh the route",
            )
        if queue_id < 0:
            queue_id = random.randrange(max(1, target.config.write_queue_nums))  # noqa: S311
        if target.config.topic_filter_type == MULTI_TAG:
            header.sys_flag |= MULTI_TAGS
        if topic.startswith(RETRY_PREFIX):
            return self._retry_target(header, command, target, queue_id)
        if is_compacted(target.config) and not header.batch:
            keys = properties.decode(header.properties or "").get(properties.KEYS, "")
            if not keys.strip():
                raise Refusal(
                    codes.MESSAGE_ILLEGAL,
                    f"Required message key is missing: topic {topic} has "
                    "cleanup.policy=COMPACTION, by which each message needs one; set it (KEYS)",
                )
        return target, queue_id

    def _retry_target(
        self,
        header: SendMessage | SendMessageV1,
        command: Command,
        target: Target,
        queue_id: int,
    ) -> tuple[Target, int]:
        """The target of a message that a client sends to a retry topic: the dead letters after too
        many retries."""
        name = header.topic[len(RETRY_PREFIX) :]
        group: SubscriptionGroupConfig | None = self._groups.find(name)
        if group is None:
            raise Refusal(
                codes.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {name}; create it or switch on "
                "autoCreateSubscriptionGroup",
            )
        limit = group.retry_max_times
        if command.version >= RECONSUME_VERSION_MIN and header.max_reconsume_times is not None:
            limit = header.max_reconsume_times
        # A group that holds locks consumes in order, and sends only what it has given up.
        if (header.reconsume_times or 0) > limit or self._locks.is_orderly(name, self._now_ms()):
            self._stats.dead_letter(header.topic, header.producer_group)
            text = without(header.properties or "", ["DELAY"])
            header.properties = f"{text}DELAY\x01-1\x02"  # a dead letter waits no more
            return self._topics.dead_letters(DLQ_PREFIX + name), 0
        return target, queue_id

    def _is_valid(self, route: SendRoute) -> bool:
        target = route.target
        return (
            self._topics.targets.get(target.name) is target  # a topic that changes has another one
            and not target.special
            and self._store.eligible_queue(route.key) is route.queue
        )

    def _find(self, group: "Group", messages: int, now_ms: int) -> SendRoute | None:
        target = self._topics.targets.get(group.topic)
        if target is None or target.special or not 0 <= group.queue_id < target.queues:
            return None
        key = own = target.keys[group.queue_id]
        properties_suffix, slot_ms = self._suffix, 0
        if group.waits:
            waits = f"{group.waits}\x02"
            try:
                placed = self._delivery_policy.placed_all(waits, own, messages, now_ms)
            except Refusal:  # the handler finds it, too, and says so
                return None
            if placed is None:
                return None
            key, text, slot_ms = placed
            if not text.startswith(waits):  # a level over the last one: the text is another
                return None
            properties_suffix = text[len(waits) :].encode() + properties_suffix
        queue = self._store.eligible_queue(key)
        if queue is None or (queue.is_schedule and key is own):
            return None
        delay_ms = self._store.settings.delay_levels_ms[key[1]] if queue.is_schedule else -1
        kind = FIFO if group.is_fifo else DELAY if group.waits else NORMAL
        answer = SEND_BATCH_OK if group.is_batch else SEND_V2_OK
        if group.is_oneway:
            answer |= ONEWAY
        return SendRoute(target, key, queue, properties_suffix, delay_ms, slot_ms, kind, answer)
