"""Offset stores: common behaviour, requests of the remote store, and refusals."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aerobee.client.cluster.cluster import Cluster
from aerobee.client.errors import BrokerError, NoAnswerError, NoRouteError
from aerobee.client.group.local_offsets import LocalOffsetStore
from aerobee.client.group.offsets import (
    OffsetStore,
    ReadFrom,
    RemoteOffsetStore,
    persist_surely,
)
from aerobee.protocol import codes
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.command import OK, Command, Response
from aerobee.protocol.headers.offsets import (
    QueryConsumerOffset,
    UpdateConsumerOffset,
)

from ...waiting import LONG
from ..fakes import FakeBroker, FakeCluster, until

QUEUE = MessageQueue("orders", "broker-a", 1)
OTHER = MessageQueue("orders", "broker-a", 2)
ODD = MessageQueue("%RETRY%ns%g|1", "broker-b", 0)


def keep_offsets(broker: FakeBroker) -> dict[tuple[str, int], int]:
    """Have the broker remember offsets; what it knows, by topic and queue."""
    known: dict[tuple[str, int], int] = {}

    def update(command: Command, _: object) -> Response:
        header = command.header(UpdateConsumerOffset)
        known[header.topic, header.queue_id] = header.commit_offset
        return OK

    def query(command: Command, _: object) -> Response:
        header = command.header(QueryConsumerOffset)
        offset = known.get((header.topic, header.queue_id))
        if offset is None:
            return Response(codes.QUERY_NOT_FOUND, remark="new")
        return Response(fields={"offset": str(offset)})

    broker.answers[codes.UPDATE_CONSUMER_OFFSET] = update
    broker.answers[codes.QUERY_CONSUMER_OFFSET] = query
    return known


@pytest.fixture
async def cluster(fake: FakeCluster) -> AsyncIterator[Cluster]:
    """A client that knows where the broker of "orders" is."""
    running = Cluster(fake.address)
    await running.route("orders")
    yield running
    await running.close()


@pytest.fixture(params=["remote", "local"])
def store(
    request: pytest.FixtureRequest, fake: FakeCluster, cluster: Cluster, tmp_path: Path
) -> OffsetStore:
    """Each of the two, behind it a broker that remembers or a folder."""
    keep_offsets(fake.broker)
    if request.param == "remote":
        return RemoteOffsetStore(cluster, "g")
    return LocalOffsetStore("me", "g", tmp_path)


# --- both ---------------------------------------------------------------------------------------


async def test_memory_is_raised_and_lowered_only_when_that_is_wanted(store: OffsetStore) -> None:
    assert store.in_memory(QUEUE) == -1
    store.update(QUEUE, 10)
    store.update(QUEUE, 5)
    assert store.in_memory(QUEUE) == 10
    store.update(QUEUE, 5, increase_only=False)
    assert store.in_memory(QUEUE) == 5
    assert store.clone() == {QUEUE: 5}


async def test_an_offset_is_read_from_memory_from_the_store_or_from_both(
    store: OffsetStore,
) -> None:
    for where in ReadFrom:
        assert await store.read(QUEUE, where) == -1
    store.update(QUEUE, 10)
    assert await store.read(QUEUE, ReadFrom.STORE) == -1
    await store.persist(QUEUE)
    store.update(QUEUE, 12)
    assert await store.read(QUEUE, ReadFrom.MEMORY) == 12
    assert await store.read(QUEUE, ReadFrom.MEMORY_THEN_STORE) == 12
    assert await store.read(QUEUE, ReadFrom.STORE) == 10
    assert store.in_memory(QUEUE) == 10  # what the store says counts
    store.remove(QUEUE)
    assert await store.read(QUEUE, ReadFrom.MEMORY) == -1
    assert await store.read(QUEUE, ReadFrom.MEMORY_THEN_STORE) == 10


async def test_only_the_queues_in_the_set_are_persisted(store: OffsetStore) -> None:
    store.update(QUEUE, 1)
    store.update(OTHER, 2)
    await store.persist_all([])
    assert await store.read(QUEUE, ReadFrom.STORE) == -1
    store.update(QUEUE, 1)
    await store.persist_all([OTHER])
    await until_stored(store, OTHER)
    assert await store.read(QUEUE, ReadFrom.STORE) == -1


async def test_a_removed_queue_is_persisted_no_more(store: OffsetStore) -> None:
    store.update(QUEUE, 1)
    store.remove(QUEUE)
    store.remove(QUEUE)
    await store.persist_all([QUEUE])
    await store.persist(QUEUE)
    assert await store.read(QUEUE, ReadFrom.STORE) == -1


async def test_a_clone_is_a_copy_of_one_topic_or_of_all(store: OffsetStore) -> None:
    store.update(QUEUE, 1)
    store.update(ODD, 2)
    assert store.clone("orders") == {QUEUE: 1}
    assert store.clone() == store.clone("  ") == {QUEUE: 1, ODD: 2}
    store.clone()[QUEUE] = 99
    assert store.in_memory(QUEUE) == 1


async def until_stored(store: OffsetStore, queue: MessageQueue) -> None:
    """A oneway request takes a moment."""
    async with asyncio.timeout(LONG):
        while await store.read(queue, ReadFrom.STORE) < 0:  # noqa: ASYNC110
            await asyncio.sleep(0)


# --- the one at the brokers ---------------------------------------------------------------------


async def test_loading_asks_nobody(fake: FakeCluster, cluster: Cluster) -> None:
    before = list(fake.broker.order)
    await RemoteOffsetStore(cluster, "g").load()
    assert fake.broker.order == before


async def test_persisting_all_is_a_oneway_request_for_each_queue(
    fake: FakeCluster, cluster: Cluster
) -> None:
    store = RemoteOffsetStore(cluster, "g")
    store.update(QUEUE, 7)
    store.update(OTHER, 8)
    await store.persist_all([QUEUE, OTHER])
    sent = fake.broker.requests[codes.UPDATE_CONSUMER_OFFSET]
    await until(lambda: len(sent) == 2)
    assert [command.header(UpdateConsumerOffset) for command in sent] == [
        UpdateConsumerOffset("g", "orders", 1, 7),
        UpdateConsumerOffset("g", "orders", 2, 8),
    ]
    assert {command.flag for command in sent} == {2}
    assert sent[0].fields() == {
        "consumerGroup": "g",
        "topic": "orders",
        "queueId": "1",
        "commitOffset": "7",
    }


async def test_one_queue_is_persisted_for_sure_and_a_refusal_is_only_logged(
    fake: FakeCluster, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    store = RemoteOffsetStore(cluster, "g")
    store.update(QUEUE, 7)
    await store.persist(QUEUE)
    (command,) = fake.broker.requests[codes.UPDATE_CONSUMER_OFFSET]
    assert command.flag == 0
    fake.broker.answers[codes.UPDATE_CONSUMER_OFFSET] = lambda *_: Response(codes.SYSTEM_ERROR)
    await store.persist(QUEUE)
    assert "offset 7 of group g in queue 1 of orders is not persisted yet" in caplog.text


class RacingStore(LocalOffsetStore):
    """A store whose `persist` races as RocketMQ's ConsumerOffsetManager.commitOffset does."""

    def __init__(self) -> None:
        super().__init__("client", "G")
        self.kept: dict[str, dict[int, int]] = {}

    async def persist(self, queue: MessageQueue) -> None:
        offsets = self.kept.get(queue.topic)
        await asyncio.sleep(0)  # another request is served here
        if offsets is None:
            self.kept[queue.topic] = {queue.queue_id: self.in_memory(queue)}
        else:
            offsets[queue.queue_id] = self.in_memory(queue)


async def test_the_first_offsets_of_a_group_do_not_race_at_the_broker() -> None:
    store = RacingStore()
    queues = [MessageQueue(topic, "broker-a", number) for topic in "AB" for number in range(4)]
    for queue in queues:
        store.update(queue, 5)
    await persist_surely(store, queues)
    assert store.kept == {topic: dict.fromkeys(range(4), 5) for topic in "AB"}


async def test_telling_a_broker_raises_unless_it_is_oneway(
    fake: FakeCluster, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RemoteOffsetStore(cluster, "g")
    fake.broker.answers[codes.UPDATE_CONSUMER_OFFSET] = lambda *_: Response(codes.SYSTEM_ERROR)
    await store.update_to_broker(QUEUE, 7)
    with pytest.raises(BrokerError, match="SYSTEM_ERROR"):
        await store.update_to_broker(QUEUE, 7, oneway=False)
    waited = []

    async def ask(*_: object, timeout_s: float) -> None:
        waited.append(timeout_s)
        raise NoAnswerError("no answer")

    monkeypatch.setattr(cluster, "ask", ask)
    with pytest.raises(NoAnswerError):
        await store.update_to_broker(QUEUE, 7, oneway=False)
    assert waited == [5.0]


async def test_an_unknown_broker_is_looked_for_once(fake: FakeCluster, cluster: Cluster) -> None:
    store = RemoteOffsetStore(cluster, "g")
    asked = len(fake.requests[codes.GET_ROUTEINFO_BY_TOPIC])
    gone = MessageQueue("orders", "broker-x", 0)
    with pytest.raises(NoRouteError, match=r"The broker\[broker-x\] not exist"):
        await store.update_to_broker(gone, 7)
    assert len(fake.requests[codes.GET_ROUTEINFO_BY_TOPIC]) == asked + 1
    with pytest.raises(NoRouteError, match=r"The broker\[broker-x\] not exist"):
        await store.read(gone, ReadFrom.STORE)


async def test_a_new_broker_is_found_by_the_second_look(fake: FakeCluster) -> None:
    keep_offsets(fake.broker)
    cluster = Cluster(fake.address)
    store = RemoteOffsetStore(cluster, "g")
    store.update(QUEUE, 7)
    await store.persist(QUEUE)
    assert await store.read(QUEUE, ReadFrom.STORE) == 7
    await cluster.close()


async def test_a_group_that_never_was_there_is_not_a_broker_that_can_not_say(
    fake: FakeCluster, cluster: Cluster
) -> None:
    store = RemoteOffsetStore(cluster, "g")
    assert await store.read(QUEUE, ReadFrom.STORE) == -1
    fake.broker.answers[codes.QUERY_CONSUMER_OFFSET] = lambda *_: Response(codes.SYSTEM_BUSY)
    with pytest.raises(BrokerError, match="SYSTEM_BUSY"):
        await store.read(QUEUE, ReadFrom.STORE)


# --- the one in a file --------------------------------------------------------------------------


async def test_the_local_store_tells_brokers_nothing(tmp_path: Path) -> None:
    await LocalOffsetStore("me", "g", tmp_path).update_to_broker(QUEUE, 7, oneway=False)
    assert os.listdir(tmp_path) == []
