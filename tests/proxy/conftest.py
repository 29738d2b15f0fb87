"""A cluster for the tests of a module, and a proxy for each test."""

from collections.abc import AsyncIterator, Iterator

import pytest
from aerobee.testing import LocalCluster

from .support import Setup, setup


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """One broker."""
    with LocalCluster() as found:
        yield found


@pytest.fixture
async def proxied(cluster: LocalCluster) -> AsyncIterator[Setup]:
    """A proxy before it."""
    async with setup(cluster) as found:
        yield found
