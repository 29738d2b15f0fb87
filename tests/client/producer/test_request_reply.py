"""Requests and their replies, over a real broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aerobee.client import Admin, Consumer, Limits, Message, MessageQueue, MessageView, Producer
from aerobee.client.errors import ClientError, NoAnswerError, RequesterGoneError
from aerobee.client.group.process_queue import ProcessQueue
from aerobee.client.producer import broker_requests as calls
from aerobee.protocol import codes
from aerobee.protocol.command import Response
from aerobee.protocol.message import properties as props
from aerobee.protocol.message.record import decode_all
from aerobee.testing import LocalCluster

from ...waiting import LONG
from ..clock import Clock, answered
from ..fakes import FakeCluster, record, until


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    with LocalCluster() as running:
        async with Admin(running.name_server) as admin:
            await admin.create_topic("ask", 2)
        yield running


@asynccontextmanager
async def serving(cluster: LocalCluster) -> AsyncIterator[None]:
    """A responder that answers every request of the topic `ask` with its reversed body."""
    consumer = Consumer(cluster.name_server, group="servers", topics=["ask"], start="earliest")

    async def serve() -> None:
        async for message in consumer:
            async with message.process():
                await producer.reply(message, message.body[::-1])

    async with Producer(cluster.name_server) as producer, consumer:
        task = asyncio.create_task(serve())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_request_gets_the_reply_to_it(cluster: LocalCluster) -> None:
    async with serving(cluster), Producer(cluster.name_server, group="askers") as producer:
        bodies = [f"question {number}".encode() for number in range(20)]
        replies = await asyncio.gather(
            *(producer.request(Message("ask", body), timeout=20) for body in bodies)
        )
    assert [reply.body for reply in replies] == [body[::-1] for body in bodies]


async def test_a_long_reply_is_decompressed(cluster: LocalCluster) -> None:
    body = b"the same again " * 2_000
    async with serving(cluster), Producer(cluster.name_server, group="askers") as producer:
        reply = await producer.request(Message("ask", body), timeout=20)
    assert reply.body == body[::-1]


async def unanswered(cluster: LocalCluster) -> None:
    """A request that is stored, and whose requester leaves before a reply."""
    clock = Clock()
    async with Producer(cluster.name_server) as asker:
        asking = asyncio.create_task(asker.request(Message("ask", b"quick!"), timeout=9))
        store = cluster.brokers[0].store
        await until(lambda: cluster.call(lambda: sum(store.max_offset("ask", n) for n in (0, 1))))
        await answered(cluster, 0)  # so that the request waits for its reply
        await clock.advance(10)
        with pytest.raises(NoAnswerError):
            await asking
        clock.run()


async def test_without_a_reply_the_error_gives_the_timeout(fake: FakeCluster) -> None:
    clock = Clock()
    async with Producer(fake.address) as producer:
        asking = asyncio.create_task(producer.request(Message("orders", b"anybody?"), timeout=9))
        await until(lambda: fake.broker.sent)
        await clock.run_ready()
        await clock.advance(10)
        with pytest.raises(NoAnswerError, match=r"no reply to request .* within 9 s"):
            await asking


async def test_a_reply_to_a_disconnected_requester_is_an_error(cluster: LocalCluster) -> None:
    await unanswered(cluster)
    consumer = Consumer(cluster.name_server, group="servers", topics=["ask"], start="earliest")
    async with Producer(cluster.name_server) as producer, consumer:
        async with asyncio.timeout(LONG):
            message = await anext(aiter(consumer))
        with pytest.raises(RequesterGoneError, match="the client that sent the request left") as at:
            await producer.reply(message, b"too late")
        await message.ack()
    assert not at.value.retriable
    assert at.value.__notes__ == ["1 try within 3 s, at broker-a"]


async def test_each_broker_is_tried_once_for_a_disconnected_requester(two: FakeCluster) -> None:
    two.topics["c_REPLY_TOPIC"] = 4
    refusal = Response(
        codes.SYSTEM_ERROR, remark="push reply message fail, channel of <x> not found."
    )
    for broker in two.brokers:
        broker.answers[codes.SEND_REPLY_MESSAGE_V2] = lambda *_: refusal
    pairs = {"CLUSTER": "c", "CORRELATION_ID": "1", "REPLY_TO_CLIENT": "x", "TTL": "3000"}
    stored = decode_all(record(0, raw_properties=props.encode(pairs)))[0]
    queue = ProcessQueue(MessageQueue("ask", "broker-a", 0), 0, Limits())
    async with Producer(two.address, tries=16) as producer:
        with pytest.raises(RequesterGoneError):
            await producer.reply(MessageView(stored, queue), b"too late")
    asked = [len(broker.requests[codes.SEND_REPLY_MESSAGE_V2]) for broker in two.brokers]
    assert asked == [1, 1]


async def test_a_handler_that_replies_to_a_disconnected_requester_logs_one_line(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")
    await unanswered(cluster)
    consumer = Consumer(cluster.name_server, group="servers", topics=["ask"], start="earliest")
    async with Producer(cluster.name_server) as producer:

        @consumer.listener
        async def respond(message: MessageView) -> None:
            await producer.reply(message, b"too late")

        async with consumer:
            await until(lambda: "RequesterGoneError" in caplog.text)
    said = [each for each in caplog.records if "RequesterGoneError" in each.getMessage()]
    assert len(said) == 1
    assert said[0].levelname == "WARNING"
    assert said[0].exc_info is None
    assert "\n" not in said[0].getMessage()
    assert "test_request_reply.py" in said[0].getMessage()


async def test_a_reply_to_an_ordinary_message_is_an_error(cluster: LocalCluster) -> None:
    consumer = Consumer(cluster.name_server, group="servers", topics=["ask"], start="earliest")
    async with Producer(cluster.name_server) as producer, consumer:
        await producer.send(Message("ask", b"plain"))
        async with asyncio.timeout(LONG):
            message = await anext(aiter(consumer))
        with pytest.raises(ClientError, match="no property CORRELATION_ID, so it is no request"):
            await producer.reply(message, b"what?")
        await message.ack()


async def test_the_number_of_waiting_requests_is_limited(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "REQUESTS_MAX", 0)
    async with Producer(cluster.name_server) as producer:
        with pytest.raises(ClientError, match="the limit is 0"):
            await producer.request(Message("ask", b"x"), timeout=1)
