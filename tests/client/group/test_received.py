"""Received messages: the sender's properties are separate from those of clients and brokers."""

import asyncio

import pytest
from aerobee.client import (
    Admin,
    Consumer,
    LitePullConsumer,
    Message,
    MessageView,
    Producer,
    PullConsumer,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
    blocking,
)
from aerobee.client.errors import ClientError
from aerobee.protocol.message import properties as props
from aerobee.testing import LocalCluster

from ...waiting import LONG

OWN = {"shop": "é", "id": "7"}


async def by_push(address: str) -> MessageView:
    async with Consumer(address, group="push", topics=["orders"], start="earliest") as consumer:
        message = await consumer.receive()
        assert message is not None
        await message.ack()
        return message


async def by_lite_pull(address: str) -> MessageView:
    async with LitePullConsumer(address, group="lite", start="earliest") as consumer:
        await consumer.subscribe("orders")
        while not (found := await consumer.poll()):
            pass
        return found[0]


async def by_pull(address: str) -> MessageView:
    async with PullConsumer(address, group="pull") as consumer:
        while True:
            for queue in await consumer.queues("orders"):
                found = await consumer.pull(queue, 0)
                if found.messages:
                    return found.messages[0]


async def by_pop(address: str) -> MessageView:
    async with SimpleConsumer(
        address, group="pop", topics=["orders"], start="earliest"
    ) as consumer:
        while not (found := await consumer.receive()):
            pass
        await found[0].ack()
        return found[0]


async def without_a_loop(address: str) -> MessageView:
    def receive() -> MessageView:
        topics, start = ["orders"], "earliest"
        with blocking.Consumer(address, group="b", topics=topics, start=start) as consumer:
            message = consumer.receive()
            assert message is not None
            message.ack()
            return message

    return await asyncio.to_thread(receive)


@pytest.mark.parametrize("receive", [by_push, by_lite_pull, by_pull, by_pop, without_a_loop])
async def test_the_properties_are_those_that_the_sender_set(
    receive: "object", address: str
) -> None:
    message = Message("orders", b"x", tags="paid", keys=["o-1", "o-2"], properties=OWN)
    async with Producer(address) as producer:
        receipt = await producer.send(message, sharding_key="berlin")
    assert callable(receive)
    found = await asyncio.wait_for(receive(address), LONG)
    assert found.properties == OWN
    assert (found.tags, found.keys, found.sharding_key) == ("paid", ["o-1", "o-2"], "berlin")
    system = found.system_properties
    assert system[props.UNIQ_KEY] == receipt.msg_id
    assert (system[props.TAGS], system[props.KEYS]) == ("paid", "o-1 o-2")
    assert found.stored_properties == OWN | system
    assert not system.keys() & OWN.keys()


async def test_a_message_that_was_given_back_keeps_what_its_sender_set(
    aerobee_cluster: LocalCluster,
) -> None:
    address = aerobee_cluster.name_server
    async with Producer(address) as producer:
        await producer.send(Message("orders", b"x", properties=OWN))
    async with Consumer(address, group="g", topics=["orders"], start="earliest") as consumer:
        async with asyncio.timeout(LONG):
            first = await consumer.receive()
            assert first is not None
            await first.nack(delay_level=1)
            aerobee_cluster.advance(seconds=2)
            again = await consumer.receive()
        assert again is not None
        assert (again.reconsume_times, again.topic) == (1, "orders")
        assert again.properties == OWN
        assert again.system_properties[props.RETRY_TOPIC] == "orders"
        await again.ack()


async def test_a_check_of_a_transaction_sees_what_its_sender_set(
    aerobee_cluster: LocalCluster,
) -> None:
    seen: asyncio.Queue[MessageView] = asyncio.Queue()

    async def check(message: MessageView) -> TransactionState:
        await seen.put(message)
        return TransactionState.COMMIT

    address = aerobee_cluster.name_server
    async with TransactionProducer(address, group="shop", check=check) as producer:
        message = Message("orders", b"x", properties=OWN)
        receipt, _ = await producer.send_in_transaction(message, lambda _: TransactionState.UNKNOWN)
        assert receipt.transaction_id == receipt.msg_id
        aerobee_cluster.advance(minutes=2)
        found = await asyncio.wait_for(seen.get(), LONG)
        assert found.properties == OWN
        assert found.system_properties[props.PGROUP] == "shop"


async def test_a_reply_has_the_properties_of_nobody_but_its_sender(address: str) -> None:
    async with Admin(address) as admin:
        await admin.create_topic("orders", 1)
    service = Consumer(address, group="g", topics=["orders"], start="earliest")
    asked: list[MessageView] = []
    async with Producer(address, group="shop") as producer, service:

        async def answer() -> None:
            message = await service.receive()
            assert message is not None
            asked.append(message)
            await producer.reply(message, b"yes")
            await message.ack()

        work = asyncio.create_task(answer())
        reply = await producer.request(Message("orders", b"?", properties=OWN), timeout=LONG)
        await work
    assert asked[0].properties == OWN
    assert reply.properties == {}
    assert reply.system_properties[props.CORRELATION_ID]


async def test_only_a_message_of_a_transaction_has_a_transaction_id(address: str) -> None:
    async with Producer(address) as producer:
        for _ in range(2):  # the first makes the connection, the second is a quick one
            assert (await producer.send(Message("orders", b"x"))).transaction_id is None
        batch = await producer.send_batch([Message("orders", b"x"), Message("orders", b"y")])
        assert [each.transaction_id for each in batch.receipts] == [None]


async def test_a_message_without_a_delay_has_no_handle_and_the_error_says_so(address: str) -> None:
    async with Producer(address) as producer:
        receipt = await producer.send(Message("orders", b"x"))
        with pytest.raises(ClientError, match="recall_handle of the message to topic orders is No"):
            await producer.recall("orders", receipt.recall_handle)
