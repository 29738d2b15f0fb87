"""A broker for the load generators."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aerobee.broker.server import Broker
from aerobee.broker.settings.config import BrokerConfig
from aerobee.harness.clusters import BROKER_NAME


@pytest.fixture
async def broker(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    """A running broker; its further settings are the SETTINGS of the module."""
    config = BrokerConfig(
        broker_name=BROKER_NAME,
        broker_ip1="127.0.0.1",
        listen_port=0,
        store_path_root_dir=str(tmp_path),
        mapped_file_size_commit_log=16 << 20,
        max_hash_slot_num=1_000,
        max_index_num=4_000,
        **getattr(request.module, "SETTINGS", {}),
    )
    running = Broker(config)
    await running.start()
    yield running
    await running.stop()
