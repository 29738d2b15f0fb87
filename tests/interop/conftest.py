"""The real Java side and ours, each started once a module, for the tests of this folder.

AEROBEE_INTEROP_SERVER=java runs the tests of the servers against the real Java broker instead of
aerobee's: that is how the tests themselves are judged.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest
from aerobee.protocol.aio.peers import Peers
from aerobee.scripts.harness import java_side
from aerobee.scripts.harness.clusters import (
    SMALL_FILES,
    TEST_BROKER_FLAGS,
    AerobeeCluster,
    Cluster,
    JavaCluster,
)

from .programs import SECONDS, Java, Mqadmin


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
    programs = Java(tmp_path_factory.mktemp("java"))
    yield programs
    programs.stop()


@pytest.fixture(scope="module")
def mqadmin(java: Java) -> Mqadmin:
    program = java.start("Admin")
    program.wait_event("started", SECONDS)
    return Mqadmin(program)


@pytest.fixture(scope="module")
def java_cluster(
    java_is_here: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaCluster]:
    cluster = JavaCluster(tmp_path_factory.mktemp("java-cluster"), flags=TEST_BROKER_FLAGS)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def aerobee_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AerobeeCluster]:
    """Ours: `aerobee namesrv` and `aerobee broker`."""
    cluster = AerobeeCluster(tmp_path_factory.mktemp("aerobee-cluster"), SMALL_FILES)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """What Java programs talk to: ours, unless AEROBEE_INTEROP_SERVER says java."""
    if os.environ.get("AEROBEE_INTEROP_SERVER") != "java":
        yield request.getfixturevalue("aerobee_cluster")
        return
    cluster = JavaCluster(tmp_path_factory.mktemp("server"), apart=True, flags=TEST_BROKER_FLAGS)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
async def peers() -> AsyncIterator[Peers]:
    """Requests as any client of RocketMQ sends them, without our own codec."""
    peers = Peers(upgrade=False)
    yield peers
    await peers.close()
