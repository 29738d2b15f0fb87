"""A broker's metrics: RocketMQ's names and labels, and the numbers behind them."""

import asyncio
from typing import Any

from aerobee.broker.metrics import families
from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.protocol.headers.offsets import UpdateConsumerOffset

from .conftest import Caller, Clock, Config
from .popping import Popper, Run

OWN_NODE = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}
NODE = {"otel_scope_name": "broker-meter", **OWN_NODE}
Found = dict[tuple[str, ...], Any]


def values(broker: Broker, name: str) -> Found:
    """The values of one metric by the labels that follow those of the node."""
    found = {}
    for family in families(broker):
        rows = list(family[4])  # some are worked out while those before them are read
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
    """Whether there is such a metric."""
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


async def test_what_goes_out_is_counted_by_topic_and_group(broker: Broker, caller: Caller) -> None:
    for _ in range(3):
        await caller.send("T")
    await caller.pull("T")
    await caller.pull("T", 2, group="CID_RMQ_SYS_x")
    assert values(broker, "rocketmq_messages_out_total") == {
        ("T", "cg", "false", ""): 3,
        ("T", "CID_RMQ_SYS_x", "true", ""): 1,
    }
    assert values(broker, "rocketmq_throughput_out_total")["T", "cg", "false", ""] > 270


async def test_lag_is_what_a_group_has_not_consumed(broker: Broker, caller: Caller) -> None:
    for queue_id in (0, 0, 0, 1):
        await caller.send("T", queue_id=queue_id)
    broker.groups.find("cg")
    for queue_id, offset in ((0, 1), (1, 1)):
        header = UpdateConsumerOffset("cg", "T", queue_id, offset)
        await caller.ask(codes.UPDATE_CONSUMER_OFFSET, header)
    lag = values(broker, "rocketmq_consumer_lag_messages")
    assert lag == {("T", "cg", "false", "false"): 2}


async def test_the_lag_of_a_group_that_wants_some_tags_counts_only_those(
    broker: Broker, caller: Caller
) -> None:
    for tag in ("a", "b", "b", "c", "b"):
        await caller.send("T", TAGS=tag)
    broker.groups.find("cg")
    await caller.ask(codes.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffset("cg", "T", 0, 1))

    def lag() -> float:
        return values(broker, "rocketmq_consumer_lag_messages")["T", "cg", "false", "false"]

    assert lag() == 4  # nobody is there to say what the group wants
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


async def test_the_store_tells_its_size_and_the_age_of_its_oldest_message(
    start, config: Config
) -> None:  # type: ignore[no-untyped-def]
    broker = await start(config())
    assert values(broker, "rocketmq_storage_size_bytes")["local", "disk"] > 0
    assert values(broker, "aerobee_storage_takes_messages")["local", "disk"] == 1
    broker.store._log.pause("disk", "the disk is full")
    assert values(broker, "aerobee_storage_takes_messages")["local", "disk"] == 0
    broker.store._log.resume("disk")
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


async def test_what_was_popped_and_is_not_acknowledged_is_counted(
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
