"""What a broker's numbers are called outside: RocketMQ 5's metric names and labels.

The hot path only adds to plain counters; everything here is read from them when somebody asks.
Names, labels and the meaning of each value are those of RocketMQ's BrokerMetricsManager and
DefaultStoreMetricsManager, so that their dashboards fit. Left out is what isn't measured, and the
label `message_type`, which would need a look into the properties of every message.
"""

import shutil
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..conf.version import own_version
from ..protocol.names import RETRY_PREFIX, SYSTEM_GROUP_PREFIX, is_system_topic
from ..protocol.record import store_ms_of
from .matching import is_by_tags, tags_of

if TYPE_CHECKING:
    from .server import Broker

# Name, "counter" or "gauge", what it is, names of the labels, and the values by their labels.
Family = tuple[str, str, str, Sequence[str], Iterable[tuple[Sequence[str], float]]]

NODE = ("cluster", "node_type", "node_id")
BUILD_INFO = ("The version of aerobee, as a label; the value is 1", (*NODE, "version"))
TOPIC = (*NODE, "topic", "is_system")
ONE_TOPIC = (*NODE, "topic")
TOPIC_AND_GROUP = (*NODE, "topic", "consumer_group", "is_retry", "is_system")
STORAGE = (*NODE, "storage_type", "storage_medium")
PRODUCERS = (*NODE, "language", "version", "protocol_type")
GROUP = (*NODE, "consumer_group")
SLAVE = (*NODE, "slave")
CONSUMERS = (
    *NODE,
    *("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
)


def families(broker: "Broker") -> Iterator[Family]:
    """Every metric of this broker with its values of now."""
    node = (broker.config.broker_cluster_name, "broker", broker.config.broker_name)
    yield "aerobee_build_info", "gauge", *BUILD_INFO, [((*node, own_version()), 1)]
    yield from _broker(broker, node)
    yield from _messages(broker, node)
    yield from _transactions(broker, node)
    yield from _connections(broker, node)
    yield from _storage(broker, node)
    yield from _replication(broker, node)


def lags(broker: "Broker") -> Iterator[tuple[str, str, int]]:
    """Topic, group and how many messages the group has not consumed, for each pair that has
    reported progress. A queue without a reported offset counts as consumed, as in RocketMQ; of a
    group that wants some tags only those messages count (estimateAccumulation)."""
    for key in sorted(broker.offsets.to_body().offset_table):
        topic, _, group = key.partition("@")
        if broker.topics.get(topic) is None:
            continue
        tags = _tags_wanted(broker, topic, group)
        behind = 0
        for queue_id, offset in broker.offsets.queues(topic, group).items():
            end = broker.store.max_offset(topic, queue_id)
            if tags is None:
                behind += max(0, end - offset)
            elif offset < end:
                behind += broker.store.count_tagged(topic, queue_id, offset, end, tags)
        yield topic, group, behind


def _tags_wanted(broker: "Broker", topic: str, group: str) -> frozenset[int] | None:
    """The hashes of the tags that a group's members want; None: count everything."""
    members = broker.clients.consumer_group(group)
    wanted = members and members.subscriptions.get(topic)
    if not wanted or not broker.config.estimate_accumulation:
        return None
    # Without bits in the queues (enableCalcFilterBitMap) Java counts all for an expression, too.
    return tags_of(wanted) if is_by_tags(wanted.expression_type) else None


def _broker(broker: "Broker", node: tuple[str, ...]) -> Iterator[Family]:
    numbers = [
        ("rocketmq_broker_permission", "Broker permission", broker.config.broker_permission),
        ("rocketmq_topic_number", "Active topic number", len(broker.topics.all())),
        ("rocketmq_consumer_group_number", "Consumer groups", len(broker.groups.all())),
        ("aerobee_connections", "Open client connections", len(broker.server.connections)),
        ("aerobee_parked_pulls", "Pulls that wait for a message", broker.holds.count),
        ("aerobee_parked_pops", "Pops that wait for a message", broker.pop.handlers.polls.count),
        (
            *("rocketmq_pop_checkpoint_buffer_size", "Check points of pop in memory alone"),
            broker.pop.buffer.count,
        ),
        (
            *("aerobee_client_memory_bytes", "Answers not read and requests not finished, bytes"),
            broker.server.turn.backlog.bytes,
        ),
    ]
    for name, text, value in numbers:
        yield name, "gauge", text, NODE, [(node, value)]
    text = "Entries of the revive topic that are not done"
    behind = [
        ((*node, str(number)), count) for number, count in enumerate(broker.pop.revive.behind())
    ]
    yield "rocketmq_pop_revive_lag", "gauge", text, (*NODE, "queue_id"), behind
    refused = broker.server.turn.backlog.refused
    text = "Pulls refused and clients cut off for want of memory"
    yield "aerobee_client_memory_refusals", "counter", text, NODE, [(node, refused)]


def _messages(broker: "Broker", node: tuple[str, ...]) -> Iterator[Family]:
    puts = [
        ((*node, topic, _flag(is_system_topic(topic))), counter)
        for topic, counter in broker.stats.all_puts()
    ]
    gets = [
        ((*node, *_topic_and_group(topic, group)), counter)
        for (topic, group), counter in broker.stats.all_gets()
    ]
    yield (
        *("rocketmq_messages_in", "counter", "Total number of incoming messages", TOPIC),
        [(labels, counter.messages) for labels, counter in puts],
    )
    yield (
        *("rocketmq_throughput_in", "counter", "Total traffic of incoming messages, bytes", TOPIC),
        [(labels, counter.bytes) for labels, counter in puts],
    )
    yield (
        *("rocketmq_messages_out", "counter", "Total number of outgoing messages"),
        *(TOPIC_AND_GROUP, [(labels, counter.messages) for labels, counter in gets]),
    )
    yield (
        *("rocketmq_throughput_out", "counter", "Total traffic of outgoing messages, bytes"),
        *(TOPIC_AND_GROUP, [(labels, counter.bytes) for labels, counter in gets]),
    )
    yield (
        *("rocketmq_consumer_lag_messages", "gauge", "Consumer lag messages", TOPIC_AND_GROUP),
        [((*node, *_topic_and_group(topic, group)), lag) for topic, group, lag in lags(broker)],
    )


def _transactions(broker: "Broker", node: tuple[str, ...]) -> Iterator[Family]:
    counts = broker.transaction_counts
    by_topic = [
        ("rocketmq_half_messages", "gauge", "Half messages of all topics", counts.waiting()),
        ("rocketmq_commit_messages", "counter", "Total commit messages", counts.commits()),
        ("rocketmq_rollback_messages", "counter", "Total rollback messages", counts.rollbacks()),
    ]
    for name, kind, text, values in by_topic:
        yield name, kind, text, ONE_TOPIC, [((*node, topic), count) for topic, count in values]
    of_all = [
        ("aerobee_transaction_checks", "Questions how a transaction ended", counts.asked),
        ("aerobee_transactions_given_up", "Transactions that nobody ended", counts.given_up),
    ]
    for name, text, value in of_all:
        yield name, "counter", text, NODE, [(node, value)]


def _connections(broker: "Broker", node: tuple[str, ...]) -> Iterator[Family]:
    producers = Tally(
        (*node, member.language.lower(), str(member.version), "remoting")
        for members in broker.clients.producers().values()
        for member in members.values()
    )
    consumers = Tally(
        (
            *(*node, group.name, member.language.lower(), str(member.version)),
            *(_mode(group.consume_type), "remoting", _flag(_is_system_group(group.name))),
        )
        for group in broker.clients.consumer_groups().values()
        for member in group.members.values()
    )
    yield (
        *("rocketmq_producer_connections", "gauge", "Producer connections", PRODUCERS),
        list(producers.items()),
    )
    yield (
        *("rocketmq_consumer_connections", "gauge", "Consumer connections", CONSUMERS),
        list(consumers.items()),
    )
    yield (
        *("aerobee_group_subscriptions_differ", "gauge"),
        *("1 for a group whose members subscribe differently", GROUP),
        [((*node, group), 1) for group in sorted(broker.clients.differing())],
    )


def _storage(broker: "Broker", node: tuple[str, ...]) -> Iterator[Family]:
    store, labels = broker.store, (*node, "local", "disk")
    numbers = [
        # Of the whole disk, as RocketMQ has it.
        ("rocketmq_storage_size", "Disk in use, bytes", shutil.disk_usage(broker.root).used),
        (
            *("rocketmq_storage_flush_behind_bytes", "Not yet on the disk, bytes"),
            max(0, store.log_end - store.durable_end),
        ),
        (
            # Queues are written with the log; a slave's with each whole message.
            *("rocketmq_storage_dispatch_behind_bytes", "Not yet in the queues, bytes"),
            store.log_end - store.whole_end,
        ),
        (
            *("aerobee_storage_takes_messages", "0 while sends are refused, as on a full disk"),
            int(store.refusal is None and store.pause_reason is None),
        ),
    ]
    first = store.message_at(store.log_start)
    if first is not None:
        age_ms = broker.now_ms() - store_ms_of(first)
        numbers.append(
            ("rocketmq_storage_message_reserve_time", "Age of the oldest message, ms", age_ms)
        )
    for name, text, value in numbers:
        yield name, "gauge", text, STORAGE, [(labels, value)]


def _replication(broker: "Broker", node: tuple[str, ...]) -> Iterator[Family]:
    """RocketMQ has no such numbers outside of its controller."""
    text = "Other living masters of this broker's name, 0 is right"
    yield (
        *("aerobee_other_masters", "gauge", text, NODE),
        [(node, len(broker.other_masters.addresses))],
    )
    slaves = broker.ha.info().ha_connection_info
    yield "aerobee_slaves", "gauge", "Slaves that are connected", NODE, [(node, len(slaves))]
    yield (
        *("aerobee_slave_behind_bytes", "gauge", "Of the log that a slave lacks, bytes", SLAVE),
        [((*node, slave.addr or ""), slave.diff) for slave in slaves],
    )
    yield (
        *("aerobee_slaves_refused", "counter", "Slaves let go for what they asked or sent", NODE),
        [(node, broker.ha.refused)],
    )
    if broker.ha_slave is not None:
        text = "1 while a slave is connected to its master"
        yield "aerobee_follows", "gauge", text, NODE, [(node, int(broker.ha_slave.connected))]


def _topic_and_group(topic: str, group: str) -> tuple[str, ...]:
    system = is_system_topic(topic) or _is_system_group(group)
    return topic, group, _flag(topic.startswith(RETRY_PREFIX)), _flag(system)


def _is_system_group(group: str) -> bool:
    return group.lower().startswith(SYSTEM_GROUP_PREFIX.lower())


def _mode(consume_type: str | None) -> str:
    # RocketMQ's ConsumeType has these names for its PULL, PUSH and POP.
    kinds = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}
    return kinds.get(consume_type or "", "unknown")


def _flag(value: bool) -> str:
    return "true" if value else "false"
