"""Real brokers that change their roles in this process: messages, tables, requests, refusals."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aerobee.broker.groups.queue_lock_gate import CLIENT_LOCK_MS
from aerobee.broker.member.member import Member
from aerobee.broker.monitoring.overview import note, overview
from aerobee.broker.server import Broker
from aerobee.namesrv.config import NamesrvConfig
from aerobee.namesrv.server import NameServer
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.bodies.ha import EpochEntryCache
from aerobee.protocol.bodies.queues import LockBatchRequestBody, LockBatchResponseBody
from aerobee.protocol.bodies.route import TopicRouteData
from aerobee.protocol.command import Command
from aerobee.protocol.headers.controller import ElectMaster, NotifyRoleChanged
from aerobee.protocol.headers.offsets import UpdateConsumerOffset
from aerobee.protocol.headers.pull import COMMIT_OFFSET, SUBSCRIPTION, PullMessage
from aerobee.protocol.headers.send import SendMessage
from aerobee.protocol.message.record import decode_all
from aerobee.scripts.broker_endpoint import member_endpoint

from ...steps import result_of
from .members import NAME, Cluster, until

SECONDS = 60


class Brokers(Cluster):
    """Members with real brokers, and a name server."""

    def __init__(self, folder: Path) -> None:
        small = {
            "mapped_file_size_commit_log": 1 << 20,
            "mapped_file_size_timer_log": 1 << 20,
            "max_hash_slot_num": 1_000,
            "max_index_num": 4_000,
            "http_port": 0,
        }
        super().__init__(folder, Broker, **small)

    async def __aenter__(self) -> "Brokers":
        self.names = NameServer(NamesrvConfig(listen_port=0))
        await self.names.start()
        self.settings["namesrv_addr"] = self.names.address
        self.peers = Peers(upgrade=False)
        await super().__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        await self.peers.close()
        await self.names.stop()

    async def in_set(self, *ids: int) -> None:
        groups = self.controller.groups
        await until(lambda: NAME in groups and groups[NAME].sync_set == list(ids))

    async def send(self, member: Member, body: bytes) -> Command:
        header = SendMessage("pg", "T", "TBW102", 4, 1, 0, 1, 0, "", 0)
        code = codes.SEND_MESSAGE_V2
        return await self.peers.request(member.address, code, header, body, SECONDS)

    async def lock(self, member: Member, client_id: str) -> bool:
        """Whether this client gets queue 1."""
        queue = MessageQueue("T", NAME, 1)
        body = LockBatchRequestBody("g", client_id, mq_set=[queue]).encode()
        code = codes.LOCK_BATCH_MQ
        answer = await self.peers.request(member.address, code, None, body, SECONDS)
        if answer.code != codes.SUCCESS:
            return False
        return LockBatchResponseBody.decode(answer.body).lock_ok_mq_set == [queue]

    async def bodies(self, member: Member, commit: int | None = None) -> list[bytes]:
        """What a pull gets, which commits this offset."""
        flags = SUBSCRIPTION if commit is None else SUBSCRIPTION | COMMIT_OFFSET
        header = PullMessage("r", "T", 1, 0, 32, flags, commit or 0, 0, 0, "*")
        answer = await self.peers.request(member.address, codes.PULL_MESSAGE, header, b"", SECONDS)
        return [record.body for record in decode_all(answer.body or b"")]

    async def elect(self, broker_id: int) -> None:
        header = ElectMaster("DefaultCluster", NAME, broker_id, True)
        code = codes.CONTROLLER_ELECT_MASTER
        answer = await self.peers.request(self.controller.address, code, header)
        assert answer.code == codes.SUCCESS, answer.remark


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with Brokers(tmp_path) as found:
        yield found


def broker_of(member: Member) -> Broker:
    assert member.broker is not None
    return member.broker


async def test_the_next_master_has_messages_topics_and_the_route(brokers: Brokers) -> None:
    one, two = await brokers.start(2)
    await brokers.in_set(1, 2)
    assert (await brokers.send(one, b"before")).code == codes.SUCCESS
    await brokers.elect(2)
    await until(lambda: two.role.is_master and one.role.epoch == 2 and one.broker is not None)
    assert (await brokers.send(two, b"after")).code == codes.SUCCESS
    assert await brokers.bodies(two) == [b"before", b"after"]
    refused = await brokers.send(one, b"lost")
    assert refused.code == codes.SYSTEM_BUSY
    assert f"its master is {two.address}, take it there" in (refused.remark or "")
    await brokers.in_set(1, 2)
    assert broker_of(one).store.log_end == broker_of(two).store.log_end
    answer = await brokers.peers.request(
        brokers.names.address, codes.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}
    )
    (broker,) = TopicRouteData.decode(answer.body).broker_datas
    assert broker.broker_addrs == {0: two.address, 1: one.address}


async def test_fault_10_7_a_topic_that_only_the_log_knows_is_made_by_the_next_master(
    brokers: Brokers,
) -> None:
    one, two = await brokers.start(2)
    await brokers.in_set(1, 2)
    await brokers.send(one, b"x")
    broker_of(two).topics.delete("T")
    await brokers.elect(2)
    await until(lambda: two.role.is_master)
    topic = broker_of(two).topics.get("T")
    assert topic is not None
    assert topic.write_queue_nums >= 2  # queue 1 has the message
    assert broker_of(two).topics.version.state_version == 2


async def test_epochs_and_addresses_are_told_as_by_rocketmq(brokers: Brokers) -> None:
    one, two = await brokers.start(2)
    await brokers.in_set(1, 2)
    await brokers.send(one, b"x")
    end = broker_of(one).store.log_end
    await brokers.elect(2)
    await until(lambda: two.role.is_master)
    answer = await brokers.peers.request(two.address, codes.GET_BROKER_EPOCH_CACHE)
    found = EpochEntryCache.decode(answer.body)
    assert (found.broker_id, found.broker_name, found.max_offset) == (0, NAME, end)
    spans = [(one.epoch, one.start_offset, one.end_offset) for one in found.epoch_list]
    assert spans == [(1, 0, end), (2, end, (1 << 63) - 1)]
    answer = await brokers.peers.request(two.address, codes.EXCHANGE_BROKER_HA_INFO)
    fields = answer.fields()
    assert fields["masterHaAddress"] == f"127.0.0.1:{broker_of(two).ha_port}"
    assert fields["masterAddress"] == two.address


async def test_a_notice_that_nobody_elected_changes_nothing(brokers: Brokers) -> None:
    (one,) = await brokers.start(1)
    broker = one.broker
    false = NotifyRoleChanged("127.0.0.1:1", 9, 9, 2)
    code = codes.NOTIFY_BROKER_ROLE_CHANGED
    assert (await brokers.peers.request(one.address, code, false)).code == codes.SUCCESS
    assert (await brokers.send(one, b"x")).code == codes.SUCCESS
    assert (one.broker, one.role.epoch) == (broker, 1)


async def test_fault_10_1_a_master_that_nobody_confirms_refuses_changes_and_still_reads(
    brokers: Brokers,
) -> None:
    one, two = await brokers.start(2)
    await brokers.in_set(1, 2)
    await brokers.send(one, b"x")
    port = brokers.controller.port
    await brokers.controller.stop()
    brokers.members.remove(two)
    await two.stop()
    brokers.clock.ms += 8_000
    broker = broker_of(one)
    await until(lambda: broker.store.pause_reason is not None)
    refused = await brokers.send(one, b"y")
    assert refused.code == codes.SERVICE_NOT_AVAILABLE
    assert "neither the controller nor every other member" in (refused.remark or "")
    offset = UpdateConsumerOffset("g", "T", 1, 1)
    answer = await brokers.peers.request(one.address, codes.UPDATE_CONSUMER_OFFSET, offset)
    assert answer.code == codes.SERVICE_NOT_AVAILABLE
    assert "takes no changes" in (note(broker) or "")
    assert await brokers.bodies(one, commit=1) == [b"x"]
    assert not broker.offsets.to_body().offset_table
    await brokers.start_controller(brokers.folder / "controller", port)
    await until(lambda: broker.store.pause_reason is None)
    answer = await brokers.peers.request(one.address, codes.UPDATE_CONSUMER_OFFSET, offset)
    assert answer.code == codes.SUBSCRIPTION_GROUP_NOT_EXIST  # it is looked at again
    assert await brokers.bodies(one, commit=1) == [b"x"]
    assert broker.offsets.to_body().offset_table == {"T@r": {1: 1}}


async def test_a_new_master_locks_no_queue_while_one_may_be_locked_at_the_master_before(
    brokers: Brokers,
) -> None:
    one, two = await brokers.start(2)
    await brokers.in_set(1, 2)
    assert await brokers.lock(one, "c1")  # the first master had none before it
    assert not await brokers.lock(two, "c2")
    await brokers.elect(2)
    await until(lambda: two.role.is_master and one.role.epoch == 2 and one.broker is not None)
    assert not await brokers.lock(one, "c1")
    assert not await brokers.lock(two, "c1")
    authority_ms = 8_000  # for so long the old master may give locks
    brokers.clock.ms += authority_ms + CLIENT_LOCK_MS - 1
    # The controller has named it again, so what refuses the lock is the gate.
    await until(lambda: two.broker is not None and two.broker.change_refusal() is None)
    assert not await brokers.lock(two, "c1")
    brokers.clock.ms += 1
    async with asyncio.timeout(SECONDS):
        # Until the controller has named it again.
        while not await brokers.lock(two, "c1"):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert not await brokers.lock(two, "c2")


async def test_a_master_that_starts_again_locks_no_queue_at_once(brokers: Brokers) -> None:
    (one,) = await brokers.start(1)
    assert await brokers.lock(one, "c1")
    brokers.members.remove(one)
    await one.stop()
    again = brokers.member(1)
    brokers.members.append(again)
    await again.start()
    assert again.role.is_master
    assert not await brokers.lock(again, "c1")
    brokers.clock.ms += 8_000 + CLIENT_LOCK_MS
    async with asyncio.timeout(SECONDS):
        while not await brokers.lock(again, "c1"):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_the_status_page_shows_role_set_and_last_switch(brokers: Brokers) -> None:
    one, two = await brokers.start(2)
    state = broker_of(one).sync_state
    assert state is not None
    await until(lambda: state.members == {1, 2})
    facts = dict(result_of(overview(broker_of(one)))[1])
    assert facts["Master"] == f"1 at {one.address}"
    assert facts["Master epoch"] == 1
    assert str(facts["Sync state set"]).startswith("1, 2 (number ")
    assert str(facts["Last switch"]).endswith(", 1 since the start")
    assert dict(result_of(overview(broker_of(two)))[1])["Id in controller mode"] == 2
    endpoint = member_endpoint(two)
    await endpoint.start()
    assert endpoint.url is not None
    await endpoint.stop()
