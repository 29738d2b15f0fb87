"""The trace of consumption in the format of Java's client, for each kind of delivery."""

import asyncio

import pytest
from aerobee.client import Consumer, Context, LitePullConsumer, Outcome
from aerobee.client.base.identity import now_ms
from aerobee.client.group.received import ReceivedMessage
from aerobee.client.push import tracing
from aerobee.protocol import codes
from aerobee.protocol.headers.send import SendMessage
from aerobee.protocol.message import properties as props

from ...waiting import LONG
from ..fakes import FakeCluster, record, until
from ..shelf import Shelf

TRACE = "RMQ_SYS_TRACE_TOPIC"
REGION = {"MSG_REGION": "region-a", "TRACE_ON": "true"}


def properties(msg_id: str, **more: str) -> bytes:
    """What brokers that are traced put into a message."""
    return props.encode({"UNIQ_KEY": msg_id, "KEYS": "o-1 o-2", **REGION, **more})


def member(fake: FakeCluster, **options: object) -> Consumer:
    options = {"trace": True, "topics": ["orders"], **options}
    return Consumer(
        fake.address,
        group="g",
        start="earliest",
        client_id="b",
        **options,  # type: ignore[arg-type]
    )


@pytest.fixture
def traced(fake: FakeCluster, shelf: Shelf) -> Shelf:
    """A queue with one message, and a place for traces."""
    fake.topics[TRACE] = 1
    shelf.put("orders", 0, b"0", raw_properties=properties("ID0"))
    return shelf


def traces(fake: FakeCluster, topic: str = TRACE) -> list[tuple[list[str], set[str]]]:
    """Each record with the keys of its message, in the order in which they were sent."""
    found = []
    for command in fake.broker.requests[codes.SEND_MESSAGE_V2]:
        header = command.header(SendMessage)
        if header.topic == topic:
            keys = set(props.decode(header.properties or "").get(props.KEYS, "").split())
            for record in (command.body or b"").decode().split("\x02"):
                if record:
                    found.append((record.split("\x01"), keys))
    return found


def check_pair(fake: FakeCluster, *, success: bool, code: int, times: int = 0) -> None:
    """There is one SubBefore and one SubAfter, which belong together."""
    (before, keys), (after, _) = traces(fake)
    assert keys == {"ID0", "o-1", "o-2"}
    request_id = before[4]
    assert before[:1] + before[2:] == [
        "SubBefore",
        "region-a",
        "g",
        request_id,
        "ID0",
        str(times),
        "o-1 o-2",
    ]
    began, ended, cost = int(before[1]), int(after[7]), int(after[3])
    assert 1_700_000_000_000 < began <= ended
    assert 0 <= cost <= ended - began
    assert len(request_id) == 32
    assert after[:3] + after[4:7] + after[8:] == [
        "SubAfter",
        request_id,
        "ID0",
        "true" if success else "false",
        "o-1 o-2",
        str(code),
        "g",
    ]


@pytest.mark.parametrize("ordered", [False, True])
async def test_an_iterated_message_has_a_record_when_it_is_taken_and_one_when_it_is_settled(
    fake: FakeCluster, traced: Shelf, ordered: bool
) -> None:
    async with member(fake, ordered=ordered) as consumer:
        message = await consumer.receive(5)
        assert message is not None
        await message.ack()
    check_pair(fake, success=True, code=0)


async def test_a_message_that_is_sent_back_has_failed(fake: FakeCluster, traced: Shelf) -> None:
    async with member(fake) as consumer:
        message = await consumer.receive(5)
        assert message is not None
        await message.nack()
    check_pair(fake, success=False, code=4)


@pytest.mark.parametrize(
    ("answer", "code"),
    [(Outcome.SUCCESS, 0), (Outcome.LATER, 4), ("nonsense", 3), (ZeroDivisionError(), 2)],
)
@pytest.mark.parametrize("ordered", [False, True])
async def test_what_a_listener_answers_is_told(
    fake: FakeCluster, traced: Shelf, answer: object, code: int, ordered: bool
) -> None:
    consumer = member(fake, ordered=ordered)
    called = asyncio.Event()

    @consumer.listener
    async def listen(message: ReceivedMessage) -> object:
        called.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with consumer:
        await called.wait()
    check_pair(fake, success=code == 0, code=code)


async def test_messages_of_a_batch_share_a_request_id_and_its_cost(
    fake: FakeCluster, traced: Shelf
) -> None:
    traced.put("orders", 0, b"1", raw_properties=properties("ID1"))
    consumer, sizes = member(fake), list[int]()

    @consumer.listener(batch_max=2)
    async def listen(messages: list[ReceivedMessage], context: Context) -> None:
        sizes.append(len(messages))

    async with consumer:
        await until(lambda: sum(sizes) == 2)
    assert sizes == [2]
    records = [record for record, _ in traces(fake)]
    assert [record[0] for record in records] == ["SubBefore"] * 2 + ["SubAfter"] * 2
    assert {record[4] for record in records[:2]} == {record[1] for record in records[2:]}
    assert [record[5] for record in records[:2]] == ["ID0", "ID1"]


async def test_what_takes_too_long_is_told_as_late(
    fake: FakeCluster, traced: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with member(fake) as consumer:
        message = await consumer.receive(5)
        assert message is not None
        later = now_ms() + 16 * 60_000
        monkeypatch.setattr(tracing, "now_ms", lambda: later)
        await message.ack()
    assert [record[6] for record, _ in traces(fake) if record[0] == "SubAfter"] == ["1"]


async def test_what_the_application_lets_go_of_has_no_end(fake: FakeCluster, traced: Shelf) -> None:
    async with member(fake) as consumer:
        message = await consumer.receive(5)
        assert message is not None
        message.release()
    assert [record[0] for record, _ in traces(fake)] == ["SubBefore"]


@pytest.mark.parametrize("properties_of", [b"", props.encode({**REGION, "TRACE_ON": "false"})])
async def test_a_message_that_is_not_traced_leaves_no_record(
    fake: FakeCluster, shelf: Shelf, properties_of: bytes
) -> None:
    fake.topics[TRACE] = 1
    shelf.put("orders", 0, b"0", raw_properties=properties_of)
    async with member(fake) as consumer:
        message = await consumer.receive(5)
        assert message is not None
        await message.ack()
    assert traces(fake) == []


async def test_a_message_that_an_administrator_sends_to_a_member_is_not_traced(
    fake: FakeCluster, traced: Shelf
) -> None:
    async with member(fake) as consumer:
        message = await consumer.receive(5)
        assert message is not None
        await message.ack()
        request = fake.broker.connections[0].request(
            codes.CONSUME_MESSAGE_DIRECTLY,
            {"consumerGroup": "g", "clientId": "b", "brokerName": "broker-a"},
            record(7, b"direct", raw_properties=properties("ID7")),
            LONG,
        )
        message = await consumer.receive(5)
        assert message is not None
        assert message.msg_id == "ID7"
        await message.ack()
        assert (await request).code == codes.SUCCESS
    check_pair(fake, success=True, code=0)


async def test_who_consumes_traces_is_not_traced_for_it(fake: FakeCluster, shelf: Shelf) -> None:
    fake.topics["own"] = 1
    shelf.put("own", 0, b"a record", raw_properties=properties("ID0"))
    async with member(fake, topics=["own"], trace="own") as consumer:
        message = await consumer.receive(5)
        assert message is not None
        await message.ack()
    assert traces(fake, "own") == []


async def test_without_trace_nothing_is_told(fake: FakeCluster, traced: Shelf) -> None:
    async with member(fake, trace=False) as consumer:
        message = await consumer.receive(5)
        assert message is not None
        await message.ack()
    assert traces(fake) == []


async def test_a_message_that_was_polled_is_taken_and_done_with_at_once(
    fake: FakeCluster, traced: Shelf
) -> None:
    async with LitePullConsumer(fake.address, group="g", start="earliest", trace=True) as consumer:
        await consumer.subscribe("orders")
        (message,) = await consumer.poll(10)
        assert message.msg_id == "ID0"
    check_pair(fake, success=True, code=0)


async def test_messages_polled_together_share_a_request_id_and_those_without_a_region_are_left_out(
    fake: FakeCluster, shelf: Shelf
) -> None:
    fake.topics["other-traces"] = 1
    shelf.put("orders", 0, b"0", raw_properties=properties("ID0"))
    shelf.put("orders", 0, b"1", raw_properties=props.encode({"UNIQ_KEY": "ID1"}))
    shelf.put("orders", 0, b"2", raw_properties=properties("ID2"))
    async with LitePullConsumer(
        fake.address, group="g", start="earliest", trace="other-traces"
    ) as consumer:
        await consumer.subscribe("orders")
        assert len(await consumer.poll(10)) == 3
    records = [record for record, _ in traces(fake, "other-traces")]
    assert [each[0] for each in records] == ["SubBefore", "SubBefore", "SubAfter", "SubAfter"]
    assert [each[5] for each in records[:2]] == [each[2] for each in records[2:]] == ["ID0", "ID2"]
    assert len({each[4] for each in records[:2]} | {each[1] for each in records[2:]}) == 1


async def test_without_the_option_a_lite_pull_consumer_leaves_no_trace(
    fake: FakeCluster, traced: Shelf
) -> None:
    async with LitePullConsumer(fake.address, group="g", start="earliest") as consumer:
        await consumer.subscribe("orders")
        assert await consumer.poll(10)
    assert not traces(fake)
