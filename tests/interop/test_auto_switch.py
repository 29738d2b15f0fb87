"""A set of one real broker and one aerobee broker, under aerobee's controller and under RocketMQ's.

Each follows the other, the master changes under load by order and by force, no acknowledged message
is lost, and the files become equal byte for byte. test_controller has real brokers under our
controller, tests/simulation and tests/loss sets of ours.

`AEROBEE_SWITCHES` is the number of changes by order. `AEROBEE_JAVA_CONTROLLERS=jRaft` runs
RocketMQ's controllers on JRaft, whose port listens on every address, so give it a network of its
own:

    unshare -rn sh -c 'ip link set lo up; AEROBEE_JAVA_CONTROLLERS=jRaft \
        .venv/bin/pytest tests/interop/test_auto_switch.py -k under-java'
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import pytest
from aerobee.client import Producer
from aerobee.client.errors import ClientError
from aerobee.console.findings.replicas import Replicas, elect, replicas_of
from aerobee.controller.config import ControllerConfig
from aerobee.controller.server import Controller
from aerobee.harness import java_side
from aerobee.harness.child import Reporter
from aerobee.harness.clusters import (
    CLUSTER_NAME,
    HERE,
    SMALL_FILES,
    AerobeeCluster,
    JavaCluster,
)
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.server import NameServer
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.cluster import KVTable
from aerobee.protocol.bodies.ha import EpochEntryCache
from aerobee.protocol.headers.topics import UpdateTopic
from aerobee.store.inspect.check import check

from ..loss.test_member import NAME, QUEUES, TOPIC, Load
from .programs import SECONDS
from .support import until

SWITCHES = int(os.environ.get("AEROBEE_SWITCHES", "2"))
IS_JRAFT = os.environ.get("AEROBEE_JAVA_CONTROLLERS", "DLedger") == "jRaft"
SEGMENT = 64 << 10
ACKNOWLEDGED = 150  # messages before and after a change
PRODUCERS = 4
MEMORY = ("-Xmx512m", *java_side.QUICK_SERVER)


class Controllers(Protocol):
    """A name server and a controller. `names` and `controller` are "host:port"."""

    names: str
    controller: str

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


class OurControllers:
    def __init__(self, folder: Path) -> None:
        self._names = NameServer(NamesrvConfig(listen_port=0))
        self._controller = Controller(
            ControllerConfig(
                listen_port=0,
                controller_store_path=str(folder / "controller"),
                scan_not_active_broker_interval=1_000,
            )
        )

    async def start(self) -> None:
        await self._names.start()
        await self._controller.start()
        self.names, self.controller = self._names.address, self._controller.address

    async def stop(self) -> None:
        await self._controller.stop()
        await self._names.stop()


class JavaControllers:
    """A real name server that holds a controller, on DLedger (RocketMQ's default) or on JRaft."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._home = folder
        ports = java_side.free_ports(3)
        self.names, self.controller, raft = (f"127.0.0.1:{port}" for port in ports)
        consensus: dict[str, str | int] = {
            "controllerDLegerGroup": "controllers",
            "controllerDLegerPeers": f"n0-{self.controller}",
            "controllerDLegerSelfId": "n0",
        }
        if IS_JRAFT:
            consensus = {
                "controllerType": "jRaft",
                "jRaftServerId": raft,
                "jRaftInitConf": raft,
                "jRaftControllerRPCAddr": self.controller,
            }
        self._file = java_side.write_properties(
            folder / "namesrv.conf",
            {
                "listenPort": ports[0],
                "kvConfigPath": str(folder / "kvConfig.json"),
                **HERE,
                "enableControllerInNamesrv": "true",
                **consensus,
                "controllerStorePath": str(folder / "controller"),
                "mappedFileSize": 16 << 20,
                "scanNotActiveBrokerInterval": 1_000,
            },
        )
        self._process: Reporter | None = None

    async def start(self) -> None:
        orders = ("--namesrv", str(self._file))
        self._process = java_side.start("Cluster", *orders, home=self._home, flags=MEMORY)
        await asyncio.to_thread(self._process.wait_event, "ready", SECONDS)

    async def stop(self) -> None:
        if self._process is not None:
            await asyncio.to_thread(self._process.kill)


class MixedSet:
    """Two brokers of one name under `controllers`: `first` is the first master, with id 1."""

    def __init__(self, folder: Path, controllers: Controllers, first: str) -> None:
        self.folder = folder
        self.first = first
        self.controllers = controllers
        self.peers = Peers()
        self.brokers: list[JavaCluster | AerobeeCluster] = []

    async def start(self) -> None:
        await self.controllers.start()
        settings: dict[str, str | int] = SMALL_FILES | {
            "brokerName": NAME,
            "namesrvAddr": self.controllers.names,
            "enableControllerMode": "true",
            "controllerAddr": self.controllers.controller,
            "allAckInSyncStateSet": "true",
            "mappedFileSizeCommitLog": SEGMENT,
            "haSendHeartbeatInterval": 500,
            "diskSpaceCleanForciblyRatio": 95,  # else a full disk takes the first files
            "brokerId": -1,
        }
        java = JavaCluster(self.folder / "java", settings, apart=True, flags=MEMORY)
        ours = AerobeeCluster(self.folder / "ours", settings)
        self.brokers = [java, ours] if self.first == "java" else [ours, java]
        for number, broker in enumerate(self.brokers, 1):
            await asyncio.to_thread(broker.start_broker, SECONDS)
            await self.until_members(number)

    async def stop(self) -> None:
        for broker in self.brokers:
            await asyncio.to_thread(broker.stop)
        await self.peers.close()
        await self.controllers.stop()

    async def until(self, holds: Callable[[Replicas], bool]) -> Replicas:
        """The state once it holds."""
        found: Replicas | None = None

        async def is_so() -> bool:
            nonlocal found
            with suppress(ClientError):
                found = await replicas_of(self.peers, [self.controllers.controller], NAME)
                return holds(found)
            return False

        await until(is_so, lambda: f"the last state: {found}")
        assert found is not None
        return found

    async def until_members(self, count: int) -> JavaCluster | AerobeeCluster:
        """The master, once this many brokers are alive in the sync state set."""
        state = await self.until(
            lambda found: (
                sum(one.is_in_set and one.is_alive for one in found.members) == count
                and found.master_id is not None
            )
        )
        return self._broker(state)

    async def whole(self) -> str:
        """The master's address, once both are in the sync state set and its queues have all of its
        log: a real broker acknowledges a message before its queue has it."""
        master = (await self.until_members(2)).broker

        async def is_queued() -> bool:
            answer = await self.peers.request(
                master, codes.GET_BROKER_RUNTIME_INFO, None, b"", SECONDS
            )
            return KVTable.decode(answer.body or b"").table["dispatchBehindBytes"] == "0"

        await until(is_queued, f"{master} has queued its log")
        return master

    async def until_other(self, old: JavaCluster | AerobeeCluster) -> None:
        """Returns once the other broker is the master."""
        await self.until(
            lambda found: found.master_id is not None and self._broker(found) is not old
        )

    async def make_topic(self) -> None:
        header = UpdateTopic(TOPIC, QUEUES, QUEUES, 6)
        answer = await self.peers.request(
            self.brokers[0].broker, codes.UPDATE_AND_CREATE_TOPIC, header, timeout_s=SECONDS
        )
        assert answer.code == codes.SUCCESS, answer.remark

    async def elect_other(self, master: JavaCluster | AerobeeCluster) -> None:
        """Have the other broker elected."""
        broker_id = 3 - (self.brokers.index(master) + 1)
        await elect(self.peers, self.controllers.controller, CLUSTER_NAME, NAME, broker_id)

    async def epochs(self, broker: JavaCluster | AerobeeCluster) -> list[tuple[int, int]]:
        answer = await self.peers.request(
            broker.broker, codes.GET_BROKER_EPOCH_CACHE, None, b"", SECONDS
        )
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
        """Returns once both logs are the same, and both know the same epochs."""
        await until(self._are_equal, "both logs are the same")
        assert await self.epochs(self.brokers[0]) == await self.epochs(self.brokers[1])

    def _are_equal(self) -> bool:
        one, other = self.logs()
        return one == other

    def _broker(self, state: Replicas) -> JavaCluster | AerobeeCluster:
        (address,) = [one.address for one in state.members if one.broker_id == state.master_id]
        return next(one for one in self.brokers if one.broker == address)


@pytest.fixture(params=["java-first-under-ours", "ours-first-under-java"])
async def mixed(
    request: pytest.FixtureRequest, java_is_here: None, tmp_path: Path
) -> AsyncIterator[MixedSet]:
    first, _, _, of_controllers = request.param.split("-")
    kind = OurControllers if of_controllers == "ours" else JavaControllers
    found = MixedSet(tmp_path, kind(tmp_path / "names"), first)
    try:
        await found.start()
        yield found
    finally:
        await found.stop()


async def test_one_real_broker_and_one_of_ours_switch_lose_nothing_and_keep_equal_files(
    mixed: MixedSet,
) -> None:
    load = Load(mixed.controllers.names)
    await mixed.make_topic()

    async def settled() -> JavaCluster | AerobeeCluster:
        """The master, once nothing is sent and both have everything that was acknowledged."""
        await load.pause()
        await load.check(mixed)  # type: ignore[arg-type]  # it has what is asked of a set
        await mixed.equal()
        return await mixed.until_members(2)

    async with Producer(mixed.controllers.names) as producer:
        tasks = [asyncio.create_task(load.produce(producer, n % QUEUES)) for n in range(PRODUCERS)]
        load.may_send.set()
        await load.until_acknowledged(ACKNOWLEDGED)
        master = await settled()
        for _ in range(SWITCHES):
            load.may_send.set()
            await load.until_acknowledged(ACKNOWLEDGED)
            await mixed.elect_other(master)
            await mixed.until_other(master)
            await load.until_acknowledged(ACKNOWLEDGED)
            master = await settled()
        epochs = await mixed.epochs(master)
        assert len(epochs) >= 1 + SWITCHES
        assert all(one < other for one, other in pairwise(epochs))
        assert len(mixed.logs()[0]) >= 2

        # By force: the other one takes over, and the killed one comes back as a slave.
        dead = master
        load.may_send.set()
        await load.until_acknowledged(ACKNOWLEDGED)
        await asyncio.to_thread(dead.stop_broker, kill=True)
        await mixed.until_other(dead)
        await load.until_acknowledged(ACKNOWLEDGED)
        await asyncio.to_thread(dead.start_broker, SECONDS)
        await settled()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    print(f"{len(load.promised)} messages acknowledged, {SWITCHES} switches and a kill")
    ours = next(one for one in mixed.brokers if isinstance(one, AerobeeCluster))
    await asyncio.to_thread(ours.stop_broker, kill=False)
    assert not check(ours.store).is_damaged
