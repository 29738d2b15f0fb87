"""A broker at a glance: what its status tells, and whether it is well and ready."""

from pathlib import Path
from typing import Any

from aerobee.broker.monitoring.overview import fault, not_ready, note, overview
from aerobee.broker.server import Broker
from aerobee.namesrv.server import NameServer
from aerobee.protocol.bodies.topic import TopicConfig

from ...steps import result_of
from ..conftest import Caller, Config, Start


def table(broker: Broker, name: str) -> list[tuple[Any, ...]]:
    """The rows of one table."""
    return [tuple(row.values()) for row in result_of(overview(broker))[name]]


async def test_facts_tell_who_it_is_and_where(broker: Broker, tmp_path: Path) -> None:
    found = result_of(overview(broker))
    assert (found["daemon"], found["name"]) == ("broker", "broker-a")
    assert found["address"] == f"127.0.0.1:{broker.port}"
    assert found["store"] == str(tmp_path / "store")
    assert found["name_servers_reached"] == {}
    assert found["takes_no_messages"] is None
    broker.store.pause("disk", "the disk is full")
    assert result_of(overview(broker))["takes_no_messages"] == "the disk is full"


async def test_topics_of_users_are_listed_with_what_they_hold(
    broker: Broker, caller: Caller
) -> None:
    await caller.send("T")
    await caller.send("T", queue_id=1)
    broker.stats.sample(broker.now_ms())
    [(*found, rate_in, rate_out)] = table(broker, "topics")
    assert found == ["T", 4, 4, 2, 2]
    assert rate_in > 0
    assert rate_out == 0


async def test_groups_are_listed_with_members_and_lag(broker: Broker, caller: Caller) -> None:
    await caller.send("T")
    await caller.heartbeat(topics={"T": "*"})
    assert table(broker, "groups") == [("cg", "T", 1, 0, 0.0)]
    broker.offsets.commit("T", "cg", 0, 0)
    assert table(broker, "groups") == [("cg", "T", 1, 1, 0.0)]


async def test_an_empty_retry_topic_is_not_shown(broker: Broker, caller: Caller) -> None:
    await caller.heartbeat(topics={"T": "*"})
    assert broker.topics.get("%RETRY%cg") is not None
    assert table(broker, "topics") == []


async def test_it_is_ready_once_a_name_server_has_taken_it(
    namesrv: NameServer, start: Start, config: Config
) -> None:
    registered = await start(config(namesrv_addr=namesrv.address))
    assert not_ready(registered) is None
    nobody = "127.0.0.1:1"
    alone = await start(
        config(namesrv_addr=nobody, store_path_root_dir=str(config().store_dir) + "-2")
    )
    said = not_ready(alone)
    assert said is not None
    assert nobody in said


async def test_a_disk_that_failed_is_a_fault(broker: Broker) -> None:
    assert fault(broker) is None
    broker.store.refuse_writes("the disk did not take a sync")
    assert fault(broker) == "the disk did not take a sync"


async def test_a_full_disk_is_told_of_a_broker_that_is_ready(broker: Broker) -> None:
    assert note(broker) is None
    broker.store.pause("disk", "the disk is full; free some space")
    assert note(broker) == "it takes no messages: the disk is full; free some space"
    assert fault(broker) is None
    broker.store.resume("disk")
    assert note(broker) is None


async def test_groups_whose_members_subscribe_differently_are_shown(
    broker: Broker, caller: Caller
) -> None:
    key = "groups_that_subscribe_differently"
    await caller.heartbeat("c1", topics={"T": "a"})
    assert table(broker, key) == []
    other = Caller(broker)
    await other.heartbeat("c2", topics={"T": "*"})
    assert table(broker, key) == [("cg", "topic T: c2: all messages / c1: tags a")]
    await other.peers.close()


async def test_topics_of_the_system_are_listed_when_they_are_wanted(
    broker: Broker, caller: Caller
) -> None:
    await caller.send("T")
    await caller.heartbeat(topics={"T": "*"})
    rows = result_of(overview(broker, with_system=True))["topics"]
    names = {row["topic"] for row in rows}
    assert {"T", "%RETRY%cg", "TBW102", "broker-a", "DefaultCluster"} <= names


async def test_messages_are_counted(broker: Broker, caller: Caller) -> None:
    for _ in range(3):
        await caller.send("T")
    broker.offsets.commit("T", "cg", 0, 1)
    broker.stats.sample(broker.now_ms())
    found = result_of(overview(broker))
    assert found["messages_in"] == 3
    assert found["messages_behind"] == 2
    assert found["messages_in_per_second"] > 0


async def test_topics_and_groups_are_looked_at_in_small_steps(broker: Broker) -> None:
    """Requests are served between two steps, so each is about one topic or one group at most."""
    broker.topics.put_all([TopicConfig(f"T{number}") for number in range(50)])
    for number in range(50):
        broker.offsets.commit(f"T{number}", "g", 0, 0)
    assert sum(1 for _ in overview(broker)) > 150
