"""Requests from brokers to a client."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aerobee.client import Consumer, LitePullConsumer, Outcome
from aerobee.client.group.received import ReceivedMessage
from aerobee.client.push import consumer as consumer_module
from aerobee.protocol import codes
from aerobee.protocol.aio.connection import Connection
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.offsets import GetConsumerStatusBody, ResetOffsetBody
from aerobee.protocol.bodies.running import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from aerobee.protocol.command import Command

from ...waiting import LONG
from ..fakes import FakeCluster, FakeServer, record, until
from ..queue_log import Log, committed, take
from ..shelf import Shelf

QUEUE = MessageQueue("orders", "broker-a", 0)


@pytest.fixture
async def member(fake: FakeCluster) -> AsyncIterator[Consumer]:
    """A consumer of one queue with three messages."""
    fake.topics = {"orders": 1, "%RETRY%g": 1}
    Log(fake.broker, [record(at, b"%d" % at) for at in range(3)])
    async with Consumer(fake.address, group="g", topics=["orders"]) as consumer:
        yield consumer


async def ask(fake: FakeCluster, code: int, body: bytes = b"", **fields: str) -> Command:
    """The client's answer to a request of the broker."""
    await until(lambda: any(not each.is_lost for each in fake.broker.connections))
    connection: Connection = fake.broker.connections[-1]
    return await connection.request(code, fields, body, LONG)


async def test_offsets_that_are_reset_are_followed_backwards(
    fake: FakeCluster, member: Consumer
) -> None:
    assert await take(member, 3) == [b"0", b"1", b"2"]
    body = ResetOffsetBody({QUEUE: 1, MessageQueue("orders", "broker-z", 0): 5}).encode()
    answer = await ask(fake, codes.RESET_CONSUMER_CLIENT_OFFSET, body, topic="orders", group="g")
    assert answer.code == codes.SUCCESS
    assert await take(member, 2) == [b"1", b"2"]
    await member.close()
    assert committed(fake.broker)["orders"] == 3


async def test_a_reset_that_can_not_be_read_is_refused(fake: FakeCluster, member: Consumer) -> None:
    answer = await ask(fake, codes.RESET_CONSUMER_CLIENT_OFFSET, b"]", topic="orders", group="g")
    assert answer.code == codes.INVALID_PARAMETER


async def test_the_offsets_of_held_queues_are_told(fake: FakeCluster, member: Consumer) -> None:
    await take(member, 2)
    answer = await ask(fake, codes.GET_CONSUMER_STATUS_FROM_CLIENT, topic="orders", group="g")
    body = GetConsumerStatusBody.decode(answer.body)
    assert body.message_queue_table == {QUEUE: 2}


async def test_running_info_tells_what_is_held(fake: FakeCluster, member: Consumer) -> None:
    await take(member, 1)
    answer = await ask(
        fake, codes.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="x", jstackEnable="false"
    )
    info = ConsumerRunningInfo.decode(answer.body)
    assert info.mq_table[QUEUE].commit_offset == 1
    assert info.mq_table[QUEUE].cached_msg_count == 2
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert info.properties["PROP_NAMESERVER_ADDR"] == f"{fake.address};"
    assert {each.topic for each in info.subscription_set} == {"orders", "%RETRY%g"}


@pytest.mark.parametrize("ordered", [False, True])
async def test_running_info_has_all_properties(
    fake: FakeCluster, ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "now_ms", lambda: 1_700_000_000_123)
    fake.topics = {"orders": 1, "%RETRY%g": 1}
    Shelf(fake.broker)
    other = FakeServer()  # a second name server
    other.answers = fake.answers
    await other.start()
    servers = [fake.address, other.address]
    consumer = Consumer(servers, group="g", topics=["orders"], ordered=ordered, start="earliest")

    @consumer.listener(concurrency=7)
    async def listen(_: ReceivedMessage) -> None:
        pass

    async with consumer:
        answer = await ask(fake, codes.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="x")
    await other.stop()
    assert ConsumerRunningInfo.decode(answer.body).properties == {
        "PROP_NAMESERVER_ADDR": f"{fake.address};{other.address};",
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
        "PROP_CONSUMEORDERLY": "true" if ordered else "false",
        "PROP_THREADPOOL_CORE_SIZE": "7",
        "PROP_CONSUMER_START_TIMESTAMP": "1700000000123",
        "PROP_CLIENT_VERSION": "V5_3_3",
        "consumerGroup": "g",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "allocateMessageQueueStrategy": "AVG",
        "topicSubscribeInfoTable": "%RETRY%g=1;orders=1",
    }


@pytest.mark.parametrize(("fails", "result"), [(False, "CR_SUCCESS"), (True, "CR_LATER")])
async def test_a_message_to_be_consumed_at_once_is_and_its_fate_is_told(
    fake: FakeCluster, member: Consumer, fails: bool, result: str
) -> None:
    await take(member, 3)
    request = asyncio.create_task(
        ask(
            fake,
            codes.CONSUME_MESSAGE_DIRECTLY,
            record(77, b"direct"),
            consumerGroup="g",
            clientId="x",
            brokerName="broker-a",
        )
    )
    message = await member.receive(LONG)
    assert message is not None
    assert message.body == b"direct"
    async with message.process():
        if fails:
            raise RuntimeError("boom")
    told = ConsumeMessageDirectlyResult.decode((await request).body)
    assert told.consume_result == result
    await member.close()
    assert committed(fake.broker)["orders"] == 3  # as before: this one counts for nothing
    assert not fake.broker.requests[codes.CONSUMER_SEND_MSG_BACK]


async def test_a_group_that_is_not_here_is_refused_by_name(
    fake: FakeCluster, member: Consumer
) -> None:
    answer = await ask(fake, codes.GET_CONSUMER_RUNNING_INFO, consumerGroup="other", clientId="x")
    assert answer.code == codes.SYSTEM_ERROR
    assert "group other is not in this client; it has ['g']" in (answer.remark or "")


@pytest.mark.parametrize(
    ("answer", "result", "remark"),
    [
        (None, "CR_SUCCESS", None),
        (Outcome.LATER, "CR_LATER", None),
        ("nonsense", "CR_RETURN_NULL", None),
        (RuntimeError("boom"), "CR_THROW_EXCEPTION", "RuntimeError('boom')"),
    ],
)
@pytest.mark.parametrize("ordered", [False, True])
async def test_a_listener_is_given_a_message_directly(
    fake: FakeCluster, answer: object, result: str, remark: str | None, ordered: bool
) -> None:
    fake.topics = {"orders": 1, "%RETRY%g": 1}
    Shelf(fake.broker)
    consumer = Consumer(fake.address, group="g", topics=["orders"], ordered=ordered)

    @consumer.listener(concurrency=7)
    async def listen(message: ReceivedMessage) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with consumer:
        told = await ask(
            fake, codes.CONSUME_MESSAGE_DIRECTLY, record(7), consumerGroup="g", clientId="x"
        )
        body = ConsumeMessageDirectlyResult.decode(told.body)
        assert (body.consume_result, body.remark, body.order) == (result, remark, ordered)
        info = ConsumerRunningInfo.decode(
            (
                await ask(
                    fake,
                    codes.GET_CONSUMER_RUNNING_INFO,
                    consumerGroup="g",
                    clientId="x",
                    jstackEnable="true",
                )
            ).body
        )
        assert info.properties["PROP_CONSUMEORDERLY"] == str(ordered).lower()
        assert info.properties["PROP_THREADPOOL_CORE_SIZE"] == "7"
        assert "run_forever" in (info.jstack or "")
        assert set(info.status_table) == {"orders", "%RETRY%g"}


async def test_a_message_can_not_be_given_to_a_consumer_that_pulls_by_itself(
    fake: FakeCluster,
) -> None:
    fake.topics = {"orders": 1}
    Shelf(fake.broker)
    async with LitePullConsumer(fake.address, group="g") as consumer:
        await consumer.subscribe("orders")
        told = await ask(
            fake, codes.CONSUME_MESSAGE_DIRECTLY, record(7), consumerGroup="g", clientId="x"
        )
        assert "a message can't be given to it" in (told.remark or "")
