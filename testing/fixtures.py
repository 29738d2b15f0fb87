"""The pytest fixtures of an installed aerobee; each test gets its own servers.

pytest loads this module in every run, so it imports aerobee only when a test uses a fixture.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .cluster import LocalCluster


@pytest.fixture
def aerobee_cluster() -> "Iterator[LocalCluster]":
    """A name server and one broker for this test; for settings there is `aerobee_clusters`."""
    from .cluster import LocalCluster

    with LocalCluster() as cluster:
        yield cluster


@pytest.fixture
def aerobee_clusters() -> "Iterator[Callable[..., LocalCluster]]":
    """Makes clusters for this test: `aerobee_clusters(brokers=2, messageDelayLevel="1s 2h")`.

    The arguments are those of `LocalCluster`: settings have their names of broker.conf.
    """
    from .cluster import LocalCluster

    running: list[LocalCluster] = []

    def make(**wanted: Any) -> LocalCluster:
        cluster = LocalCluster(**wanted)
        cluster.start()
        running.append(cluster)
        return cluster

    yield make
    for cluster in running:
        cluster.stop()
