"""Periodic tasks of a client, on a clock that the test moves."""

from collections import Counter

from aerobee.client import Consumer
from aerobee.client.base.identity import new_client_id
from aerobee.protocol import codes

from ...waiting import LONG
from ..clock import Clock
from ..fakes import FakeCluster, until
from ..shelf import Shelf


async def test_each_task_has_its_first_delay_and_its_period(
    fake: FakeCluster, shelf: Shelf, clock: Clock
) -> None:
    shelf.put("orders", 0, b"0")
    async with Consumer(
        fake.address, group="g", topics=["orders"], start="earliest", client_id="b"
    ) as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        await message.ack()
        start = Counter(fake.broker.order)
        routes = fake.requests[codes.GET_ROUTEINFO_BY_TOPIC]

        async def after(seconds: float) -> Counter[int]:
            """The requests to the broker by code, up to `seconds` after the start."""
            await clock.advance(seconds - (clock.time() - began))
            return Counter(fake.broker.order) - start

        began = clock.time()
        await clock.advance(0.1, step=0.05)
        assert len(routes) == 4  # both topics again, after 10 ms
        assert (await after(2))[codes.HEART_BEAT] == 1  # after a second
        assert (await after(9))[codes.UPDATE_CONSUMER_OFFSET] == 0
        assert (await after(11))[codes.UPDATE_CONSUMER_OFFSET] >= 1  # after 10 seconds
        persisted = (await after(11))[codes.UPDATE_CONSUMER_OFFSET]
        assert (await after(14))[codes.UPDATE_CONSUMER_OFFSET] == persisted
        assert (await after(16))[codes.UPDATE_CONSUMER_OFFSET] > persisted  # then every 5
        seen = len(routes)
        assert (await after(29))[codes.HEART_BEAT] == 1
        assert len(routes) == seen
        assert (await after(32))[codes.HEART_BEAT] == 2  # then every 30
        assert len(routes) >= seen + 2  # as the routes
        assert consumer.queues


async def test_offsets_are_reported_per_queue_every_5_seconds_also_after_a_broker_loss(
    fake: FakeCluster, shelf: Shelf, clock: Clock
) -> None:
    fake.topics["orders"] = 3
    for queue_id in range(3):
        shelf.put("orders", queue_id, b"%d" % queue_id)
    async with Consumer(fake.address, group="g", topics=["orders"], start="earliest") as consumer:
        for _ in range(3):
            message = await consumer.receive(LONG)
            assert message is not None
            await message.ack()
        sent = fake.broker.requests[codes.UPDATE_CONSUMER_OFFSET]
        await clock.advance(11)
        assert len(sent) == 3
        assert {command.flag & 2 for command in sent} == {2}  # oneway
        await clock.advance(5)
        assert len(sent) == 6
        await fake.broker.stop()
        await clock.advance(20)
        assert len(consumer.queues) == 3


async def test_a_crash_between_two_reports_repeats_messages_and_loses_none(
    fake: FakeCluster, shelf: Shelf, clock: Clock
) -> None:
    shelf.put("orders", 0, b"0", b"1", b"2", b"3")
    options = {"group": "g", "topics": ["orders"], "start": "earliest"}
    crashing = Consumer(fake.address, client_id="b", **options)  # type: ignore[arg-type]
    await crashing.start()
    messages = [await crashing.receive(LONG) for _ in range(4)]
    assert None not in messages
    first, second, third, _ = messages
    for message in (first, third):
        assert message is not None
        await message.ack()
    await clock.advance(12)
    await until(lambda: shelf.committed.get(("orders", 0)) == 1)
    assert second is not None
    await second.ack()  # never reported: the process ends here
    for connection in fake.broker.connections:
        connection.abort()
    fake.broker.members.clear()
    shelf.pulls.clear()
    async with Consumer(fake.address, client_id="c", **options) as following:  # type: ignore[arg-type]
        again = [await following.receive(LONG) for _ in range(3)]
        assert [message.body for message in again if message] == [b"1", b"2", b"3"]
    await crashing.close()


def test_client_ids_are_unique_unless_the_instance_has_a_name() -> None:
    ids = {new_client_id("10.0.0.1") for _ in range(100)}
    assert len(ids) == 100
    ip, _, instance = ids.pop().partition("@")
    pid, _, nanoseconds = instance.partition("#")
    assert ip == "10.0.0.1"
    assert pid.isdigit()
    assert nanoseconds.isdigit()
    assert new_client_id("10.0.0.1", "DEFAULT") == "10.0.0.1@DEFAULT"
