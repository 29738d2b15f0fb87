"""Real RocketMQ brokers in controller mode under our controller, and the real mqadmin."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aerobee.client import Message, Producer
from aerobee.client.errors import NoRouteError
from aerobee.controller.config import ControllerConfig
from aerobee.controller.server import Controller
from aerobee.harness.clusters import (
    BROKER_NAME,
    CLUSTER_NAME,
    TEST_BROKER_FLAGS,
    JavaCluster,
)
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.server import NameServer
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.stats import TopicStatsTable

from .programs import SECONDS, Mqadmin
from .support import until


class Replicas:
    """aerobee's name server and controller, and two real brokers of one name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names = NameServer(NamesrvConfig(listen_port=0))
        self.controller = Controller(
            ControllerConfig(
                listen_port=0,
                controller_store_path=str(folder / "controller"),
                scan_not_active_broker_interval=1_000,
            )
        )
        self.brokers: list[JavaCluster] = []

    async def start(self) -> None:
        await self.names.start()
        await self.controller.start()
        for number in range(2):
            settings: dict[str, str | int] = {
                "namesrvAddr": self.names.address,
                "enableControllerMode": "true",
                "controllerAddr": self.controller.address,
                "allAckInSyncStateSet": "true",
                "brokerId": -1,
            }
            folder = self.folder / f"broker-{number}"
            broker = JavaCluster(folder, settings, apart=True, flags=TEST_BROKER_FLAGS)
            self.brokers.append(broker)
        await asyncio.gather(
            *(asyncio.to_thread(broker.start_broker, SECONDS) for broker in self.brokers)
        )

    async def stop(self) -> None:
        for broker in self.brokers:
            await asyncio.to_thread(broker.stop)
        await self.controller.stop()
        await self.names.stop()

    def master(self) -> str | None:
        group = self.controller.groups.get(BROKER_NAME)
        return None if group is None else group.address_of(group.master_id)

    async def whole_set(self) -> None:
        groups = self.controller.groups
        await until(
            lambda: BROKER_NAME in groups and groups[BROKER_NAME].sync_set == [1, 2],
            "both brokers in the sync state set",
        )


@pytest.fixture
async def replicas(tmp_path: Path) -> AsyncIterator[Replicas]:
    found = Replicas(tmp_path)
    try:
        await found.start()
        yield found
    finally:
        await found.stop()


async def test_real_brokers_elect_switch_and_lose_nothing_under_our_controller(
    replicas: Replicas, mqadmin: Mqadmin
) -> None:
    address = replicas.controller.address
    await replicas.whole_set()
    first = replicas.master()
    assert first in [broker.broker for broker in replicas.brokers]
    text = await asyncio.to_thread(mqadmin, "getControllerMetaData", "-a", address)
    assert re.search(rf"#ControllerLeaderAddress\s*:?\s*{address}", text), text
    text = await asyncio.to_thread(mqadmin, "getSyncStateSet", "-a", address, "-b", BROKER_NAME)
    assert re.search(r"#SyncStateSetNums\s*:?\s*2", text), text
    await send(replicas, 20)

    # By hand: the other broker becomes master, and the old one follows it.
    other = 3 - (replicas.controller.groups[BROKER_NAME].master_id or 0)
    words = ("-bn", BROKER_NAME, "-c", CLUSTER_NAME, "-b", str(other))
    text = await asyncio.to_thread(mqadmin, "electMaster", "-a", address, *words)
    assert re.search(rf"#BrokerMasterAddr\s*:?\s*{replicas.master()}", text), text
    assert replicas.master() != first
    await replicas.whole_set()
    await send(replicas, 20)

    # By force: the master is killed, and the one that followed takes over.
    epoch = replicas.controller.groups[BROKER_NAME].master_epoch
    dead = next(one for one in replicas.brokers if one.broker == replicas.master())
    dead.stop_broker(kill=True)
    await until(lambda: replicas.master() == first, "the first master is back in its role")
    assert replicas.controller.groups[BROKER_NAME].master_epoch > epoch
    await send(replicas, 20)
    await asyncio.to_thread(dead.start_broker, SECONDS)
    await replicas.whole_set()
    for broker in replicas.brokers:
        assert await stored(broker) >= 60


async def send(replicas: Replicas, count: int) -> None:
    """Send messages, each again until a broker has acknowledged it."""
    async with Producer(replicas.names.address) as producer, asyncio.timeout(SECONDS):
        for number in range(count):
            message = Message("Switched", f"body {number}".encode())
            while True:
                try:
                    await producer.send(message, timeout=SECONDS)
                except NoRouteError:  # the new master has not told the name server yet
                    await asyncio.sleep(0.1)
                    continue
                break


async def stored(broker: JavaCluster) -> int:
    """How many messages of the topic this broker has."""
    peers = Peers()
    header = {"topic": "Switched"}
    response = await peers.request(
        broker.broker, codes.GET_TOPIC_STATS_INFO, header, timeout_s=SECONDS
    )
    await peers.close()
    table = TopicStatsTable.decode(response.body).offset_table
    return sum(found.max_offset - found.min_offset for found in table.values())
