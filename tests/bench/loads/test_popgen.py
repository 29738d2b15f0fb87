"""The generator of pops and acknowledgements, against our broker."""

import asyncio

import pytest
from aerobee.bench.loads import popgen
from aerobee.bench.loads.frames import run_alone
from aerobee.bench.loads.loadgen import Load, LoadFailed
from aerobee.broker.server import Broker
from aerobee.protocol.bodies.topic import TopicConfig
from aerobee.store.engine.messages import Message

COUNT = 100


@pytest.mark.parametrize("batched", [False, True])
async def test_every_message_is_popped_and_acknowledged(broker: Broker, batched: bool) -> None:
    broker.topics.put(TopicConfig("T", 4, 4))
    for number in range(COUNT):
        broker.store.put(Message(("T", number % 4), 0, 0, 0, bytes(8), b"x", b"", 0))
    broker.store.write_staged()
    where = (f"127.0.0.1:{broker.port}", "T", Load("pop", "pop", COUNT, conns=2))
    found = await asyncio.to_thread(run_alone, popgen.pop, *where, "G", batched)
    assert (found["messages"], found["errors"]) == (COUNT, 0)


async def test_a_load_without_a_broker_fails() -> None:
    with pytest.raises(LoadFailed, match="Connection refused"):
        await asyncio.to_thread(
            run_alone, popgen.pop, "127.0.0.1:1", "T", Load("pop", "pop", COUNT), "G", False
        )
