"""Members of a broker name under a controller: ids, roles, and the switch from one to another."""

from functools import partial
from pathlib import Path
from typing import cast

import msgspec
import pytest
from aerobee.broker.member import member as module
from aerobee.broker.member.controllers import Controllers, NoLeaderError
from aerobee.broker.member.identity import Identity, IdentityFiles
from aerobee.broker.member.leader import Leader
from aerobee.broker.member.ports import Ports
from aerobee.broker.member.role import Role
from aerobee.broker.settings.config import BrokerConfig
from aerobee.controller.replicas import Event
from aerobee.protocol import codes
from aerobee.protocol.aio.connection import Connection, Row
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.aio.server import Server, table
from aerobee.protocol.command import Command, Response
from aerobee.protocol.headers.controller import ElectMaster
from aerobee.store.base.errors import StoreError

from ...waiting import until
from .members import NAME, Cluster, StandIn, broker_of


async def elect(cluster: Cluster, broker_id: int) -> None:
    """As mqadmin's electMaster."""
    peers = Peers(upgrade=False)
    header = ElectMaster("DefaultCluster", NAME, broker_id, True)
    address, code = cluster.controller.address, codes.CONTROLLER_ELECT_MASTER
    assert (await peers.request(address, code, header, timeout_s=60)).code == codes.SUCCESS
    await peers.close()


async def test_members_get_ids_for_life_and_follow_the_first_one(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        one, two, three = await cluster.start(3)
        assert [member.role.own_id for member in (one, two, three)] == [1, 2, 3]
        assert (tmp_path / "broker-2" / "brokerIdentity").read_text() == f"DefaultCluster#{NAME}#2"
        assert one.role.is_master
        assert one.role.epoch == 1
        for member in (two, three):
            assert member.role.master_address == one.address
            assert broker_of(member).config.is_slave
            assert broker_of(member).config.broker_id == member.role.own_id
        assert broker_of(one).config.broker_id == 0
        await three.stop()
        again = cluster.members[2] = cluster.member(3)
        await again.start()
        assert again.role.own_id == 3


async def test_a_proposal_that_the_controller_may_have_stored_counts_as_unanswered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Cluster(tmp_path) as cluster:
        await cluster.start(2)
        await until(lambda: sum(1 for _ in cluster.controller.live.alive()) == 2)
        store = cluster.controller.engine.store

        async def store_and_fail(events: tuple[Event, ...]) -> None:
            await store(events)
            raise StoreError("etcd does not answer")

        alter = broker_of(cluster.master()).membership.alter
        monkeypatch.setattr(cluster.controller.engine, "store", store_and_fail)
        with pytest.raises(NoLeaderError, match="unknown whether the leader has the set"):
            await alter(frozenset({1, 2}))
        assert cluster.controller.groups[NAME].sync_set == [1, 2]


async def test_an_election_by_hand_starts_both_brokers_again_on_their_ports(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path) as cluster:
        one, two = await cluster.start(2)
        await cluster.whole_set()
        before = broker_of(one), broker_of(two)
        addresses = one.address, two.address
        await elect(cluster, 2)
        await until(lambda: two.role.is_master and two.broker is not None)
        await until(lambda: one.role.epoch == 2 and one.broker is not None)
        assert [broker.events for broker in before] == [["start", "leave"], ["start", "leave"]]
        assert (one.address, two.address) == addresses
        assert one.role.master_address == two.address
        state = broker_of(two).sync_state
        assert state is not None
        assert (sorted(state.members), state.set_epoch) == ([2], 3)


async def test_a_master_that_stops_hands_its_role_over_first(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        one, two, three = await cluster.start(3)
        await cluster.whole_set()
        state = broker_of(one).sync_state
        assert state is not None
        state.last_report_ms = {2: 5, 3: 6}
        broker = broker_of(one)
        await one.stop()
        assert broker.events == ["start", "refuse", "settled", "leave"]
        assert cluster.controller.groups[NAME].master_id == 3  # its report is the newest
        await until(lambda: three.role.is_master and two.role.master_id == 3)


async def test_a_master_alone_in_its_set_stops_without_a_successor(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        one, _ = await cluster.start(2)
        await one.stop()
        assert cluster.controller.groups[NAME].master_id == 1


async def test_fault_10_8_a_master_whose_disk_hangs_gives_its_role_away(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        one, two = await cluster.start(2)
        await cluster.whole_set()
        store = broker_of(one).store
        store.written_end = 200
        for _ in range(5):
            await until(partial(lambda before: store.looks > before, store.looks))
            cluster.clock.ms += 2_000
        await until(lambda: two.role.is_master)
        await until(lambda: one.role.epoch == 2)


async def test_a_restarted_master_takes_its_role_with_the_set_that_holds(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        one, two = await cluster.start(2)
        await cluster.whole_set()
        one_again = cluster.member(1)
        await two.stop()
        # As after kill -9: nothing is handed over.
        await one.stop(hand_over=False)
        cluster.members = [one_again]
        await one_again.start()
        assert one_again.role.is_master
        assert one_again.role.epoch == 1
        state = broker_of(one_again).sync_state
        assert state is not None
        assert state.members == {1, 2}


async def test_an_application_whose_answer_was_lost_gets_the_same_id(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        one = cluster.member(1)
        files = IdentityFiles(tmp_path / "broker-1", "DefaultCluster", NAME)
        files.save_application(Identity("DefaultCluster", NAME, 1, "127.0.0.1:1;5"))
        cluster.members.append(one)
        await one.start()
        assert one.role.own_id == 1
        assert cluster.controller.groups[NAME].members[1].check_code == "127.0.0.1:1;5"
        # An application that another broker was quicker with: the next id.
        files = IdentityFiles(tmp_path / "broker-2", "DefaultCluster", NAME)
        files.save_application(Identity("DefaultCluster", NAME, 1, "127.0.0.1:2;6"))
        two = cluster.member(2)
        cluster.members.append(two)
        await two.start()
        assert two.role.own_id == 2


async def test_a_copy_of_a_members_store_folder_gets_no_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Cluster(tmp_path) as cluster:
        one, two = await cluster.start(2)
        await cluster.whole_set()
        monkeypatch.setattr(module, "START_SECONDS", 0.2)
        copied = tmp_path / "broker-9"
        copied.mkdir()
        (copied / "brokerIdentity").write_bytes((tmp_path / "broker-1/brokerIdentity").read_bytes())
        copy = cluster.member(9)
        await copy.start()
        cluster.members.append(copy)
        await until(lambda: "belongs to the broker at" in caplog.text)
        assert one.address in caplog.text
        assert copy.address in caplog.text
        assert (copy.role.epoch, broker_of(copy).config.is_slave) == (0, True)
        assert broker_of(one).events == broker_of(two).events == ["start"]
        assert cluster.controller.groups[NAME].address_of(1) == one.address


async def test_a_master_that_crashed_waits_for_the_logs_of_its_set_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Crashed(StandIn):
        async def start(self) -> None:
            await super().start()
            self.store.is_whole = False

    async with Cluster(tmp_path, Crashed) as cluster:
        one, two = await cluster.start(2)
        assert one.role.is_master  # alone in its first set
        await cluster.whole_set()
        monkeypatch.setattr(module, "START_SECONDS", 0.2)
        port = one.ports.port
        await one.stop(hand_over=False)
        again = cluster.members[0] = cluster.member(1, port)
        await again.start()
        await until(lambda: "members that don't answer are waited for" in caplog.text)
        assert again.role.epoch == 0
        cluster.clock.ms += 10_000
        await until(lambda: two.role.is_master and again.role.master_id == 2)
        assert again.role.epoch == 2


async def test_fault_10_9_members_of_a_controller_without_its_state_wait_for_an_operator(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path) as cluster:
        one, two = await cluster.start(2)
        await cluster.whole_set()
        port = cluster.controller.port
        await cluster.controller.stop()
        await cluster.start_controller(tmp_path / "empty", port)
        groups = cluster.controller.groups
        await until(lambda: NAME in groups and len(groups[NAME].members) == 2)
        await until(lambda: sum(1 for _ in cluster.controller.live.alive()) == 2)
        await cluster.controller.scan()
        assert groups[NAME].master_id is None
        assert one.role.is_master  # it goes on while the other one reports
        await elect(cluster, 2)
        await until(lambda: two.role.is_master and one.role.epoch == 2)


async def test_a_controller_address_that_is_the_brokers_own_stops_the_start(
    tmp_path: Path,
) -> None:
    config = BrokerConfig(listen_port=0, store_path_root_dir=str(tmp_path))
    ports = Ports(config)
    own = f"{config.broker_ip1}:{ports.port}"
    member = module.Member(
        msgspec.structs.replace(config, enable_controller_mode=True, controller_addr=own),
        cast(module.Make, StandIn),
        open_ports=lambda _: ports,
    )
    with pytest.raises(OSError, match=f"controllerAddr names {own}, which is this broker"):
        await member.start()


@pytest.mark.parametrize("body", [b"nonsense", b"[]"])
async def test_a_controller_that_answers_nonsense_decides_nothing(body: bytes) -> None:
    answered = [
        codes.CONTROLLER_REGISTER_BROKER,
        codes.CONTROLLER_GET_REPLICA_INFO,
        codes.CONTROLLER_ELECT_MASTER,
        codes.CONTROLLER_ALTER_SYNC_STATE_SET,
        codes.CONTROLLER_GET_SYNC_STATE_DATA,
        codes.CONTROLLER_GET_NEXT_BROKER_ID,
    ]

    def nonsense(header: None, command: Command, connection: Connection) -> Response:
        return Response(codes.SUCCESS, {"masterEpoch": "many", "nextBrokerId": "-"}, body=body)

    def metadata(header: None, command: Command, connection: Connection) -> Response:
        return Response(codes.SUCCESS, {"isLeader": "true"})

    server = Server()
    rows = [Row(code, None, nonsense) for code in answered]
    rows.append(Row(codes.CONTROLLER_GET_METADATA_INFO, None, metadata))
    port = await server.listen("127.0.0.1", 0, table(rows))
    peers = Peers(upgrade=False)
    leader = Leader(Controllers([f"127.0.0.1:{port}"], peers), "cluster", NAME, lambda: 0)
    try:
        for ask in (
            leader.role(1),
            leader.register(1, "127.0.0.1:1"),
            leader.elect(1),
            leader.alter(Role(1, 1), {1, 2}, 1),
            leader.replicas(),
            leader.next_id(),
        ):
            with pytest.raises(NoLeaderError, match="can't be read"):
                await ask
    finally:
        await peers.close()
        await server.stop()
