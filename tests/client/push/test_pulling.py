"""The pull loop: which pulls may be sent ahead, and its log messages about repeated failures."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aerobee.client import Consumer
from aerobee.client.group.process_queue import Limits, ProcessQueue
from aerobee.client.push.pulling import PullLoop
from aerobee.protocol import codes
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.subscription import subscription
from aerobee.protocol.command import Response

from ..clock import Clock
from ..fakes import FakeCluster, until
from ..shelf import Shelf

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
