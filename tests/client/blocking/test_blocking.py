"""The blocking client against our own broker, called from other threads."""

import asyncio
import inspect
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from aerobee import client
from aerobee.client import blocking
from aerobee.client.base.loop_thread import LoopThread
from aerobee.client.blocking import Consumer, Message, Producer, Reader
from aerobee.client.blocking import sends as blocking_sends
from aerobee.client.cluster.heartbeat import ConsumerMember
from aerobee.client.errors import (
    ClientError,
    ClosedError,
    IllegalMessageError,
    NoRouteError,
    UnreachableError,
)
from aerobee.client.pull import reader as reader_module
from aerobee.protocol import codes
from aerobee.protocol.message.record import decode_all

from ...waiting import LONG
from ..fakes import FakeCluster


async def test_messages_are_sent_consumed_and_read_without_a_loop(address: str) -> None:
    def work() -> None:
        with Producer(address, group="shop") as producer:
            receipt = producer.send(Message("orders", b"one", tags="a"))
            assert receipt.queue in producer.queues("orders")
            producer.send_oneway(Message("orders", b"two"))
            batch = producer.send_batch([Message("orders", b"three"), Message("orders", b"four")])
            assert len(batch.msg_ids) == 2
            with pytest.raises(IllegalMessageError):
                producer.send(Message("orders", b""))
        found = {}
        with Consumer(address, group="g", topics=["orders"], start="earliest") as consumer:
            for message in consumer:
                with message.process():
                    found[message.body] = message.msg_id
                if len(found) == 4:
                    break
            assert consumer.queues
        assert set(found) == {b"one", b"two", b"three", b"four"}
        assert found[b"one"] == receipt.msg_id
        with Consumer(address, group="g", topics=["orders"], start="earliest") as consumer:
            assert consumer.receive(timeout=0.1) is None  # all were acknowledged
        with Reader(address) as reader:
            bodies = [
                record.body
                for queue in reader.queues("orders")
                if reader.max_offset(queue) > reader.min_offset(queue)
                for record in decode_all(reader.pull(queue, reader.offset_at(queue, 0)).body)
            ]
            assert sorted(bodies) == sorted(found)
            with pytest.raises(NoRouteError):
                reader.queues("nope")

    await asyncio.to_thread(work)


async def test_raising_sends_back_and_the_loop_goes_on(address: str) -> None:
    def work() -> None:
        with Producer(address) as producer:
            producer.send(Message("orders", b"x"))
        with Consumer(address, group="g", topics=["orders"], start="earliest") as consumer:
            first = consumer.receive(LONG)
            assert first is not None
            with first.process():
                raise RuntimeError("boom")
            producer = Producer(address)
            producer.send(Message("orders", b"y"))
            producer.close()
            second = consumer.receive(LONG)
            assert second is not None
            assert second.body == b"y"
            second.nack(delay_level=-1)

    await asyncio.to_thread(work)


async def test_many_threads_share_a_producer_and_a_consumer(address: str) -> None:
    def work() -> set[bytes]:
        with Producer(address) as producer, ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda n: producer.send(Message("orders", b"%d" % n)), range(200)))
        found: set[bytes] = set()
        enough = threading.Event()

        def consume(consumer: Consumer) -> None:
            for message in consumer:
                with message.process():
                    found.add(message.body)
                if len(found) == 200:
                    enough.set()

        with Consumer(address, group="g", topics=["orders"], start="earliest") as consumer:
            threads = [threading.Thread(target=consume, args=(consumer,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            assert enough.wait(LONG)
        for thread in threads:
            thread.join(LONG)
            assert not thread.is_alive()
        return found

    assert await asyncio.to_thread(work) == {b"%d" % number for number in range(200)}


async def test_closing_by_two_threads_at_once_closes_once(address: str) -> None:
    def work() -> None:
        consumer = Consumer(address, group="g", topics=["TBW102"])
        threads = [threading.Thread(target=consumer.close) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
        assert not any(thread.is_alive() for thread in threads)
        with pytest.raises(ClosedError):
            consumer.receive()
        assert list(consumer) == []

    await asyncio.to_thread(work)


def test_a_start_that_fails_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    with pytest.raises(UnreachableError, match="no name server answered"):
        Consumer("127.0.0.1:1", group="g", topics=["orders"])
    assert threading.active_count() == before


def test_a_loop_thread_gives_results_and_errors_and_refuses_after_its_end() -> None:
    thread = LoopThread("test")

    async def fine() -> int:
        return 7

    async def wrong() -> None:
        raise KeyError("x")

    assert thread.run(fine()) == 7
    with pytest.raises(KeyError):
        thread.run(wrong())
    thread.close()
    thread.close()
    with pytest.raises(ClosedError, match="is closed"):
        thread.run(fine())


def test_a_loop_thread_from_before_a_fork_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = LoopThread("test")

    async def fine() -> None: ...

    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(ClosedError, match="before a fork"):
            thread.run(fine())
        with pytest.raises(ClosedError, match="before a fork"):
            thread.call(lambda: None)
    thread.close()


# What a blocking client is told when it is made, and what only its loop calls.
WITHOUT_TWIN = {
    "start",
    "listener",
    "run_until",
    "rebalance_soon",
    "is_running",
    "set_expression_for_assign",
    *(name for name in vars(ConsumerMember) if not name.startswith("_")),
}


@pytest.mark.parametrize(
    "kind",
    [
        client.Admin,
        client.Consumer,
        client.LitePullConsumer,
        client.Producer,
        client.PullConsumer,
        client.SimpleConsumer,
        client.TransactionProducer,
        reader_module.Reader,
    ],
)
def test_every_public_method_has_a_blocking_twin_that_helps(kind: type) -> None:
    twin = getattr(blocking, kind.__name__)
    for name in (each for each in dir(kind) if not each.startswith("_")):
        if name not in WITHOUT_TWIN:
            found = getattr(twin, name)
            assert not inspect.iscoroutinefunction(found), name
            assert inspect.getdoc(found), name


async def test_threads_administer_and_consume_together(address: str) -> None:
    def make(number: int) -> None:
        admin.create_topic(f"topic-{number}", 1)

    def work() -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(make, range(8)))
        assert {f"topic-{number}" for number in range(8)} <= set(admin.topics())
        with (
            blocking.Producer(address) as producer,
            Consumer(address, group="g", topics=["topic-0"], start="earliest") as consumer,
        ):
            consumer.subscribe("topic-1")
            producer.send(Message("topic-1", b"1"))
            (message,) = consumer.receive_batch(10, LONG)
            assert message.body == b"1"
            message.ack()
            consumer.pause()
            consumer.resume()
            consumer.unsubscribe("topic-1")

    admin = await asyncio.to_thread(blocking.Admin, address)
    await asyncio.to_thread(work)
    await asyncio.to_thread(admin.close)


async def test_a_transaction_is_begun_in_one_place_and_ended_in_another(address: str) -> None:
    def work() -> int:
        with blocking.TransactionProducer(
            address, group="g", check=lambda _: blocking.TransactionState.UNKNOWN
        ) as producer:
            receipt = producer.begin(Message("orders", b"x"))
            producer.end(receipt, blocking.TransactionState.COMMIT)
            assert producer.send_soon(Message("plain", b"x")).result(LONG).msg_id
        with blocking.LitePullConsumer(
            address, group="l", start="earliest", assign_expressions={"orders": "*"}
        ) as consumer:
            consumer.assign(consumer.fetch_queues("orders"))
            for queue in consumer.assignment:
                consumer.seek_to_begin(queue)
            return len(consumer.poll(LONG))

    assert await asyncio.to_thread(work) == 1


async def test_many_sends_are_begun_by_threads_and_waited_for_later(address: str) -> None:
    def work() -> None:
        with blocking.Producer(address, under_way_max=50) as producer:

            def begin(number: int) -> list[Future[blocking.SendReceipt]]:
                bodies = (b"%d-%d" % (number, each) for each in range(100))
                return [producer.send_soon(Message("soon", body)) for body in bodies]

            producer.send(Message("soon", b"first"))
            with ThreadPoolExecutor(4) as pool:
                begun = [each for found in pool.map(begin, range(4)) for each in found]
            assert len({each.result(LONG).msg_id for each in begun}) == 400
            with pytest.raises(IllegalMessageError):
                producer.send_soon(Message("soon", b"")).result(LONG)
        for _ in range(2):
            with pytest.raises(ClosedError):
                producer.send_soon(Message("soon", b"x"))

    await asyncio.to_thread(work)


async def test_a_producer_does_not_take_more_sends_than_its_limit_before_its_loop_looks(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking_sends, "BEGUN_MAX", 3)

    def work() -> None:
        may_go = threading.Event()

        def hold() -> None:
            assert may_go.wait(LONG)

        producer = blocking.Producer(address)
        producer._thread.call(hold)
        begun = [producer.send_soon(Message("soon", b"x")) for _ in range(4)]
        with pytest.raises(ClientError, match="3 sends wait"):
            begun[3].result(0)
        may_go.set()
        assert len({each.result(LONG).msg_id for each in begun[:3]}) == 3
        producer.close()

    await asyncio.to_thread(work)


def test_what_the_loop_did_not_get_to_fails_when_it_ends() -> None:
    class Stopped(LoopThread):
        def __init__(self) -> None: ...

        def call(self, work: Callable[[], None]) -> None:
            """Never does it."""

    sends = blocking_sends.BegunSends(Stopped(), client.Producer("127.0.0.1:1"))
    begun = sends.begin(Message("soon", b"x"), 1.0)
    sends.close()
    with pytest.raises(ClosedError, match="closed while it was sending"):
        begun.result(0)


async def test_closing_the_producer_ends_what_was_begun(fake: FakeCluster) -> None:
    def work() -> None:
        with blocking.Producer(fake.address, under_way_max=1) as producer:
            producer.send(Message("orders", b"x"))
            fake.broker.answers[codes.SEND_MESSAGE_V2] = lambda *_: None
            begun = [producer.send_soon(Message("orders", b"x"), timeout=60) for _ in range(3)]
        for each in begun:
            with pytest.raises(ClosedError):
                each.result(LONG)

    await asyncio.to_thread(work)
