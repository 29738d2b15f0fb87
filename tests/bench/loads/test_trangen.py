"""The generator of transactions, against our broker."""

from __future__ import annotations

import asyncio

from aerobee.bench.loads import trangen
from aerobee.bench.loads.loadgen import Load
from aerobee.broker.server import Broker


async def test_every_transaction_that_it_begins_is_committed(broker: Broker) -> None:
    load = Load("transactions", "transaction", 50, conns=2, inflight=4, size=64)
    found = await asyncio.to_thread(trangen.transact, f"127.0.0.1:{broker.port}", "T", load)
    assert found["errors"] == 0
    assert found["messages"] >= 50
    assert dict(broker.transaction_counts.commits())["T"] >= 50
    stored = sum(broker.store.max_offset("T", queue) for queue in range(4))
    assert stored == dict(broker.transaction_counts.commits())["T"]
