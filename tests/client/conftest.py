"""Fakes for the client's tests, started and stopped around each."""

from collections.abc import AsyncIterator

import pytest

from .fakes import FakeCluster


@pytest.fixture
async def fake() -> AsyncIterator[FakeCluster]:
    """A name server with one broker and the topic "orders" of 4 queues."""
    cluster = FakeCluster()
    await cluster.start()
    cluster.topics["orders"] = 4
    yield cluster
    await cluster.stop()


@pytest.fixture
async def two() -> AsyncIterator[FakeCluster]:
    """The same with two brokers."""
    cluster = FakeCluster(brokers=2)
    await cluster.start()
    cluster.topics["orders"] = 4
    yield cluster
    await cluster.stop()
