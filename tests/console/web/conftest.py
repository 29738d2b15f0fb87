"""The console of the file's cluster, which a visitor without name has logged in to; and a broker
with the topic orders, made of functions."""

from collections.abc import AsyncIterator

import pytest
from aerobee.testing import LocalCluster

from ..fake_cluster import Shop
from .site import Site


@pytest.fixture
async def site(cluster: LocalCluster) -> AsyncIterator[Site]:
    async with Site({"main": cluster.name_server}) as site:
        yield site


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    shop = Shop("orders")
    await shop.start()
    yield shop
    await shop.stop()
