"""Invalid arguments raise errors with cause and remedy, and the client keeps working."""

import asyncio

import pytest
from aerobee.client import Consumer, Message, Producer
from aerobee.client.errors import ClientError, IllegalMessageError, NoRouteError, UnreachableError
from aerobee.client.producer.encoding import COMPRESS_BYTES_MIN
from aerobee.protocol import codes
from aerobee.protocol.headers.send import SendMessage
from aerobee.protocol.message.record import COMPRESSED

from .fakes import FakeCluster, until
from .shelf import Shelf


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message("a b", b"x"), "illegal characters"),
        (Message("orders", b""), "empty"),
        (Message("orders", b"x" * 101), "101 bytes, the limit is 100"),
    ],
)
async def test_a_message_that_can_not_be_sent_harms_no_other(
    fake: FakeCluster, message: Message, reason: str
) -> None:
    async with Producer(fake.address, message_bytes_max=100) as producer:
        results = await asyncio.gather(
            producer.send(Message("orders", b"before")),
            producer.send(message),
            producer.send(Message("orders", b"after")),
            return_exceptions=True,
        )
    assert isinstance(results[1], IllegalMessageError)
    assert reason in str(results[1])
    assert fake.broker.stored == 2


@pytest.mark.parametrize("group", ["a b", "", "g" * 121, "DEFAULT_CONSUMER"])
def test_a_group_that_can_not_be_is_refused_when_the_consumer_is_made(group: str) -> None:
    with pytest.raises(ClientError, match=r"group|characters|blank"):
        Consumer("127.0.0.1:1", group=group, topics=["orders"])


async def test_a_name_server_that_is_not_there_is_named_with_the_time_and_what_to_check() -> None:
    async with Producer("127.0.0.1:1;127.0.0.1:2") as producer:
        with pytest.raises(UnreachableError) as raised:
            await producer.send(Message("orders", b"x"))
    said = str(raised.value)
    for part in ("127.0.0.1:1", "127.0.0.1:2", "2 tried in 0.", " s ", "check that it runs"):
        assert part in said


async def test_a_topic_without_a_route_is_told_with_the_remedy_and_others_are_consumed(
    fake: FakeCluster, shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.put("orders", 0, b"0")
    async with Producer(fake.address) as producer:
        with pytest.raises(NoRouteError, match="aerobee topics create missing"):
            await producer.send(Message("missing", b"x"))
        await producer.send(Message("orders", b"x"))
    async with Consumer(
        fake.address, group="g", topics=["missing", "orders"], start="earliest"
    ) as consumer:
        message = await consumer.receive(5)
        assert message is not None
        assert message.body == b"0"
        await message.ack()
    assert "group g waits for topic missing" in caplog.text
    assert "check the topic's spelling and the name server's address" in caplog.text


async def test_the_steps_of_a_send_follow_each_other(fake: FakeCluster) -> None:
    async with Producer(fake.address) as producer:
        await producer.send(Message("orders", b"x" * COMPRESS_BYTES_MIN))
        await until(lambda: bool(fake.broker.sent))
    route, (heartbeat, send) = fake.order[0], fake.broker.order[:2]
    assert (route, heartbeat, send) == (
        codes.GET_ROUTEINFO_BY_TOPIC,
        codes.HEART_BEAT,
        codes.SEND_MESSAGE_V2,
    )
    (command,) = fake.broker.requests[codes.SEND_MESSAGE_V2]
    header = command.header(SendMessage)
    assert 0 <= header.queue_id < 4
    assert header.sys_flag & COMPRESSED
    assert len(command.body or b"") < COMPRESS_BYTES_MIN


@pytest.mark.parametrize(("size", "is_compressed"), [(4_095, False), (4_096, True)])
async def test_bodies_are_compressed_from_4_kib_on(
    fake: FakeCluster, size: int, is_compressed: bool
) -> None:
    # Texts about RocketMQ say 4M, which is the limit of a message (compressMsgBodyOverHowmuch).
    async with Producer(fake.address) as producer:
        await producer.send(Message("orders", b"x" * size))
    assert bool(fake.broker.sent[0].sys_flag & COMPRESSED) is is_compressed
