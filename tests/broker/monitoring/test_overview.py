"""A broker at a glance: what its status page shows, and whether it is well and ready."""

from pathlib import Path

from aerobee.broker.monitoring.overview import fault, not_ready, note, overview
from aerobee.broker.server import Broker
from aerobee.namesrv.server import NameServer
from aerobee.protocol.bodies.topic import TopicConfig

from ...steps import result_of
from ..conftest import Caller, Config, Start


def table(broker: Broker, title: str) -> list[tuple[object, ...]]:
    """The rows of one table."""
    [rows] = [rows for name, _, rows in result_of(overview(broker))[2] if name == title]
    return [tuple(row) for row in rows]


async def test_facts_tell_who_it_is_and_where(broker: Broker, tmp_path: Path) -> None:
    title, facts, _ = result_of(overview(broker))
    found = dict(facts)
    assert title == "aerobee broker broker-a"
    assert found["Address for clients"] == f"127.0.0.1:{broker.port}"
    assert found["Store"] == str(tmp_path / "store")
    assert found["Name servers"] == "none"
    assert found["Takes messages"] == "yes"
    broker.store.pause("disk", "the disk is full")
    assert dict(result_of(overview(broker))[1])["Takes messages"] == "the disk is full"


async def test_topics_of_users_are_listed_with_what_they_hold(
    broker: Broker, caller: Caller
) -> None:
    await caller.send("T")
    await caller.send("T", queue_id=1)
    broker.stats.sample(broker.now_ms())
    [(name, queues, stored, puts, rate_in, rate_out)] = table(broker, "Topics")
    assert (name, queues, stored, puts) == ("T", "4", 2, 2)
    assert isinstance(rate_in, float)
    assert rate_in > 0
    assert rate_out == 0


async def test_groups_are_listed_with_members_and_lag(broker: Broker, caller: Caller) -> None:
    await caller.send("T")
    await caller.heartbeat(topics={"T": "*"})
    assert table(broker, "Consumer groups") == [("cg", "T", 1, 0, 0.0)]
    broker.offsets.commit("T", "cg", 0, 0)
    assert table(broker, "Consumer groups") == [("cg", "T", 1, 1, 0.0)]


async def test_an_empty_retry_topic_is_not_shown(broker: Broker, caller: Caller) -> None:
    await caller.heartbeat(topics={"T": "*"})
    assert broker.topics.get("%RETRY%cg") is not None
    assert table(broker, "Topics") == []


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
    title = "Groups whose members subscribe differently"
    await caller.heartbeat("c1", topics={"T": "a"})
    assert title not in [name for name, _, _ in result_of(overview(broker))[2]]
    other = Caller(broker)
    await other.heartbeat("c2", topics={"T": "*"})
    assert table(broker, title) == [("cg", "topic T: c2: all messages / c1: tags a")]
    await other.peers.close()


async def test_topics_of_the_system_are_listed_when_they_are_wanted(
    broker: Broker, caller: Caller
) -> None:
    await caller.send("T")
    await caller.heartbeat(topics={"T": "*"})
    [rows] = [
        rows
        for name, _, rows in result_of(overview(broker, with_system=True))[2]
        if name == "Topics"
    ]
    assert {"T", "%RETRY%cg", "TBW102", "broker-a", "DefaultCluster"} <= {row[0] for row in rows}


async def test_figures_come_before_the_rest(broker: Broker, caller: Caller) -> None:
    for _ in range(3):
        await caller.send("T")
    broker.offsets.commit("T", "cg", 0, 1)
    broker.stats.sample(broker.now_ms())
    _, facts, _ = result_of(overview(broker))
    figures = dict(facts[:6])
    assert figures["Messages in since start"] == 3
    assert figures["Messages behind, all groups"] == 2
    assert isinstance(figures["Messages in a second"], float)
    assert figures["Messages in a second"] > 0
    assert all(isinstance(value, str) for _, value in facts[6:])


async def test_topics_and_groups_are_looked_at_in_small_steps(broker: Broker) -> None:
    """Requests are served between two steps, so each is about one topic or one group at most."""
    broker.topics.put_all([TopicConfig(f"T{number}") for number in range(50)])
    for number in range(50):
        broker.offsets.commit(f"T{number}", "g", 0, 0)
    assert sum(1 for _ in overview(broker)) > 150
