"""The fast path of sends: fallback to the slow path without losing a message."""

import asyncio
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import aerobee.client
import pytest
from aerobee.client import Admin, Message, Producer
from aerobee.client.base.receipts import SendReceipt, SendStatus
from aerobee.client.errors import (
    AerobeeError,
    BrokerError,
    ClientError,
    ClosedError,
    IllegalMessageError,
    NoAnswerError,
)
from aerobee.client.producer import producer as producing
from aerobee.client.producer import quick_send
from aerobee.protocol import codes
from aerobee.protocol.aio.connection import Connection
from aerobee.protocol.command import Command, Response
from aerobee.testing import LocalCluster

from ..clock import Clock
from ..fakes import FakeCluster, until

# Calls of the client's own functions per send, including Message(). Each costs about 0.1 us of the
# 11 us that a send may take.
CALLS_MAX = 20
CLIENT = str(Path(aerobee.client.__file__).parent)


class Quick(Producer):
    """Counts its sends that began on the fast path."""

    begun = 0

    def _begin(self, message: Message, timeout: float) -> asyncio.Future[SendReceipt] | None:
        found = super()._begin(message, timeout)
        self.begun += found is not None
        return found


async def ready(producer: Producer) -> None:
    """Send a first message, so that the producer has a route and a connection."""
    await producer.send(Message("orders", b"first"))


async def test_a_message_that_a_broker_refuses_is_sent_to_another_broker(two: FakeCluster) -> None:
    async with Quick(two.address) as producer:
        for _ in range(8):  # to each broker
            await producer.send(Message("orders", b"x"))
        begun, refused = producer.begun, two.brokers[0]
        assert begun
        refused.answers[codes.SEND_MESSAGE_V2] = lambda *_: Response(codes.SYSTEM_BUSY, remark="no")
        receipts = [await producer.send(Message("orders", b"x")) for _ in range(8)]
        assert producer.begun == begun + 8
    assert {each.queue.broker_name for each in receipts} == {two.brokers[1].name}


async def test_the_error_for_a_message_that_no_broker_accepts_has_the_number_of_tries(
    fake: FakeCluster,
) -> None:
    async with Quick(fake.address) as producer:
        await ready(producer)
        sent = len(fake.broker.sent)
        fake.broker.answers[codes.SEND_MESSAGE_V2] = lambda *_: Response(
            codes.SYSTEM_BUSY, remark="no"
        )
        with pytest.raises(BrokerError, match="no") as caught:
            await producer.send(Message("orders", b"x"))
        assert producer.begun == 1
    assert len(fake.broker.sent) - sent == 3
    assert "3 tries within 3 s" in caught.value.__notes__[0]


async def test_a_final_refusal_is_not_retried(fake: FakeCluster) -> None:
    async with Quick(fake.address) as producer:
        await ready(producer)
        sent = len(fake.broker.sent)
        fake.broker.answers[codes.SEND_MESSAGE_V2] = lambda *_: Response(codes.MESSAGE_ILLEGAL)
        with pytest.raises(BrokerError):
            await producer.send(Message("orders", b"x"))
    assert len(fake.broker.sent) - sent == 1


async def test_a_lost_connection_costs_one_try_and_not_the_message(
    fake: FakeCluster,
) -> None:
    take = fake.broker.answers[codes.SEND_MESSAGE_V2]
    left = 1

    def cut(command: Command, connection: Connection) -> Response | None:
        nonlocal left
        if left:
            left = 0
            connection.abort()
            return None
        return take(command, connection)

    async with Quick(fake.address) as producer:
        await ready(producer)
        fake.broker.answers[codes.SEND_MESSAGE_V2] = cut
        receipt = await producer.send(Message("orders", b"x"))
        assert producer.begun == 1
        again = await producer.send(Message("orders", b"y"))
        assert producer.begun == 2  # over the new connection
    assert receipt.status is again.status is SendStatus.OK
    sent = [header for header in fake.broker.sent if receipt.msg_id in (header.properties or "")]
    assert len(sent) == 2


async def test_a_timeout_error_gives_the_timeout_of_the_send(fake: FakeCluster) -> None:
    async with Quick(fake.address, tries=1) as producer:
        await ready(producer)
        fake.broker.answers[codes.SEND_MESSAGE_V2] = lambda *_: None
        clock, before = Clock(), len(fake.broker.sent)
        sending = asyncio.create_task(producer.send(Message("orders", b"x"), timeout=9))
        await until(lambda: len(fake.broker.sent) > before)
        await clock.advance(10)
        with pytest.raises(NoAnswerError, match=r"within 9 s"):
            await sending
        assert producer.begun == 1


async def test_a_cancelled_send_keeps_its_place_in_the_window_until_its_response(
    fake: FakeCluster,
) -> None:
    held: list[tuple[Command, Connection]] = []
    take = fake.broker.answers[codes.SEND_MESSAGE_V2]

    def hold(command: Command, connection: Connection) -> None:
        held.append((command, connection))

    async with Quick(fake.address, under_way_max=1) as producer:
        await ready(producer)
        fake.broker.answers[codes.SEND_MESSAGE_V2] = hold
        first = asyncio.create_task(producer.send(Message("orders", b"x")))
        await until(lambda: len(held) == 1)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        second = asyncio.create_task(producer.send(Message("orders", b"y")))
        await asyncio.sleep(0)
        fake.broker.answers[codes.SEND_MESSAGE_V2] = take
        command, connection = held[0]
        reply = take(command, connection)
        assert reply is not None
        connection.respond(command, reply)
        assert (await second).status is SendStatus.OK
    assert [each.body for each in fake.broker.requests[codes.SEND_MESSAGE_V2]] == [
        b"first",
        b"x",
        b"y",
    ]


async def test_closing_the_producer_fails_sends_in_flight(fake: FakeCluster) -> None:
    async with Quick(fake.address) as producer:
        await ready(producer)
        fake.broker.answers[codes.SEND_MESSAGE_V2] = lambda *_: None
        sending = producer.send_soon(Message("orders", b"x"))
        await until(lambda: len(fake.broker.sent) == 2)
    with pytest.raises(ClosedError):
        await sending


async def test_a_malformed_response_is_an_error_and_the_connection_stays_open(
    fake: FakeCluster,
) -> None:
    take = fake.broker.answers[codes.SEND_MESSAGE_V2]
    async with Quick(fake.address) as producer:
        await ready(producer)
        fake.broker.answers[codes.SEND_MESSAGE_V2] = lambda *_: Response(fields={"queueId": "many"})
        with pytest.raises(ClientError, match=r"SEND_MESSAGE_V2 \(310\) can't be read"):
            await producer.send(Message("orders", b"x"))
        fake.broker.answers[codes.SEND_MESSAGE_V2] = take
        await producer.send(Message("orders", b"y"))
        assert producer.begun == 2
    assert len(fake.broker.connections) == 1


async def test_the_receipt_has_the_queue_that_the_broker_named(fake: FakeCluster) -> None:
    fields = {"msgId": "ID", "queueId": "77", "queueOffset": "5", "recallHandle": "h"}
    async with Quick(fake.address) as producer:
        await ready(producer)
        fake.broker.answers[codes.SEND_MESSAGE_V2] = lambda *_: Response(fields=fields)
        receipt = await producer.send(Message("orders", b"x"))
    assert (receipt.queue.queue_id, receipt.queue_offset, receipt.recall_handle) == (77, 5, "h")


async def test_messages_of_send_soon_arrive_in_order_without_tasks(
    fake: FakeCluster,
) -> None:
    fake.topics["orders"] = 1
    bodies = [b"%d" % number for number in range(1, 50)]
    async with Quick(fake.address) as producer:
        await ready(producer)
        tasks = len(asyncio.all_tasks())
        sending = [producer.send_soon(Message("orders", body)) for body in bodies]
        assert len(asyncio.all_tasks()) == tasks
        receipts = await asyncio.gather(*sending)
    assert [each.queue_offset for each in receipts] == list(range(1, 50))
    assert [each.body for each in fake.broker.requests[codes.SEND_MESSAGE_V2][1:]] == bodies


async def test_send_soon_works_without_a_connection_and_beyond_the_window(
    fake: FakeCluster,
) -> None:
    async with Quick(fake.address, under_way_max=2) as producer:
        work = (producer.send_soon(Message("orders", b"%d" % number)) for number in range(9))
        receipts = await asyncio.gather(*work)
    assert len({each.msg_id for each in receipts}) == 9
    assert len(fake.broker.sent) == 9


async def test_the_number_of_waiting_send_soon_calls_is_limited(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producing, "BEGUN_MAX", 3)
    async with Quick(fake.address) as producer:
        work = [producer.send_soon(Message("orders", b"x")) for _ in range(5)]
        found = await asyncio.gather(*work, return_exceptions=True)
        assert [isinstance(each, SendReceipt) for each in found] == [True] * 3 + [False] * 2
        assert isinstance(found[4], ClientError)
        assert "3 sends wait for those under way, the limit is 3" in str(found[4])
        await producer.send_soon(Message("orders", b"x"))


async def test_the_future_of_send_soon_has_the_error_of_an_illegal_message(
    fake: FakeCluster,
) -> None:
    async with Quick(fake.address) as producer:
        for _ in range(2):  # the first time on the slow path
            good, bad = Message("orders", b"x"), Message("orders", b"")
            found = await asyncio.gather(
                *map(producer.send_soon, (good, bad)), return_exceptions=True
            )
            assert isinstance(found[0], SendReceipt)
            assert isinstance(found[1], IllegalMessageError)


async def test_a_send_takes_few_calls(fake: FakeCluster) -> None:
    counts: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(CLIENT):
            counts[frame.f_code.co_qualname] += 1

    async with Producer(fake.address) as producer:
        await ready(producer)
        sys.setprofile(count)
        try:
            await asyncio.gather(*(producer.send(Message("orders", b"x")) for _ in range(100)))
        finally:
            sys.setprofile(None)
    assert counts[quick_send.QuickSends.begin.__qualname__] == 100
    assert counts.total() <= CALLS_MAX * 100, counts.most_common(30)


async def test_every_send_ends_with_a_receipt_or_an_error_while_connections_are_lost(
    fake: FakeCluster,
) -> None:
    async with Quick(fake.address) as producer:
        await ready(producer)
        outcomes: list[SendReceipt | AerobeeError] = []

        async def work(number: int) -> None:
            for step in range(20):
                if number == 0 and step in (5, 10):
                    for connection in fake.broker.connections:
                        connection.abort()
                try:
                    outcomes.append(await producer.send(Message("orders", b"%d" % number)))
                except AerobeeError as wrong:
                    outcomes.append(wrong)

        await asyncio.gather(*(work(number) for number in range(10)))
        assert len(outcomes) == 200
    acknowledged = {each.msg_id for each in outcomes if isinstance(each, SendReceipt)}
    arrived = " ".join(header.properties or "" for header in fake.broker.sent)
    assert all(msg_id in arrived for msg_id in acknowledged)


async def test_two_brokers_with_one_queue_each_get_equal_numbers_of_sends() -> None:
    with LocalCluster(brokers=2) as cluster:
        async with Admin(cluster.name_server) as admin:
            await admin.create_topic("orders", 1)
        async with Producer(cluster.name_server) as producer:
            receipts = [await producer.send(Message("orders", b"x")) for _ in range(10)]
    assert Counter(each.queue.broker_name for each in receipts) == {"broker-a": 5, "broker-b": 5}
