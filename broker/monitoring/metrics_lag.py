"""The lag of groups: RocketMQ's five metrics of a topic and a group.

RocketMQ has them only while a group has members. Here a group that is offline has them as well, for
the topics in which it has offsets: that it has stopped is what an alert is for.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ...protocol.message.pop_handles import normal_topic, retry_topic
from ...protocol.names import RETRY_PREFIX, is_system_group
from ..filters.matching import is_by_tags, tags_of
from ..groups.clients import ConsumerGroup
from ..roles.parts import Parts
from .metrics_labels import NODE, Family, Node, flag, is_system_pair

CONSUME_POP = "CONSUME_POP"
LABELS = (*NODE, "topic", "consumer_group", "is_retry", "is_system")
NEVER = -1


class Lag(NamedTuple):
    """`in_flight` messages were delivered and are not acknowledged, `ready` ones not delivered; the
    rest of a group's `messages`. Times in ms: the age of the first of all, and of those ready."""

    messages: int = 0
    latency_ms: int = 0
    in_flight: int = 0
    queueing_ms: int = 0
    ready: int = 0


class Pair(NamedTuple):
    """The subject of a row: `read` is the topic or retry topic that the numbers are of."""

    topic: str
    group: str
    read: str
    is_retry: bool
    is_pop: bool


def lag_families(broker: Parts, node: Node) -> Iterator[Family]:
    """The five, of numbers that are worked out while the first of them is read."""
    rows: list[tuple[tuple[str, ...], Lag]] = []

    def first() -> Iterator[tuple[Node, float] | None]:
        for pair in _pairs(broker):
            if pair is None:
                yield None
                continue
            system = flag(is_system_pair(pair.topic, pair.group))
            labels = (*node, pair.topic, pair.group, flag(pair.is_retry), system)
            found = lag_of(broker, pair)
            rows.append((labels, found))
            yield labels, found.messages

    yield "rocketmq_consumer_lag_messages", "gauge", "Messages not consumed", LABELS, first()
    others = [
        (
            "rocketmq_consumer_lag_latency_milliseconds",
            1,
            "Age of the first message that is not consumed",
        ),
        ("rocketmq_consumer_inflight_messages", 2, "Messages with a consumer, not acknowledged"),
        (
            "rocketmq_consumer_queueing_latency_milliseconds",
            3,
            "Age of the first message that no consumer has",
        ),
        ("rocketmq_consumer_ready_messages", 4, "Messages that no consumer has"),
    ]
    for name, column, text in others:
        yield name, "gauge", text, LABELS, ((labels, lag[column]) for labels, lag in rows)


def lags(broker: Parts) -> Iterator[tuple[str, str, int]]:
    """Topic, group and how many messages the group has not consumed, for each pair that has
    reported progress. A queue without a reported offset counts as consumed, as in RocketMQ; of a
    group that wants some tags only those messages count (estimateAccumulation)."""
    for topic, group in broker.offsets.pairs():
        if broker.topics.get(topic) is not None:
            tags = _tags_wanted(broker, topic, group)
            behind = 0
            for queue_id, offset in broker.offsets.queues(topic, group).items():
                end = broker.store.max_offset(topic, queue_id)
                behind += _count(broker, topic, queue_id, offset, end, tags)
            yield topic, group, behind


def pairs_of(broker: Parts, group: str) -> Iterator[Pair]:
    """The topics that one group subscribes to or has offsets in; its own retry topic last."""
    live = broker.clients.consumer_group(group)
    seen: set[tuple[str, str, bool]] = set()
    if live is not None:
        for pair in _subscribed(broker, live):
            seen.add((pair.topic, group, pair.is_retry))
            yield pair
    for read in broker.offsets.topics_of(group):
        found = _with_offsets(broker, read, group, seen)
        if found is not None:
            yield found
    retries = RETRY_PREFIX + group
    if broker.topics.get(retries) is not None and broker.offsets.queues(retries, group):
        yield Pair(retries, group, retries, is_retry=True, is_pop=False)


def _pairs(broker: Parts) -> Iterator[Pair | None]:
    """The pairs of groups with members, by subscription, and then of others, by offsets; None
    before each step, since many steps may yield no pair."""
    seen: set[tuple[str, str, bool]] = set()
    for group in list(broker.clients.consumer_groups().values()):
        yield None
        if broker.groups.get(group.name) is None:
            continue
        for pair in _subscribed(broker, group):
            seen.add((pair.topic, group.name, pair.is_retry))
            yield pair
    for read, name in broker.offsets.pairs():
        yield None
        if not is_system_group(name) and broker.groups.get(name) is not None:
            found = _with_offsets(broker, read, name, seen)
            if found is not None:
                yield found


def _subscribed(broker: Parts, group: ConsumerGroup) -> Iterator[Pair]:
    """The topics that a group with members subscribes to and may use."""
    for topic in list(group.subscriptions):
        config = broker.topics.get(topic)
        perm = 0 if config is None else config.perm & broker.config.broker_permission
        if topic.startswith(RETRY_PREFIX) or not perm & 6:
            continue
        is_pop = group.consume_type == CONSUME_POP
        yield Pair(topic, group.name, topic, is_retry=False, is_pop=is_pop)
        if is_pop:
            v2 = broker.config.enable_retry_topic_v2
            read = retry_topic(topic, group.name, v2=v2)
            if broker.topics.get(read) is None and v2:
                read = retry_topic(topic, group.name)
            yield Pair(topic, group.name, read, is_retry=True, is_pop=True)


def _with_offsets(
    broker: Parts, read: str, name: str, seen: set[tuple[str, str, bool]]
) -> Pair | None:
    """The pair of a topic in which a group has offsets; None if it is `seen` already, or gone."""
    if read == RETRY_PREFIX + name:
        return None
    topic, is_retry = normal_topic(read, name), read.startswith(RETRY_PREFIX)
    key = (topic, name, is_retry)
    if key in seen or broker.topics.get(topic) is None or broker.topics.get(read) is None:
        return None
    seen.add(key)
    is_pop = is_retry or broker.stats.pops(topic, name) is not None
    return Pair(topic, name, read, is_retry=is_retry, is_pop=is_pop)


def lag_of(broker: Parts, pair: Pair, *, is_read: bool = True) -> Lag:
    """The numbers of one row, over all queues. A queue without progress counts as consumed, as in
    RocketMQ's metrics; not `is_read`: as not consumed, as in its progress of a group (208), if
    the group has progress in another queue."""
    config = broker.topics.get(pair.read)
    if config is None:
        return Lag()
    store, offsets, pop = broker.store, broker.offsets, broker.pop
    topic, group = pair.read, pair.group
    tags = _tags_wanted(broker, topic, group)
    is_online = broker.clients.consumer_group(group) is not None
    is_read = is_read or not offsets.queues(topic, group)
    messages = in_flight = ready = 0
    first_ms = first_ready_ms = 0
    for queue_id in range(config.write_queue_nums):
        end = max(0, store.max_offset(topic, queue_id))
        consumed = offsets.get(topic, group, queue_id)
        if pair.is_pop:
            given = pop.buffer.latest(topic, group, queue_id)
            given = consumed if given == NEVER else given
            given = end if given == NEVER else given
            out = pop.meters.in_flight(topic, group, queue_id)
            waits = _count(broker, topic, queue_id, given, end, tags)
            in_flight += out
            messages += waits + out
            ready += waits
            consumed = given - out
        else:
            # What members had and did not confirm is delivered again once they are gone.
            given = offsets.pull_offset(topic, group, queue_id) if is_online else consumed
            ready += 0 if given == NEVER else _count(broker, topic, queue_id, given, end, tags)
            given = max(0, given)
            since = given if consumed == NEVER else consumed
            in_flight += _count(broker, topic, queue_id, since, given, tags)
            if consumed == NEVER:
                consumed = end if is_read else 0
            messages += _count(broker, topic, queue_id, consumed, end, tags)
        first_ms = _earlier(broker, topic, queue_id, consumed, end, first_ms)
        first_ready_ms = _earlier(broker, topic, queue_id, given, end, first_ready_ms)
    now_ms = broker.now_ms()
    latency_ms = max(0, now_ms - first_ms) if first_ms else 0
    queueing_ms = max(0, now_ms - first_ready_ms) if first_ready_ms else 0
    return Lag(messages, latency_ms, in_flight, queueing_ms, ready)


def is_at_most(broker: Parts, pair: Pair) -> bool:
    """True if the lag may count messages that the group's filter skips: no member has told the
    filter, or its matches are not counted."""
    members = broker.clients.consumer_group(pair.group)
    wanted = members and members.subscriptions.get(pair.topic)
    if pair.is_retry or not wanted:
        return not pair.is_retry
    return not wanted.takes_all and _tags_wanted(broker, pair.topic, pair.group) is None


def _earlier(
    broker: Parts, topic: str, queue_id: int, offset: int, end: int, before_ms: int
) -> int:
    """The store time of the message at this offset or `before_ms`, whichever is earlier; 0 stands
    for no time."""
    if not 0 <= offset < end:
        return before_ms
    stored_ms = broker.store.store_ms_at(topic, queue_id, offset)
    if stored_ms <= 0:
        return before_ms
    return min(stored_ms, before_ms) if before_ms else stored_ms


def _count(
    broker: Parts,
    topic: str,
    queue_id: int,
    start: int,
    end: int,
    tags: frozenset[int] | None,
) -> int:
    if start >= end:
        return 0
    if tags is None:
        return end - start
    return broker.store.count_tagged(topic, queue_id, start, end, tags)


def _tags_wanted(broker: Parts, topic: str, group: str) -> frozenset[int] | None:
    """The hashes of the tags that a group's members want; None: count everything."""
    members = broker.clients.consumer_group(group)
    wanted = members and members.subscriptions.get(topic)
    if not wanted or not broker.config.estimate_accumulation:
        return None
    # Without bits in the queues (enableCalcFilterBitMap) Java counts all for an expression, too.
    return tags_of(wanted) if is_by_tags(wanted.expression_type) else None
