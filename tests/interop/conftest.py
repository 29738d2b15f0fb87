"""The real Java side and ours, each started once a run, for the tests of this folder.

AEROBEE_INTEROP_SERVER=java runs the tests of the servers against the real Java broker instead of
aerobee's: that is how the tests themselves are judged.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest
from aerobee.harness import java_side
from aerobee.harness.clusters import (
    SMALL_FILES,
    TEST_BROKER_FLAGS,
    AerobeeCluster,
    Cluster,
    JavaCluster,
)
from aerobee.protocol.aio.peers import Peers

from .programs import SECONDS, Java, Mqadmin, started

SETTINGS: dict[str, str | int] = {
    **SMALL_FILES,
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "transactionCheckInterval": 1_000,
    "transactionTimeOut": 1_000,
    # A client that takes more than 1 s to find its broker sends its first heartbeat after 31 s.
    "transactionCheckMax": 100,
    "timerFlushIntervalMs": 60_000,  # each takes 0.15 s of a core, and no test kills these brokers
}


@pytest.fixture(scope="session", autouse=True)
def java_is_here() -> None:
    """Skips without a JDK and Maven, with the reason; in CI that is a failure."""
    try:
        java_side.class_path()
    except java_side.JavaMissing as lack:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must run the interop tests: {lack}")
        pytest.skip(str(lack))


@pytest.fixture(scope="module")
def java(java_is_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    """Starts Java programs, which end with the module: each takes 100 MB."""
    programs = Java(tmp_path_factory.mktemp("java"))
    yield programs
    programs.stop()


@pytest.fixture(scope="session")
def mqadmin(java_is_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mqadmin]:
    programs = Java(tmp_path_factory.mktemp("mqadmin"))
    program = programs.start("Admin")
    program.wait_event("started", SECONDS)
    yield Mqadmin(program)
    programs.stop()


@pytest.fixture(scope="session")
def java_cluster(
    java_is_here: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaCluster]:
    """The real name server and broker. A topic or group here needs a name that no other test
    has; who stops a broker or asks about all that it holds needs a cluster of its own."""
    folder = tmp_path_factory.mktemp("java-cluster")
    with started(JavaCluster(folder, SETTINGS, flags=TEST_BROKER_FLAGS)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def aerobee_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AerobeeCluster]:
    """The same of ours: `aerobee namesrv` and `aerobee broker`."""
    with started(AerobeeCluster(tmp_path_factory.mktemp("aerobee-cluster"), SETTINGS)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def both(
    aerobee_cluster: AerobeeCluster, java_cluster: JavaCluster
) -> tuple[AerobeeCluster, JavaCluster]:
    """Ours and the real one, for a story that is told to both."""
    return aerobee_cluster, java_cluster


@pytest.fixture(scope="module")
def server(java_is_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """What Java programs talk to, and a test may kill: ours, unless AEROBEE_INTEROP_SERVER says
    java."""
    folder = tmp_path_factory.mktemp("server")
    cluster: AerobeeCluster | JavaCluster
    if os.environ.get("AEROBEE_INTEROP_SERVER") == "java":
        cluster = JavaCluster(folder, apart=True, flags=TEST_BROKER_FLAGS)
    else:
        cluster = AerobeeCluster(folder, SMALL_FILES)
    with started(cluster):
        yield cluster


@pytest.fixture
async def peers() -> AsyncIterator[Peers]:
    """Requests as any client of RocketMQ sends them, without our own codec."""
    peers = Peers()
    yield peers
    await peers.close()
