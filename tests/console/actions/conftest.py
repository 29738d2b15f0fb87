"""A cluster of two brokers for each file, and actions on it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aerobee.testing import LocalCluster

from .runner import ActionRunner


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as cluster:
        yield cluster


@pytest.fixture
async def runner(cluster: LocalCluster, tmp_path: Path) -> AsyncIterator[ActionRunner]:
    async with ActionRunner(cluster.name_server, tmp_path / "redrives") as runner:
        yield runner
