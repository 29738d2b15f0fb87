"""The pull loop: log messages about repeated failures."""

import pytest
from aerobee.client import Consumer
from aerobee.protocol import codes
from aerobee.protocol.command import Response

from ..clock import Clock
from ..fakes import FakeCluster, until
from ..shelf import Shelf

LOST = "SUBSCRIPTION_NOT_EXIST"


@pytest.mark.finding("A12")
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
