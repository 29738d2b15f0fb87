"""Fixtures for the client's tests: fake and real servers, started and stopped for each test."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aerobee.client.cluster import rebalance_service
from aerobee.harness.java_side import free_broker_port
from aerobee.namesrv.server import NameServer

from .clock import Clock
from .fakes import FakeCluster
from .shelf import Shelf

if TYPE_CHECKING:
    from aerobee.broker.server import Broker
    from aerobee.broker.settings.config import BrokerConfig


@pytest.fixture(autouse=True)
def quick_rebalance(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second between two rebalances is long; tests with a clock of their own can wait for it."""
    if "clock" not in request.fixturenames:
        monkeypatch.setattr(rebalance_service, "MIN_SECONDS", 0.02)


@pytest.fixture
async def clock() -> Clock:
    """The loop's clock, moved by the test."""
    return Clock()


@pytest.fixture
def shelf(fake: FakeCluster) -> Shelf:
    """The queues of the fake's broker: "orders" has one, and group g its retry topic."""
    fake.topics = {"orders": 1, "%RETRY%g": 1}
    return Shelf(fake.broker)


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


def broker_config(namesrv: NameServer, folder: Path, **settings: Any) -> "BrokerConfig":
    """A small broker at this name server, with its store in the folder."""
    from aerobee.broker.settings.config import BrokerConfig

    return BrokerConfig(
        broker_name="broker-a",
        broker_ip1="127.0.0.1",
        listen_port=free_broker_port(),  # a test may start the broker again on it
        namesrv_addr=f"127.0.0.1:{namesrv.port}",
        store_path_root_dir=str(folder / "store"),
        mapped_file_size_commit_log=16 << 20,
        mapped_file_size_timer_log=1 << 20,
        max_hash_slot_num=1_000,
        max_index_num=4_000,
        compiled_sends=False,
        **settings,
    )


@pytest.fixture
async def broker(namesrv: NameServer, tmp_path: Path) -> AsyncIterator["Broker"]:
    """A broker of aerobee, registered with a name server of aerobee."""
    server = pytest.importorskip(
        "aerobee.broker.server", exc_type=ImportError, reason="a broker runs on Linux"
    )
    running = server.Broker(broker_config(namesrv, tmp_path, enable_property_filter=True))
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
def address(namesrv: NameServer, broker: "Broker") -> str:
    """The name server of a running cluster with one broker."""
    return f"127.0.0.1:{namesrv.port}"
