"""A controller over the wire, as brokers and mqadmin ask it."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aerobee.controller.config import ControllerConfig
from aerobee.controller.server import Controller
from aerobee.protocol import codes
from aerobee.protocol.aio.connection import Connection, Row
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.aio.server import Server, table
from aerobee.protocol.bodies.controller import BrokerReplicasInfo, SyncStateSet
from aerobee.protocol.command import OK, Command, Response
from aerobee.protocol.headers import controller as headers
from aerobee.protocol.wire import Header
from aerobee.scripts.commands.controller import ControllerSettings
from aerobee.store.files import disk

from ..clocks import Clock
from ..waiting import LONG
from .support import CLUSTER, NAME


class Member:
    """A broker as the controller sees it: its port, its heartbeats, and the notices it receives."""

    def __init__(self, controller: Controller, broker_id: int) -> None:
        self.controller = controller
        self.id = broker_id
        self.peers = Peers()
        self.told: asyncio.Queue[tuple[headers.NotifyRoleChanged, SyncStateSet]] = asyncio.Queue()
        self.server = Server()
        self.address = ""

    async def start(self) -> None:
        rows = table([Row(codes.NOTIFY_BROKER_ROLE_CHANGED, headers.NotifyRoleChanged, self.on)])
        port = await self.server.listen("127.0.0.1", 0, rows)
        self.address = f"127.0.0.1:{port}"

    def on(self, header: headers.NotifyRoleChanged, command: Command, _: Connection) -> Response:
        self.told.put_nowait((header, SyncStateSet.decode(command.body)))
        return OK

    async def ask(self, code: int, header: Header | None = None, body: bytes = b"") -> Command:
        return await self.peers.request(self.controller.address, code, header, body, timeout_s=20)

    async def join(self) -> None:
        header = headers.ApplyBrokerId(NAME, self.id, f"{self.address};{self.id}", CLUSTER)
        assert (await self.ask(codes.CONTROLLER_APPLY_BROKER_ID, header)).code == codes.SUCCESS
        await self.beat()

    async def beat(self, epoch: int = 0, max_offset: int = 0) -> None:
        beat = headers.ControllerHeartbeat(
            CLUSTER, self.address, NAME, self.id, epoch, max_offset, 0, 10_000
        )
        assert (await self.ask(codes.BROKER_HEARTBEAT, beat)).code == codes.SUCCESS

    async def elect(self) -> Command:
        header = headers.ElectMaster(CLUSTER, NAME, self.id, False)
        return await self.ask(codes.CONTROLLER_ELECT_MASTER, header)

    async def stop(self) -> None:
        await self.peers.close()
        await self.server.stop()


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.config = ControllerConfig(listen_port=0, controller_store_path=str(folder))
        self.controller = Controller(self.config, self.clock)
        self.members: list[Member] = []

    async def start(self, members: int) -> list[Member]:
        await self.controller.start()
        for broker_id in range(1, members + 1):
            member = Member(self.controller, broker_id)
            await member.start()
            await member.join()
            self.members.append(member)
        return self.members

    async def stop(self) -> None:
        for member in self.members:
            await member.stop()
        await self.controller.stop()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    found = Cluster(tmp_path / "state")
    yield found
    await found.stop()


async def test_a_member_of_the_set_takes_over_and_all_live_members_are_notified(
    cluster: Cluster,
) -> None:
    one, two, three = await cluster.start(3)
    assert (await one.elect()).code == codes.SUCCESS
    for member in (one, two, three):
        header, sync_set = await asyncio.wait_for(member.told.get(), LONG)
        assert (header.master_broker_id, header.master_epoch) == (1, 1)
        assert sync_set == SyncStateSet([1], 1)
        await member.beat(1, 100)
    alter = headers.AlterSyncStateSet(NAME, 1, 1)
    wanted = SyncStateSet([1, 2, 3], 1).encode()
    response = await one.ask(codes.CONTROLLER_ALTER_SYNC_STATE_SET, alter, wanted)
    assert response.fields() == {"newSyncStateSetEpoch": "2"}
    await three.beat(1, 200)
    await one.peers.close()
    cluster.clock.ms += 1_000
    await cluster.controller.scan()
    for member in (two, three):
        header, sync_set = await asyncio.wait_for(member.told.get(), LONG)
        assert header.master_address == three.address
        assert (header.master_broker_id, header.master_epoch) == (3, 2)
        assert sync_set == SyncStateSet([3], 3)
    assert one.told.empty()  # dead, and so not notified
    response = await two.ask(codes.CONTROLLER_GET_REPLICA_INFO, headers.GetReplicaInfo(NAME))
    assert response.fields() == {
        "masterBrokerId": "3",
        "masterAddress": three.address,
        "masterEpoch": "2",
    }


async def test_a_heartbeat_with_the_id_of_another_living_broker_is_refused(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = await cluster.start(2)
    assert (await one.elect()).code == codes.SUCCESS
    beat = headers.ControllerHeartbeat(CLUSTER, two.address, NAME, 1, 9, 900, 0, 10_000)
    for _ in range(2):
        answer = await two.ask(codes.BROKER_HEARTBEAT, beat)
        assert answer.code == codes.CONTROLLER_BROKER_ID_INVALID
        assert two.address in (answer.remark or "")
    assert cluster.controller.live.address((CLUSTER, NAME, 1)) == one.address
    assert cluster.controller.live.position((CLUSTER, NAME, 1)).epoch == 0
    assert sum("belongs to the broker" in text for text in caplog.messages) == 1


async def test_the_state_survives_a_restart_of_the_controller(
    cluster: Cluster, tmp_path: Path
) -> None:
    one, *_ = await cluster.start(2)
    await one.elect()
    await cluster.controller.stop()
    again = Controller(cluster.config, cluster.clock)
    await again.start()
    assert again.groups == cluster.controller.groups
    assert again.groups[NAME].master_id == 1
    cluster.controller = one.controller = again
    body = b'["broker-a","nobody"]'
    response = await one.ask(codes.CONTROLLER_GET_SYNC_STATE_DATA, None, body)
    table = BrokerReplicasInfo.decode(response.body).replicas_info_table
    assert list(table) == [NAME]
    assert table[NAME].master_address == one.address


async def test_a_change_that_can_not_be_stored_is_not_applied(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = await cluster.start(1)

    def fails(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk.current, "sync_data", fails)
        response = await one.elect()
        assert response.code == codes.SYSTEM_ERROR
        assert "could not be stored: no room to write" in (response.remark or "")
        assert cluster.controller.groups[NAME].master_id is None
    assert (await one.elect()).code == codes.SUCCESS


async def test_a_disconnecting_client_does_not_interrupt_its_change(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = await cluster.start(1)
    sync, begun, may_end = disk.current.sync_data, threading.Event(), threading.Event()

    def slow(fd: int) -> None:
        begun.set()
        assert may_end.wait(60)
        sync(fd)

    monkeypatch.setattr(disk.current, "sync_data", slow)
    leaver = Peers()
    header = headers.ElectMaster(CLUSTER, NAME, 1, False)
    address, code = cluster.controller.address, codes.CONTROLLER_ELECT_MASTER
    asked = asyncio.create_task(leaver.request(address, code, header, timeout_s=60))
    assert await asyncio.to_thread(begun.wait, 60)
    asked.cancel()
    await leaver.close()
    may_end.set()
    await asyncio.wait_for(one.told.get(), LONG)
    assert cluster.controller.groups[NAME].master_id == 1


async def test_a_controller_reports_its_address_and_that_it_leads(cluster: Cluster) -> None:
    (one,) = await cluster.start(1)
    address = cluster.controller.address
    response = await one.ask(codes.CONTROLLER_GET_METADATA_INFO)
    assert response.fields() == {
        "group": "group1",
        "controllerLeaderId": "n0",
        "controllerLeaderAddress": address,
        "isLeader": "true",
        "peers": f"n0:{address};",
    }


async def test_settings_are_shown_and_changed_except_those_on_the_black_list(
    cluster: Cluster,
) -> None:
    (one,) = await cluster.start(1)
    ask = one.ask
    changed = await ask(codes.UPDATE_CONTROLLER_CONFIG, None, b"enableElectUncleanMaster=true\n")
    assert changed.code == codes.SUCCESS
    shown = await ask(codes.GET_CONTROLLER_CONFIG)
    assert b"enableElectUncleanMaster=true" in bytes(shown.body or b"")
    closed = await ask(codes.UPDATE_CONTROLLER_CONFIG, None, b"controllerStorePath=/tmp/x\n")
    assert closed.code == codes.NO_PERMISSION
    assert "What may not be changed is controllerStorePath" in (closed.remark or "")
    wrong = await ask(codes.UPDATE_CONTROLLER_CONFIG, None, b"electMasterMaxRetryCount=0\n")
    assert wrong.code == codes.INVALID_PARAMETER
    assert "setting electMasterMaxRetryCount is '0'" in (wrong.remark or "")


@pytest.mark.parametrize(
    ("code", "header", "body", "reason"),
    [
        (codes.BROKER_HEARTBEAT, headers.ControllerHeartbeat("c", "h:1", "a"), b"", "empty"),
        (codes.CONTROLLER_ALTER_SYNC_STATE_SET, headers.AlterSyncStateSet("a", 1, 1), b"", "body"),
        (
            codes.CONTROLLER_ALTER_SYNC_STATE_SET,
            headers.AlterSyncStateSet("a", 1, 1),
            SyncStateSet(list(range(101)), 1).encode(),
            "the set has 101 members, the limit is 100",
        ),
        (codes.CONTROLLER_GET_SYNC_STATE_DATA, None, b"{", "no list of broker names"),
    ],
)
async def test_malformed_requests_are_refused_with_the_reason(
    cluster: Cluster, code: int, header: Header | None, body: bytes, reason: str
) -> None:
    (one,) = await cluster.start(1)
    response = await one.ask(code, header, body)
    assert response.code == codes.CONTROLLER_INVALID_REQUEST
    assert reason in (response.remark or "")


def test_a_key_of_the_command_alone_is_neither_shown_nor_changed_by_a_request() -> None:
    config = ControllerSettings(http_port=0)
    assert config.changed({"httpPort": "1"}) == config
    assert "httpPort" not in config.to_properties()
    assert config.changed({"electMasterMaxRetryCount": "5"}).http_port == 0


@pytest.mark.parametrize("kind", ["DLedger", "jRaft", "other"])
def test_a_controller_type_of_rocketmqs_consensus_is_refused_with_a_remedy(kind: str) -> None:
    with pytest.raises(ValueError, match=f"controllerType is '{kind}'"):
        ControllerConfig(controller_type=kind)
