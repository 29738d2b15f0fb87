"""The generator of transactions, against our broker."""

from __future__ import annotations

import argparse
import asyncio

from aerobee.bench.loads import trangen
from aerobee.broker.server import Broker


async def test_every_transaction_that_it_begins_is_committed(broker: Broker) -> None:
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
