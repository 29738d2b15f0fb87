"""A push consumer whose broker assigns the queues, for pull or pop."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
from aerobee.client import Admin, Consumer, Message, MessageQueue, Outcome, PopSettings, Producer
from aerobee.client.errors import ClientError
from aerobee.client.group.received import ReceivedMessage
from aerobee.client.push import pop_service, popped_queues
from aerobee.protocol import codes
from aerobee.protocol.bodies.assignment import (
    MessageQueueAssignment,
    QueryAssignmentResponseBody,
)
from aerobee.protocol.bodies.group import SubscriptionGroupConfig
from aerobee.protocol.command import OK, Response
from aerobee.protocol.headers.pop import PopMessage
from aerobee.testing import LocalCluster

from ...waiting import LONG
from ..clock import answered
from ..fakes import FakeCluster, popped_with_tags, until

QUEUES = 4


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A broker whose clock a test can move."""
    with LocalCluster() as running:
        yield running


@pytest.fixture
async def admin(cluster: LocalCluster) -> AsyncIterator[Admin]:
    """The topic orders, and group g, which pops it."""
    async with Admin(cluster.name_server) as asking:
        await asking.create_topic("orders", QUEUES)
        await asking.update_group(SubscriptionGroupConfig("g"))
        await asking.set_request_mode("g", "orders", "POP")
        yield asking


def member(cluster: LocalCluster | FakeCluster, **options: object) -> Consumer:
    address = cluster.name_server if isinstance(cluster, LocalCluster) else cluster.address
    chosen: dict[str, object] = {"topics": ["orders"], "start": "earliest"} | options
    return Consumer(address, group="g", client_rebalance=False, **chosen)  # type: ignore[arg-type]


async def send(cluster: LocalCluster, *bodies: bytes, tags: str | None = None) -> None:
    async with Producer(cluster.name_server) as producer:
        for body in bodies:
            await producer.send(Message("orders", body, tags=tags))


async def eventually(cluster: LocalCluster, holds: Callable[[], bool]) -> None:
    """Moves the broker's time on until it holds; what is invisible comes back after some scans."""
    async with asyncio.timeout(LONG):
        while not holds():
            cluster.advance(seconds=5)
            await answered(cluster, 0.02)


@asynccontextmanager
async def listening(
    consumer: Consumer, answer: Callable[[ReceivedMessage], object] = lambda _: None
) -> AsyncIterator[list[ReceivedMessage]]:
    """The messages that a listener was given; `answer` is what it answers."""
    seen = list[ReceivedMessage]()

    @consumer.listener
    async def listen(message: ReceivedMessage) -> object:
        seen.append(message)
        return answer(message)

    async with consumer:
        yield seen


async def test_what_is_popped_and_done_is_acknowledged_and_comes_to_nobody_again(
    cluster: LocalCluster, admin: Admin
) -> None:
    await send(cluster, *(b"%d" % at for at in range(10)))
    async with listening(member(cluster)) as seen:
        await until(lambda: len(seen) == 10)
    assert {message.topic for message in seen} == {"orders"}
    async with member(cluster) as second:
        cluster.advance(minutes=10)
        await send(cluster, b"last")
        message = await second.receive(LONG)
        assert message is not None
        assert (message.body, message.reconsume_times) == (b"last", 0)
        await message.ack()
    assert sorted(message.body for message in seen) == [b"%d" % at for at in range(10)]


async def test_all_members_pop_all_queues_and_no_message_comes_to_two(
    cluster: LocalCluster, admin: Admin
) -> None:
    async with listening(member(cluster)) as one, listening(member(cluster)) as other:
        await send(cluster, *(b"%d" % at for at in range(40)))
        await until(lambda: len(one) + len(other) == 40)
    assert sorted(int(message.body) for message in one + other) == list(range(40))


async def test_a_broker_gives_one_assignment_for_all_its_queues(
    cluster: LocalCluster, admin: Admin
) -> None:
    told = list[tuple[str, int, list[MessageQueue]]]()
    every = MessageQueue("orders", "broker-a", -1)
    async with member(
        cluster, on_queues=lambda topic, all_, mine: told.append((topic, len(all_), mine))
    ) as consumer:
        await until(lambda: bool(told))
        assert consumer.queues == [every]
        connection = await admin.consumer_connection("g")
        assert connection is not None
        (client,) = connection.connection_set
        info = await admin.running_info("g", client.client_id)
        assert list(info.mq_pop_table) == [every]
    assert told == [("orders", QUEUES, [every])]


@pytest.mark.parametrize("failure", [Outcome.LATER, "nonsense"])
async def test_what_fails_comes_again_after_a_while_that_grows(
    cluster: LocalCluster, admin: Admin, failure: object
) -> None:
    await send(cluster, b"x")
    answers = [failure, failure, None]
    async with listening(member(cluster), lambda message: answers.pop(0)) as seen:
        await eventually(cluster, lambda: len(seen) == 3)
    assert [message.body for message in seen] == [b"x"] * 3
    assert [message.reconsume_times for message in seen] == [0, 1, 2]
    assert {message.topic for message in seen} == {"orders"}


async def test_what_nobody_settles_comes_again_when_its_time_is_up(
    cluster: LocalCluster, admin: Admin
) -> None:
    await send(cluster, b"x")
    async with member(cluster) as hanging, member(cluster) as other:
        first = await asyncio.wait(
            [asyncio.create_task(each.receive(LONG)) for each in (hanging, other)],
            return_when=asyncio.FIRST_COMPLETED,
        )
        message = next(iter(first[0])).result()
        assert message is not None
        again = next(iter(first[1]))
        await eventually(cluster, again.done)
        found = again.result()
        assert found is not None
        assert found.body == b"x"
        assert found.reconsume_times > 0


async def test_a_message_sent_to_the_dead_letters_is_there_and_nowhere_else(
    cluster: LocalCluster, admin: Admin
) -> None:
    await send(cluster, b"x")
    async with member(cluster) as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        await message.nack(-1)
    store = cluster.brokers[0].store
    assert cluster.call(lambda: store.max_offset("%DLQ%g", 0)) == 1
    async with member(cluster) as second:
        cluster.advance(minutes=10)
        await send(cluster, b"last")
        following = await second.receive(LONG)
        assert following is not None
        assert following.body == b"last"


async def test_what_is_settled_too_late_is_not_acknowledged(
    cluster: LocalCluster, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(cluster, b"x")
    async with member(cluster) as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        with monkeypatch.context() as later:
            now = time.monotonic()
            later.setattr(pop_service, "monotonic", lambda: now + 61)
            assert message.is_void
            await message.ack()
        found = list[ReceivedMessage | None]()
        waiting = asyncio.create_task(consumer.receive(LONG))
        waiting.add_done_callback(lambda done: found.append(done.result()))
        await eventually(cluster, lambda: bool(found))
        assert found[0] is not None
        assert found[0].body == b"x"


async def test_what_is_let_go_of_is_handed_out_again_here(
    cluster: LocalCluster, admin: Admin
) -> None:
    await send(cluster, b"x")
    async with member(cluster) as consumer:
        first = await consumer.receive(LONG)
        assert first is not None
        first.release()
        assert await consumer.receive(LONG) is first


async def test_without_a_mode_the_broker_shares_the_queues_to_be_pulled(
    cluster: LocalCluster, admin: Admin
) -> None:
    await admin.set_request_mode("g", "orders", "PULL")
    async with member(cluster) as one, member(cluster) as other:
        await until(lambda: len(one.queues) == len(other.queues) == QUEUES // 2)
        assert not {*one.queues} & {*other.queues}
        await send(cluster, b"x")


async def test_a_topic_changes_from_pop_to_pull_and_back_and_loses_nothing(
    cluster: LocalCluster, admin: Admin
) -> None:
    every = [MessageQueue("orders", "broker-a", -1)]
    single = [MessageQueue("orders", "broker-a", number) for number in range(QUEUES)]
    failing = {b"x"}

    def answer(message: ReceivedMessage) -> object:
        return Outcome.LATER if message.body in failing else None

    consumer = member(cluster)
    async with listening(consumer, answer) as seen:
        await until(lambda: consumer.queues == every)
        await send(cluster, b"x")
        await until(lambda: len(seen) == 1)
        await admin.set_request_mode("g", "orders", "PULL")
        await consumer.rebalance()
        await until(lambda: consumer.queues == single)
        failing.clear()
        await send(cluster, b"pulled")
        await until(lambda: any(message.body == b"pulled" for message in seen))
        # What had failed while it was popped is in a retry topic, which is pulled now.
        await eventually(cluster, lambda: [each.body for each in seen].count(b"x") == 2)
        assert seen[-1].topic == "orders"
        await admin.set_request_mode("g", "orders", "POP")
        await consumer.rebalance()
        await until(lambda: consumer.queues == every)
        await send(cluster, b"popped")
        await until(lambda: seen[-1].body == b"popped")


async def test_draining_waits_for_what_is_popped_and_pops_no_more(
    cluster: LocalCluster, admin: Admin
) -> None:
    await send(cluster, b"x")
    consumer = member(cluster)
    await consumer.start()
    message = await consumer.receive(LONG)
    assert message is not None
    draining = asyncio.create_task(consumer.drain(LONG))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not draining.done()
    await message.ack()
    assert await draining


# --- against a broker that is a fake


@pytest.fixture
def popping_broker(fake: FakeCluster) -> FakeCluster:
    """A broker that lets every group pop."""
    fake.topics["%RETRY%g"] = 1

    def assign(*_: object) -> Response:
        queue = MessageQueue("orders", "broker-a", -1)
        body = QueryAssignmentResponseBody([MessageQueueAssignment(queue, "POP")])
        return Response(body=body.encode())

    fake.broker.answers[codes.QUERY_ASSIGNMENT] = assign
    fake.broker.answers[codes.POP_MESSAGE] = lambda *_: None  # held
    return fake


def pops(fake: FakeCluster) -> list[PopMessage]:
    return [command.header(PopMessage) for command in fake.broker.requests[codes.POP_MESSAGE]]


async def test_a_pop_asks_what_javas_client_asks(popping_broker: FakeCluster) -> None:
    async with member(popping_broker):
        await until(lambda: bool(pops(popping_broker)))
    header = pops(popping_broker)[0]
    assert (header.group, header.topic, header.queue_id) == ("g", "orders", -1)
    assert (header.max_messages, header.invisible_ms, header.poll_ms) == (32, 60_000, 15_000)
    assert (header.init_mode, header.order) == (0, False)
    assert (header.expression_type, header.expression) == ("TAG", "*")


async def test_a_tag_with_the_hash_of_a_wanted_one_is_acknowledged_and_reaches_nobody(
    popping_broker: FakeCluster,
) -> None:
    answers = [popped_with_tags(7, b"BB", b"Aa", b"BB")]  # of one hash, 2112
    popping_broker.broker.answers[codes.POP_MESSAGE] = lambda *_: answers.pop() if answers else None
    popping_broker.broker.answers[codes.ACK_MESSAGE] = lambda *_: OK
    acks = popping_broker.broker.requests[codes.ACK_MESSAGE]
    async with listening(member(popping_broker, topics={"orders": "Aa"})) as seen:
        await until(lambda: len(acks) == 3)
    assert [message.body for message in seen] == [b"Aa"]


async def test_too_many_that_wait_at_the_broker_are_not_made_more_at_once(
    popping_broker: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(popped_queues, "AGAIN_SECONDS", 3600)
    popping_broker.broker.answers[codes.POP_MESSAGE] = lambda *_: Response(
        codes.POLLING_FULL, remark="full"
    )
    async with member(popping_broker):
        await until(lambda: bool(pops(popping_broker)))
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(pops(popping_broker)) == 1


async def test_a_broker_that_can_not_share_out_changes_nothing(
    popping_broker: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    del popping_broker.broker.answers[codes.QUERY_ASSIGNMENT]
    async with member(popping_broker) as consumer:
        await until(lambda: "keeps its queues" in caplog.text)
        assert consumer.queues == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"invisible_s": 4}, "invisible_s is 4; give 5 to 300 seconds"),
        ({"batch": 33}, "batch is 33; give 1 to 32 messages"),
        ({"messages_max": 0}, "messages_max is 0; give 1 or more"),
    ],
)
def test_settings_that_can_not_be_are_refused(options: dict[str, int], reason: str) -> None:
    with pytest.raises(ClientError, match=reason):
        PopSettings(**options)


async def test_a_strategy_that_brokers_do_not_know_is_refused(popping_broker: FakeCluster) -> None:
    consumer = member(popping_broker, strategy="CONSISTENT_HASH")
    with pytest.raises(ClientError, match="brokers share queues out by AVG or AVG_BY_CIRCLE"):
        await consumer.start()


async def test_in_order_the_members_share_by_themselves(popping_broker: FakeCluster) -> None:
    async with member(popping_broker, ordered=True):
        await until(lambda: codes.LOCK_BATCH_MQ in popping_broker.broker.order)
    assert codes.QUERY_ASSIGNMENT not in popping_broker.broker.order
