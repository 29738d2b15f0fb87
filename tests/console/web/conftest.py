"""The console of the file's cluster, which a visitor without name has logged in to."""

from collections.abc import AsyncIterator

import pytest
from aerobee.testing import LocalCluster

from .site import Site


@pytest.fixture
async def site(cluster: LocalCluster) -> AsyncIterator[Site]:
    async with Site({"main": cluster.name_server}) as site:
        yield site
