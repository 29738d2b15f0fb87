"""The pull loop: which pulls may be sent ahead, and its log messages about repeated failures."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aerobee.client import Consumer, LitePullConsumer
from aerobee.client.group.process_queue import Limits, ProcessQueue
from aerobee.client.push.pulling import PullLoop
from aerobee.protocol import codes
from aerobee.protocol.aio.connection import Connection
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.subscription import subscription
from aerobee.protocol.command import Command, Response
from aerobee.protocol.headers.pull import PullMessage

from ..clock import Clock
from ..fakes import FakeCluster, until
from ..shelf import Shelf

PULLS = (codes.PULL_MESSAGE, codes.LITE_PULL_MESSAGE)
LOST = "SUBSCRIPTION_NOT_EXIST"


async def test_a_broker_that_does_not_know_the_subscription_is_spoken_of_once(
    fake: FakeCluster, shelf: Shelf, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    fake.topics["orders"] = 4
    fake.broker.answers[codes.PULL_MESSAGE] = lambda *_: Response(
        codes.SUBSCRIPTION_NOT_EXIST, remark="who?"
    )
    pulls = fake.broker.requests[codes.PULL_MESSAGE]
    consumer = Consumer(fake.address, group="g", topics=["orders"], client_id="b")
    async with consumer:
        await until(lambda: len(consumer.queues) == 4)
        await clock.advance(60)
        assert len(pulls) > 20

        def said() -> list[str]:
            warnings = [each for each in caplog.records if each.levelname == "WARNING"]
            return [text for each in warnings if f"{LOST} (24)" in (text := each.getMessage())]

        (orders,) = [each for each in said() if "of orders" in each]
        assert "give all members the same, or each its own group" in orders
        assert len(said()) == 2  # one for the retry topic
        await clock.advance(300)
        assert len(said()) == 4


class Shrinking:
    """Parks all pulls. Once `shrink` is called "orders" has 2 queues, and those of the others are
    refused; `refused` are their queues."""

    def __init__(self, fake: FakeCluster) -> None:
        fake.topics |= {"orders": 4, "%RETRY%g": 1}
        self.refused: list[int] = []
        self.pulled: set[int] = set()
        self._fake = fake
        self._is_shrunk = asyncio.Event()
        fake.broker.answers |= dict.fromkeys(PULLS, self._answer)

    def shrink(self) -> None:
        self._fake.topics["orders"] = 2
        self._is_shrunk.set()

    def _answer(self, command: Command, _: Connection) -> Any:
        header = command.header(PullMessage)
        if header.topic != "orders":
            return None  # parked
        self.pulled.add(header.queue_id)
        return None if header.queue_id < 2 else self._refuse(header.queue_id)

    async def _refuse(self, queue_id: int) -> Response:
        await self._is_shrunk.wait()
        self.refused.append(queue_id)
        remark = f"queueId[{queue_id}] is illegal, topic:[orders] refresh the route"
        return Response(codes.INVALID_PARAMETER, remark=remark)


async def test_a_consumer_lets_go_at_once_of_a_queue_that_is_gone(
    fake: FakeCluster, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Else after its next request for the route and the rebalance then, up to 50 s later."""
    broker = Shrinking(fake)
    async with Consumer(fake.address, group="g", topics=["orders"], client_id="b") as consumer:
        await clock.advance(3)
        assert broker.pulled == {0, 1, 2, 3}
        broker.shrink()
        await clock.advance(3)
        assert sorted(queue.queue_id for queue in consumer.queues) == [0, 1]
        await clock.advance(5)
    assert sorted(broker.refused) == [2, 3]
    assert not [each for each in caplog.records if each.levelname == "WARNING"]


async def test_a_lite_pull_consumer_does_so_too(fake: FakeCluster, clock: Clock) -> None:
    broker = Shrinking(fake)
    async with LitePullConsumer(fake.address, group="g", client_id="b") as consumer:
        await consumer.subscribe("orders")
        await clock.advance(3)
        assert broker.pulled == {0, 1, 2, 3}
        broker.shrink()
        await clock.advance(3)
        assert [queue.queue_id for queue in consumer.assignment] == [0, 1]


class OnePull:
    """A puller that drops the queue; `ahead` says whether the next pull might have been sent."""

    ahead: bool | None = None

    def is_ahead(self, _: ProcessQueue) -> bool:
        return False

    def abandon(self, _: ProcessQueue) -> None:
        pass

    async def pull(
        self, process_queue: ProcessQueue, _: object, may_pull_ahead: Callable[[], bool]
    ) -> list[object]:
        self.ahead = may_pull_ahead()
        process_queue.drop()
        return []


@pytest.mark.parametrize(
    ("settings", "ahead"),
    [({}, True), ({"in_order": True}, False), ({"interval_s": 0.001}, False)],
)
async def test_the_next_pull_may_be_sent_ahead_unless_its_time_depends_on_the_messages(
    settings: dict[str, Any], ahead: bool
) -> None:
    puller: Any = OnePull()
    process_queue = ProcessQueue(MessageQueue("orders", "a", 0), 0, Limits())
    process_queue.locked, process_queue.last_lock = True, asyncio.get_running_loop().time()
    wanted = {"orders": subscription("orders", "*")}
    cluster: Any = None
    pulls = PullLoop(cluster, puller, wanted, lambda *_: None, cluster, **settings)
    await pulls.run(process_queue, lambda _: None)
    assert puller.ahead is ahead
