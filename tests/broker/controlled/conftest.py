"""Sets of stand-ins and of brokers."""

from collections.abc import AsyncIterator

import pytest

from .brokers import Brokers
from .members import Cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as found:
        yield found


@pytest.fixture
async def brokers() -> AsyncIterator[Brokers]:
    async with Brokers() as found:
        yield found
