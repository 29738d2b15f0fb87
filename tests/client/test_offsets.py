"""The committed offset is the smallest open one, in whatever order messages are settled."""

import random

import pytest
from aerobee.client.cluster import Cluster
from aerobee.client.errors import BrokerError
from aerobee.client.offsets import GroupOffsets, OpenOffsets
from aerobee.protocol import codes
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.command import Reply
from aerobee.protocol.headers.offsets import UpdateConsumerOffset

from .fakes import FakeCluster

QUEUE = MessageQueue("orders", "broker-a", 1)


@pytest.mark.parametrize("seed", range(200))
def test_the_committed_offset_is_the_smallest_open_one_at_every_step(seed: int) -> None:
    dice = random.Random(seed)
    offsets, model, following = OpenOffsets(), set[int](), -1
    assert offsets.committed == -1
    for _ in range(200):
        if not model or dice.random() < 0.5:
            following = max(following, 0) + dice.choice((0, 0, 0, 1, 7))  # filtered ones leave gaps
            assert offsets.open(following)
            model.add(following)
            following += 1
        else:
            done = dice.choice(sorted(model))
            offsets.settle(done)
            model.remove(done)
        assert offsets.committed == min(model, default=following)
        assert len(offsets) == len(model)
        assert offsets.span == (following - 1 - min(model) if model else 0)


def test_an_offset_that_was_held_before_is_not_opened_again() -> None:
    offsets = OpenOffsets()
    assert offsets.open(5)
    assert not offsets.open(5)
    offsets.settle(5)
    assert not offsets.open(4)
    assert offsets.committed == 6


async def test_memory_never_goes_back_unless_told_to(fake: FakeCluster) -> None:
    cluster = Cluster(fake.address)
    offsets = GroupOffsets(cluster, "g")
    assert offsets.read(QUEUE) == -1
    offsets.update(QUEUE, 7)
    offsets.update(QUEUE, 5)
    assert offsets.read(QUEUE) == 7
    offsets.update(QUEUE, 5, increase_only=False)
    assert offsets.read(QUEUE) == 5
    offsets.forget(QUEUE)
    assert offsets.read(QUEUE) == -1
    await cluster.close()


async def test_persisting_tells_the_broker_and_a_refusal_does_not_raise(fake: FakeCluster) -> None:
    cluster = Cluster(fake.address)
    await cluster.route("orders")
    offsets = GroupOffsets(cluster, "g")
    offsets.update(QUEUE, 7)
    await offsets.persist([QUEUE, MessageQueue("orders", "broker-a", 2)], sure=True)
    (command,) = fake.broker.requests[codes.UPDATE_CONSUMER_OFFSET]
    assert command.header(UpdateConsumerOffset) == UpdateConsumerOffset("g", "orders", 1, 7)
    fake.broker.answers[codes.UPDATE_CONSUMER_OFFSET] = lambda *_: Reply(codes.SYSTEM_ERROR)
    await offsets.persist([QUEUE], sure=True)
    assert len(fake.broker.requests[codes.UPDATE_CONSUMER_OFFSET]) == 2
    await cluster.close()


async def test_loading_tells_a_known_offset_from_a_group_that_never_was_there(
    fake: FakeCluster,
) -> None:
    cluster = Cluster(fake.address)
    await cluster.route("orders")
    offsets = GroupOffsets(cluster, "g")
    assert await offsets.load(QUEUE) is None
    fake.broker.answers[codes.QUERY_CONSUMER_OFFSET] = lambda *_: Reply(fields={"offset": "9"})
    assert await offsets.load(QUEUE) == 9
    assert offsets.read(QUEUE) == 9
    fake.broker.answers[codes.QUERY_CONSUMER_OFFSET] = lambda *_: Reply(codes.SYSTEM_BUSY)
    with pytest.raises(BrokerError, match="SYSTEM_BUSY"):
        await offsets.load(QUEUE)
    await cluster.close()
