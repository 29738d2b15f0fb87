"""The push consumer against brokers that respond as the test says."""

import asyncio

import pytest
from aerobee.client import Consumer
from aerobee.client.base.start_from import StartFrom
from aerobee.client.cluster import rebalance_service
from aerobee.client.errors import ClientError, ClosedError, UnreachableError
from aerobee.client.push import concurrent, pulling
from aerobee.protocol import codes
from aerobee.protocol.aio.connection import Connection
from aerobee.protocol.bodies.heartbeat import HeartbeatData
from aerobee.protocol.command import OK, Command, Response
from aerobee.protocol.headers.offsets import QueueAddress, SearchOffset
from aerobee.protocol.headers.pull import COMMIT_OFFSET, SUSPEND, PullMessage
from aerobee.protocol.headers.send import ConsumerSendMsgBack
from aerobee.protocol.message import properties as props
from aerobee.protocol.message.compression import compress

from ...waiting import LONG
from ..fakes import FakeBroker, FakeCluster, pulled, record, until
from ..queue_log import Log, committed, take


@pytest.fixture
def one_queue(fake: FakeCluster) -> FakeCluster:
    """The fake with a single queue, and the retry topic of group g."""
    fake.topics = {"orders": 1, "%RETRY%g": 1}
    return fake


async def test_messages_come_in_order_and_leaving_commits_and_unregisters(
    one_queue: FakeCluster,
) -> None:
    broker = one_queue.broker
    Log(broker, [record(at, b"%d" % at) for at in range(5)])
    async with Consumer(one_queue.address, group="g", topics=["orders"]) as consumer:
        assert await take(consumer, 3) == [b"0", b"1", b"2"]
    assert committed(broker)["orders"] == 3
    assert broker.order[-1] == codes.UNREGISTER_CLIENT


async def test_the_group_is_registered_before_anything_is_pulled(one_queue: FakeCluster) -> None:
    broker = one_queue.broker
    log = Log(broker, [])
    async with Consumer(one_queue.address, group="g", topics={"orders": "a || b"}) as consumer:
        await until(lambda: len(log.served) == 2)
        assert [queue.topic for queue in consumer.queues] == ["orders"]
    assert broker.order[0] == codes.HEART_BEAT
    (data,) = HeartbeatData.decode(broker.requests[codes.HEART_BEAT][0].body).consumer_data_set
    assert (data.group_name, data.consume_type) == ("g", "CONSUME_PASSIVELY")
    assert (data.message_model, data.consume_from_where) == (
        "CLUSTERING",
        "CONSUME_FROM_LAST_OFFSET",
    )
    found = {each.topic: each for each in data.subscription_data_set}
    assert found["%RETRY%g"].sub_string == "*"
    assert found["orders"].tags_set == {"a", "b"}
    assert {pull.sys_flag for pull in log.served} == {SUSPEND}
    assert {pull.suspend_ms for pull in log.served} == {15_000}


async def test_the_pull_after_a_settled_message_commits_it(one_queue: FakeCluster) -> None:
    log = Log(one_queue.broker, [record(0)])
    async with Consumer(one_queue.address, group="g", topics=["orders"]) as consumer:
        await take(consumer, 1)
        log.append(record(1))
        await until(lambda: log.served[-1].offset == 2)
    pulls = [pull for pull in log.served if pull.topic == "orders"]
    assert [pull.offset for pull in pulls] == [0, 1, 2]
    assert [pull.sys_flag & COMMIT_OFFSET for pull in pulls] == [0, 0, COMMIT_OFFSET]
    assert [pull.commit_offset for pull in pulls] == [0, 0, 1]


async def test_an_unsettled_message_holds_the_committed_offset(one_queue: FakeCluster) -> None:
    Log(one_queue.broker, [record(at) for at in range(3)])
    async with Consumer(one_queue.address, group="g", topics=["orders"]) as consumer:
        first = await consumer.receive(LONG)
        assert first is not None
        assert len(await take(consumer, 2)) == 2
    assert committed(one_queue.broker)["orders"] == 0


async def test_tags_whose_hashes_collide_are_told_apart(one_queue: FakeCluster) -> None:
    tags = ["AaAa", "BBBB", None, "AaAa"]
    Log(
        one_queue.broker,
        [record(at, raw_properties=props.encode({"TAGS": tag})) for at, tag in enumerate(tags)],
    )
    async with Consumer(one_queue.address, group="g", topics={"orders": "AaAa"}) as consumer:
        found = [await consumer.receive(LONG) for _ in range(2)]
        assert [message.offset for message in found if message] == [0, 3]
        for message in found:
            assert message is not None
            await message.ack()
    assert committed(one_queue.broker)["orders"] == 4


async def test_a_retried_message_bears_the_topic_it_was_sent_to(one_queue: FakeCluster) -> None:
    broker = one_queue.broker
    raw = props.encode({"RETRY_TOPIC": "orders", "UNIQ_KEY": "U1"})
    stored = record(0, topic="%RETRY%g", raw_properties=raw, reconsume_times=2)

    def pull(command: Command, _: Connection) -> Response | None:
        header = command.header(PullMessage)
        return pulled([stored], 1) if (header.topic, header.offset) == ("%RETRY%g", 0) else None

    broker.answers[codes.PULL_MESSAGE] = pull
    async with Consumer(one_queue.address, group="g", topics=["orders"]) as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        assert (message.topic, message.queue.topic) == ("orders", "%RETRY%g")
        assert (message.msg_id, message.reconsume_times) == ("U1", 2)
        await message.ack()
    assert committed(broker)["%RETRY%g"] == 1


async def test_raising_sends_the_message_back_and_the_loop_goes_on(
    one_queue: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    broker = one_queue.broker
    Log(broker, [record(at, raw_properties=props.encode({"UNIQ_KEY": f"U{at}"})) for at in (0, 1)])
    broker.answers[codes.CONSUMER_SEND_MSG_BACK] = lambda *_: OK
    seen = []
    async with Consumer(one_queue.address, group="g", topics=["orders"]) as consumer:
        async for message in consumer:
            async with message.process():
                seen.append(message.offset)
                if message.offset == 0:
                    raise RuntimeError("boom")
            if len(seen) == 2:
                break
    assert seen == [0, 1]
    (command,) = broker.requests[codes.CONSUMER_SEND_MSG_BACK]
    header = command.header(ConsumerSendMsgBack)
    assert (header.offset, header.group, header.delay_level) == (1000, "g", 0)
    assert (header.origin_msg_id, header.origin_topic) == ("U0", "orders")
    assert header.max_reconsume_times == 16
    assert committed(broker)["orders"] == 2
    assert "boom" in caplog.text


async def test_a_message_the_broker_does_not_take_back_comes_again_here(
    one_queue: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrent, "RETRY_LOCALLY_SECONDS", 0.01)
    broker = one_queue.broker
    Log(broker, [record(0)])
    broker.answers[codes.SEND_MESSAGE_V2] = lambda *_: Response(codes.SYSTEM_BUSY)
    async with Consumer(one_queue.address, group="g", topics=["orders"]) as member:
        first = await member.receive(LONG)
        assert first is not None
        await first.nack()
        again = await member.receive(LONG)
        assert again is not None
        assert (again.offset, again.reconsume_times) == (0, 1)
        await again.ack()
    assert committed(broker)["orders"] == 1


async def test_a_cancelled_task_leaves_its_message_to_be_received_again(
    one_queue: FakeCluster,
) -> None:
    Log(one_queue.broker, [record(0)])
    async with Consumer(one_queue.address, group="g", topics=["orders"]) as consumer:
        entered = asyncio.Event()

        async def work() -> None:
            async for message in consumer:
                async with message.process():
                    entered.set()
                    await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await asyncio.wait_for(entered.wait(), LONG)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await take(consumer, 1) == [b"body"]
    assert committed(one_queue.broker)["orders"] == 1


async def test_settling_twice_settles_once(one_queue: FakeCluster) -> None:
    Log(one_queue.broker, [record(0)])
    async with Consumer(one_queue.address, group="g", topics=["orders"]) as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        await message.ack()
        await message.ack()
        await message.nack()
    assert not one_queue.broker.requests[codes.CONSUMER_SEND_MSG_BACK]


async def test_an_offset_that_moved_is_followed_also_backwards(one_queue: FakeCluster) -> None:
    broker, moved = one_queue.broker, []
    log = Log(broker, [record(at, b"%d" % at) for at in range(3)])
    broker.answers[codes.QUERY_CONSUMER_OFFSET] = lambda *_: Response(fields={"offset": "77"})

    def pull(command: Command, connection: Connection) -> Response | None:
        if command.header(PullMessage).offset == 77:
            moved.append(77)
            return pulled(next_offset=1, code=codes.PULL_OFFSET_MOVED)
        return log.pull(command, connection)

    broker.answers[codes.PULL_MESSAGE] = pull
    async with Consumer(one_queue.address, group="g", topics=["orders"]) as consumer:
        assert await take(consumer, 2) == [b"1", b"2"]
    assert moved
    assert committed(broker)["orders"] == 3


async def test_a_broker_that_has_lost_the_group_is_told_again(
    one_queue: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling, "PULL_AGAIN_SECONDS", (0.001,))
    broker = one_queue.broker
    log = Log(broker, [record(0)])
    refusals = [codes.SUBSCRIPTION_NOT_EXIST, codes.SYSTEM_BUSY, codes.FLOW_CONTROL]

    def pull(command: Command, connection: Connection) -> Response | None:
        if refusals:
            return Response(refusals.pop(0), remark="who?")
        return log.pull(command, connection)

    broker.answers[codes.PULL_MESSAGE] = pull
    async with Consumer(one_queue.address, group="g", topics=["orders"]) as consumer:
        assert await take(consumer, 1) == [b"body"]
    assert len(broker.requests[codes.HEART_BEAT]) == 2


async def test_a_lost_connection_is_made_again_and_nothing_is_lost(
    one_queue: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling, "PULL_AGAIN_SECONDS", (0.001,))
    broker = one_queue.broker
    log = Log(broker, [record(0, b"0")])
    async with Consumer(one_queue.address, group="g", topics=["orders"]) as consumer:
        assert await take(consumer, 1) == [b"0"]
        log.records.append(record(1, b"1"))
        for connection in broker.connections:
            connection.abort()  # and with it the pull that is held
        assert await take(consumer, 1) == [b"1"]
    assert len(broker.requests[codes.HEART_BEAT]) >= 2


async def test_a_damaged_answer_is_pulled_again(
    one_queue: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pulling, "PULL_AGAIN_SECONDS", (0.001,))
    whole = record(0)
    log = Log(one_queue.broker, [whole[:-1]])
    async with Consumer(one_queue.address, group="g", topics=["orders"]) as consumer:
        await until(lambda: "from offset 0 on" in caplog.text)
        log.records[0] = whole
        assert await take(consumer, 1) == [b"body"]


async def test_a_compressed_body_is_unpacked_and_a_broken_one_says_so(
    one_queue: FakeCluster,
) -> None:
    Log(
        one_queue.broker,
        [record(0, compress(b"long" * 99), sys_flag=0x301), record(1, b"junk", sys_flag=0x301)],
    )
    async with Consumer(one_queue.address, group="g", topics=["orders"]) as consumer:
        good, bad = [await consumer.receive(LONG) for _ in range(2)]
        assert good is not None
        assert good.body == b"long" * 99
        assert bad is not None
        with pytest.raises(ClientError, match="unpacked"):
            _ = bad.body


@pytest.mark.parametrize(
    ("start", "code", "offset"),
    [
        ("earliest", None, 0),
        ("latest", codes.GET_MAX_OFFSET, 42),
        (1_700_000_000_000, codes.SEARCH_OFFSET_BY_TIMESTAMP, 17),
    ],
)
async def test_a_new_group_begins_where_it_was_told(
    one_queue: FakeCluster, start: str | int, code: int | None, offset: int
) -> None:
    broker = one_queue.broker
    broker.answers[codes.GET_MAX_OFFSET] = lambda *_: Response(fields={"offset": "42"})
    broker.answers[codes.SEARCH_OFFSET_BY_TIMESTAMP] = lambda *_: Response(fields={"offset": "17"})
    log = Log(broker, [])
    async with Consumer(one_queue.address, group="g", topics=["orders"], start=start):
        await until(lambda: len(log.served) == 2)
    assert {pull.offset for pull in log.served if pull.topic == "orders"} == {offset}
    asked = {codes.GET_MAX_OFFSET, codes.SEARCH_OFFSET_BY_TIMESTAMP} & set(broker.order)
    if code == codes.SEARCH_OFFSET_BY_TIMESTAMP:
        headers = [command.header(SearchOffset) for command in broker.requests[code]]
        assert [header.timestamp_ms for header in headers] == [start]
        asked.discard(codes.GET_MAX_OFFSET)  # the retry topic's
    assert asked == ({code} if code else set())


async def test_a_first_message_that_comes_while_a_new_group_looks_is_not_skipped(
    one_queue: FakeCluster,
) -> None:
    broker = one_queue.broker

    def end(command: Command, _: Connection) -> Response:
        if command.header(QueueAddress).topic == "orders":  # its first message has just come
            zero = Response(fields={"offset": "0"})
            broker.answers[codes.QUERY_CONSUMER_OFFSET] = lambda *_: zero
        return Response(fields={"offset": "1"})

    broker.answers[codes.GET_MAX_OFFSET] = end
    log = Log(broker, [])
    async with Consumer(one_queue.address, group="g", topics=["orders"], start="latest"):
        await until(lambda: len(log.served) == 2)
    assert {pull.offset for pull in log.served if pull.topic == "orders"} == {0}


@pytest.mark.parametrize(
    ("start", "where", "ms"),
    [
        ("latest", "CONSUME_FROM_LAST_OFFSET", 0),
        ("earliest", "CONSUME_FROM_FIRST_OFFSET", 0),
        (5, "CONSUME_FROM_TIMESTAMP", 5),
        ("2023-11-14T22:13:20+00:00", "CONSUME_FROM_TIMESTAMP", 1_700_000_000_000),
    ],
)
def test_starts_are_read(start: str | int, where: str, ms: int) -> None:
    assert StartFrom.read(start) == StartFrom(where, ms)


@pytest.mark.parametrize("start", ["yesterday", -1, True])
def test_an_odd_start_is_refused(start: str | int) -> None:
    with pytest.raises(ClientError, match="ms since the epoch"):
        StartFrom.read(start)


async def test_queues_are_shared_with_the_members_that_the_broker_names(fake: FakeCluster) -> None:
    broker = fake.broker
    fake.topics["%RETRY%g"] = 1
    log = Log(broker, [])
    async with Consumer(fake.address, group="g", topics=["orders"], client_id="b") as consumer:
        await until(lambda: len(consumer.queues) == 4)
        broker.members.add("a")
        for connection in broker.connections:
            connection.oneway(codes.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"})
        await until(lambda: len(consumer.queues) == 2)
        assert [queue.queue_id for queue in consumer.queues] == [2, 3]
        broker.members.remove("a")
        consumer.rebalance_soon()
        await until(lambda: len(consumer.queues) == 4)
    assert len(log.served) >= 4


async def test_a_message_of_a_released_queue_is_passed_over_and_settles_nothing(
    fake: FakeCluster,
) -> None:
    broker = fake.broker
    fake.topics = {"orders": 1, "%RETRY%g": 1}
    Log(broker, [record(0), record(1)])
    async with Consumer(fake.address, group="g", topics=["orders"], client_id="b") as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        broker.members.add("a")
        consumer.rebalance_soon()
        await until(lambda: message.is_void)
        await message.ack()
        assert await consumer.receive(0.01) is None
    assert "orders" not in committed(broker)


async def test_nothing_changes_when_the_members_can_not_be_learnt(fake: FakeCluster) -> None:
    broker = fake.broker
    Log(broker, [])
    async with Consumer(fake.address, group="g", topics=["orders"]) as consumer:
        await until(lambda: len(consumer.queues) == 4)
        broker.answers[codes.GET_CONSUMER_LIST_BY_GROUP] = lambda *_: Response(1, remark="lost")
        await consumer.rebalance()
        assert len(consumer.queues) == 4


async def test_a_topic_that_is_made_later_is_found(
    fake: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rebalance_service, "MISSING_TOPIC_SECONDS", 0.01)
    Log(fake.broker, [])
    topics = ["orders", "later"]
    async with Consumer(fake.address, group="g", topics=topics) as member:
        await until(lambda: len(member.queues) == 4)
        assert "waits for topic later" in caplog.text
        fake.topics["later"] = 2
        await until(lambda: len(member.queues) == 6)


async def test_iteration_ends_when_the_consumer_closes(one_queue: FakeCluster) -> None:
    Log(one_queue.broker, [])
    consumer = Consumer(one_queue.address, group="g", topics=["orders"])
    await consumer.start()

    async def count() -> int:
        return len([message async for message in consumer])

    tasks = [asyncio.create_task(count()) for _ in range(3)]
    await asyncio.sleep(0)
    await consumer.close()
    assert await asyncio.gather(*tasks) == [0, 0, 0]
    with pytest.raises(ClosedError, match="closed"):
        await consumer.start()


async def test_a_consumer_that_is_not_started_says_so() -> None:
    consumer = Consumer("127.0.0.1:1", group="g", topics=["orders"])
    with pytest.raises(ClosedError, match="not started"):
        await consumer.receive()
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
        await consumer.start()
    with pytest.raises(ClosedError, match="make a new one"):  # a failed start closes it
        await consumer.start()
    await consumer.close()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"group": "a b", "topics": ["t"]}, "illegal characters"),
        ({"group": "g", "topics": "orders"}, "a list of names"),
        ({"group": "g", "topics": []}, "no topics"),
        ({"group": "g", "topics": ["a b"]}, "illegal characters"),
        ({"group": "g", "topics": {"t": " || "}}, "has no tag"),
        ({"group": "g", "topics": ["t"], "strategy": "BEST"}, "AVG"),
    ],
)
def test_odd_options_are_refused_with_the_reason(options: dict[str, object], reason: str) -> None:
    with pytest.raises(ClientError, match=reason):
        Consumer("127.0.0.1:1", **options)  # type: ignore[arg-type]


async def test_the_members_are_asked_of_the_next_broker_when_one_is_gone(two: FakeCluster) -> None:
    two.topics["%RETRY%g"] = 1
    gone, there = two.brokers
    for broker in two.brokers:
        Log(broker, [])
    async with Consumer(two.address, group="g", topics=["orders"], client_id="b") as consumer:
        await until(lambda: len(consumer.queues) == 8)
        await gone.stop()
        there.members.add("a")
        await consumer.rebalance()
        assert [queue.broker_name for queue in consumer.queues] == ["broker-b"] * 4


async def test_a_broker_that_moved_is_found_again(
    one_queue: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulling, "PULL_AGAIN_SECONDS", (0.001,))
    old = one_queue.broker
    Log(old, [record(0, b"0")])
    async with Consumer(one_queue.address, group="g", topics=["orders"]) as consumer:
        assert await take(consumer, 1) == [b"0"]
        new = FakeBroker(old.name)
        Log(new, [record(0, b"0"), record(1, b"1")])
        await new.start()
        one_queue.brokers[0] = new
        await old.stop()
        assert await take(consumer, 1) == [b"1"]
        await consumer.close()
    await new.stop()
