"""The lite pull consumer: subscribe or assign, poll, commit, seek, pause, flow control, changes."""

import asyncio
from collections import deque
from collections.abc import Iterable

import pytest
from aerobee.client import Limits, LitePullConsumer, LitePullSettings, MessageQueue
from aerobee.client.base.message_view import MessageView
from aerobee.client.errors import ClientError, ClosedError, NoRouteError
from aerobee.client.group.process_queue import ProcessQueue
from aerobee.client.pull import lite_pulling
from aerobee.client.pull.assigned import MessageQueueState
from aerobee.protocol import codes
from aerobee.protocol.aio.connection import Connection
from aerobee.protocol.bodies.heartbeat import HeartbeatData
from aerobee.protocol.command import Command, Response
from aerobee.protocol.headers.pull import LITE_PULL, SUBSCRIPTION, SUSPEND, PullMessage

from ...waiting import LONG
from ..clock import Clock
from ..fakes import FakeCluster, pulled, record, until
from ..shelf import Shelf

QUEUE = MessageQueue("orders", "broker-a", 0)


def member(fake: FakeCluster, **options: object) -> LitePullConsumer:
    chosen: dict[str, object] = {"start": "earliest", "client_id": "b"} | options
    return LitePullConsumer(fake.address, group="g", **chosen)  # type: ignore[arg-type]


def bodies(messages: Iterable[MessageView]) -> list[bytes]:
    return [message.body for message in messages]


def state_of(consumer: LitePullConsumer, queue: MessageQueue = QUEUE) -> MessageQueueState:
    assert consumer._service is not None
    state = consumer._service.queues.state(queue)
    assert state is not None
    return state


async def test_poll_returns_the_messages_of_one_pull_in_order(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, *(b"%d" % at for at in range(12)))
    async with member(fake) as consumer:
        await consumer.subscribe("orders")
        assert bodies(await consumer.poll(LONG)) == [b"%d" % at for at in range(10)]
        assert bodies(await consumer.poll(LONG)) == [b"10", b"11"]
        assert await consumer.poll(0) == []
    pull = shelf.pulls[0]
    assert pull.sys_flag == LITE_PULL | SUBSCRIPTION | SUSPEND
    assert (pull.max_messages, pull.suspend_ms, pull.sub_version) == (10, 20_000, 0)
    assert (pull.subscription, pull.expression_type) == ("*", "TAG")
    assert not fake.broker.requests[codes.PULL_MESSAGE]
    beats = [HeartbeatData.decode(each.body) for each in fake.broker.requests[codes.HEART_BEAT]]
    assert beats[-1].consumer_data_set[0].consume_type == "CONSUME_ACTIVELY"


async def test_a_broker_before_5_0_gets_ordinary_pulls(fake: FakeCluster, shelf: Shelf) -> None:
    fake.broker.answers[codes.LITE_PULL_MESSAGE] = lambda *_: Response(
        codes.REQUEST_CODE_NOT_SUPPORTED, remark="request type 361 not supported"
    )
    shelf.put("orders", 0, *(b"%d" % at for at in range(12)))
    async with member(fake) as consumer:
        await consumer.subscribe("orders")
        assert bodies(await consumer.poll(LONG)) == [b"%d" % at for at in range(10)]
        assert bodies(await consumer.poll(LONG)) == [b"10", b"11"]
    assert len(fake.broker.requests[codes.LITE_PULL_MESSAGE]) == 1  # tried once


async def test_the_state_of_a_queue_follows_poll_seek_and_pause(
    fake: FakeCluster, shelf: Shelf
) -> None:
    fresh = MessageQueueState(QUEUE, ProcessQueue(QUEUE, 0, Limits()))
    assert (fresh.paused, fresh.pull_offset, fresh.consume_offset, fresh.seek_offset) == (
        False,
        -1,
        -1,
        -1,
    )
    shelf.put("orders", 0, b"0", b"1", b"2")
    async with member(fake, auto_commit=False) as consumer:
        await consumer.assign([QUEUE])
        await until(lambda: state_of(consumer).pull_offset == 3)
        assert state_of(consumer).consume_offset == -1
        assert len(await consumer.poll(LONG)) == 3
        assert state_of(consumer).consume_offset == 3
        await consumer.seek(QUEUE, 1)
        await until(lambda: state_of(consumer).seek_offset == -1)
        assert (state_of(consumer).consume_offset, state_of(consumer).seek_offset) == (1, -1)
        assert bodies(await consumer.poll(LONG)) == [b"1", b"2"]
        consumer.pause([QUEUE, MessageQueue("orders", "broker-a", 9)])
        assert state_of(consumer).paused
        consumer.resume([QUEUE])
        assert not state_of(consumer).paused


async def test_subscribe_and_assign_exclude_each_other(fake: FakeCluster, shelf: Shelf) -> None:
    async with member(fake) as consumer:
        await consumer.subscribe("orders")
        with pytest.raises(ClientError, match="has used subscribe; subscribe and assign exclude"):
            await consumer.assign([QUEUE])
        with pytest.raises(ClientError, match="before the start"):
            consumer.set_expression_for_assign("orders", "a")
    consumer = member(fake)
    consumer.set_expression_for_assign("orders", "a || b")
    with pytest.raises(ClientError, match="has used assign"):
        await consumer.subscribe("orders")
    with pytest.raises(ClientError, match="at least one"):
        await consumer.assign([])
    await consumer.assign([QUEUE])
    async with consumer:
        assert consumer.assignment == [QUEUE]
        await until(lambda: bool(shelf.pulls))
        assert shelf.pulls[0].subscription == "a || b"


async def test_a_later_poll_commits_polled_messages_every_5_seconds(
    fake: FakeCluster, shelf: Shelf, clock: Clock
) -> None:
    shelf.put("orders", 0, b"0", b"1")
    async with member(fake, pull=LitePullSettings(batch=1)) as consumer:
        await consumer.subscribe("orders")
        assert bodies(await consumer.poll(LONG)) == [b"0"]
        assert await consumer.committed(QUEUE) == -1
        assert bodies(await consumer.poll(LONG)) == [b"1"]
        assert await consumer.committed(QUEUE) == -1  # 5 seconds have not passed
        await clock.advance(6)
        await consumer.poll(0)
        assert await consumer.committed(QUEUE) == 2
        assert shelf.committed.get(("orders", 0)) is None
        await clock.advance(10)
        await until(lambda: shelf.committed.get(("orders", 0)) == 2)


async def test_without_auto_commit_only_commit_persists_offsets(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, b"0", b"1", b"2")
    async with member(fake, auto_commit=False, pull=LitePullSettings(batch=1)) as consumer:
        await consumer.subscribe("orders")
        await consumer.poll(LONG)
        await consumer.poll(LONG)
        await consumer.commit([QUEUE])
        assert shelf.committed["orders", 0] == 2
        await consumer.commit({QUEUE: 1, MessageQueue("orders", "broker-a", 7): 5})
        assert shelf.committed == {("orders", 0): 1}
        with pytest.raises(ClientError, match="is -1; give 0 or more"):
            await consumer.commit({QUEUE: -1})
        await consumer.commit({QUEUE: 2}, persist=False)
        assert (await consumer.committed(QUEUE), shelf.committed["orders", 0]) == (2, 1)
        await consumer.poll(LONG)
    assert shelf.committed["orders", 0] == 2  # closing persists the committed offset only
    async with member(fake) as consumer:
        await consumer.subscribe("orders")
        assert bodies(await consumer.poll(LONG)) == [b"2"]


async def test_a_seek_is_limited_to_the_offsets_of_the_queue(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, *(b"%d" % at for at in range(5)))
    shelf.least["orders", 0] = 1
    async with member(fake) as consumer:
        await consumer.assign([QUEUE])
        await consumer.seek_to_begin(QUEUE)
        assert bodies(await consumer.poll(LONG))[0] == b"1"
        await consumer.seek(QUEUE, 3)
        assert bodies(await consumer.poll(LONG)) == [b"3", b"4"]
        await consumer.seek_to_time(QUEUE, 2)
        assert bodies(await consumer.poll(LONG)) == [b"2", b"3", b"4"]
        await consumer.seek_to_end(QUEUE)
        assert await consumer.poll(0.05) == []
        shelf.put("orders", 0, b"5")
        assert bodies(await consumer.poll(LONG)) == [b"5"]
        for offset in (0, 7):
            with pytest.raises(ClientError, match=f"{offset} is not in queue 0 .* has 1 to 6"):
                await consumer.seek(QUEUE, offset)
        with pytest.raises(ClientError, match="is not assigned here"):
            await consumer.seek(MessageQueue("orders", "broker-a", 4), 0)


async def test_a_seek_discards_buffered_messages_and_the_pull_in_flight(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, b"0", b"1")
    async with member(fake) as consumer:
        await consumer.assign([QUEUE])
        await until(lambda: shelf.pulls_of("orders") == [0, 2])  # one is buffered, one is in flight
        await consumer.seek(QUEUE, 1)
        shelf.put("orders", 0, b"2")  # answers the pull from before the seek
        found = bodies(await consumer.poll(LONG))
        while len(found) < 2:
            found += bodies(await consumer.poll(LONG))
        assert found == [b"1", b"2"]
        assert await consumer.poll(0.02) == []


async def test_a_paused_queue_is_not_pulled_until_it_is_resumed(
    fake: FakeCluster, shelf: Shelf, clock: Clock
) -> None:
    shelf.put("orders", 0, b"0")
    consumer = member(fake)
    async with consumer:
        await consumer.assign([QUEUE])
        assert len(await consumer.poll(LONG)) == 1
        consumer.pause([QUEUE])
        shelf.put("orders", 0, b"1")  # answers the pull in flight
        await clock.run_ready()
        assert len(await consumer.poll(0)) == 1
        shelf.put("orders", 0, b"2")
        await clock.advance(10)
        assert await consumer.poll(0) == []
        consumer.resume([QUEUE])
        await clock.advance(1.5)
        assert bodies(await consumer.poll(LONG)) == [b"2"]


@pytest.mark.parametrize(
    ("settings", "pulled"),
    [
        (LitePullSettings(batch=1, limits=Limits(messages_max=3)), 4),
        (LitePullSettings(batch=1, limits=Limits(bytes_max=4)), 5),
        (LitePullSettings(batch=1, limits=Limits(span_max=2)), 4),
        (LitePullSettings(batch=1, all_max=5), 6),
    ],
    ids=["messages", "bytes", "span", "all"],
)
async def test_each_flow_control_limit_stops_pulls_until_a_poll(
    fake: FakeCluster,
    shelf: Shelf,
    clock: Clock,
    settings: LitePullSettings,
    pulled: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    shelf.put("orders", 0, *(b"%d" % at for at in range(10)))
    async with member(fake, pull=settings) as consumer:
        await consumer.assign([QUEUE])
        await until(lambda: len(shelf.pulls_of("orders")) == pulled)
        await clock.advance(0.5, step=0.05)
        assert len(shelf.pulls_of("orders")) == pulled
        assert caplog.text.count("pulling rests until poll() takes some") == 1
        assert len(await consumer.poll(0)) == 1
        await clock.advance(0.1, step=0.05)
        assert len(shelf.pulls_of("orders")) == pulled + 1


def test_the_limits_are_those_of_java() -> None:
    settings = LitePullSettings()
    assert (settings.tasks, settings.batch, settings.all_max) == (20, 10, 10_000)
    assert settings.limits == Limits(1000, 100 << 20, 2000)
    assert (lite_pulling.FULL_SECONDS, lite_pulling.FLOW_CONTROL_SECONDS) == (0.05, 0.02)
    assert (lite_pulling.FAILED_SECONDS, lite_pulling.NO_OFFSET_SECONDS) == (1.0, 3.0)
    with pytest.raises(ClientError, match="tasks is 0"):
        LitePullSettings(tasks=0)


async def test_a_full_queue_is_logged_once_in_a_thousand_pauses(
    fake: FakeCluster, shelf: Shelf, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.put("orders", 0, b"0", b"1", b"2")
    settings = LitePullSettings(batch=1, limits=Limits(messages_max=1))
    async with member(fake, pull=settings) as consumer:
        await consumer.assign([QUEUE])
        await until(lambda: len(shelf.pulls_of("orders")) == 2)
        await clock.advance(49, step=0.05)
        said = [each for each in caplog.messages if "pulling rests" in each]
        assert len(said) == 1
        assert "2 messages and 2 bytes open from offset 0 to 1" in said[0]
        await clock.advance(3, step=0.05)
        assert len([each for each in caplog.messages if "pulling rests" in each]) == 2


@pytest.mark.parametrize(
    ("code", "seconds"), [(codes.SYSTEM_BUSY, 1.0), (codes.FLOW_CONTROL, 0.02)]
)
async def test_a_refused_pull_is_retried_after_a_pause(
    fake: FakeCluster, shelf: Shelf, clock: Clock, code: int, seconds: float
) -> None:
    tried = list[float]()

    def refuse(*_: object) -> Response:
        tried.append(clock.time())
        return Response(code)

    fake.broker.answers[codes.LITE_PULL_MESSAGE] = refuse
    async with member(fake) as consumer:
        await consumer.assign([QUEUE])
        await until(lambda: bool(tried))
        await clock.advance(seconds * 0.8, step=seconds / 10)
        if seconds == 1.0:
            assert len(tried) == 1
        await clock.advance(seconds, step=seconds / 10)
        await until(lambda: len(tried) >= 2)
        assert tried[1] - tried[0] >= seconds


async def test_a_pull_out_of_range_continues_at_the_offset_of_the_broker(
    fake: FakeCluster, shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.put("orders", 0, *(b"%d" % at for at in range(5)))
    shelf.least["orders", 0] = 3
    async with member(fake) as consumer:
        await consumer.assign([QUEUE])
        assert bodies(await consumer.poll(LONG)) == [b"3", b"4"]
    assert "going on at offset 3" in caplog.text


async def test_a_rebalance_drops_lost_queues_and_keeps_the_state_of_others(
    fake: FakeCluster, shelf: Shelf
) -> None:
    fake.topics |= {"orders": 4, "other": 2}
    for queue_id in range(4):
        shelf.put("orders", queue_id, b"%d" % queue_id)
    told = list[list[int]]()
    async with member(fake, auto_commit=False) as consumer:
        await consumer.subscribe(
            "orders", on_queues=lambda topic, every, mine: told.append([q.queue_id for q in mine])
        )
        await consumer.subscribe("other")
        await until(lambda: len(consumer.assignment) == 6)
        kept = state_of(consumer, MessageQueue("other", "broker-a", 1))
        tasks = {state_of(consumer, queue).task for queue in consumer.assignment}
        names = {task.get_name() for task in tasks if task is not None}
        assert all(name.startswith("PullMsgThread-g") and name[-1].isdecimal() for name in names)
        assert len(names) == 6
        fake.broker.members.add("a")
        await consumer.rebalance()
        assert [q.queue_id for q in consumer.assignment if q.topic == "orders"] == [2, 3]
        found = [message.queue_id for _ in range(2) for message in await consumer.poll(LONG)]
        assert sorted(found) == [2, 3]  # messages of lost queues are skipped
        assert await consumer.poll(0.02) == []
        # A queue that stays keeps its state.
        assert state_of(consumer, MessageQueue("other", "broker-a", 1)) is kept
    assert told == [[0, 1, 2, 3], [2, 3]]


async def test_broadcasting_takes_all_queues(
    fake: FakeCluster, shelf: Shelf, tmp_path: object
) -> None:
    fake.topics["orders"] = 4
    fake.broker.members.add("a")
    async with member(fake, model="broadcasting", offsets_folder=tmp_path) as consumer:
        await consumer.subscribe("orders")
        await until(lambda: len(consumer.assignment) == 4)
    assert not fake.broker.requests[codes.GET_CONSUMER_LIST_BY_GROUP]


async def test_an_unsubscribed_topic_is_committed_and_released(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, b"0")
    async with member(fake, auto_commit=False) as consumer:
        await consumer.subscribe("orders")
        assert len(await consumer.poll(LONG)) == 1
        await consumer.commit(persist=False)
        await consumer.unsubscribe("orders")
        assert consumer.assignment == []
        assert shelf.committed["orders", 0] == 1


async def test_a_change_of_a_topics_queues_is_reported(
    fake: FakeCluster, shelf: Shelf, clock: Clock
) -> None:
    told = list[int]()
    async with member(fake) as consumer:
        await consumer.assign([QUEUE])
        await consumer.on_topic_change("orders", lambda topic, queues: told.append(len(queues)))
        fake.topics["orders"] = 3
        await clock.advance(9)
        assert told == []
        await clock.advance(3)  # the first check is after 10 s
        assert told == [3]
        fake.topics["orders"] = 2
        await clock.advance(25)
        assert told == [3]
        await clock.advance(7)
        assert told == [3, 2]
        with pytest.raises(NoRouteError, match="topic nope"):
            await consumer.on_topic_change("nope", lambda topic, queues: None)


async def test_two_pollers_never_see_one_message(fake: FakeCluster, shelf: Shelf) -> None:
    shelf.put("orders", 0, *(b"%d" % at for at in range(60)))
    async with member(fake, pull=LitePullSettings(batch=3)) as consumer:
        await consumer.subscribe("orders")
        found = list[bytes]()

        async def work() -> None:
            while len(found) < 60:
                found.extend(bodies(await consumer.poll(0.05)))

        await asyncio.gather(*(work() for _ in range(3)))
    assert sorted(found) == sorted(b"%d" % at for at in range(60))


async def test_poll_needs_a_running_consumer_and_a_valid_timeout(
    fake: FakeCluster, shelf: Shelf
) -> None:
    consumer = member(fake)
    with pytest.raises(ClosedError, match="not running"):
        await consumer.poll()
    async with consumer:
        with pytest.raises(ClientError, match="timeout is -1"):
            await consumer.poll(-1)
        assert consumer.is_running
    with pytest.raises(ClosedError, match="not running"):
        await consumer.poll()
    assert not consumer.is_running


async def test_few_pull_tasks_serve_many_queues(fake: FakeCluster) -> None:
    """Two tasks have two pulls at the broker; each answer lets one more come."""
    fake.topics["orders"] = 6
    waiting: deque[tuple[Command, Connection]] = deque()
    at_once: set[int] = set()  # how many pulls waited after each arrival
    served: set[int] = set()  # queue ids

    def hold(command: Command, connection: Connection) -> None:
        header = command.header(PullMessage)
        assert header.suspend_ms <= 50
        served.add(header.queue_id)
        waiting.append((command, connection))
        at_once.add(len(waiting))

    fake.broker.answers[codes.LITE_PULL_MESSAGE] = hold
    fake.broker.answers[codes.QUERY_CONSUMER_OFFSET] = lambda *_: Response(fields={"offset": "0"})
    settings = LitePullSettings(tasks=2, suspend_ms=50)
    async with member(fake, pull=settings) as consumer:
        await consumer.subscribe("orders")
        await until(lambda: len(consumer.assignment) == 6)
        while len(served) < 6:
            await until(lambda: len(waiting) == 2)
            command, connection = waiting.popleft()
            connection.respond(command, pulled(next_offset=0, code=codes.PULL_NOT_FOUND))
    assert at_once == {1, 2}


async def test_queues_with_messages_do_not_wait_for_the_long_polls_of_empty_ones(
    fake: FakeCluster, clock: Clock
) -> None:
    """Both tasks wait at empty queues; each of the other four queues has a message."""
    fake.topics["orders"] = 6
    empty: list[int] = []  # the first two queues that are pulled
    loop = asyncio.get_running_loop()

    def answer(command: Command, connection: Connection) -> Response | None:
        header = command.header(PullMessage)
        if len(empty) < 2:
            empty.append(header.queue_id)
        if header.queue_id not in empty and header.offset == 0:
            return pulled([record(0, queue_id=header.queue_id)], 1)
        nothing = pulled(next_offset=header.offset, code=codes.PULL_NOT_FOUND)
        loop.call_later(header.suspend_ms / 1000, connection.respond, command, nothing)
        return None

    fake.broker.answers[codes.LITE_PULL_MESSAGE] = answer
    fake.broker.answers[codes.QUERY_CONSUMER_OFFSET] = lambda *_: Response(fields={"offset": "0"})
    async with member(fake, pull=LitePullSettings(tasks=2)) as consumer:
        await consumer.subscribe("orders")
        await clock.advance(10)
        found = [each.queue_id for _ in range(6) for each in await consumer.poll(0)]
    assert sorted(found + empty) == list(range(6))


async def test_an_offset_reset_by_an_administrator_takes_effect(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, b"0", b"1")
    async with member(fake) as consumer:
        await consumer.subscribe("orders")
        assert len(await consumer.poll(LONG)) == 2
        await consumer.reset_offsets({QUEUE: 1})
        assert bodies(await consumer.poll(LONG)) == [b"1"]
        assert shelf.committed["orders", 0] == 1
        info = consumer.running_info()
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        assert info.mq_table[QUEUE].commit_offset == 1
        assert consumer.offsets_of("orders") == {QUEUE: 1}
