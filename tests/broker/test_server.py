"""What a broker does by itself from time to time: files are saved, silent clients dropped."""

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.store.files.checkpoint import FILE_BYTES

from ..clocks import Clock
from .conftest import BORN_MS, Caller, Config, records

CONFIG = Path("config")


@pytest.fixture
async def pair(clock: Clock, config: Config) -> AsyncIterator[tuple[Broker, Caller]]:
    """A broker on the test's clock, for messages and for clients, and a client."""
    broker = Broker(config(), now_ms=clock)
    await broker.start()
    caller = Caller(broker)
    yield broker, caller
    await caller.peers.close()
    await broker.stop()


async def delivered_and_saved(broker: Broker) -> None:
    """Have delayed messages delivered, and then done what each period does."""
    await broker.catch_up()
    await broker.syncer.reach(broker.store.log_end)  # no cursor is saved before its messages
    await broker.catch_up()


async def test_how_far_delayed_messages_were_delivered_is_saved_while_the_broker_runs(
    pair: tuple[Broker, Caller], clock: Clock
) -> None:
    broker, caller = pair
    file = broker.root / CONFIG / "delayOffset.json"
    for count in (1, 2):
        assert (await caller.send("T", DELAY="1")).code == codes.SUCCESS
        clock.ms += 1_000
        await delivered_and_saved(broker)
        assert json.loads(file.read_bytes())["offsetTable"]["1"] == count


async def test_a_broker_that_was_killed_delivers_no_delayed_message_twice_that_was_saved(
    pair: tuple[Broker, Caller], clock: Clock, config: Config, tmp_path: Path
) -> None:
    broker, caller = pair
    await caller.send("T", b"delayed", DELAY="1")
    clock.ms += 1_000
    await delivered_and_saved(broker)
    killed = tmp_path / "killed"  # its files as a kill would leave them
    shutil.copytree(broker.root, killed, ignore=shutil.ignore_patterns("lock"))
    again = Broker(config(store_path_root_dir=str(killed)), now_ms=clock)
    await again.start()
    await again.catch_up()
    reader = Caller(again)
    assert [one.body for one in records(await reader.pull("T"))] == [b"delayed"]
    await reader.peers.close()
    await again.stop()


@pytest.mark.parametrize(
    "when", [{"DELAY": "1"}, {"TIMER_DELAY_MS": "1000"}], ids=["delay level", "timer"]
)
async def test_what_waits_is_delivered_after_the_limit_of_messages_was_lowered(
    pair: tuple[Broker, Caller], clock: Clock, when: dict[str, str]
) -> None:
    broker, caller = pair
    for body in (bytes(3_000), b"small"):
        assert (await caller.send("T", body, pairs=when)).code == codes.SUCCESS
    lowered = b"maxMessageSize=2000"
    assert (await caller.ask(codes.UPDATE_BROKER_CONFIG, None, lowered)).code == codes.SUCCESS
    assert (await caller.send("T", bytes(3_000))).code == codes.MESSAGE_ILLEGAL
    for _ in range(3):
        clock.ms += 1_000
        await delivered_and_saved(broker)
    found = [one.body for one in records(await caller.pull("T"))]
    assert found == [bytes(3_000), b"small"]


async def test_the_checkpoint_is_saved_while_the_broker_runs(
    pair: tuple[Broker, Caller],
) -> None:
    broker, caller = pair
    file = broker.root / "checkpoint"
    before = file.read_bytes()
    assert len(before) == FILE_BYTES
    await caller.send("T")
    await broker.syncer.reach(broker.store.log_end)
    await broker.catch_up()
    saved = file.read_bytes()
    assert saved != before
    assert int.from_bytes(saved[:8]) == BORN_MS  # the store time of the last message on the disk


async def test_a_client_without_heartbeats_is_thrown_out(
    pair: tuple[Broker, Caller], clock: Clock
) -> None:
    broker, silent = pair
    beating = Caller(broker)
    await silent.heartbeat("c1", topics={"T": "*"})
    await beating.heartbeat("c2", topics={"T": "*"})
    limit_ms = broker.config.channel_expired_timeout
    clock.ms += limit_ms - 1
    await beating.heartbeat("c2", topics={"T": "*"})
    await broker.catch_up()
    assert members(broker) == {"c1", "c2"}
    clock.ms += 2
    await broker.catch_up()
    assert members(broker) == {"c2"}
    address = silent.address
    connection = silent.peers.connected(address)
    if connection is not None:  # the end of the connection may still be on its way
        with pytest.raises(ConnectionError):
            await connection.ask(codes.GET_BROKER_RUNTIME_INFO, None, b"", 20)
    assert silent.peers.connected(address) is None
    await beating.peers.close()


def members(broker: Broker) -> set[str]:
    """The client ids of group "cg"."""
    group = broker.clients.consumer_group("cg")
    return set() if group is None else set(group.client_ids())
