"""The consumer group of a lake: its offsets at the brokers are those of the tables."""

import asyncio
from collections.abc import AsyncIterator

import pytest

pytest.importorskip("pyiceberg")

from aerobee.client import Admin, Message, Producer
from aerobee.lake import opening
from aerobee.lake.catalog import LakeCatalog
from aerobee.lake.materializer import Materializer
from aerobee.lake.progress import progress_of, queue_key
from aerobee.lake.settings import LakeSettings
from aerobee.lake.topic_log import TopicLog
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.testing.cluster import LocalCluster

from ..waiting import LONG, until
from .memory_log import MemoryLog
from .test_service import Place, entry, place, rows, running

__all__ = ["place"]

GROUP = "a-lake"


@pytest.fixture
async def admin(cluster: LocalCluster) -> AsyncIterator[Admin]:
    async with Admin(cluster.name_server) as one:
        yield one


@pytest.fixture
async def topic_log(cluster: LocalCluster) -> AsyncIterator[TopicLog]:
    one = await asyncio.to_thread(TopicLog, cluster.name_server)
    yield one
    await asyncio.to_thread(one.close)


async def send(cluster: LocalCluster, admin: Admin, topic: str, count: int = 10) -> None:
    await admin.create_topic(topic)
    async with Producer(cluster.name_server) as producer:
        for number in range(count):
            await producer.send(Message(topic, f"{number}".encode()))


def settings(place: Place, topic: str) -> LakeSettings:
    """The settings of a lake with a group, whose table of the topic is made."""
    place.topics(topic)
    return place.settings(entry(topic=topic), group=GROUP)


def in_table(found: LakeSettings, topic: str) -> dict[str, int]:
    """The offsets that the table has."""
    table = opening.open_catalog(found).load(topic, topic)
    return progress_of(table.metadata, topic).offsets


async def at_brokers(admin: Admin, topic: str, group: str = GROUP) -> dict[str, int]:
    """The group's offsets at the brokers."""
    stats = await admin.consume_stats(group, topic)
    return {queue_key(queue): one.consumer_offset for queue, one in stats.offset_table.items()}


# --- a running lake -------------------------------------------------------------------------------


async def test_the_brokers_have_the_offsets_of_the_table_as_the_groups(
    place: Place, cluster: LocalCluster, admin: Admin
) -> None:
    await send(cluster, admin, "grouped")
    said = settings(place, "grouped")
    async with running(said) as lake:
        await rows(lake, "grouped", 10)
        await send(cluster, admin, "grouped")
        await rows(lake, "grouped", 20)
    found = await at_brokers(admin, "grouped")
    assert found == in_table(said, "grouped")
    assert sum(found.values()) == 20
    assert lake.reports["grouped"].failure == ""


async def test_a_start_commits_what_the_brokers_lack(
    place: Place, cluster: LocalCluster, admin: Admin, topic_log: TopicLog
) -> None:
    await send(cluster, admin, "started")
    said = settings(place, "started")
    async with running(said) as lake:
        await rows(lake, "started", 10)
    ends = in_table(said, "started")
    await admin.delete_group(GROUP, clean_offsets=True)
    ahead = MessageQueue("started", "broker-a", 0)
    further = {ahead: ends[queue_key(ahead)] + 7}  # the broker has more than the table: it stays
    assert await asyncio.to_thread(topic_log.move_group, GROUP, further) == {}
    async with running(said) as lake:
        began = lake.reports["started"].complete_at
        await until(lambda: lake.reports["started"].complete_at > began)
    wanted = ends | {queue_key(ahead): further[ahead]}
    assert await at_brokers(admin, "started") == wanted


async def test_two_lakes_leave_the_offsets_of_the_table(
    place: Place, cluster: LocalCluster, admin: Admin
) -> None:
    await send(cluster, admin, "shared", 1)
    said = settings(place, "shared")
    async with running(said) as one, running(said) as other:
        for _ in range(5):
            await send(cluster, admin, "shared")
        await until(lambda: one.reports["shared"].rows + other.reports["shared"].rows >= 51)
        async with asyncio.timeout(LONG):
            while await at_brokers(admin, "shared") != in_table(said, "shared"):
                pass  # one may have been overtaken by the other, and mends that in its next pass


async def test_a_group_that_is_new_is_made_and_moves_forward_only(
    cluster: LocalCluster, admin: Admin, topic_log: TopicLog
) -> None:
    await send(cluster, admin, "forward")
    queue = MessageQueue("forward", "broker-a", 0)
    absent = MessageQueue("forward", "nobody", 0)
    for offset, found in ((3, 3), (2, 3), (0, 3), (4, 4)):
        failures = await asyncio.to_thread(topic_log.move_group, "new", {queue: offset})
        assert failures == {}
        assert (await at_brokers(admin, "forward", "new"))[queue_key(queue)] == found
    failures = await asyncio.to_thread(topic_log.move_group, "new", {absent: 1, queue: 5})
    assert list(failures) == [absent]
    assert failures[absent].startswith("queue 0 of forward on nobody: offset of group new: ")
    assert (await at_brokers(admin, "forward", "new"))[queue_key(queue)] == 5


# --- a materializer -------------------------------------------------------------------------------


def test_offsets_are_committed_when_they_change(catalog: LakeCatalog, source: MemoryLog) -> None:
    source.send(5)
    source.send(3, queue=1)
    copier = Materializer(catalog, source, "orders", "orders", group=GROUP)
    first, second = (MessageQueue("orders", "broker-a", number) for number in range(2))
    copier.copy()
    assert source.groups == {(GROUP, first): 5, (GROUP, second): 3}
    copier.copy()
    assert source.moves == 2
    source.send(1)
    copier.copy()
    assert (source.groups[GROUP, first], source.moves) == (6, 3)
    Materializer(catalog, source, "orders", "orders", group=GROUP).copy()
    assert source.moves == 5
    Materializer(catalog, source, "orders", "orders").copy()
    assert source.moves == 5


def test_a_failure_is_told_and_tried_again_while_copying_goes_on(
    catalog: LakeCatalog, source: MemoryLog
) -> None:
    source.send(5)
    queue = MessageQueue("orders", "broker-a", 0)
    source.refused[queue] = "no"
    copier = Materializer(catalog, source, "orders", "orders", group=GROUP)
    assert (copier.copy().rows, source.groups) == (5, {})
    source.send(2)
    done = copier.copy()
    assert (done.rows, done.failures, done.group_failures) == (2, (), ("no",))
    assert copier.copy().group_failures == ("no",)
    source.refused.clear()
    assert copier.copy().group_failures == ()
    assert source.groups == {(GROUP, queue): 7}
