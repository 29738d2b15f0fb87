"""Signed requests: every kind of consumer sends them."""

import pytest
from aerobee.client import Consumer, LitePullConsumer, PullConsumer, Security, SimpleConsumer
from aerobee.protocol import codes

from .fakes import FakeCluster, until


@pytest.mark.parametrize("kind", ["consumer", "lite", "pull", "simple"])
async def test_every_kind_of_consumer_signs_what_it_asks(fake: FakeCluster, kind: str) -> None:
    security = Security("key", "secret")
    consumer: Consumer | LitePullConsumer | PullConsumer | SimpleConsumer
    if kind == "consumer":
        consumer = Consumer(fake.address, group="g", topics=["orders"], security=security)
    elif kind == "lite":
        consumer = LitePullConsumer(fake.address, group="g", security=security)
        await consumer.subscribe("orders")
    elif kind == "pull":
        consumer = PullConsumer(fake.address, group="g", topics=["orders"], security=security)
    else:
        consumer = SimpleConsumer(fake.address, group="g", topics=["orders"], security=security)
    async with consumer:
        await until(lambda: bool(fake.broker.requests[codes.HEART_BEAT]))
    asked = [*fake.requests[codes.GET_ROUTEINFO_BY_TOPIC], *fake.broker.requests[codes.HEART_BEAT]]
    assert {command.fields().get("AccessKey") for command in asked} == {"key"}
