"""The trace of sends, as Java's client writes it."""

import asyncio

import pytest
from aerobee.client import Message, Producer
from aerobee.client.producer import trace as trace_module
from aerobee.protocol import codes
from aerobee.protocol.aio.connection import Connection
from aerobee.protocol.command import Command, Response
from aerobee.protocol.headers.send import SendMessage
from aerobee.protocol.message import properties as props

from ..fakes import FakeCluster, until

TRACE = "RMQ_SYS_TRACE_TOPIC"


@pytest.fixture
def traced(fake: FakeCluster) -> FakeCluster:
    """A broker that says that it is traced, as real ones do."""
    fake.topics[TRACE] = 1

    def take(command: Command, connection: Connection) -> Response:
        reply = fake.broker.take(command, connection)
        reply.fields = (reply.fields or {}) | {"MSG_REGION": "region-a", "TRACE_ON": "true"}
        return reply

    fake.broker.answers[codes.SEND_MESSAGE_V2] = take
    return fake


def traces(fake: FakeCluster, topic: str = TRACE) -> list[tuple[list[list[str]], set[str]]]:
    """The records and the keys of each trace message."""
    found = []
    for command in fake.broker.requests[codes.SEND_MESSAGE_V2]:
        header = command.header(SendMessage)
        if header.topic == topic:
            text = (command.body or b"").decode()
            records = [record.split("\x01") for record in text.split("\x02") if record]
            keys = props.decode(header.properties or "").get(props.KEYS, "")
            found.append((records, set(keys.split())))
    return found


async def test_a_send_is_told_with_its_place_and_cost(traced: FakeCluster) -> None:
    async with Producer(traced.address, group="shop", trace=True) as producer:
        message = Message("orders", b"12345", tags="paid", keys=["o-1", "o-2"])
        receipt = await producer.send(message)
    ((records, keys),) = traces(traced)
    (record,) = records
    cost = record.pop(10)
    assert 0 <= int(cost) < 60_000
    assert int(record.pop(1)) > 1_700_000_000_000
    assert record == [
        "Pub",
        "region-a",
        "shop",
        "orders",
        receipt.msg_id,
        "paid",
        "o-1 o-2",
        traced.broker.address,
        "5",
        "0",
        receipt.offset_msg_id,
        "true",
    ]
    assert keys == {receipt.msg_id, "o-1", "o-2"}


async def test_what_a_message_lacks_is_null_and_a_delay_has_its_kind(traced: FakeCluster) -> None:
    async with Producer(traced.address, trace=True) as producer:
        await producer.send(Message("orders", b"x", delay=5))
    ((records, _),) = traces(traced)
    assert records[0][6:8] == ["null", "null"]
    assert records[0][11] == "3"


async def test_ten_records_go_together_at_once(traced: FakeCluster) -> None:
    async with Producer(traced.address, trace=True) as producer:
        await asyncio.gather(*(producer.send(Message("orders", b"x")) for _ in range(10)))
        await until(lambda: sum(len(records) for records, _ in traces(traced)) == 10)
    assert [len(records) for records, _ in traces(traced)] == [10]


async def test_a_trace_topic_of_ones_own(traced: FakeCluster) -> None:
    traced.topics["own"] = 1
    async with Producer(traced.address, trace="own") as producer:
        await producer.send(Message("orders", b"x"))
    assert len(traces(traced, "own")) == 1
    assert traces(traced) == []


async def test_a_broker_that_is_not_traced_gets_no_trace(fake: FakeCluster) -> None:
    fake.topics[TRACE] = 1
    async with Producer(fake.address, trace=True) as producer:
        await producer.send(Message("orders", b"x"))
    assert traces(fake) == []


async def test_a_trace_that_can_not_be_sent_holds_nothing_up(
    traced: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    take = traced.broker.answers[codes.SEND_MESSAGE_V2]

    def refuse(command: Command, connection: Connection) -> Response:
        if command.header(SendMessage).topic == TRACE:
            return Response(codes.MESSAGE_ILLEGAL, remark="no traces here")
        reply = take(command, connection)
        assert isinstance(reply, Response)
        return reply

    traced.broker.answers[codes.SEND_MESSAGE_V2] = refuse
    async with Producer(traced.address, trace=True) as producer:
        receipt = await producer.send(Message("orders", b"x"))
    assert receipt.queue_offset == 0
    assert "1 trace records are lost" in caplog.text


async def test_the_records_that_wait_have_a_limit(
    traced: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trace_module, "WAITING_MAX", 3)
    async with Producer(traced.address, trace=True) as producer:
        for _ in range(5):
            await producer.send(Message("orders", b"x"))
    assert sum(len(records) for records, _ in traces(traced)) == 3
    assert "2 trace records of group DEFAULT_PRODUCER were dropped" in caplog.text
