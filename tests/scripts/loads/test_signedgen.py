"""The generator of signed sends, against our broker with access control."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aerobee.broker.server import Broker
from aerobee.broker.settings.config import BrokerConfig
from aerobee.scripts.loads import signedgen
from aerobee.scripts.loads.loadgen import LoadFailed

USER, SECRET = "shop", "12345678"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker that checks signatures, with one user."""
    config = BrokerConfig(
        broker_name="broker-a",
        broker_ip1="127.0.0.1",
        listen_port=0,
        store_path_root_dir=str(tmp_path),
        mapped_file_size_commit_log=16 << 20,
        max_hash_slot_num=1_000,
        max_index_num=4_000,
        authentication_enabled=True,
        init_authentication_user=f'{{"username":"{USER}","password":"{SECRET}"}}',
    )
    running = Broker(config)
    await running.start()
    yield running
    await running.stop()


def options(broker: Broker) -> argparse.Namespace:
    return argparse.Namespace(
        host="127.0.0.1", port=broker.port, topic="T", user=USER, conns=3, count=50, size=64
    )


async def test_every_signed_send_is_stored(broker: Broker) -> None:
    found = await asyncio.to_thread(signedgen.run, options(broker), SECRET)
    assert found["messages"] == 50
    assert [broker.store.max_offset("T", queue) for queue in range(4)] == [13, 13, 12, 12]


async def test_a_wrong_secret_fails_the_load(broker: Broker) -> None:
    with pytest.raises(LoadFailed, match="check signature failed"):
        await asyncio.to_thread(signedgen.run, options(broker), "wrong")
    assert broker.store.log_end == 0
