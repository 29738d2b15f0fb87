"""A set of one real broker and one of ours under our controller: each follows the other, the master
changes by order and by force, and the files become equal byte for byte."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random

import pytest
from aerobee.client import Message, Producer
from aerobee.client.errors import AerobeeError
from aerobee.controller.config import ControllerConfig
from aerobee.controller.server import Controller
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.server import NameServer
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.ha import EpochEntryCache
from aerobee.protocol.headers.controller import ElectMaster
from aerobee.scripts.harness.clusters import (
    BROKER_NAME,
    CLUSTER_NAME,
    SMALL_FILES,
    AerobeeCluster,
    JavaCluster,
)
from aerobee.store.inspect.check import check

from .programs import SECONDS

SEGMENT = 256 << 10
TOPIC = "Switched"
COUNT = 60


class MixedSet:
    """A name server and a controller of ours, and two brokers of one name: `first` is the first
    master, with id 1."""

    def __init__(self, folder: Path, first: str) -> None:
        self.folder = folder
        self.first = first
        self.names = NameServer(NamesrvConfig(listen_port=0))
        self.controller = Controller(
            ControllerConfig(
                listen_port=0,
                controller_store_path=str(folder / "controller"),
                scan_not_active_broker_interval=1_000,
            )
        )
        self.brokers: list[JavaCluster | AerobeeCluster] = []
        self.sent = 0

    async def start(self) -> None:
        await self.names.start()
        await self.controller.start()
        settings: dict[str, str | int] = SMALL_FILES | {
            "namesrvAddr": self.names.address,
            "enableControllerMode": "true",
            "controllerAddr": self.controller.address,
            "allAckInSyncStateSet": "true",
            "mappedFileSizeCommitLog": SEGMENT,
            "haSendHeartbeatInterval": 500,
            "brokerId": -1,
        }
        java = JavaCluster(self.folder / "java", settings, apart=True, flags=("-Xmx512m",))
        ours = AerobeeCluster(self.folder / "ours", settings)
        self.brokers = [java, ours] if self.first == "java" else [ours, java]
        for number, broker in enumerate(self.brokers, 1):
            await asyncio.to_thread(broker.start_broker, SECONDS)
            await self.until_members(number)

    async def stop(self) -> None:
        for broker in self.brokers:
            await asyncio.to_thread(broker.stop)
        await self.controller.stop()
        await self.names.stop()

    @property
    def set(self) -> list[int]:
        group = self.controller.groups.get(BROKER_NAME)
        return [] if group is None else sorted(group.sync_set)

    @property
    def master(self) -> JavaCluster | AerobeeCluster:
        group = self.controller.groups[BROKER_NAME]
        address = group.address_of(group.master_id)
        return next(one for one in self.brokers if one.broker == address)

    @property
    def other(self) -> JavaCluster | AerobeeCluster:
        return next(one for one in self.brokers if one is not self.master)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not holds():  # noqa: ASYNC110 - other processes change it
                await asyncio.sleep(0.1)

    async def until_members(self, count: int) -> None:
        await self.until(lambda: len(self.set) == count)

    async def send(self, count: int = COUNT) -> None:
        """Send messages, each again until a broker has acknowledged it."""
        async with Producer(self.names.address) as producer, asyncio.timeout(SECONDS):
            for _ in range(count):
                self.sent += 1
                body = Random(self.sent).randbytes(8_000)
                message = Message(TOPIC, body, keys=[f"k{self.sent}"])
                while True:
                    try:
                        await producer.send(message, timeout=10)
                    except AerobeeError:  # the new master is not known everywhere yet
                        await asyncio.sleep(0.1)
                        continue
                    break

    async def switch(self) -> None:
        """Have the other broker elected."""
        before = self.master
        header = ElectMaster(CLUSTER_NAME, BROKER_NAME, self._id_of(self.other), True, 0)
        peers = Peers(upgrade=False)
        try:
            answer = await peers.request(
                self.controller.address, codes.CONTROLLER_ELECT_MASTER, header, b"", SECONDS
            )
        finally:
            await peers.close()
        assert answer.code == codes.SUCCESS, answer.remark
        assert self.master is not before
        await self.until(lambda: self.set == [1, 2])

    def _id_of(self, broker: JavaCluster | AerobeeCluster) -> int:
        return self.brokers.index(broker) + 1

    async def epochs(self, broker: JavaCluster | AerobeeCluster) -> list[tuple[int, int]]:
        peers = Peers(upgrade=False)
        try:
            answer = await peers.request(
                broker.broker, codes.GET_BROKER_EPOCH_CACHE, None, b"", SECONDS
            )
        finally:
            await peers.close()
        found = EpochEntryCache.decode(answer.body or b"").epoch_list
        return [(one.epoch, one.start_offset) for one in found]

    def logs(self) -> list[dict[str, bytes]]:
        """The files of both logs, without the files that a real broker allocates in advance."""
        both = []
        for broker in self.brokers:
            files = sorted((broker.store / "commitlog").iterdir())
            found = {path.name: path.read_bytes() for path in files}
            both.append({name: data for name, data in found.items() if data.strip(b"\0")})
        return both

    async def equal(self) -> None:
        """Both logs are the same, and both know the same epochs."""
        await self.until(lambda: self.logs()[0] == self.logs()[1])
        assert await self.epochs(self.brokers[0]) == await self.epochs(self.brokers[1])


@pytest.fixture(params=["java", "ours"])
async def mixed(
    request: pytest.FixtureRequest, java_is_here: None, tmp_path: Path
) -> AsyncIterator[MixedSet]:
    found = MixedSet(tmp_path, request.param)
    try:
        await found.start()
        yield found
    finally:
        await found.stop()


async def test_one_real_broker_and_one_of_ours_switch_and_keep_equal_files(
    mixed: MixedSet,
) -> None:
    await mixed.send()
    await mixed.equal()
    assert len(mixed.logs()[0]) >= 2
    for _ in range(2):
        await mixed.switch()
        await mixed.send()
        await mixed.equal()
    assert len(await mixed.epochs(mixed.master)) == 3

    # By force: the other one takes over, and the killed one comes back as a slave.
    dead = mixed.master
    await asyncio.to_thread(dead.stop_broker, kill=True)
    await mixed.until(lambda: mixed.master is not dead)
    await mixed.send()
    await asyncio.to_thread(dead.start_broker, SECONDS)
    await mixed.until(lambda: mixed.set == [1, 2])
    await mixed.send(5)
    await mixed.equal()
    ours = next(one for one in mixed.brokers if isinstance(one, AerobeeCluster))
    await asyncio.to_thread(ours.stop_broker, kill=False)
    assert not check(ours.store).is_damaged
