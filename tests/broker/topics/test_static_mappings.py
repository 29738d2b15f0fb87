"""The table of static topics: allowed changes, persistence, and distribution."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aerobee.protocol import codes
from aerobee.protocol.bodies.topic import TopicConfigAndMappingSerializeWrapper
from aerobee.protocol.bodies.topic_queue_mapping import LogicQueueMappingItem
from aerobee.protocol.headers.namesrv import DeleteTopicInNamesrv
from aerobee.protocol.headers.topics import GetTopicConfig, TopicName, UpdateTopic
from aerobee.protocol.queues.logical_queues import leaders

from ..static_cluster import StaticCluster, item, static_cluster

T = "Static"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[StaticCluster]:
    async with static_cluster(tmp_path, "a", "b") as running:
        yield running


async def led(cluster: StaticCluster, topic: str = T) -> dict[int, str]:
    """The leader of each logical queue, as a client reads it from the route."""
    route = await cluster.route(topic)
    return leaders(route.topic_queue_mapping_by_broker or {}).get("__global__", {})


async def test_the_route_has_the_leader_of_each_queue_before_and_after_a_move(
    cluster: StaticCluster,
) -> None:
    await cluster.create(T, ["a", "b", "a"])
    assert await led(cluster) == {0: "a", 1: "b", 2: "a"}
    await cluster.move(T, 2, "b")
    assert await led(cluster) == {0: "a", 1: "b", 2: "b"}


async def test_name_servers_learn_of_moves_with_single_topic_registration(
    tmp_path: Path,
) -> None:
    async with static_cluster(tmp_path, "a", "b", enable_single_topic_register=True) as cluster:
        await cluster.create(T, ["a"])
        await cluster.move(T, 0, "b")
        assert await led(cluster) == {0: "b"}


async def test_static_topics_persist_over_a_restart(cluster: StaticCluster, tmp_path: Path) -> None:
    await cluster.create(T, ["a"])
    await cluster.callers["a"].send(T)
    before = await cluster.config(T, "a")
    await cluster.brokers["a"].stop()
    file = json.loads((tmp_path / "a" / "config" / "topicQueueMapping.json").read_text())
    assert file["topicQueueMappingInfoMap"][T]["hostedQueues"]["0"][0]["bname"] == "a"
    await cluster.callers["a"].peers.close()
    await cluster.start("a", tmp_path / "a")
    assert await cluster.config(T, "a") == before
    assert (await cluster.callers["a"].pull(T)).code == codes.SUCCESS
    assert await led(cluster) == {0: "a"}


async def test_the_mapping_is_sent_only_to_requests_for_logical_queues(
    cluster: StaticCluster,
) -> None:
    await cluster.create(T, ["a"])
    answer = await cluster.callers["a"].ask(codes.GET_TOPIC_CONFIG, GetTopicConfig(T))
    assert b"mappingDetail" not in (answer.body or b"")
    everything = await cluster.callers["a"].ask(codes.GET_ALL_TOPIC_CONFIG)
    found = TopicConfigAndMappingSerializeWrapper.decode(everything.body)
    assert found.topic_queue_mapping_detail_map == {T: cluster.brokers["a"].topics.static.table[T]}
    assert found.mapping_data_version.counter == 1


async def test_a_topic_recreated_after_deletion_is_not_static(cluster: StaticCluster) -> None:
    await cluster.create(T, ["a"])
    for caller in cluster.callers.values():
        assert (await caller.ask(codes.DELETE_TOPIC_IN_BROKER, TopicName(T))).code == 0
    await cluster.callers["a"].peers.request(
        f"127.0.0.1:{cluster.names.port}", codes.DELETE_TOPIC_IN_NAMESRV, DeleteTopicInNamesrv(T)
    )
    await cluster.callers["a"].ask(codes.UPDATE_AND_CREATE_TOPIC, UpdateTopic(T, 4, 4, 6))
    assert (await cluster.route(T)).topic_queue_mapping_by_broker is None
    assert (await cluster.callers["a"].send(T, queue_id=3)).code == codes.SUCCESS


Queues = dict[int, list[LogicQueueMappingItem]]
REFUSED: list[tuple[str, str, Queues]] = [
    ("broker b, this is a", "b", {0: [item("b", 0)]}),
    ("should not be negative", "a", {0: [item("a", -1)]}),
    ("an id below 0", "a", {-1: [item("a", 0)]}),
    ("65537 logical queues, the limit is 65536", "a", {65_536: [item("a", 0)]}),
    ("non-latest item has negative", "a", {0: [item("b", 0, -1), item("a", 0, 5, 1)]}),
    ("gen does not increase", "a", {0: [item("b", 0, 0, 1), item("a", 0, 5, 1)]}),
    ("base logic offset does not", "a", {0: [item("b", 0, 5), item("a", 0, 5, 1)]}),
    ("1001 items, the limit is 1000", "a", {0: [item("a", 0, n, n) for n in range(1_001)]}),
    (
        "max logic offset does not",
        "a",
        {0: [LogicQueueMappingItem(0, 0, "b", 0, 0, 9), item("a", 0, 5, 1)]},
    ),
    ("smaller than the start", "a", {0: [LogicQueueMappingItem(0, 0, "a", 0, 5, 3)]}),
]


@pytest.mark.parametrize(("why", "bname", "queues"), REFUSED)
async def test_an_inconsistent_mapping_is_refused_and_changes_nothing(
    cluster: StaticCluster, why: str, bname: str, queues: Queues
) -> None:
    refused = await cluster.put(T, "a", queues, physical=1, total=1, bname=bname)
    assert refused.code == codes.SYSTEM_ERROR
    assert why in (refused.remark or "")
    answer = await cluster.callers["a"].ask(codes.GET_TOPIC_CONFIG, GetTopicConfig(T))
    assert answer.code == codes.TOPIC_NOT_EXIST


async def test_an_older_mapping_or_a_changed_history_is_refused_unless_forced(
    cluster: StaticCluster,
) -> None:
    await cluster.create(T, ["a", "a"])
    first, second = {0: [item("a", 0)]}, {1: [item("a", 1)]}

    async def put(queues: Queues, more: int = 0, *, force: bool = False) -> str:
        cluster.epoch += more
        done = await cluster.put(T, "a", queues, physical=2, total=2, force=force)
        cluster.epoch -= more
        return "" if done.code == codes.SUCCESS else done.remark or ""

    assert "small epoch" in await put(first | second, -1)
    assert "equal epoch with null data" in await put(first)
    assert "The new item list is null or empty" in await put(second | {0: []}, 1)
    assert "leader is different but epoch equal" in await put(
        second | {0: [*first[0], item("b", 0, 9, 1)]}
    )
    changed = {0: [item("a", 7)]}
    assert "item 0 would change from queue 0 of a at offset 0 to queue 7" in await put(changed, 1)
    assert await put(first | second) == ""
    assert await put(changed, force=True) == ""
    hosted = cluster.brokers["a"].topics.static.table[T].hosted_queues
    assert hosted == changed | second
