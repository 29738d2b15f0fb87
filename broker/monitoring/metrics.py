"""The metrics of a broker, with RocketMQ 5's names and labels.

The hot path only adds to numbers; the metrics are computed from them on request. Names,
labels and the meaning of each value follow RocketMQ's exporter for Prometheus
(BrokerMetricsManager, DefaultStoreMetricsManager, PopMetricsManager, RemotingMetricsManager). Our
own metrics begin with aerobee_. Values are produced while they are read, a few at a time, since
there may be many topics and groups (`protocol/aio/slices.py`).
"""

from collections import Counter as Tally
from collections.abc import Iterator

from ...conf.version import own_version
from ...protocol import codes
from ...protocol.histogram import Histogram
from ...protocol.message.pop_handles import normal_topic
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from ...protocol.versions import version_name
from ..groups.clients import Member
from ..roles.parts import Parts
from ..runtime.arrivals import DELAY
from ..runtime.stats import Stats
from .metrics_labels import (
    NODE,
    OWN_NODE,
    SCOPE,
    Family,
    Node,
    flag,
    is_system_group,
    is_system_pair,
    spread,
)
from .metrics_lag import lag_families
from .metrics_parts import pop_families, storage_families, timer_families

BUILD_INFO = ("The version of aerobee, as a label; the value is 1", (*OWN_NODE, "version"))
ARRIVALS = (*NODE, "topic", "message_type", "is_system")
ONE_TOPIC = (*NODE, "topic")
TOPIC_AND_GROUP = (*NODE, "topic", "consumer_group", "is_system")
READS = (*TOPIC_AND_GROUP, "is_retry")
PRODUCERS = (*NODE, "language", "version", "protocol_type")
GROUP = (*OWN_NODE, "consumer_group")
SLAVE = (*OWN_NODE, "slave")
CONSUMERS = (
    *NODE,
    "consumer_group",
    "language",
    "version",
    "consume_mode",
    "protocol_type",
    "is_system",
)
RPC = (
    *NODE,
    "protocol_type",
    "request_code",
    "response_code",
    "is_long_polling",
    "result",
)
# RocketMQ's pools of threads and their requests; "admin" has all others.
PROCESSORS = {
    "send": (
        codes.SEND_MESSAGE,
        codes.SEND_MESSAGE_V2,
        codes.SEND_BATCH_MESSAGE,
        codes.CONSUMER_SEND_MSG_BACK,
        codes.RECALL_MESSAGE,
    ),
    "async_put": (),
    "pull": (codes.PULL_MESSAGE, codes.POP_MESSAGE, codes.PEEK_MESSAGE, codes.NOTIFICATION),
    "ack": (codes.ACK_MESSAGE, codes.BATCH_ACK_MESSAGE, codes.CHANGE_MESSAGE_INVISIBLETIME),
    "query_message": (codes.QUERY_MESSAGE, codes.VIEW_MESSAGE_BY_ID),
    "client_manager": (codes.UNREGISTER_CLIENT, codes.CHECK_CLIENT_CONFIG),
    "heartbeat": (codes.HEART_BEAT,),
    "lite_pull": (codes.LITE_PULL_MESSAGE,),
    "transaction": (codes.END_TRANSACTION,),
    "consumer_manager": (
        codes.GET_CONSUMER_LIST_BY_GROUP,
        codes.QUERY_CONSUMER_OFFSET,
        codes.UPDATE_CONSUMER_OFFSET,
    ),
    "admin": (),
    "reply": (codes.SEND_REPLY_MESSAGE, codes.SEND_REPLY_MESSAGE_V2),
}
_PROCESSOR_OF = {code: name for name, served in PROCESSORS.items() for code in served}


def families(broker: Parts) -> Iterator[Family]:
    """Every metric of this broker with its values of now."""
    node = (SCOPE, broker.config.broker_cluster_name, "broker", broker.config.broker_name)
    yield "aerobee_build_info", "gauge", *BUILD_INFO, [((*node[1:], own_version()), 1)]
    yield from _broker(broker, node)
    yield from _requests(broker, node)
    yield from _arrivals(broker, node)
    yield from _reads(broker, node)
    yield from lag_families(broker, node)
    yield from _transactions(broker, node)
    yield from _connections(broker, node)
    yield from storage_families(broker, node)
    yield from timer_families(broker, node)
    yield from pop_families(broker, node)
    yield from _own(broker, node[1:])
    yield from _replication(broker, node[1:])


def _broker(broker: Parts, node: Node) -> Iterator[Family]:
    waiting = Tally(_PROCESSOR_OF.get(code, "admin") for code in broker.server.scheduler.unserved())
    yield (
        "rocketmq_processor_watermark",
        "gauge",
        "Requests that wait",
        (*NODE, "processor"),
        [((*node, name), waiting[name]) for name in PROCESSORS],
    )
    numbers = [
        ("rocketmq_broker_permission", "Broker permission", broker.config.broker_permission),
        ("rocketmq_topic_number", "Active topic number", len(broker.topics.all())),
        ("rocketmq_consumer_group_number", "Consumer groups", len(broker.groups.all())),
    ]
    for name, text, value in numbers:
        yield name, "gauge", text, NODE, [(node, value)]


def _requests(broker: Parts, node: Node) -> Iterator[Family]:
    text = "From a request's arrival to its answer, ms"
    rpcs = (
        (
            (
                *node,
                "remoting",
                _code_name(codes.REQUEST_NAMES, rpc.request),
                _code_name(codes.RESPONSE_NAMES, rpc.response),
                flag(rpc.is_long_polling),
                "oneway" if rpc.is_oneway else "success",
            ),
            spread(histogram),
        )
        for rpc, histogram in broker.latency.histograms()
    )
    yield "rocketmq_rpc_latency_milliseconds", "histogram", text, RPC, rpcs
    times = broker.creation_times
    yield (
        "rocketmq_topic_create_execution_time_milliseconds",
        "histogram",
        "To create or change a topic, ms",
        (*NODE, "invocation_status", "is_system"),
        [
            ((*node, outcome, flag(is_system)), spread(histogram))
            for (outcome, is_system), histogram in times.topics.items()
        ],
    )
    yield (
        "rocketmq_consumer_group_create_execution_time_milliseconds",
        "histogram",
        "To create or change a group, ms",
        (*NODE, "invocation_status"),
        [((*node, outcome), spread(found)) for outcome, found in times.groups.items()],
    )


def _arrivals(broker: Parts, node: Node) -> Iterator[Family]:
    """Incoming messages. RocketMQ counts neither retries nor dead letters, but for retries that a
    delay level has delivered."""
    stats = broker.stats
    yield (
        "rocketmq_messages_in_total",
        "counter",
        "Total number of incoming messages",
        ARRIVALS,
        (one and (one[0], one[1]) for one in _arrived(node, stats)),
    )
    yield (
        "rocketmq_throughput_in_total",
        "counter",
        "Total traffic of incoming messages, bytes",
        ARRIVALS,
        (one and (one[0], one[2]) for one in _arrived(node, stats)),
    )
    yield (
        "rocketmq_message_size",
        "histogram",
        "Size of an incoming message in the log, bytes",
        ARRIVALS,
        (one and (one[0], spread(one[3])) for one in _arrived(node, stats)),
    )


def _arrived(node: Node, stats: Stats) -> Iterator[tuple[Node, int, int, Histogram] | None]:
    """Labels, messages, bytes and sizes; None where a topic has nothing to show."""
    for topic, counter in stats.all_puts():
        if not counter.messages:
            yield None
            continue
        is_again = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
        system = flag(is_system_topic(topic))
        found = counter.arrivals.by_type(counter.messages, counter.bytes)
        for kind, messages, size, sizes in found:
            if kind == DELAY or not is_again:
                yield (*node, topic, kind, system), messages, size, sizes
            else:
                yield None


def _reads(broker: Parts, node: Node) -> Iterator[Family]:
    """Outgoing messages. Popped ones tell whether they were popped before; pulls of retry topics
    are not counted, as in RocketMQ."""
    stats = broker.stats

    def rows(column: str) -> Iterator[tuple[Node, float] | None]:
        for (topic, group), counter in stats.all_gets():
            pops = stats.pops(topic, group)
            number = getattr(counter, column) - (0 if pops is None else getattr(pops, column))
            if number and not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                yield (*node, topic, group, flag(is_system_pair(topic, group)), ""), number
            else:
                yield None
            if pops is not None:
                own, is_retry = normal_topic(topic, group), topic.startswith(RETRY_PREFIX)
                system = flag(is_system_pair(own, group))
                yield (*node, own, group, system, flag(is_retry)), getattr(pops, column)
        for (topic, group), counter in stats.own_reads():
            yield (*node, topic, group, "true", ""), getattr(counter, column)

    text = "Total number of outgoing messages"
    yield "rocketmq_messages_out_total", "counter", text, READS, rows("messages")
    text = "Total traffic of outgoing messages, bytes"
    yield "rocketmq_throughput_out_total", "counter", text, READS, rows("bytes")
    text = "Messages that went to the dead letters"
    yield (
        "rocketmq_send_to_dlq_messages_total",
        "counter",
        text,
        TOPIC_AND_GROUP,
        (
            ((*node, topic, group, flag(is_system_pair(topic, group))), counter.messages)
            for (topic, group), counter in stats.dead_letters()
        ),
    )


def _transactions(broker: Parts, node: Node) -> Iterator[Family]:
    counts = broker.transaction_counts
    by_topic = [
        ("rocketmq_half_messages", "gauge", "Half messages of all topics", counts.waiting()),
        (
            "rocketmq_commit_messages_total",
            "counter",
            "Total commit messages",
            counts.commits(),
        ),
        (
            "rocketmq_rollback_messages_total",
            "counter",
            "Total rollback messages",
            counts.rollbacks(),
        ),
    ]
    for name, kind, text, values in by_topic:
        yield name, kind, text, ONE_TOPIC, (((*node, topic), count) for topic, count in values)
    yield (
        # As in RocketMQ the values are seconds, whatever the name says.
        "rocketmq_finish_message_latency_milliseconds",
        "histogram",
        "From a half message's birth to its commit, s",
        ONE_TOPIC,
        (((*node, topic), spread(found)) for topic, found in counts.latencies()),
    )


def _connections(broker: Parts, node: Node) -> Iterator[Family]:
    def producers() -> Iterator[tuple[Node, float] | None]:
        found: Tally[Node] = Tally()
        for members in list(broker.clients.producers().values()):
            for member in list(members.values()):
                found[*node, *_client(member)] += 1
            yield None
        yield from found.items()

    def consumers() -> Iterator[tuple[Node, float] | None]:
        for group in list(broker.clients.consumer_groups().values()):
            found: Tally[Node] = Tally()
            system = flag(is_system_group(group.name))
            for member in group.members.values():
                language, version, protocol = _client(member)
                mode = _mode(group.consume_type)
                found[*node, group.name, language, version, mode, protocol, system] += 1
            yield None
            yield from found.items()

    yield (
        "rocketmq_producer_connections",
        "gauge",
        "Producer connections",
        PRODUCERS,
        producers(),
    )
    yield (
        "rocketmq_consumer_connections",
        "gauge",
        "Consumer connections",
        CONSUMERS,
        consumers(),
    )


def _client(member: Member) -> tuple[str, str, str]:
    protocol = "grpc" if member.is_proxied else "remoting"
    return member.language.lower(), version_name(member.version).lower(), protocol


def _own(broker: Parts, node: Node) -> Iterator[Family]:
    """The metrics that RocketMQ lacks."""
    budget, counts, store = broker.server.scheduler.budget, broker.transaction_counts, broker.store
    gauges = [
        ("aerobee_connections", "Open client connections", len(broker.server.connections)),
        ("aerobee_parked_pulls", "Pulls that wait for a message", broker.long_polls.count),
        ("aerobee_parked_pops", "Pops that wait for a message", broker.pop.handlers.polls.count),
        (
            "aerobee_client_memory_bytes",
            "Answers not read, requests not finished or not served yet, bytes",
            budget.bytes,
        ),
    ]
    for name, text, value in gauges:
        yield name, "gauge", text, OWN_NODE, [(node, value)]
    counters = [
        (
            "aerobee_client_memory_refusals",
            "Pulls refused and clients cut off for memory",
            budget.refused,
        ),
        ("aerobee_transaction_checks", "Questions how a transaction ended", counts.asked),
        ("aerobee_transactions_given_up", "Transactions that nobody ended", counts.given_up),
    ]
    for name, text, value in counters:
        yield f"{name}_total", "counter", text, OWN_NODE, [(node, value)]
    yield (
        "aerobee_group_subscriptions_differ",
        "gauge",
        "1 for a group whose members subscribe differently",
        GROUP,
        (
            ((*node, group.name), 1) if group.subscription_check.differs else None
            for group in broker.clients.consumer_groups().values()
        ),
    )
    yield (
        "aerobee_storage_takes_messages",
        "gauge",
        "0 while sends are refused, as on a full disk",
        (*OWN_NODE, "storage_type", "storage_medium"),
        [
            (
                (*node, "local", "disk"),
                int(store.refusal is None and store.pause_reason is None),
            )
        ],
    )
    yield (
        "aerobee_storage_disk_ratio",
        "gauge",
        "The part of the log's disk in use, 0 to 1",
        (*OWN_NODE, "storage_type", "storage_medium"),
        [((*node, "local", "disk"), store.disk_ratio())],
    )


def _replication(broker: Parts, node: tuple[str, ...]) -> Iterator[Family]:
    """RocketMQ has no such numbers outside of its controller."""
    text = "Other living masters of this broker's name, 0 is right"
    yield (
        "aerobee_other_masters",
        "gauge",
        text,
        OWN_NODE,
        [(node, len(broker.other_masters.addresses))],
    )
    slaves = broker.ha.info().ha_connection_info
    yield "aerobee_slaves", "gauge", "Slaves that are connected", OWN_NODE, [(node, len(slaves))]
    yield (
        "aerobee_slave_behind_bytes",
        "gauge",
        "Of the log that a slave lacks, bytes",
        SLAVE,
        [((*node, slave.addr or ""), slave.diff) for slave in slaves],
    )
    yield (
        "aerobee_slaves_refused_total",
        "counter",
        "Slaves let go for what they asked or sent",
        OWN_NODE,
        [(node, broker.ha.refused)],
    )
    if broker.ha_slave is not None:
        text = "1 while a slave is connected to its master"
        yield "aerobee_follows", "gauge", text, OWN_NODE, [(node, int(broker.ha_slave.connected))]


def _code_name(names: dict[int, str], code: int) -> str:
    return names.get(code, str(code)).lower()


def _mode(consume_type: str | None) -> str:
    # RocketMQ's ConsumeType has these names for its PULL, PUSH and POP.
    kinds = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}
    return kinds.get(consume_type or "", "unknown")
