"""Controllers that keep their state in etcd, against a stand-in for etcd."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aerobee.controller import etcd
from aerobee.controller.config import ControllerConfig
from aerobee.controller.etcd import EtcdEngine
from aerobee.controller.etcd_gateway import EtcdGateway, Same
from aerobee.controller.server import Controller
from aerobee.protocol import codes
from aerobee.protocol.command import Command
from aerobee.protocol.headers import controller as headers

from ..clocks import Clock
from ..waiting import LONG, until
from .etcd_stand_in import EtcdStandIn
from .support import CLUSTER, NAME
from .test_server import Member

PREFIX = "/aerobee/controller/"
LEASE_MS = etcd.LEASE_SECONDS * 1_000


class Cluster:
    """An etcd and two controllers, each of which reaches etcd by a URL of its own."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.etcd = EtcdStandIn(self.clock)
        self.timeout_ms = 3_000  # of a controller's requests to etcd
        self.controllers: list[Controller] = []
        self.members: list[Member] = []

    def controller(self, number: int) -> Controller:
        config = ControllerConfig(
            listen_port=0,
            controller_type="etcd",
            controller_etcd_endpoints=self.etcd.urls[number],
            controller_etcd_timeout_mills=self.timeout_ms,
            controller_dleger_self_id=f"n{number}",
        )
        return Controller(config, self.clock)

    async def start(self) -> tuple[Controller, Controller]:
        """Both controllers; the first one leads."""
        await self.etcd.start()
        for number in range(2):
            self.controllers.append(self.controller(number))
            await self.controllers[number].start()
            await until(lambda: self.controllers[0].engine.is_leader)
        one, two = self.controllers
        await until(lambda: two.engine.leading.address == one.address)
        return one, two

    async def member(self, broker_id: int, at: Controller) -> Member:
        found = Member(at, broker_id)
        await found.start()
        self.members.append(found)
        return found

    async def stop(self) -> None:
        for member in self.members:
            await member.stop()
        self.etcd.silent.clear()
        for controller in self.controllers:
            await controller.stop()
        await self.etcd.stop()

    async def cut_off(self, one: Controller, two: Controller) -> None:
        """`one` reaches etcd no more, and `two` leads."""
        self.etcd.silent.add(self.controllers.index(one))
        self.clock.ms += LEASE_MS
        await until(lambda: two.engine.is_leader)

    async def time_passes(self, ms: int) -> None:
        """In steps, so that the leader renews its lease."""
        for _ in range(0, ms, 500):
            self.clock.ms += 500
            count = self.renewals
            await until(lambda: self.renewals > count + 1)  # noqa: B023

    @property
    def renewals(self) -> int:
        return sum(path == "lease/keepalive" for path, _ in self.etcd.asked)

    def stored(self) -> dict[str, object]:
        return self.etcd.values(f"{PREFIX}replicas/")


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr(etcd, "ROUND_SECONDS", 0.002)
    monkeypatch.setattr(etcd, "RENEW_SECONDS", 0.002)
    found = Cluster()
    yield found
    await found.stop()


async def metadata(member: Member) -> headers.GetMetadataResponse:
    return (await member.ask(codes.CONTROLLER_GET_METADATA_INFO)).header(
        headers.GetMetadataResponse
    )


async def replicas(member: Member) -> Command:
    return await member.ask(codes.CONTROLLER_GET_REPLICA_INFO, headers.GetReplicaInfo(NAME))


async def test_one_controller_leads_and_the_other_one_names_it(cluster: Cluster) -> None:
    one, two = await cluster.start()
    member = await cluster.member(1, two)
    assert not two.engine.is_leader
    found = await metadata(member)
    assert (found.controller_leader_id, found.is_leader) == ("n0", False)
    assert found.controller_leader_address == one.address
    next_id = headers.GetNextBrokerId(NAME, CLUSTER)
    for code, header in (
        (codes.CONTROLLER_GET_REPLICA_INFO, headers.GetReplicaInfo(NAME)),
        (codes.CONTROLLER_GET_NEXT_BROKER_ID, next_id),
        (codes.CONTROLLER_APPLY_BROKER_ID, headers.ApplyBrokerId(NAME, 1, "h:1;1", CLUSTER)),
        (codes.CONTROLLER_GET_SYNC_STATE_DATA, None),
        (codes.CONTROLLER_ELECT_MASTER, headers.ElectMaster(CLUSTER, NAME, 1, False)),
    ):
        response = await member.ask(code, header)
        assert response.code == codes.CONTROLLER_NOT_LEADER, code
        assert response.remark == "The controller is not in leader state"
    await member.beat()  # each controller takes heartbeats
    assert not cluster.stored()


async def test_the_other_controller_goes_on_with_the_sets(cluster: Cluster) -> None:
    one, two = await cluster.start()
    member = await cluster.member(1, one)
    await member.join()
    assert (await member.elect()).code == codes.SUCCESS
    groups = one.groups
    await cluster.cut_off(one, two)
    assert two.groups == groups
    assert two.groups[NAME].master_id == 1
    member.controller = two
    await member.beat(1, 100)
    assert (await replicas(member)).fields()["masterEpoch"] == "1"


async def test_a_controller_that_stops_gives_its_lease_back(cluster: Cluster) -> None:
    one, two = await cluster.start()
    await one.stop()
    await until(lambda: two.engine.is_leader)  # the clock stands still


async def test_a_leader_whose_lease_may_be_over_answers_as_leader_no_more(
    cluster: Cluster,
) -> None:
    one, two = await cluster.start()
    member = await cluster.member(1, one)
    await member.join()
    assert (await replicas(member)).code == codes.SUCCESS
    cluster.etcd.silent.add(0)
    cluster.clock.ms += LEASE_MS * 9 // 10
    assert (await replicas(member)).code == codes.CONTROLLER_NOT_LEADER
    assert not two.engine.is_leader  # for etcd the lease still holds
    assert not (await metadata(member)).is_leader


async def test_a_new_leader_calls_nobody_dead_before_the_brokers_timeout(
    cluster: Cluster,
) -> None:
    one, two = await cluster.start()
    first, second = await cluster.member(1, one), await cluster.member(2, one)
    await first.join()
    await second.join()
    await first.elect()
    await first.beat(1)
    header = headers.AlterSyncStateSet(NAME, 1, 1)
    body = b'{"syncStateSet":[1,2],"syncStateSetEpoch":1}'
    assert (await first.ask(codes.CONTROLLER_ALTER_SYNC_STATE_SET, header, body)).code == 0
    for member in (first, second):
        member.controller = two
        await member.beat(1)
    await cluster.cut_off(one, two)  # after 5 s of silence
    await cluster.time_passes(5_500)
    await second.beat(1)
    await two.scan()
    assert two.groups[NAME].master_id == 1  # 10.5 s silent, but this leader has led for 5.5 s
    await cluster.time_passes(5_000)
    await second.beat(1)
    await two.scan()
    assert two.groups[NAME].master_id == 2


async def change_of_a_deposed_leader(cluster: Cluster) -> None:
    """A leader's change is under way to etcd when its lease ends and another controller leads."""
    one, two = await cluster.start()
    first = await cluster.member(1, one)
    await first.join()
    await first.elect()
    begun, may_go_on = asyncio.Event(), asyncio.Event()

    async def hold_the_first() -> None:
        if not begun.is_set():
            begun.set()
            await may_go_on.wait()

    cluster.etcd.at_txn = hold_the_first
    second = await cluster.member(2, one)
    header = headers.ApplyBrokerId(NAME, 2, f"{second.address};2", CLUSTER)
    asked = asyncio.create_task(second.ask(codes.CONTROLLER_APPLY_BROKER_ID, header))
    await asyncio.wait_for(begun.wait(), LONG)
    await cluster.cut_off(one, two)
    before = cluster.stored()
    may_go_on.set()
    response = await asked
    assert response.code in (codes.CONTROLLER_NOT_LEADER, codes.SYSTEM_ERROR), response.remark
    assert cluster.stored() == before
    assert list(two.groups[NAME].members) == [1]


async def test_a_change_of_a_controller_that_leads_no_more_is_refused_by_etcd(
    cluster: Cluster,
) -> None:
    await change_of_a_deposed_leader(cluster)


@pytest.mark.parametrize("kept", ["none", "the name's revision"])
async def test_planted_an_etcd_change_without_comparison_is_found(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    transaction = EtcdGateway._transaction

    async def forgetful(self: EtcdGateway, conditions: list[Same], change: object) -> object:
        if len(conditions) > 1:  # not the one for the leader's key
            conditions = [] if kept == "none" else conditions[2:]
        return await transaction(self, conditions, change)  # type: ignore[arg-type]

    monkeypatch.setattr(EtcdGateway, "_transaction", forgetful)
    with pytest.raises(AssertionError):
        await change_of_a_deposed_leader(cluster)


async def test_a_change_whose_outcome_is_unknown_ends_the_term_and_is_read_again(
    cluster: Cluster,
) -> None:
    cluster.timeout_ms = 200
    one, two = await cluster.start()
    await two.stop()
    lost, may_answer = asyncio.Event(), asyncio.Event()

    async def lose_the_first() -> None:
        if not lost.is_set():
            lost.set()
            await may_answer.wait()

    cluster.etcd.after_txn = lose_the_first
    member = await cluster.member(1, one)
    header = headers.ApplyBrokerId(NAME, 1, f"{member.address};1", CLUSTER)
    response = await member.ask(codes.CONTROLLER_APPLY_BROKER_ID, header)
    assert response.code == codes.SYSTEM_ERROR
    assert "could not be stored: etcd did not answer kv/txn" in (response.remark or "")
    may_answer.set()
    await until(lambda: one.engine.is_leader)
    assert list(one.groups[NAME].members) == [1]


async def test_a_late_transaction_has_no_effect_in_the_next_term(cluster: Cluster) -> None:
    cluster.timeout_ms = 200
    one, two = await cluster.start()
    await two.stop()
    begun, may_go_on, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def delay_the_first() -> None:
        if not begun.is_set():
            begun.set()
            await may_go_on.wait()
            done.set()

    cluster.etcd.at_txn = delay_the_first
    member = await cluster.member(1, one)
    header = headers.ApplyBrokerId(NAME, 1, f"{member.address};1", CLUSTER)
    response = await member.ask(codes.CONTROLLER_APPLY_BROKER_ID, header)
    assert response.code == codes.SYSTEM_ERROR
    await until(lambda: one.engine.is_leader)
    may_go_on.set()
    await asyncio.wait_for(done.wait(), LONG)
    assert not cluster.stored()
    assert not one.groups


async def test_a_name_that_another_program_changed_is_read_again(cluster: Cluster) -> None:
    one, two = await cluster.start()
    await two.stop()
    member = await cluster.member(1, one)
    await member.join()
    (key,) = [key for key in cluster.etcd.keys if b"replicas" in key]
    cluster.etcd.put(key.decode(), b'{"version":1,"group":{"cluster":"c","name":"broker-a"}}')
    response = await member.elect()
    assert response.code == codes.SYSTEM_ERROR
    assert "another program changed it" in (response.remark or "")
    await until(lambda: one.engine.is_leader)
    assert not one.groups[NAME].members


async def test_a_removed_name_is_gone_for_the_next_leader_too(cluster: Cluster) -> None:
    one, two = await cluster.start()
    member = await cluster.member(1, one)
    await member.join()
    header = headers.CleanBrokerData(NAME, CLUSTER, None, is_clean_living_broker=True)
    assert (await member.ask(codes.CLEAN_BROKER_DATA, header)).code == codes.SUCCESS
    assert not one.groups
    assert not cluster.stored()
    await one.stop()
    await until(lambda: two.engine.is_leader)
    assert not two.groups


async def test_many_names_come_in_pages(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aerobee.controller.etcd_gateway.KEYS_A_PAGE", 2)
    await cluster.etcd.start()
    for number in range(5):
        value = b'{"version":1,"group":{"cluster":"c","name":"b%d","master_epoch":%d}}'
        cluster.etcd.put(f"{PREFIX}replicas/b{number}", value % (number, number))
    cluster.etcd.put(f"{PREFIX}replicas0", b"not ours")
    cluster.controllers.append(cluster.controller(0))
    await cluster.controllers[0].start()
    await until(lambda: cluster.controllers[0].engine.is_leader)
    groups = cluster.controllers[0].groups
    assert [(name, group.master_epoch) for name, group in groups.items()] == [
        (f"b{number}", number) for number in range(5)
    ]


async def test_a_wiped_etcd_elects_nobody_while_a_broker_knows_a_newer_epoch(
    cluster: Cluster,
) -> None:
    one, two = await cluster.start()
    await two.stop()
    member = await cluster.member(1, one)
    await member.join()
    await member.elect()
    await member.beat(1, 100)
    cluster.etcd.wipe()
    await until(lambda: not one.engine.is_leader)
    await until(lambda: one.engine.is_leader)
    assert not one.groups
    assert (await replicas(member)).code == codes.CONTROLLER_BROKER_METADATA_NOT_EXIST
    await member.join()
    response = await member.elect()
    assert response.code == codes.CONTROLLER_ELECT_MASTER_FAILED
    assert "knows master epoch 1, this controller only 0" in (response.remark or "")


async def test_after_a_wipe_the_same_revisions_are_no_proof(cluster: Cluster) -> None:
    one, two = await cluster.start()
    engine = one.engine
    assert isinstance(engine, EtcdEngine)
    old = cluster.etcd.keys[f"{PREFIX}leader".encode()]
    cluster.etcd.silent.add(0)
    cluster.etcd.wipe()
    cluster.etcd.next_lease = 7_000
    await until(lambda: two.engine.is_leader)
    new = cluster.etcd.keys[f"{PREFIX}leader".encode()]
    assert new.create_revision == old.create_revision
    cluster.etcd.silent.clear()
    member = await cluster.member(1, one)
    header = headers.ApplyBrokerId(NAME, 1, f"{member.address};1", CLUSTER)
    response = await member.ask(codes.CONTROLLER_APPLY_BROKER_ID, header)
    assert response.code == codes.CONTROLLER_NOT_LEADER
    assert not cluster.stored()


async def test_a_restarted_etcd_keeps_the_leader(cluster: Cluster) -> None:
    one, two = await cluster.start()
    await cluster.etcd.stop()
    await cluster.etcd.start()
    member = await cluster.member(1, one)
    renewed = len(cluster.etcd.asked)
    await until(lambda: any(path == "lease/keepalive" for path, _ in cluster.etcd.asked[renewed:]))
    await member.join()
    assert list(one.groups[NAME].members) == [1]
    assert not two.engine.is_leader


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("replicas/x", b"hello", "is no controller's"),
        ("replicas/x", b'{"version":1,"group":{"cluster":"c","name":"y"}}', "broker name 'y'"),
        ("replicas/x", b'{"version":9,"group":{"cluster":"c","name":"x"}}', "it has version 9"),
        ("leader", b"{}", "is no controller's"),
    ],
)
async def test_a_foreign_key_is_shown_and_nobody_leads(
    cluster: Cluster, key: str, value: bytes, reason: str
) -> None:
    await cluster.etcd.start()
    cluster.etcd.put(PREFIX + key, value)
    controller = cluster.controller(0)
    cluster.controllers.append(controller)
    await controller.start()
    await until(lambda: bool(controller.engine.fault))
    assert reason in controller.engine.fault
    assert f"{PREFIX}{key}" in controller.engine.fault
    assert "controllerEtcdPrefix" in controller.engine.fault
    assert not controller.engine.is_leader
    cluster.etcd.wipe()
    await until(lambda: controller.engine.is_leader)
    assert not controller.engine.fault


async def test_an_etcd_without_an_answer_is_asked_again(cluster: Cluster) -> None:
    await cluster.etcd.start()
    await cluster.etcd.stop()
    controller = cluster.controller(0)
    cluster.controllers.append(controller)
    await controller.start()
    member = await cluster.member(1, controller)
    await until(lambda: "most of etcd's members run" in controller.engine.fault)
    assert (await replicas(member)).code == codes.CONTROLLER_NOT_LEADER
    assert (await metadata(member)).controller_leader_address is None
    await cluster.etcd.start()
    await until(lambda: controller.engine.is_leader)
