"""Transactions: visible after a commit only, and checked if the result was never reported."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from aerobee.client import Consumer, Message
from aerobee.client.base.message_view import MessageView
from aerobee.client.base.receipts import SendStatus
from aerobee.client.errors import BrokerError, ClientError, IllegalMessageError
from aerobee.client.producer.broker_requests import TransactionState
from aerobee.client.producer.transactions import TransactionProducer
from aerobee.protocol import codes
from aerobee.protocol.aio.connection import Connection
from aerobee.protocol.command import Command, Response
from aerobee.protocol.headers.transactions import EndTransaction
from aerobee.protocol.message import properties as props
from aerobee.testing import LocalCluster

from ...waiting import LONG
from ..fakes import FakeCluster, record, until

COMMIT, ROLLBACK, UNKNOWN = (
    TransactionState.COMMIT,
    TransactionState.ROLLBACK,
    TransactionState.UNKNOWN,
)


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        yield running


def stored(cluster: LocalCluster, topic: str = "orders") -> int:
    """How many messages of the topic can be read."""
    store = cluster.brokers[0].store
    return cluster.call(lambda: sum(store.max_offset(topic, queue) for queue in range(4)))


def never(message: MessageView) -> TransactionState:
    raise AssertionError("nothing is to be asked")


async def test_leaving_the_block_commits_and_raising_rolls_back(cluster: LocalCluster) -> None:
    async with TransactionProducer(cluster.name_server, group="g", check=never) as producer:
        async with producer.transaction(Message("orders", b"yes")):
            assert stored(cluster) == 0
        await until(lambda: stored(cluster) == 1)
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(Message("orders", b"no")):
                raise ZeroDivisionError
        async with producer.transaction(Message("orders", b"yes again")):
            pass
        await until(lambda: stored(cluster) == 2)


@pytest.mark.parametrize(("state", "count"), [(COMMIT, 1), (ROLLBACK, 0)])
async def test_what_the_local_transaction_gives_is_what_happens(
    state: TransactionState, count: int, cluster: LocalCluster
) -> None:
    async def local(message: Message) -> TransactionState:
        assert message.body == b"x"
        return state

    async with TransactionProducer(cluster.name_server, group="g", check=never) as producer:
        receipt, ended = await producer.send_in_transaction(Message("orders", b"x"), local)
        assert (ended, receipt.status) == (state, SendStatus.OK)
        assert receipt.transaction_id == receipt.msg_id
        await producer.send(Message("other", b"behind it on the same connection"))
        cluster.advance(minutes=5)
        assert stored(cluster) == count


async def test_the_broker_asks_when_it_was_not_told(cluster: LocalCluster) -> None:
    asked: list[bytes] = []
    answers = [UNKNOWN, COMMIT]

    def check(message: MessageView) -> TransactionState:
        asked.append(message.body)
        return answers[len(asked) - 1]

    async with TransactionProducer(cluster.name_server, group="g", check=check) as producer:
        await producer.send_in_transaction(Message("orders", b"x"), lambda _: UNKNOWN)
        cluster.advance(minutes=2)
        await until(lambda: len(asked) == 1)
        assert stored(cluster) == 0
        cluster.advance(minutes=2)
        await until(lambda: stored(cluster) == 1)
    assert asked == [b"x", b"x"]


@pytest.mark.parametrize("by_check", [False, True])
async def test_the_end_is_told_in_the_trace(cluster: LocalCluster, by_check: bool) -> None:
    def check(message: MessageView) -> TransactionState:
        return COMMIT

    message = Message("orders", b"x", tags="paid", keys=["o-1"])
    state = UNKNOWN if by_check else ROLLBACK
    async with TransactionProducer(
        cluster.name_server, group="g", check=check, trace="traces"
    ) as producer:
        receipt, _ = await producer.send_in_transaction(message, lambda _: state)
        if by_check:
            cluster.advance(minutes=2)
            await until(lambda: stored(cluster) == 1)
    async with Consumer(
        cluster.name_server, group="g", topics=["traces"], start="earliest"
    ) as consumer:
        traces = await consumer.receive(LONG)
    assert traces is not None
    assert traces.keys == [receipt.msg_id, "o-1"]
    records = [each.split("\x01") for each in traces.body.decode().split("\x02") if each]
    assert [each[0] for each in records] == ["Pub", *["EndTransaction"] * (1 + by_check)]
    address = f"127.0.0.1:{cluster.brokers[0].port}"
    assert records[-1][2:] == [
        "DefaultRegion",
        "g",
        "orders",
        receipt.msg_id,
        "paid",
        "o-1",
        address,
        "2",
        receipt.msg_id,
        "COMMIT_MESSAGE" if by_check else "ROLLBACK_MESSAGE",
        "true" if by_check else "false",
    ]


async def test_a_failing_check_is_asked_again(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    async def check(message: MessageView) -> TransactionState:
        asked.append(message.keys[0])
        if len(asked) == 1:
            raise RuntimeError("the database is away")
        return COMMIT

    async with TransactionProducer(cluster.name_server, group="g", check=check) as producer:
        await producer.send_in_transaction(Message("orders", b"x", keys="k"), lambda _: UNKNOWN)
        cluster.advance(minutes=2)
        await until(lambda: len(asked) == 1)
        cluster.advance(minutes=2)
        await until(lambda: stored(cluster) == 1)
    assert asked == ["k", "k"]
    assert "the database is away" in caplog.text


async def test_an_error_of_the_local_transaction_reaches_the_caller_and_the_end_stays_open(
    cluster: LocalCluster,
) -> None:
    asked: list[bytes] = []

    async def check(message: MessageView) -> TransactionState:
        asked.append(message.body)
        return ROLLBACK

    def local(_: Message) -> TransactionState:
        raise ZeroDivisionError

    async with TransactionProducer(cluster.name_server, group="g", check=check) as producer:
        with pytest.raises(ZeroDivisionError):
            await producer.send_in_transaction(Message("orders", b"x"), local)
        cluster.advance(minutes=2)
        await until(lambda: asked == [b"x"])
    assert stored(cluster) == 0


async def test_another_producer_of_the_group_answers_for_one_that_is_gone(
    cluster: LocalCluster,
) -> None:
    async with TransactionProducer(cluster.name_server, group="g", check=never) as first:
        await first.send_in_transaction(Message("orders", b"x"), lambda _: UNKNOWN)
    async with TransactionProducer(
        cluster.name_server, group="g", check=lambda _: COMMIT
    ) as second:
        await second.send(Message("other", b"so that the broker knows it"))
        cluster.advance(minutes=2)
        await until(lambda: stored(cluster) == 1)


async def test_a_half_message_that_is_not_safe_is_rolled_back(fake: FakeCluster) -> None:
    ends: list[EndTransaction] = []

    def late(command: Command, connection: Connection) -> Response:
        fields = fake.broker.take(command, connection).fields or {}
        return Response(codes.FLUSH_DISK_TIMEOUT, fields | {"msgId": "7F00000100002A9F" + "0" * 16})

    def end(command: Command, _: Connection) -> None:
        ends.append(command.header(EndTransaction))

    fake.broker.answers[codes.SEND_MESSAGE_V2] = late
    fake.broker.answers[codes.END_TRANSACTION] = end
    ran: list[Message] = []

    def local(message: Message) -> TransactionState:
        ran.append(message)
        return COMMIT

    async with TransactionProducer(fake.address, group="g", check=never) as producer:
        _, state = await producer.send_in_transaction(Message("orders", b"x"), local)
        with pytest.raises(ClientError, match="FLUSH_DISK_TIMEOUT"):
            async with producer.transaction(Message("orders", b"x")):
                raise AssertionError("the block must not run")
        await until(lambda: len(ends) == 2)
    assert state is ROLLBACK
    assert ran == []
    assert {each.outcome for each in ends} == {ROLLBACK}


async def test_what_is_no_state_is_refused_and_the_end_stays_open(cluster: LocalCluster) -> None:
    async with TransactionProducer(cluster.name_server, group="g", check=never) as producer:
        with pytest.raises(ClientError, match="give a TransactionState"):
            await producer.send_in_transaction(
                Message("orders", b"x"),
                lambda _: "yes",  # type: ignore[arg-type, return-value]
            )


async def test_a_delay_and_a_transaction_exclude_each_other(fake: FakeCluster) -> None:
    async with TransactionProducer(fake.address, group="g", check=never) as producer:
        with pytest.raises(IllegalMessageError, match="can't have a delay"):
            async with producer.transaction(Message("orders", b"x", delay=1)):
                raise AssertionError("the block must not run")


async def test_a_broker_before_5_0_that_names_no_topic_is_answered(fake: FakeCluster) -> None:
    raw = props.encode({"PGROUP": "g", "UNIQ_KEY": "ID0"})
    async with TransactionProducer(fake.address, group="g", check=lambda _: COMMIT) as producer:
        await producer.send(Message("orders", b"makes the connection"))
        fields = {"tranStateTableOffset": "7", "commitLogOffset": "9", "msgId": "ID0"}
        half = record(7, b"x", raw_properties=raw)
        fake.broker.connections[-1].oneway(codes.CHECK_TRANSACTION_STATE, fields, half)
        await until(lambda: codes.END_TRANSACTION in fake.broker.order)
    (command,) = fake.broker.requests[codes.END_TRANSACTION]
    header = command.header(EndTransaction)
    assert (header.outcome, header.queue_offset, header.log_offset) == (COMMIT, 7, 9)
    assert header.from_check


async def test_a_confirmed_end_has_happened_also_by_another_producer_of_the_group(
    cluster: LocalCluster,
) -> None:
    async with TransactionProducer(cluster.name_server, group="g", check=never) as producer:
        receipt = await producer.begin(Message("orders", b"yes"))
        odd = replace(receipt, offset_msg_id=receipt.offset_msg_id[:-16] + "f" * 15 + "0")
    async with TransactionProducer(cluster.name_server, group="g", check=never) as another:
        await another.end_confirmed(receipt, COMMIT)
        assert stored(cluster) == 1
        with pytest.raises(BrokerError):
            await another.end_confirmed(odd, COMMIT)
