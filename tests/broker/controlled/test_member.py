"""Members of a broker name under a controller: ids, roles, and the switch from one to another."""

import asyncio

import pytest
from aerobee.broker.controlled.controllers import Controllers, NoLeaderError
from aerobee.broker.controlled.election import Election
from aerobee.broker.controlled.identity import Identity, IdentityFiles
from aerobee.broker.controlled.leader import Leader
from aerobee.broker.controlled.member import Member
from aerobee.broker.controlled.ports import Ports
from aerobee.broker.settings.config import BrokerConfig
from aerobee.controller.replicas import Event
from aerobee.protocol import codes
from aerobee.protocol.aio.connection import Connection, Row
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.aio.server import Server, table
from aerobee.protocol.command import Command, Response
from aerobee.store.base.errors import StoreError
from aerobee.store.files import json_file

from ...waiting import until
from .members import NAME, Cluster, StandIn, broker_of

IN_VIRTUAL_TIME = True


async def test_members_get_ids_for_life_and_follow_the_first_one(cluster: Cluster) -> None:
    one, two, three = await cluster.start(3)
    assert [member.election.own_id for member in (one, two, three)] == [1, 2, 3]
    assert (
        json_file.read(cluster.folder / "broker-2/brokerIdentity") == b"DefaultCluster#broker-a#2"
    )
    assert one.election.is_master
    assert one.election.epoch == 1
    for member in (two, three):
        assert member.election.master_address == one.address
        assert broker_of(member).config.is_slave
        assert broker_of(member).config.broker_id == member.election.own_id
    assert broker_of(one).config.broker_id == 0
    await three.stop()
    cluster.members.remove(three)
    assert (await cluster.add(cluster.member(3))).election.own_id == 3


async def test_a_proposal_that_the_controller_may_have_stored_counts_as_unanswered(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.start(2)
    await cluster.all_alive()
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
    cluster: Cluster,
) -> None:
    one, two = await cluster.start(2)
    await cluster.whole_set()
    before = broker_of(one), broker_of(two)
    addresses = one.address, two.address
    await cluster.elect(2)
    await until(lambda: two.election.is_master and two.broker is not None)
    await until(lambda: one.election.epoch == 2 and one.broker is not None)
    assert [broker.events for broker in before] == [["start", "leave"], ["start", "leave"]]
    assert (one.address, two.address) == addresses
    assert one.election.master_address == two.address
    state = broker_of(two).sync_state
    assert state is not None
    assert (sorted(state.members), state.set_epoch) == ([2], 3)


async def test_a_master_that_stops_hands_its_role_over_first(cluster: Cluster) -> None:
    one, two, three = await cluster.start(3)
    await cluster.whole_set()
    state = broker_of(one).sync_state
    assert state is not None
    state.last_report_ms = {2: 5, 3: 6}
    broker = broker_of(one)
    await one.stop()
    assert broker.events == ["start", "refuse", "drained", "leave"]
    assert cluster.controller.groups[NAME].master_id == 3  # its report is the newest
    await until(lambda: three.election.is_master and two.election.master_id == 3)


async def test_a_master_alone_in_its_set_stops_without_a_successor(cluster: Cluster) -> None:
    one, _ = await cluster.start(2)
    await one.stop()
    assert cluster.controller.groups[NAME].master_id == 1


async def test_fault_10_8_a_master_whose_disk_hangs_gives_its_role_away(cluster: Cluster) -> None:
    one, two = await cluster.start(2)
    await cluster.whole_set()
    store = broker_of(one).store
    store.written_end = 200
    await until(lambda: two.election.is_master)
    await until(lambda: one.election.epoch == 2)


async def test_a_restarted_master_takes_its_role_with_the_set_that_holds(cluster: Cluster) -> None:
    one, two = await cluster.start(2)
    await cluster.whole_set()
    await cluster.crash(two)
    await cluster.crash(one)
    again = await cluster.add(cluster.member(1))
    assert again.election.is_master
    assert again.election.epoch == 1
    state = broker_of(again).sync_state
    assert state is not None
    assert state.members == {1, 2}


async def test_an_application_whose_answer_was_lost_gets_the_same_id(cluster: Cluster) -> None:
    files = IdentityFiles(cluster.folder / "broker-1", "DefaultCluster", NAME)
    files.save_application(Identity("DefaultCluster", NAME, 1, "127.0.0.1:1;5"))
    one = await cluster.add(cluster.member(1))
    assert one.election.own_id == 1
    assert cluster.controller.groups[NAME].members[1].check_code == "127.0.0.1:1;5"
    # An application that another broker was quicker with: the next id.
    files = IdentityFiles(cluster.folder / "broker-2", "DefaultCluster", NAME)
    files.save_application(Identity("DefaultCluster", NAME, 1, "127.0.0.1:2;6"))
    two = await cluster.add(cluster.member(2))
    assert two.election.own_id == 2


async def test_a_copy_of_a_members_store_folder_gets_no_role(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = await cluster.start(2)
    await cluster.whole_set()
    files = IdentityFiles(cluster.folder / "broker-9", "DefaultCluster", NAME)
    files.accept(Identity("DefaultCluster", NAME, one.election.own_id))
    copy = await cluster.add(cluster.member(9))
    await until(lambda: "belongs to the broker at" in caplog.text)
    assert one.address in caplog.text
    assert copy.address in caplog.text
    assert (copy.election.epoch, broker_of(copy).config.is_slave) == (0, True)
    assert broker_of(one).events == broker_of(two).events == ["start"]
    assert cluster.controller.groups[NAME].address_of(1) == one.address


async def test_a_master_that_crashed_waits_for_the_logs_of_its_set_before_it_returns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Crashed(StandIn):
        async def start(self) -> None:
            await super().start()
            self.store.is_whole = False

    async with Cluster(make=Crashed) as cluster:
        one, two = await cluster.start(2)
        assert one.election.is_master  # alone in its first set
        await cluster.whole_set()
        await cluster.crash(one)
        again = cluster.member(1, one.ports.port)
        starting = asyncio.create_task(cluster.add(again))
        await until(lambda: "members that don't answer are waited for" in caplog.text)
        assert again.election.epoch == 0
        await until(lambda: two.election.is_master and again.election.master_id == 2)
        assert again.election.epoch == 2
        await starting


async def test_fault_10_9_members_of_a_controller_without_its_state_wait_for_an_operator(
    cluster: Cluster,
) -> None:
    one, two = await cluster.start(2)
    await cluster.whole_set()
    port = cluster.controller.port
    await cluster.controller.stop()
    await cluster.start_controller(cluster.folder / "empty", port)
    groups = cluster.controller.groups
    await until(lambda: NAME in groups and len(groups[NAME].members) == 2)
    await cluster.all_alive()
    await cluster.controller.scan()
    assert groups[NAME].master_id is None
    assert one.election.is_master  # it goes on while the other one reports
    await cluster.elect(2)
    await until(lambda: two.election.is_master and one.election.epoch == 2)


async def test_a_controller_address_that_is_the_brokers_own_stops_the_start(
    cluster: Cluster,
) -> None:
    own = cluster.controller.address
    member = cluster.member(1, cluster.controller.port)
    with pytest.raises(OSError, match=f"controllerAddr names {own}, which is this broker"):
        await member.start()
    await member.stop()


async def test_a_start_without_its_ports_can_be_stopped(cluster: Cluster) -> None:
    def taken(config: BrokerConfig) -> Ports:
        raise OSError("another program listens there")

    (one,) = await cluster.start(1)
    member = Member(one.config, cluster.make, open_ports=taken)
    with pytest.raises(OSError, match="another program"):
        await member.start()
    await member.stop()


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
    peers = Peers()
    leader = Leader(Controllers([f"127.0.0.1:{port}"], peers), "cluster", NAME, lambda: 0)
    try:
        for ask in (
            leader.election(1),
            leader.register(1, "127.0.0.1:1"),
            leader.elect(1),
            leader.alter(Election(1, 1), {1, 2}, 1),
            leader.replicas(),
            leader.next_id(),
        ):
            with pytest.raises(NoLeaderError, match="can't be read"):
                await ask
    finally:
        await peers.close()
        await server.stop()
