"""A broker's metrics: RocketMQ's names and labels, and their values."""

import asyncio
from importlib.metadata import version
from itertools import count
from typing import Any

import pytest
from aerobee.broker.monitoring.metrics import families
from aerobee.broker.server import Broker
from aerobee.console.exposition import SAMPLES_PER_STEP, exposition
from aerobee.protocol import codes
from aerobee.protocol.aio.slices import Slices
from aerobee.protocol.bodies.group import SubscriptionGroupConfig
from aerobee.protocol.bodies.topic import TopicConfig
from aerobee.protocol.headers.offsets import UpdateConsumerOffset
from aerobee.protocol.headers.topics import UpdateTopic

from ...clocks import Clock
from ...waiting import until
from ..conftest import Caller, Config, Run, Start
from ..popping import Popper

OWN_NODE = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}
NODE = {"otel_scope_name": "broker-meter", **OWN_NODE}
Found = dict[tuple[str, ...], Any]


def values(broker: Broker, name: str) -> Found:
    """The values of one metric by the labels that follow those of the node."""
    found = {}
    for family in families(broker):
        # Some families are computed while the families before them are read.
        rows = [row for row in family[4] if row is not None]
        if family[0] != name:
            continue
        node = OWN_NODE if name.startswith("aerobee_") else NODE
        labels = list(family[3])
        assert labels[: len(node)] == list(node)
        for label_values, value in rows:
            assert dict(zip(node, label_values, strict=False)) == node
            assert len(label_values) == len(labels)
            found[tuple(label_values[len(node) :])] = value
    return found


def has(broker: Broker, name: str) -> bool:
    """True if the broker has this metric."""
    return any(family[0] == name for family in families(broker))


async def test_messages_and_bytes_are_counted_by_topic(broker: Broker, caller: Caller) -> None:
    for body in (b"1", b"22"):
        await caller.send("T", body)
    await caller.send("U")
    assert values(broker, "rocketmq_messages_in_total") == {
        ("T", "normal", "false"): 2,
        ("U", "normal", "false"): 1,
    }
    throughput = values(broker, "rocketmq_throughput_in_total")
    assert throughput["T", "normal", "false"] == broker.stats.puts("T").bytes > 180


async def test_messages_out_are_counted_by_topic_and_group(broker: Broker, caller: Caller) -> None:
    for _ in range(3):
        await caller.send("T")
    await caller.pull("T")
    await caller.pull("T", 2, group="CID_RMQ_SYS_x")
    assert values(broker, "rocketmq_messages_out_total") == {
        ("T", "cg", "false", ""): 3,
        ("T", "CID_RMQ_SYS_x", "true", ""): 1,
    }
    assert values(broker, "rocketmq_throughput_out_total")["T", "cg", "false", ""] > 270


async def test_the_version_of_aerobee_is_a_label(broker: Broker) -> None:
    assert values(broker, "aerobee_build_info") == {(version("aerobee"),): 1}


async def test_lag_is_the_number_of_messages_a_group_has_not_consumed(
    broker: Broker, caller: Caller
) -> None:
    for queue_id in (0, 0, 0, 1):
        await caller.send("T", queue_id=queue_id)
    broker.groups.find("cg")
    for queue_id, offset in ((0, 1), (1, 1)):
        header = UpdateConsumerOffset("cg", "T", queue_id, offset)
        await caller.ask(codes.UPDATE_CONSUMER_OFFSET, header)
    lag = values(broker, "rocketmq_consumer_lag_messages")
    assert lag == {("T", "cg", "false", "false"): 2}


async def test_the_lag_of_a_group_counts_only_its_tags(broker: Broker, caller: Caller) -> None:
    for tag in ("a", "b", "b", "c", "b"):
        await caller.send("T", TAGS=tag)
    broker.groups.find("cg")
    await caller.ask(codes.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffset("cg", "T", 0, 1))

    def lag() -> float:
        found = values(broker, "rocketmq_consumer_lag_messages")
        count: float = found["T", "cg", "false", "false"]
        return count

    assert lag() == 4  # without a member the subscription is unknown
    await caller.heartbeat(topics={"T": "a || b"})
    assert lag() == 3
    await caller.ask(codes.UPDATE_BROKER_CONFIG, None, b"estimateAccumulation=false")
    assert lag() == 4


async def test_connections_are_counted_by_language_and_version(
    broker: Broker, caller: Caller
) -> None:
    await caller.heartbeat(topics={"T": "*"}, producer="pg")
    [(producer, producers)] = values(broker, "rocketmq_producer_connections").items()
    [(consumer, consumers)] = values(broker, "rocketmq_consumer_connections").items()
    assert (producers, consumers) == (1, 1)
    assert producer[1] == consumer[2] == "v5_3_3"
    assert producer[2:] == ("remoting",)
    assert (consumer[0], *consumer[3:]) == ("cg", "push", "remoting", "false")


async def test_the_store_reports_its_size_and_the_age_of_its_oldest_message(
    start: Start, config: Config
) -> None:
    broker = await start(config())
    assert values(broker, "rocketmq_storage_size_bytes")["local", "disk"] > 0
    assert values(broker, "aerobee_storage_takes_messages")["local", "disk"] == 1
    broker.store.pause("disk", "the disk is full")
    assert values(broker, "aerobee_storage_takes_messages")["local", "disk"] == 0
    broker.store.resume("disk")
    assert not has(broker, "rocketmq_storage_message_reserve_time_milliseconds")
    caller = Caller(broker)
    await caller.send("T")
    stored_ms = broker.store.store_ms_at("T", 0, 0)
    broker.now_ms = lambda: stored_ms + 1234
    assert values(broker, "rocketmq_storage_message_reserve_time_milliseconds") == {
        ("local", "disk"): 1234
    }
    await caller.peers.close()


async def test_a_group_whose_members_subscribe_differently_has_a_gauge(
    broker: Broker, caller: Caller
) -> None:
    await caller.heartbeat("c1", topics={"T": "a"})
    assert values(broker, "aerobee_group_subscriptions_differ") == {}
    other = Caller(broker)
    await other.heartbeat("c2", topics={"T": "b"})
    assert values(broker, "aerobee_group_subscriptions_differ") == {("cg",): 1}
    await other.peers.close()


async def test_popped_messages_without_an_acknowledgement_are_counted(
    run: Run, config: Config, clock: Clock
) -> None:
    p = Popper(*await run(config(revive_queue_num=1)), clock)
    await p.send(b"a", b"b")
    await p.pop(max_messages=1)
    await p.pop(max_messages=1, invisible_ms=1_000)
    assert values(p.broker, "rocketmq_pop_checkpoint_buffer_size") == {(): 1}
    assert values(p.broker, "rocketmq_pop_revive_lag_milliseconds") == {("0",): 1}
    asked = asyncio.create_task(p.ask(poll_ms=1_000))
    await p.waiting(1)
    assert values(p.broker, "aerobee_parked_pops") == {(): 1}
    await p.later(1_000)
    await asked


MANY = 300


@pytest.fixture
async def crowded(broker: Broker) -> Broker:
    """A broker with many topics, and a group with offsets on each."""
    broker.topics.put_all([TopicConfig(f"t{number}", 4, 4, 6) for number in range(MANY)])
    broker.groups.put_all([SubscriptionGroupConfig(f"g{number}") for number in range(MANY)])
    for number in range(MANY):
        for queue_id in range(4):
            broker.offsets.commit(f"t{number}", f"g{number}", queue_id, 0)
    return broker


async def test_the_metrics_of_many_topics_and_groups_are_collected_in_small_steps(
    crowded: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = most = steps = 0
    max_offset = crowded.store.max_offset

    def counting(topic: str, queue_id: int) -> int:
        nonlocal reads
        reads += 1
        return max_offset(topic, queue_id)

    monkeypatch.setattr(crowded.store, "max_offset", counting)
    making = exposition(families(crowded))
    while True:
        before = reads
        try:
            next(making)
        except StopIteration as done:
            text = b"".join(done.value).decode()
            break
        most, steps = max(most, reads - before), steps + 1
    assert text.count("rocketmq_consumer_lag_messages{") == MANY
    assert reads >= 4 * MANY
    assert most <= 4 * SAMPLES_PER_STEP  # the queues of this many topics
    assert steps > 5 * MANY / SAMPLES_PER_STEP


async def test_requests_are_served_while_metrics_are_collected(
    crowded: Broker, caller: Caller
) -> None:
    await caller.send("T")  # creates the topic
    ticks = count(1)  # each slice is one step, on any machine
    slices = Slices(
        crowded.server.scheduler, crowded.periodic.part, clock=lambda: float(next(ticks))
    )
    making = asyncio.create_task(slices.run(exposition(families(crowded))))
    assert (await caller.send("T")).code == codes.SUCCESS
    assert not making.done()
    assert len(await making) > 1


async def test_the_latency_metric_labels_long_polls_and_oneway_requests(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config())
    await caller.send("T")
    waiting = asyncio.create_task(caller.pull("T", 1, suspend_ms=2_000))
    await until(lambda: broker.long_polls.count)
    clock.ms += 2_500
    await broker.catch_up()
    assert (await waiting).code == codes.PULL_NOT_FOUND
    await caller.peers.oneway(broker.address, codes.GET_BROKER_CONFIG)
    await caller.ask(9_999)
    found = values(broker, "rocketmq_rpc_latency_milliseconds")
    assert ("remoting", "send_message_v2", "success", "false", "success") in found
    bounds, counts, total = found["remoting", "pull_message", "pull_not_found", "true", "success"]
    assert (counts[list(bounds).index(3_000)], total) == (1, 2_500)
    assert ("remoting", "get_broker_config", "success", "false", "oneway") in found
    assert ("remoting", "9999", "request_code_not_supported", "false", "success") in found


async def test_an_offline_group_has_a_lag_metric_and_a_system_group_has_none(
    broker: Broker, caller: Caller
) -> None:
    await caller.send("T")
    for group in ("cg", "CID_RMQ_SYS_x"):
        broker.groups.find(group)
        await caller.ask(codes.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffset(group, "T", 0, 0))
    assert values(broker, "rocketmq_consumer_lag_messages") == {("T", "cg", "false", "false"): 1}
    stored_ms = broker.store.store_ms_at("T", 0, 0)
    broker.now_ms = lambda: stored_ms + 70
    latency = values(broker, "rocketmq_consumer_lag_latency_milliseconds")
    assert latency == {("T", "cg", "false", "false"): 70}


async def test_a_popped_message_is_in_flight_until_it_is_acknowledged(
    run: Run, config: Config, clock: Clock
) -> None:
    p = Popper(*await run(config()), clock)
    await p.caller.heartbeat(topics={p.topic: "*"}, group=p.group, consume_type="CONSUME_POP")
    await p.send(b"a", b"b", b"c")
    handles = await p.pop(max_messages=2)

    def numbers() -> list[float]:
        names = ("lag_messages", "inflight_messages", "ready_messages")
        labels = (p.topic, p.group, "false", "false")
        return [values(p.broker, f"rocketmq_consumer_{name}")[labels] for name in names]

    assert numbers() == [3, 2, 1]
    await p.ack(handles[b"a"])
    assert numbers() == [2, 1, 1]


async def test_changes_of_topics_and_groups_are_timed_by_their_outcome(
    broker: Broker, caller: Caller
) -> None:
    for name in ("T", "U", "no topic's name"):
        await caller.ask(codes.UPDATE_AND_CREATE_TOPIC, UpdateTopic(name, 1, 1, 6))
    group = SubscriptionGroupConfig("G").encode()
    await caller.ask(codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group)
    kinds = ("topic", "consumer_group")
    topics, groups = (
        values(broker, f"rocketmq_{kind}_create_execution_time_milliseconds") for kind in kinds
    )
    assert {labels: sum(found[1]) for labels, found in topics.items()} == {
        ("success", "false"): 2,
        ("failure", "false"): 1,
    }
    assert {labels: sum(found[1]) for labels, found in groups.items()} == {("success",): 1}


# RocketMQ 5.3.3's metrics with their types and labels, without those of the node. A name ends with
# its unit here, as Prometheus stores it.
GROUP = "topic consumer_group is_retry is_system"
ARRIVAL = "topic message_type is_system"
READ = "topic consumer_group is_system is_retry"
STORAGE = "storage_type storage_medium"
RPC = "protocol_type request_code response_code is_long_polling result"
CLIENT = "language version protocol_type"
ROCKETMQ = {
    ("processor_watermark", "gauge", "processor"),
    ("broker_permission", "gauge", ""),
    ("topic_number", "gauge", ""),
    ("consumer_group_number", "gauge", ""),
    ("rpc_latency_milliseconds", "histogram", RPC),
    ("topic_create_execution_time_milliseconds", "histogram", "invocation_status is_system"),
    ("consumer_group_create_execution_time_milliseconds", "histogram", "invocation_status"),
    ("messages_in_total", "counter", ARRIVAL),
    ("throughput_in_total", "counter", ARRIVAL),
    ("message_size", "histogram", ARRIVAL),
    ("messages_out_total", "counter", READ),
    ("throughput_out_total", "counter", READ),
    ("send_to_dlq_messages_total", "counter", "topic consumer_group is_system"),
    ("consumer_lag_messages", "gauge", GROUP),
    ("consumer_lag_latency_milliseconds", "gauge", GROUP),
    ("consumer_inflight_messages", "gauge", GROUP),
    ("consumer_queueing_latency_milliseconds", "gauge", GROUP),
    ("consumer_ready_messages", "gauge", GROUP),
    ("half_messages", "gauge", "topic"),
    ("commit_messages_total", "counter", "topic"),
    ("rollback_messages_total", "counter", "topic"),
    ("finish_message_latency_milliseconds", "histogram", "topic"),
    ("producer_connections", "gauge", CLIENT),
    ("consumer_connections", "gauge", f"{CLIENT} consumer_group consume_mode is_system"),
    ("storage_size_bytes", "gauge", STORAGE),
    ("storage_flush_behind_bytes", "gauge", STORAGE),
    ("storage_dispatch_behind_bytes", "gauge", STORAGE),
    ("storage_message_reserve_time_milliseconds", "gauge", STORAGE),
    ("timer_enqueue_lag", "gauge", STORAGE),
    ("timer_enqueue_latency_milliseconds", "gauge", STORAGE),
    ("timer_dequeue_lag", "gauge", STORAGE),
    ("timer_dequeue_latency_milliseconds", "gauge", STORAGE),
    ("timing_messages", "gauge", f"{STORAGE} topic"),
    ("timer_enqueue_total", "counter", f"{STORAGE} topic"),
    ("timer_dequeue_total", "counter", f"{STORAGE} topic"),
    ("delay_message_latency_seconds", "histogram", f"{STORAGE} topic"),
    ("timer_message_snapshot", "gauge", f"{STORAGE} timer_bound_s"),
    ("pop_offset_buffer_size", "gauge", ""),
    ("pop_checkpoint_buffer_size", "gauge", ""),
    ("pop_revive_lag_milliseconds", "gauge", "queue_id"),
    ("pop_revive_latency_milliseconds", "gauge", "queue_id"),
    ("pop_buffer_scan_time_consume_milliseconds", "histogram", ""),
    (
        "pop_revive_in_message_total",
        "counter",
        "consumer_group topic revive_message_type put_status",
    ),
    (
        "pop_revive_out_message_total",
        "counter",
        "consumer_group topic queue_id revive_message_type",
    ),
    ("pop_revive_retry_messages_total", "counter", "consumer_group topic put_status"),
}


async def test_the_metrics_are_those_of_rocketmq_with_their_types_and_labels(
    broker: Broker, caller: Caller
) -> None:
    await caller.send("T")  # the age of the oldest message is a metric from then on
    found = {
        (name, kind, frozenset(labels))
        for name, kind, _, labels, _ in families(broker)
        if name.startswith("rocketmq_")
    }
    assert found == {
        (f"rocketmq_{name}", kind, frozenset([*NODE, *labels.split()]))
        for name, kind, labels in ROCKETMQ
    }
