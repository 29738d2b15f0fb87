"""Ordered consumption: one message at a time, locks, pauses, and release after the last message."""

import asyncio

import pytest
from aerobee.client import (
    Admin,
    Consumer,
    ConsumeSettings,
    Context,
    Message,
    Outcome,
    Producer,
    PullSettings,
)
from aerobee.client.group.received import ReceivedMessage
from aerobee.protocol import codes
from aerobee.protocol.command import Response
from aerobee.protocol.headers.send import SendMessage
from aerobee.testing import LocalCluster

from ...waiting import LONG
from ..clock import Clock
from ..fakes import FakeCluster, until
from ..shelf import Shelf


def member(fake: FakeCluster, client_id: str = "b", **options: object) -> Consumer:
    return Consumer(
        fake.address,
        group="g",
        topics=["orders"],
        ordered=True,
        client_id=client_id,
        start="earliest",
        **options,  # type: ignore[arg-type]
    )


async def test_the_next_message_of_a_queue_comes_when_the_one_before_is_settled(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, b"0", b"1", b"2")
    async with member(fake) as consumer:
        first = await consumer.receive(LONG)
        assert first is not None
        assert await consumer.receive(0.02) is None
        await first.ack()
        second = await consumer.receive(LONG)
        assert second is not None
        assert (first.body, second.body) == (b"0", b"1")
    assert shelf.committed["orders", 0] == 1


async def test_a_message_that_is_pulled_meanwhile_waits_for_the_one_before(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, b"0")
    async with member(fake) as consumer:
        first = await consumer.receive(LONG)
        assert first is not None
        for body in (b"1", b"2"):
            shelf.put("orders", 0, body)
            await until(lambda: shelf.pulls_of("orders")[-1] == len(shelf.records["orders", 0]))
        assert await consumer.receive(0) is None
        await first.ack()
        second = await consumer.receive(LONG)
        assert second is not None
        assert second.body == b"1"
        assert await consumer.receive(0) is None


async def test_a_message_that_is_pulled_while_its_queue_rests_waits_for_the_end_of_the_rest(
    fake: FakeCluster, shelf: Shelf, clock: Clock
) -> None:
    shelf.put("orders", 0, b"0")
    async with member(fake) as consumer:
        first = await consumer.receive(LONG)
        assert first is not None
        await first.nack()
        shelf.put("orders", 0, b"1")
        await until(lambda: shelf.pulls_of("orders")[-1] == 2)
        assert await consumer.receive(0) is None
        await clock.advance(1.5)
        again = await consumer.receive(LONG)
        assert again is not None
        assert (again.body, again.reconsume_times) == (b"0", 1)
        assert await consumer.receive(0) is None


@pytest.mark.parametrize("settle", ["ack", "nack", "give up", "release"])
async def test_no_other_batch_is_begun_while_one_is_settled_only_in_part(
    settle: str, fake: FakeCluster, shelf: Shelf, clock: Clock
) -> None:
    shelf.put("orders", 0, *(b"%d" % at for at in range(6)))
    seen = list[list[bytes]]()
    is_settled, go = asyncio.Event(), asyncio.Event()
    consumer = member(fake, consume=ConsumeSettings(suspend_s=0.01))

    @consumer.listener(batch_max=3, concurrency=4)
    async def listen(messages: list[ReceivedMessage], context: Context) -> None:
        seen.append([message.body for message in messages])
        if len(seen) > 1:
            return
        if settle == "ack":
            await messages[0].ack()
        elif settle == "nack":
            await messages[0].nack()
        elif settle == "give up":
            await messages[0].nack(-1)
        else:
            messages[0].release()
        is_settled.set()
        await go.wait()

    async with consumer:
        await asyncio.wait_for(is_settled.wait(), LONG)
        await clock.advance(1)  # longer than the queue rests after a message that failed
        assert seen == [[b"0", b"1", b"2"]]
        go.set()
        await until(lambda: shelf_committed(consumer) == 6)


async def test_queues_do_not_wait_for_each_other(fake: FakeCluster, shelf: Shelf) -> None:
    fake.topics["orders"] = 3
    for queue_id in range(3):
        shelf.put("orders", queue_id, b"%d" % queue_id)
    async with member(fake) as consumer:
        found = [await consumer.receive(LONG) for _ in range(3)]
        assert {message.queue_id for message in found if message} == {0, 1, 2}


async def test_a_queue_is_locked_before_it_is_asked_for_anything(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, b"0")
    shelf.locks["orders", 0] = "somebody else"
    async with member(fake) as consumer:
        await until(lambda: len(fake.broker.requests[codes.LOCK_BATCH_MQ]) >= 3)
        assert not shelf.pulls_of("orders")
        assert consumer.queues == []
        del shelf.locks["orders", 0]
        message = await consumer.receive(LONG)
        assert message is not None
        order = fake.broker.order
        assert shelf.locks["orders", 0] == "b"
        assert order.index(codes.LOCK_BATCH_MQ) < order.index(codes.QUERY_CONSUMER_OFFSET)
    assert not shelf.locks  # given back by the leaving member


async def test_locks_are_renewed_every_20_seconds(
    fake: FakeCluster, shelf: Shelf, clock: Clock
) -> None:
    async with member(fake) as consumer:
        await until(lambda: len(consumer.queues) == 1)
        renewals = fake.broker.requests[codes.LOCK_BATCH_MQ]
        before = len(renewals)
        await clock.advance(2)
        assert len(renewals) == before + 1  # the first comes after a second
        await clock.advance(17)
        assert len(renewals) == before + 1
        await clock.advance(4)
        assert len(renewals) == before + 2


async def test_a_lock_that_is_not_renewed_is_believed_in_for_30_seconds(
    fake: FakeCluster, shelf: Shelf, clock: Clock
) -> None:
    shelf.put("orders", 0, b"0", b"1", b"2")
    async with member(fake) as consumer:
        first = await consumer.receive(LONG)
        assert first is not None
        fake.broker.answers[codes.LOCK_BATCH_MQ] = lambda *_: Response(codes.SYSTEM_BUSY)
        await clock.advance(27)
        await first.ack()
        second = await consumer.receive(0)
        assert second is not None
        await clock.advance(6)
        await second.ack()
        assert await consumer.receive(0) is None


async def test_a_lost_lock_is_asked_for_once_at_a_time(
    fake: FakeCluster, shelf: Shelf, clock: Clock
) -> None:
    shelf.put("orders", 0, b"0", b"1")
    async with member(fake, pull=PullSettings(timeout_s=120)) as consumer:
        first = await consumer.receive(LONG)
        assert first is not None
        await until(lambda: shelf.pulls_of("orders")[-1] == 2)
        answer = fake.broker.answers[codes.LOCK_BATCH_MQ]
        fake.broker.answers[codes.LOCK_BATCH_MQ] = lambda *_: Response(codes.SYSTEM_BUSY)
        await clock.advance(31)
        fake.broker.answers[codes.LOCK_BATCH_MQ] = lambda *_: None  # it thinks
        asked = len(fake.broker.requests[codes.LOCK_BATCH_MQ])
        await first.ack()
        await until(lambda: len(fake.broker.requests[codes.LOCK_BATCH_MQ]) > asked)
        shelf.put("orders", 0, b"2")  # for the pull that is under way
        await clock.run_ready()
        assert len(fake.broker.requests[codes.LOCK_BATCH_MQ]) == asked + 1
        assert await consumer.receive(0) is None
        fake.broker.answers[codes.LOCK_BATCH_MQ] = answer
        await clock.advance(5)
        second = await consumer.receive(LONG)
        assert second is not None
        assert second.body == b"1"


async def test_nothing_is_handed_out_once_the_lock_is_30_seconds_old(
    fake: FakeCluster, shelf: Shelf, clock: Clock
) -> None:
    shelf.put("orders", 0, b"0", b"1")
    async with member(fake) as consumer:
        first = await consumer.receive(LONG)
        assert first is not None
        answer = fake.broker.answers[codes.LOCK_BATCH_MQ]
        fake.broker.answers[codes.LOCK_BATCH_MQ] = lambda *_: Response(codes.SYSTEM_BUSY)
        await clock.advance(60)
        await first.ack()
        await clock.advance(5)
        assert await consumer.receive(0) is None
        fake.broker.answers[codes.LOCK_BATCH_MQ] = answer
        await clock.advance(5)
        second = await consumer.receive(LONG)
        assert second is not None
        assert second.body == b"1"


async def test_a_message_that_fails_holds_up_its_queue_for_a_second(
    fake: FakeCluster, shelf: Shelf, clock: Clock
) -> None:
    shelf.put("orders", 0, b"0", b"1")
    async with member(fake) as consumer:
        first = await consumer.receive(LONG)
        assert first is not None
        await first.nack()
        await clock.advance(0.9, step=0.1)
        assert await consumer.receive(0) is None
        await clock.advance(0.2, step=0.1)
        again = await consumer.receive(0)
        assert again is not None
        assert (again.body, again.reconsume_times) == (b"0", 1)
        assert shelf.committed.get(("orders", 0)) is None
        await again.ack()
        after = await consumer.receive(LONG)
        assert after is not None
        assert after.body == b"1"
    assert not shelf.backs
    assert shelf.committed["orders", 0] == 1


@pytest.mark.parametrize(("asked", "rest"), [(0.0001, 0.01), (90.0, 30.0)])
async def test_a_rest_is_10_ms_to_30_s(
    fake: FakeCluster, shelf: Shelf, clock: Clock, asked: float, rest: float
) -> None:
    shelf.put("orders", 0, b"0")
    tried = list[float]()
    consumer = member(fake)

    @consumer.listener(batch_max=1)
    async def listen(messages: list[ReceivedMessage], context: Context) -> Outcome:
        tried.append(clock.time())
        context.suspend_s = asked
        return Outcome.LATER

    async with consumer:
        await until(lambda: bool(tried))
        await clock.advance(rest * 0.9, step=rest / 10)
        if rest > 1:
            assert len(tried) == 1
        await clock.advance(rest * 0.3, step=rest / 10)
        await until(lambda: len(tried) >= 2)


async def test_after_too_many_times_the_message_goes_to_the_retry_topic_and_the_queue_goes_on(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, b"bad", b"good")
    settings = ConsumeSettings(suspend_s=0.01)
    async with member(fake, consume=settings, max_reconsume_times=2) as consumer:
        for times in range(3):
            message = await consumer.receive(LONG)
            assert message is not None
            assert (message.body, message.reconsume_times) == (b"bad", times)
            await message.nack()
        message = await consumer.receive(LONG)
        assert message is not None
        assert message.body == b"good"
        await message.ack()
    (sent,) = fake.broker.sent
    assert (sent.topic, sent.reconsume_times, sent.max_reconsume_times) == ("%RETRY%g", 3, 2)
    assert shelf.committed["orders", 0] == 2


async def test_a_message_that_is_given_up_is_a_dead_letter_and_the_next_one_follows(
    aerobee_cluster: LocalCluster,
) -> None:
    address = aerobee_cluster.name_server
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic("orders", 1)
        for body in (b"0", b"1"):
            await producer.send(Message("orders", body))
        async with Consumer(
            address, group="g", topics=["orders"], ordered=True, start="earliest"
        ) as consumer:
            first = await consumer.receive(LONG)
            assert first is not None
            await first.nack(-1)
            second = await consumer.receive(LONG)
            assert second is not None
            assert second.body == b"1"
            await second.ack()
        dead = aerobee_cluster.call(
            lambda: aerobee_cluster.brokers[0].store.max_offset("%DLQ%g", 0)
        )
        assert dead == 1


async def test_a_message_that_can_not_be_given_up_keeps_its_queue(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, b"bad", b"good")
    fake.broker.answers[codes.SEND_MESSAGE_V2] = lambda *_: Response(codes.SYSTEM_BUSY)
    settings = ConsumeSettings(suspend_s=0.01)
    async with member(fake, consume=settings, max_reconsume_times=0) as consumer:
        for _ in range(3):
            message = await consumer.receive(LONG)
            assert message is not None
            assert message.body == b"bad"
            await message.nack()
    assert shelf.committed.get(("orders", 0)) is None
    assert isinstance(fake.broker.sent[0], SendMessage)


async def test_a_batch_is_done_or_comes_again_as_a_whole(fake: FakeCluster, shelf: Shelf) -> None:
    shelf.put("orders", 0, *(b"%d" % at for at in range(5)))
    seen = list[list[bytes]]()
    done = asyncio.Event()
    consumer = member(fake, consume=ConsumeSettings(suspend_s=0.01))

    @consumer.listener(batch_max=3)
    async def listen(messages: list[ReceivedMessage], context: Context) -> None:
        seen.append([message.body for message in messages])
        if len(seen) == 1:
            raise RuntimeError("not yet")
        if len(seen) == 3:
            done.set()

    async with consumer:
        await asyncio.wait_for(done.wait(), LONG)
        await until(lambda: shelf_committed(consumer) == 5)
    assert seen == [[b"0", b"1", b"2"], [b"0", b"1", b"2"], [b"3", b"4"]]


def shelf_committed(consumer: Consumer) -> int:
    return max(consumer.offsets_of("orders").values(), default=-1)


async def test_a_queue_is_not_given_away_while_its_message_is_being_consumed(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, b"0", b"1")
    async with member(fake) as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        fake.broker.members.add("a")  # gets the only queue
        consumer.rebalance_soon()
        await until(lambda: message.is_void)
        await consumer.rebalance()
        assert shelf.locks["orders", 0] == "b"
        await message.ack()
        await until(lambda: ("orders", 0) not in shelf.locks)
        assert consumer.queues == []
    assert shelf.committed.get(("orders", 0)) is None  # finished work of a lost queue counts not


async def test_a_drain_waits_for_the_message_of_a_queue_that_another_member_gets(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, b"0", b"1")
    async with member(fake) as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        fake.broker.members.add("a")  # gets the only queue
        consumer.rebalance_soon()
        await until(lambda: message.is_void)
        draining = asyncio.create_task(consumer.drain(LONG))
        await asyncio.wait([draining], timeout=0.1)
        assert shelf.locks["orders", 0] == "b"
        await message.ack()
        assert await draining
        assert ("orders", 0) not in shelf.locks


async def test_a_drain_that_takes_too_long_gives_the_queue_back_all_the_same(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, b"0")
    async with member(fake) as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        fake.broker.members.add("a")
        consumer.rebalance_soon()
        await until(lambda: message.is_void)
        assert not await consumer.drain(0.02)
        assert ("orders", 0) not in shelf.locks


async def test_a_reset_hands_nothing_out_before_the_message_in_hand_is_settled(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, b"0", b"1", b"2")
    async with member(fake) as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        (queue,) = consumer.queues
        await consumer.reset_offsets({queue: 2})
        await until(lambda: shelf.pulls_of("orders")[-2:] == [2, 3])
        assert await consumer.receive(0.02) is None
        await message.ack()
        following = await consumer.receive(LONG)
        assert following is not None
        assert following.body == b"2"
        await following.ack()
    assert shelf.committed["orders", 0] == 3


async def test_a_drain_after_a_reset_waits_for_the_message_in_hand(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, b"0")
    async with member(fake) as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        (queue,) = consumer.queues
        await consumer.reset_offsets({queue: 1})
        draining = asyncio.create_task(consumer.drain(LONG))
        await asyncio.wait([draining], timeout=0.1)
        assert shelf.locks["orders", 0] == "b"
        await message.ack()
        assert await draining
        assert ("orders", 0) not in shelf.locks


async def test_a_listener_that_hangs_keeps_its_queue_for_20_seconds(
    fake: FakeCluster, shelf: Shelf, clock: Clock
) -> None:
    shelf.put("orders", 0, b"0")
    async with member(fake) as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        fake.broker.members.add("a")
        consumer.rebalance_soon()
        await clock.advance(2)
        await until(lambda: message.is_void)
        await clock.advance(8)
        assert shelf.locks["orders", 0] == "b"
        await clock.advance(15)
        await until(lambda: ("orders", 0) not in shelf.locks)


async def test_a_message_that_nobody_has_taken_holds_no_queue_back(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, b"0")
    async with member(fake) as consumer:
        await until(lambda: shelf.pulls_of("orders") == [0, 1])  # it waits to be taken
        fake.broker.members.add("a")
        await consumer.rebalance()
        await until(lambda: ("orders", 0) not in shelf.locks)


async def test_a_cancelled_task_leaves_its_message_at_the_front(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, b"0", b"1")
    async with member(fake) as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        message.release()
        again = await consumer.receive(LONG)
        assert again is not None
        assert again.body == b"0"


async def test_a_queue_that_was_locked_but_never_taken_is_given_back_when_another_gets_it(
    fake: FakeCluster, shelf: Shelf
) -> None:
    fake.broker.answers[codes.QUERY_CONSUMER_OFFSET] = lambda *_: Response(codes.SYSTEM_BUSY)
    async with member(fake) as consumer:
        await until(lambda: shelf.locks.get(("orders", 0)) == "b")
        assert consumer.queues == []
        fake.broker.members.add("a")  # gets the only queue
        await consumer.rebalance()
        await until(lambda: ("orders", 0) not in shelf.locks)


async def test_a_member_that_leaves_while_it_takes_a_queue_gives_back_the_lock(
    fake: FakeCluster, shelf: Shelf
) -> None:
    fake.broker.answers[codes.QUERY_CONSUMER_OFFSET] = lambda *_: None  # no answer
    async with member(fake):
        await until(lambda: bool(fake.broker.requests[codes.QUERY_CONSUMER_OFFSET]))
        assert set(shelf.locks.values()) == {"b"}
    assert not shelf.locks
