"""A broker in this process, with its name server, for all tests of a file."""

from collections.abc import Iterator

import pytest
from aerobee.testing import LocalCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        yield cluster
