"""The simple (pop) consumer against an aerobee broker, asyncio and blocking."""

import asyncio
from pathlib import Path

import pytest
from aerobee.broker.server import Broker
from aerobee.client import (
    Admin,
    Message,
    Producer,
    SimpleConsumer,
    blocking,
)
from aerobee.client.base.identity import now_ms
from aerobee.client.errors import BrokerError, ClientError, ClosedError
from aerobee.client.pop.simple import PoppedMessage
from aerobee.namesrv.server import NameServer
from aerobee.protocol import codes
from aerobee.protocol.command import OK, Response
from aerobee.protocol.headers.pop import AckMessage, PopMessage

from ...waiting import LONG
from ..conftest import broker_config
from ..fakes import FakeCluster, popped_with_tags, record
from ..queues import filled
from ..shelf import Shelf


async def popped(
    consumer: SimpleConsumer, count: int, invisible: float = 60
) -> list[PoppedMessage]:
    """Pops until `count` messages have arrived."""
    found: list[PoppedMessage] = []
    async with asyncio.timeout(LONG):
        while len(found) < count:
            found += await consumer.receive(timeout=1)
    return found


async def test_acknowledged_messages_are_not_popped_again(address: str) -> None:
    await filled(address, 6, queues=2)
    async with SimpleConsumer(address, group="mail", topics=["orders"], start="earliest") as first:
        messages = await popped(first, 6)
        assert sorted(message.body for message in messages) == [b"%d" % at for at in range(6)]
        assert all(not message.is_expired for message in messages)
        for message in messages:
            await message.ack()
        assert await first.receive(timeout=0) == []


async def test_an_unacknowledged_message_is_redelivered_after_its_invisible_time(
    address: str,
) -> None:
    await filled(address, 1)
    async with SimpleConsumer(address, group="mail", topics=["orders"], start="earliest") as mail:
        (first,) = await popped(mail, 1)
        await first.change_invisible_time(0.5)
        (again,) = await popped(mail, 1)
        assert (again.body, again.topic) == (b"0", "orders")
        assert again.msg_id == first.msg_id
        assert again.reconsume_times == 1
        await again.ack()
        assert await mail.receive(timeout=0) == []


async def test_only_messages_with_a_subscribed_tag_are_popped(address: str) -> None:
    await filled(address, 4)
    topics = {"orders": "b"}
    async with SimpleConsumer(address, group="mail", topics=topics, start="earliest") as mail:
        assert [message.body for message in await popped(mail, 2)] == [b"1", b"3"]


async def test_a_waiting_receive_is_woken_by_a_message(address: str) -> None:
    await filled(address, 0)
    async with (
        SimpleConsumer(address, group="mail", topics=["orders"], start="earliest") as mail,
        Producer(address) as producer,
    ):
        waiting = asyncio.create_task(mail.receive(timeout=LONG))
        await asyncio.sleep(0)
        await producer.send(Message("orders", b"now"))
        assert [message.body for message in await waiting] == [b"now"]


async def test_a_simple_consumer_is_listed_and_invalid_calls_are_refused(address: str) -> None:
    await filled(address, 0)
    async with SimpleConsumer(address, group="mail", topics=["orders"]) as mail:
        async with Admin(address) as admin:
            members = await admin.consumer_connection("mail")
            assert members is not None
            assert members.consume_type == "CONSUME_POP"
        for options in ({"max_messages": 0}, {"max_messages": 33}):
            with pytest.raises(ClientError, match="give 1 to 32"):
                await mail.receive(**options)
        with pytest.raises(ClientError, match="invisible time is 0 s"):
            await mail.receive(invisible=0)
        with pytest.raises(ClientError, match="timeout is -1"):
            await mail.receive(timeout=-1)
    with pytest.raises(ClosedError):
        await mail.receive()


async def test_handles_are_built_from_the_fields_of_the_response(
    fake: FakeCluster, shelf: Shelf
) -> None:
    fields = {
        "popTime": "1700",
        "invisibleTime": "60000",
        "reviveQid": "3",
        "restNum": "0",
        "startOffsetInfo": "0 0 5",
        "msgOffsetInfo": "0 0 7,8",
    }
    stored = [
        record(7, b"new"),
        record(8, b"old", raw_properties=b"POP_CK\x011 2 60000 4 1 b 0 9\x02"),
    ]
    answers = [Response(fields=fields, body=b"".join(stored))]
    fake.broker.answers[codes.POP_MESSAGE] = lambda *_: (
        answers.pop() if answers else Response(codes.POLLING_TIMEOUT)
    )
    async with SimpleConsumer(fake.address, group="g", topics=["orders"], start="earliest") as mail:
        new, old = await mail.receive(timeout=0)
        assert (new.body, new.handle) == (b"new", "5 1700 60000 3 0 broker-a 0 7")
        assert (old.body, old.handle) == (b"old", "1 2 60000 4 1 b 0 9")
        header = fake.broker.requests[codes.POP_MESSAGE][0].header(PopMessage)
        assert (header.queue_id, header.init_mode, header.poll_ms) == (-1, 0, 0)
        assert (header.expression, header.expression_type) == ("*", "TAG")
        refused = fake.broker.answers[codes.POP_MESSAGE] = lambda *_: Response(codes.SYSTEM_BUSY)
        assert callable(refused)
        assert await mail.receive(timeout=0) == []


async def test_a_message_with_a_colliding_tag_hash_is_acknowledged_and_not_returned(
    fake: FakeCluster, shelf: Shelf
) -> None:
    answers = [popped_with_tags(7, b"BB", b"Aa", b"BB")]  # both tags have the hash 2112
    fake.broker.answers[codes.POP_MESSAGE] = lambda *_: (
        answers.pop() if answers else Response(codes.POLLING_TIMEOUT)
    )
    fake.broker.answers[codes.ACK_MESSAGE] = lambda *_: OK
    async with SimpleConsumer(fake.address, group="g", topics={"orders": "Aa"}) as mail:
        (message,) = await mail.receive(timeout=0)
        assert (message.body, message.tags) == (b"Aa", "Aa")
    acks = fake.broker.requests[codes.ACK_MESSAGE]
    assert sorted(each.header(AckMessage).offset for each in acks) == [7, 9]


@pytest.mark.parametrize("ahead_s", [3_600, -3_600])
async def test_messages_arrive_with_any_clock_skew_of_the_broker(
    ahead_s: int, namesrv: NameServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")
    clock = lambda: now_ms() + ahead_s * 1000  # noqa: E731
    broker = Broker(broker_config(namesrv, tmp_path), now_ms=clock)
    await broker.start()
    try:
        address = f"127.0.0.1:{namesrv.port}"
        await filled(address, 3)
        async with SimpleConsumer(address, group="g", topics=["orders"], start="earliest") as mail:
            assert [each.body for each in await popped(mail, 3)] == [b"0", b"1", b"2"]
    finally:
        await broker.stop()
    ours = [each.getMessage() for each in caplog.records if each.name.startswith("aerobee")]
    warned = [text for text in ours if "clock" in text]
    assert len(warned) == (1 if ahead_s > 0 else 0)
    if warned:
        assert f"broker {broker.address} dropped a pop as too old" in warned[0]
        assert "ms ago" in warned[0]
        assert "synchronize the clocks" in warned[0]


async def test_an_ack_that_is_refused_raises(fake: FakeCluster, shelf: Shelf) -> None:
    soon = now_ms()
    fields = {
        "popTime": str(soon),
        "invisibleTime": "60000",
        "reviveQid": "3",
        "restNum": "0",
        "startOffsetInfo": "0 0 5",
        "msgOffsetInfo": "0 0 7",
    }
    fake.broker.answers[codes.POP_MESSAGE] = lambda *_: Response(fields=fields, body=record(7))
    fake.broker.answers[codes.ACK_MESSAGE] = lambda *_: Response(
        codes.NO_MESSAGE, remark="too late"
    )
    async with SimpleConsumer(fake.address, group="g", topics=["orders"]) as mail:
        (message,) = await mail.receive()
        assert message.handle == f"5 {soon} 60000 3 0 broker-a 0 7"
        with pytest.raises(BrokerError, match="too late"):
            await message.ack()


async def test_the_blocking_wrappers_poll_pull_and_pop(address: str) -> None:
    queue = await filled(address, 4)

    def work() -> None:
        with blocking.LitePullConsumer(address, group="lite", start="earliest") as lite:
            lite.subscribe("orders")
            assert len(lite.poll(LONG)) == 4
            lite.commit()
            assert lite.committed(queue) == 4
            assert lite.assignment == lite.fetch_queues("orders") == [queue]
            lite.seek(queue, 3)
            assert [message.body for message in lite.poll(LONG)] == [b"3"]
        with blocking.PullConsumer(address, group="consumer") as consumer:
            assert len(consumer.pull(queue, 2).messages) == 2
            consumer.commit(queue, 4)
            assert consumer.committed(queue) == 4
            assert consumer.queues("orders") == consumer.balanced_queues("orders") == [queue]
        with blocking.SimpleConsumer(
            address, group="pop", topics=["orders"], start="earliest"
        ) as simple:
            messages = simple.receive(timeout=LONG)
            assert len(messages) == 4
            simple.change_invisible_time(messages[0], 30)
            for message in messages:
                simple.ack(message)

    await asyncio.to_thread(work)
