"""Listeners: results, partial success, mistakes, timeouts; draining; sharing a client."""

import asyncio
import threading

import pytest
from aerobee.client import (
    Consumer,
    ConsumeSettings,
    Context,
    Limits,
    Outcome,
    blocking,
)
from aerobee.client.cluster.cluster import Cluster
from aerobee.client.errors import ClientError
from aerobee.client.group.received import ReceivedMessage
from aerobee.client.push import concurrent
from aerobee.protocol import codes
from aerobee.protocol.command import Response

from ...waiting import LONG
from ..clock import Clock
from ..fakes import FakeCluster, until
from ..shelf import Shelf


def member(fake: FakeCluster, **options: object) -> Consumer:
    return Consumer(
        fake.address,
        group="g",
        topics=["orders"],
        start="earliest",
        client_id="b",
        **options,  # type: ignore[arg-type]
    )


async def test_a_decorated_function_gets_every_message_and_returning_is_done(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, *(b"%d" % at for at in range(5)))
    seen = list[bytes]()
    consumer = member(fake)

    @consumer.listener
    async def listen(message: ReceivedMessage) -> None:
        seen.append(message.body)

    running = asyncio.create_task(consumer.run())
    await until(lambda: len(seen) == 5)
    await consumer.drain(LONG)
    await running
    assert sorted(seen) == [b"0", b"1", b"2", b"3", b"4"]
    assert shelf.committed["orders", 0] == 5


async def test_several_calls_run_at_the_same_time_but_no_more_than_allowed(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, *(b"%d" % at for at in range(9)))
    inside, most, go = 0, 0, asyncio.Event()
    consumer = member(fake)

    @consumer.listener(concurrency=3)
    async def listen(message: ReceivedMessage) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await go.wait()
        inside -= 1

    async with consumer:
        await until(lambda: inside == 3)
        go.set()
        await until(lambda: shelf_offset(consumer) == 9)
    assert most == 3


def shelf_offset(consumer: Consumer) -> int:
    return max(consumer.offsets_of("orders").values(), default=-1)


async def test_a_batch_that_is_done_in_part_goes_back_in_part(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, *(b"%d" % at for at in range(4)))
    sizes = list[int]()
    consumer = member(fake)

    @consumer.listener(batch_max=4)
    async def listen(messages: list[ReceivedMessage], context: Context) -> None:
        sizes.append(len(messages))
        context.ack_index = 1
        context.delay_level = 5

    async with consumer:
        await until(lambda: len(shelf.backs) == 2)
        await until(lambda: shelf_offset(consumer) == 4)
        status = consumer.running_info().status_table["orders"]
        assert (status.consume_ok_tps, status.consume_failed_tps) == (2, 2)
        assert status.consume_failed_msgs == 2
    assert sizes == [4]
    assert [(back.offset, back.delay_level) for back in shelf.backs] == [(1002, 5), (1003, 5)]


@pytest.mark.parametrize("answer", [Outcome.LATER, "nonsense", 0, False])
async def test_anything_but_done_sends_the_message_back(
    fake: FakeCluster, shelf: Shelf, answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.put("orders", 0, b"0", b"1")
    seen = list[bytes]()
    consumer = member(fake)

    @consumer.listener
    async def listen(message: ReceivedMessage) -> object:
        seen.append(message.body)
        return answer if message.body == b"0" else None

    async with consumer:
        await until(lambda: len(shelf.backs) == 1 and len(seen) == 2)
    assert ("return nothing, Outcome.SUCCESS or Outcome.LATER" in caplog.text) == (
        answer is not Outcome.LATER
    )


async def test_a_listener_that_raises_is_logged_and_its_worker_goes_on(
    fake: FakeCluster, shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.put("orders", 0, *(b"%d" % at for at in range(4)))
    consumer = member(fake)

    @consumer.listener(concurrency=1)
    async def listen(message: ReceivedMessage) -> None:
        raise ValueError(f"cannot {message.body!r}")

    async with consumer:
        await until(lambda: len(shelf.backs) == 4)
    assert "cannot b'3'" in caplog.text


async def test_an_ordinary_function_runs_in_a_thread(fake: FakeCluster, shelf: Shelf) -> None:
    shelf.put("orders", 0, b"0")
    threads = list[str]()
    consumer = member(fake)

    @consumer.listener
    def listen(message: ReceivedMessage) -> None:
        threads.append(threading.current_thread().name)

    async with consumer:
        await until(lambda: shelf_offset(consumer) == 1)
    assert threads[0].startswith("ConsumeMessageThread_g")


async def test_a_listener_that_hangs_loses_its_message_after_the_timeout_and_others_go_on(
    fake: FakeCluster, shelf: Shelf, clock: Clock
) -> None:
    shelf.put("orders", 0, b"hangs", b"fine")
    seen = list[bytes]()
    consumer = member(fake, consume=ConsumeSettings(timeout_s=60))

    @consumer.listener(concurrency=2)
    async def listen(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if message.body == b"hangs":
            await asyncio.Event().wait()

    async with consumer:
        await until(lambda: len(seen) == 2)
        assert shelf_offset(consumer) == 0
        await clock.advance(58)
        assert not shelf.backs
        await clock.advance(65)
        await until(lambda: len(shelf.backs) == 1)
        assert (shelf.backs[0].offset, shelf.backs[0].delay_level) == (1000, 3)
        await until(lambda: shelf_offset(consumer) == 2)


async def test_an_iterated_message_that_is_kept_too_long_is_given_back_as_well(
    fake: FakeCluster, shelf: Shelf, clock: Clock
) -> None:
    shelf.put("orders", 0, b"0")
    async with member(fake) as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        await clock.advance(14 * 60, step=10)
        assert not shelf.backs
        await clock.advance(17 * 60, step=10)
        await until(lambda: len(shelf.backs) == 1)
        assert not message.is_open
        await message.ack()  # too late: it does nothing
        assert shelf_offset(consumer) == 1


async def test_a_failed_send_back_comes_again_here_after_5_seconds_and_is_not_reported(
    fake: FakeCluster, shelf: Shelf, clock: Clock
) -> None:
    shelf.put("orders", 0, b"0", b"1")
    fake.broker.answers[codes.CONSUMER_SEND_MSG_BACK] = lambda *_: Response(codes.SYSTEM_BUSY)
    fake.broker.answers[codes.SEND_MESSAGE_V2] = lambda *_: Response(codes.SYSTEM_BUSY)
    times = list[tuple[bytes, int]]()
    consumer = member(fake)

    @consumer.listener(batch_max=2)
    async def listen(messages: list[ReceivedMessage], context: Context) -> None:
        times.extend((each.body, each.reconsume_times) for each in messages)
        if len(times) <= 2:
            context.ack_index = -1

    async with consumer:
        await until(lambda: len(fake.broker.requests[codes.SEND_MESSAGE_V2]) == 2)
        await clock.advance(4)
        assert len(times) == 2
        assert shelf_offset(consumer) == -1  # the smallest open offset is still the first
        await clock.advance(2)
        await until(lambda: len(times) == 4)
        await until(lambda: shelf_offset(consumer) == 2)
    assert sorted(times[2:]) == [(b"0", 1), (b"1", 1)]
    assert concurrent.RETRY_LOCALLY_SECONDS == 5


async def test_a_broker_that_refuses_a_send_back_is_passed_by_with_a_send(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, b"0", raw_properties=b"UNIQ_KEY\x01U0\x02TAGS\x01t\x02")
    fake.broker.answers[codes.CONSUMER_SEND_MSG_BACK] = lambda *_: Response(codes.SYSTEM_ERROR)
    async with member(fake) as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        await message.nack()
        assert shelf_offset(consumer) == 1
    (sent,) = fake.broker.sent
    assert (sent.topic, sent.reconsume_times, sent.max_reconsume_times) == ("%RETRY%g", 1, 16)
    pairs = dict(pair.split("\x01") for pair in (sent.properties or "").split("\x02") if pair)
    assert pairs == {
        "UNIQ_KEY": "U0",
        "TAGS": "t",
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": "U0",
        "DELAY": "3",
    }


async def test_draining_waits_for_what_is_being_consumed_and_pulls_no_more(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, b"0", b"1")
    consumer = member(fake)
    await consumer.start()
    messages = [await consumer.receive(LONG) for _ in range(2)]
    draining = asyncio.create_task(consumer.drain())
    for _ in range(20):
        await asyncio.sleep(0)  # the draining begins
    shelf.put("orders", 0, b"2")
    for message in messages:
        assert message is not None
        assert not draining.done()
        await message.ack()
    assert await draining
    assert shelf.committed["orders", 0] == 2
    assert fake.broker.order[-1] == codes.UNREGISTER_CLIENT


async def test_draining_gives_up_when_its_time_is_up(fake: FakeCluster, shelf: Shelf) -> None:
    shelf.put("orders", 0, b"0")
    consumer = member(fake)
    await consumer.start()
    assert await consumer.receive(LONG) is not None
    assert not await consumer.drain(0.05)
    assert shelf.committed.get(("orders", 0), 0) == 0


async def test_a_paused_consumer_begins_no_pull(fake: FakeCluster, shelf: Shelf) -> None:
    async with member(fake, limits=Limits(messages_max=10)) as consumer:
        await until(lambda: len(shelf.pulls_of("orders")) == 1)
        consumer.pause()
        shelf.put("orders", 0, b"0")  # answers the pull that is under way
        message = await consumer.receive(LONG)
        assert message is not None
        await message.ack()
        shelf.put("orders", 0, b"1")
        assert await consumer.receive(0.05) is None
        consumer.resume()
        assert await consumer.receive(LONG) is not None


async def test_two_groups_share_a_client_and_both_rebalance(
    fake: FakeCluster, shelf: Shelf
) -> None:
    fake.topics["%RETRY%h"] = 1
    cluster = Cluster(fake.address)
    first = Consumer(cluster, group="g", topics=["orders"])
    second = Consumer(cluster, group="h", topics=["orders"])
    async with first:
        async with second:
            await until(lambda: len(first.queues) == len(second.queues) == 1)
            assert len(fake.broker.connections) == 1
        assert len(first.queues) == 1
        assert set(cluster.members.consumers) == {"g"}
    await cluster.close()


async def test_a_consumer_has_one_listener_and_is_not_iterated_then(
    fake: FakeCluster, shelf: Shelf
) -> None:
    consumer = member(fake)
    with pytest.raises(ClientError, match="no listener"):
        await consumer.run()
    consumer.listener(print)
    with pytest.raises(ClientError, match="one listener, before its start"):
        consumer.listener(print)
    async with consumer:
        with pytest.raises(ClientError, match="has a listener"):
            await consumer.receive(0)


async def test_a_blocking_consumer_calls_an_ordinary_listener_in_its_threads(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, *(b"%d" % at for at in range(6)))
    seen, enough = list[bytes](), threading.Event()

    def listen(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if len(seen) == 6:
            enough.set()

    def work() -> None:
        with blocking.Consumer(
            fake.address, group="g", topics=["orders"], start="earliest", listener=listen
        ) as consumer:
            assert enough.wait(LONG)
            assert consumer.drain(LONG)

    await asyncio.to_thread(work)
    assert sorted(seen) == [b"%d" % at for at in range(6)]
    assert shelf.committed["orders", 0] == 6
