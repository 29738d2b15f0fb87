"""The generator of transactions, against our broker."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from aerobee.broker.server import Broker
from aerobee.broker.settings.config import BrokerConfig
from aerobee.scripts.loads import trangen


async def test_every_transaction_that_it_begins_is_committed(tmp_path: Path) -> None:
    config = BrokerConfig(
        broker_name="broker-a",
        broker_ip1="127.0.0.1",
        listen_port=0,
        store_path_root_dir=str(tmp_path),
        mapped_file_size_commit_log=16 << 20,
        max_hash_slot_num=1_000,
        max_index_num=4_000,
    )
    broker = Broker(config)
    await broker.start()
    options = argparse.Namespace(
        host="127.0.0.1", port=broker.port, topic="T", conns=2, inflight=4, size=64, count=50
    )
    found = await asyncio.to_thread(trangen.run, options)
    assert found["errors"] == 0
    assert isinstance(found["messages"], int)
    assert found["messages"] >= 50
    assert dict(broker.transaction_counts.commits())["T"] >= 50
    stored = sum(broker.store.max_offset("T", queue) for queue in range(4))
    assert stored == dict(broker.transaction_counts.commits())["T"]
    await broker.stop()
