"""Rebalancing: when it runs, the order of its steps, and its listeners."""

import asyncio
import itertools
import logging
import re
from collections.abc import Sequence
from typing import TypeVar

import pytest
from aerobee.client import Consumer, Limits, MessageQueue, PullSettings
from aerobee.client.cluster.cluster import Cluster
from aerobee.client.errors import ClientError
from aerobee.client.group.rebalance import Rebalance
from aerobee.client.group.rebalancing import Rebalancing
from aerobee.protocol import codes
from aerobee.protocol.aio.connection import Connection
from aerobee.protocol.bodies.clients import GetConsumerListByGroupResponseBody
from aerobee.protocol.command import Command, Response
from aerobee.protocol.queues.allocation import Strategy, average, circle

from ...waiting import LONG
from ..clock import Clock
from ..fakes import FakeCluster, until
from ..shelf import Shelf

Item = TypeVar("Item")


def member(fake: FakeCluster, client_id: str = "b", **options: object) -> Consumer:
    chosen: dict[str, object] = {"group": "g", "topics": ["orders"], "start": "earliest"} | options
    return Consumer(fake.address, client_id=client_id, **chosen)  # type: ignore[arg-type]


async def test_a_rebalance_runs_every_20_seconds(
    fake: FakeCluster, shelf: Shelf, clock: Clock
) -> None:
    asked = fake.broker.requests[codes.GET_CONSUMER_LIST_BY_GROUP]
    async with member(fake) as consumer:
        await until(lambda: len(consumer.queues) == 1)
        await clock.advance(3)
        before = len(asked)  # one for each topic and round
        await clock.advance(15)
        assert len(asked) == before
        await clock.advance(5)
        assert len(asked) == before + 2
        await clock.advance(20)
        assert len(asked) == before + 4


async def test_a_topic_created_later_is_consumed_within_two_seconds(
    fake: FakeCluster, shelf: Shelf, clock: Clock
) -> None:
    # Two seconds are less than the timeout of a request whose send creates the topic.
    queues = fake.topics.pop("orders")
    async with member(fake) as consumer:
        await clock.advance(6.5)
        assert consumer.queues == []
        fake.topics["orders"] = queues
        await clock.advance(2, step=0.1)
        assert len(consumer.queues) == queues


async def test_a_notification_starts_a_rebalance_at_most_once_a_second(
    fake: FakeCluster, shelf: Shelf, clock: Clock
) -> None:
    asked = fake.broker.requests[codes.GET_CONSUMER_LIST_BY_GROUP]

    def notify() -> None:
        for connection in fake.broker.connections:
            connection.oneway(codes.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": "g"})

    async with member(fake) as consumer:
        await until(lambda: len(consumer.queues) == 1)
        await clock.advance(5)
        before = len(asked)
        notify()
        await until(lambda: len(asked) == before + 2)
        for _ in range(10):
            notify()
        await clock.advance(0.9, step=0.1)
        assert len(asked) == before + 2
        await clock.advance(0.3, step=0.1)
        assert len(asked) == before + 4


async def test_a_queue_that_cannot_be_taken_is_retried_after_a_second(
    fake: FakeCluster, shelf: Shelf, clock: Clock
) -> None:
    answer = fake.broker.answers[codes.QUERY_CONSUMER_OFFSET]
    fake.broker.answers[codes.QUERY_CONSUMER_OFFSET] = lambda *_: Response(codes.SYSTEM_BUSY)
    async with member(fake) as consumer:
        await until(lambda: bool(fake.broker.requests[codes.QUERY_CONSUMER_OFFSET]))
        await clock.run_ready()
        assert consumer.queues == []
        fake.broker.answers[codes.QUERY_CONSUMER_OFFSET] = answer
        await clock.advance(2)
        assert len(consumer.queues) == 1


async def test_the_first_rebalance_starts_one_pull_per_queue(
    fake: FakeCluster, shelf: Shelf
) -> None:
    fake.topics["orders"] = 3
    held: list[tuple[Command, Connection]] = []

    def wait(command: Command, connection: Connection) -> None:
        held.append((command, connection))

    answer = fake.broker.answers[codes.GET_CONSUMER_LIST_BY_GROUP]
    fake.broker.answers[codes.GET_CONSUMER_LIST_BY_GROUP] = wait
    async with member(fake) as consumer:
        await until(lambda: len(held) == 1)
        assert not shelf.pulls
        fake.broker.answers[codes.GET_CONSUMER_LIST_BY_GROUP] = answer
        command, connection = held[0]
        reply = answer(command, connection)
        assert reply is not None
        connection.respond(command, reply)
        await until(lambda: len(consumer.queues) == 3)
        await until(lambda: len(shelf.pulls) == 4)
        assert sorted((each.topic, each.queue_id) for each in shelf.pulls) == [
            ("%RETRY%g", 0),
            ("orders", 0),
            ("orders", 1),
            ("orders", 2),
        ]
    assert [shelf.pulls[0].max_messages, shelf.pulls[0].suspend_ms] == [32, 15_000]


async def test_a_consumer_passes_its_stages_in_order(fake: FakeCluster, shelf: Shelf) -> None:
    """Route, heartbeat, members, the group's offset, pull, commit, unregistering."""
    shelf.put("orders", 0, b"0")
    async with member(fake) as consumer:
        message = await consumer.receive(LONG)
        assert message is not None
        await message.ack()
    assert fake.order[0] == codes.GET_ROUTEINFO_BY_TOPIC
    stages = (
        codes.HEART_BEAT,
        codes.GET_CONSUMER_LIST_BY_GROUP,
        codes.QUERY_CONSUMER_OFFSET,
        codes.PULL_MESSAGE,
        codes.UPDATE_CONSUMER_OFFSET,
        codes.UNREGISTER_CLIENT,
    )
    at = [fake.broker.order.index(code) for code in stages]
    assert at == sorted(at)


async def test_a_lost_queue_is_dropped_then_persisted_then_released(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, b"0", b"1")
    dropped = list[bool]()
    async with member(fake) as consumer:
        first = await consumer.receive(LONG)
        second = await consumer.receive(LONG)
        assert first is not None
        assert second is not None
        await first.ack()
        commit = fake.broker.answers[codes.UPDATE_CONSUMER_OFFSET]

        def note(command: Command, connection: Connection) -> Response | None:
            dropped.append(second.is_void)
            return commit(command, connection)

        fake.broker.answers[codes.UPDATE_CONSUMER_OFFSET] = note
        fake.broker.members.add("a")
        await consumer.rebalance()
        assert dropped == [True]
        assert shelf.committed["orders", 0] == 1
        assert consumer.queues == []
        await second.ack()  # finished work of a queue that another member has now
        assert consumer.offsets_of("orders") == {}
    assert shelf.committed["orders", 0] == 1


async def test_the_response_of_a_pull_in_flight_is_discarded_after_the_loss(
    fake: FakeCluster, shelf: Shelf
) -> None:
    async with member(fake) as consumer:
        await until(lambda: len(shelf.pulls_of("orders")) == 1)
        fake.broker.members.add("a")
        await consumer.rebalance()
        shelf.put("orders", 0, b"0")
        assert await consumer.receive(0.05) is None


async def test_the_next_owner_starts_at_the_persisted_offset(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, b"0", b"1", b"2")
    async with member(fake) as first, member(fake, "a") as second:
        message = await first.receive(0.5) or await second.receive(LONG)
        assert message is not None
        owner = first if first.queues else second
        await message.ack()
        other = second if owner is first else first
        await owner.close()
        fake.broker.members.discard("b" if owner is first else "a")
        other.rebalance_soon()
        following = await other.receive(LONG)
        assert following is not None
        assert following.body == b"1"


async def test_a_queue_not_pulled_for_two_minutes_is_recreated(
    fake: FakeCluster, shelf: Shelf, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    pull = PullSettings(timeout_s=1000)  # a response that never arrives
    async with member(fake, pull=pull) as consumer:
        await until(lambda: len(shelf.pulls_of("orders")) == 1)
        await clock.advance(100, step=5)
        assert len(shelf.pulls_of("orders")) == 1
        await clock.advance(45, step=5)
        await until(lambda: len(shelf.pulls_of("orders")) == 2)
        assert "was not pulled for too long" in caplog.text
        assert len(consumer.queues) == 1


async def test_thresholds_of_the_topic_are_shared_by_its_queues(
    fake: FakeCluster, shelf: Shelf
) -> None:
    fake.topics["orders"] = 3
    limits = Limits(topic_messages_max=100, topic_bytes_max=400 << 20)
    async with member(fake, limits=limits) as consumer:
        await until(lambda: len(consumer.queues) == 3)
        assert _limits(consumer) == {(25, 100 << 20)}  # the retry topic's queue counts as well
        fake.broker.members.add("a")
        await consumer.rebalance()
        await until(lambda: len(consumer.queues) == 1)
        assert _limits(consumer) in ({(50, 200 << 20)}, {(100, 400 << 20)})
    assert Limits(topic_messages_max=2, topic_bytes_max=5).shared_by(9).messages_max == 1
    assert Limits(topic_bytes_max=5).shared_by(9).bytes_max == 1 << 20
    assert Limits().shared_by(9) == Limits(1000, 100 << 20, 2000)


def _limits(consumer: Consumer) -> set[tuple[int, int]]:
    assert consumer._service is not None
    table = consumer._service.assigned.table
    return {(held.limits.messages_max, held.limits.bytes_max) for held in table.values()}


async def test_listeners_get_all_queues_and_the_assigned_ones(
    fake: FakeCluster, shelf: Shelf
) -> None:
    fake.topics["orders"] = 4
    told = list[tuple[str, int, list[int]]]()

    def tell(topic: str, every: list[MessageQueue], mine: list[MessageQueue]) -> None:
        told.append((topic, len(every), [queue.queue_id for queue in mine]))
        raise RuntimeError("a listener's mistake stays its own")

    async with member(fake, on_queues=tell) as consumer:
        await until(lambda: bool(told))
        fake.broker.members.add("a")
        await consumer.rebalance()
    assert told == [("orders", 4, [0, 1, 2, 3]), ("orders", 4, [2, 3])]


async def test_a_topic_that_is_unsubscribed_loses_its_queues_and_another_can_be_added(
    fake: FakeCluster, shelf: Shelf
) -> None:
    fake.topics["other"] = 2
    async with member(fake) as consumer:
        await until(lambda: len(consumer.queues) == 1)
        await consumer.subscribe("other", "a || b")
        await until(lambda: len(consumer.queues) == 3)
        await consumer.unsubscribe("orders")
        await until(lambda: {queue.topic for queue in consumer.queues} == {"other"})
        with pytest.raises(ClientError, match="has no tag"):
            await consumer.subscribe("other", " || ")


@pytest.mark.parametrize("what", ["members", "queues"])
@pytest.mark.parametrize("strategy", [average, circle])
async def test_every_member_computes_the_same_plan_from_shuffled_responses(
    what: str, strategy: Strategy, two: FakeCluster
) -> None:
    members, orders = ["c0", "c1", "c2"], itertools.count()

    def rotate(items: list[Item]) -> None:
        """Rotates the items differently for each response."""
        at = next(orders) % len(items)
        items[:] = items[at:] + items[:at]

    def list_members(*_: object) -> Response:
        found = list(members)
        if what == "members":
            rotate(found)
        return Response(body=GetConsumerListByGroupResponseBody(found).encode())

    for broker in two.brokers:
        broker.answers[codes.GET_CONSUMER_LIST_BY_GROUP] = list_members
    if what == "queues":
        two.shuffle = rotate
    found = list[MessageQueue]()
    for me in members:
        cluster = Cluster(two.address, client_id=me)
        share = (await Rebalance(cluster, "g", strategy).shares(["orders"]))["orders"]
        found += share.mine
        await cluster.close()
    assert sorted(found) == [
        MessageQueue("orders", name, number)
        for name in ("broker-a", "broker-b")
        for number in range(4)
    ]


@pytest.mark.parametrize("body", [b'{"consumerIdList":[]}', b'{"consumerIdList":null}', b"{}"])
async def test_a_list_without_any_member_takes_no_queue_away(
    fake: FakeCluster, shelf: Shelf, body: bytes
) -> None:
    asked = fake.broker.requests[codes.GET_CONSUMER_LIST_BY_GROUP]
    async with member(fake) as consumer:
        await until(lambda: len(consumer.queues) == 1)
        fake.broker.answers[codes.GET_CONSUMER_LIST_BY_GROUP] = lambda *_: Response(body=body)
        before = len(asked)
        await consumer.rebalance()
        assert len(asked) > before
        assert consumer.queues == [MessageQueue("orders", "broker-a", 0)]
        shelf.put("orders", 0, b"0")
        assert await consumer.receive(LONG) is not None


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        (lambda me, queues, ids: 1 / 0, "ZeroDivisionError"),
        (lambda me, queues, ids: ["q"], "is no queue of that topic"),
        (lambda me, queues, ids: None, "TypeError"),
    ],
    ids=["raises", "nonsense", "nothing"],
)
async def test_a_users_strategy_that_fails_keeps_the_queues(
    fake: FakeCluster, shelf: Shelf, strategy: Strategy, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    working = [True]

    def choose(me: str, queues: Sequence[MessageQueue], ids: Sequence[str]) -> list[MessageQueue]:
        return list(queues[:1]) if working[0] else strategy(me, queues, ids)

    fake.topics["orders"] = 4
    async with member(fake, strategy=choose) as consumer:
        await until(lambda: [queue.queue_id for queue in consumer.queues] == [0])
        working[0] = False
        await consumer.rebalance()
        assert [queue.queue_id for queue in consumer.queues] == [0]
    assert said in caplog.text


async def test_a_changed_number_of_queues_in_the_route_is_assigned(
    fake: FakeCluster, shelf: Shelf, clock: Clock
) -> None:
    async with member(fake) as consumer:
        await until(lambda: len(consumer.queues) == 1)
        fake.topics["orders"] = 3
        await clock.advance(55)  # routes are refreshed every 30 s, rebalancing runs every 20
        assert len(consumer.queues) == 3
        fake.topics["orders"] = 2
        await clock.advance(55)
        assert len(consumer.queues) == 2


async def test_a_retry_topic_starts_at_its_first_or_last_offset(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("%RETRY%g", 0, b"0", b"1")
    for start, offset in (("latest", 0), ("earliest", 0), (1000, 2)):
        async with member(fake, start=start):
            await until(lambda: bool(shelf.pulls_of("%RETRY%g")))
            assert shelf.pulls_of("%RETRY%g")[0] == offset
        shelf.pulls.clear()
        shelf.committed.clear()


async def test_a_flow_control_limit_stops_the_pulls_until_messages_are_settled(
    fake: FakeCluster, shelf: Shelf
) -> None:
    shelf.put("orders", 0, *(b"%d" % at for at in range(50)))
    async with member(fake, limits=Limits(messages_max=10), pull=PullSettings(batch=8)) as consumer:
        messages = [await consumer.receive(LONG) for _ in range(16)]
        assert await consumer.receive(0.05) is None
        assert shelf.pulls_of("orders") == [0, 8]
        for message in messages[:6]:
            assert message is not None
            await message.ack()
        assert await consumer.receive(LONG) is not None


async def test_the_pull_interval_separates_two_pulls(
    fake: FakeCluster, shelf: Shelf, clock: Clock
) -> None:
    shelf.put("orders", 0, b"0", b"1", b"2")
    async with member(fake, pull=PullSettings(batch=1, interval_s=10)) as consumer:
        assert await consumer.receive(LONG) is not None
        await clock.advance(9)
        assert shelf.pulls_of("orders") == [0]
        await clock.advance(2)
        assert shelf.pulls_of("orders") == [0, 1]


def test_invalid_pull_settings_are_refused() -> None:
    with pytest.raises(ClientError, match="batch is 0"):
        PullSettings(batch=0)
    with pytest.raises(ClientError, match="suspend_ms is 200000; give 0 to 100000"):
        PullSettings(suspend_ms=200_000, timeout_s=300)
    with pytest.raises(ClientError, match="give a longer timeout_s"):
        PullSettings(timeout_s=1)
    assert PullSettings() == PullSettings(32, 15_000, 30.0, 0.0)


async def test_the_debug_log_has_the_number_of_assigned_queues(
    fake: FakeCluster, shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "aerobee.client")
    async with member(fake) as consumer:
        await until(lambda: len(consumer.queues) == 1)
    told = [text for text in caplog.messages if text.startswith("group g has ")]
    assert any(re.search(r"has 1 of the \d queues of topic orders, shared by", x) for x in told)


async def test_the_rebalance_service_ends_although_its_group_ends_with_it() -> None:
    rebalancing = Rebalancing()

    async def wait() -> float:
        await asyncio.Event().wait()
        return 1.0

    caller = asyncio.create_task(rebalancing.run(wait(), "g"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    caller.cancel()
    await rebalancing.close()
    with pytest.raises(asyncio.CancelledError):
        await caller
