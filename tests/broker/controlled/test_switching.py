"""Real brokers that change their roles in this process: messages, tables, requests, refusals."""

from datetime import datetime
from typing import Any

from aerobee.broker import server
from aerobee.broker.controlled.member import Member
from aerobee.broker.groups.queue_locks import CLIENT_LOCK_MS
from aerobee.broker.monitoring.overview import note, overview
from aerobee.protocol import codes
from aerobee.protocol.bodies.ha import EpochEntryCache
from aerobee.protocol.bodies.route import TopicRouteData
from aerobee.protocol.headers.controller import NotifyRoleChanged
from aerobee.protocol.headers.offsets import UpdateConsumerOffset
from aerobee.store.files import json_file

from ...steps import result_of
from ...waiting import LONG, until
from .brokers import Brokers, broker_of
from .members import NAME

IN_VIRTUAL_TIME = True

AUTHORITY_MS = 8_000  # for so long a master that crashed may have given locks


def age_ms(member: Member[Any]) -> int:
    """The time for which the member has had its role."""
    membership = broker_of(member).membership
    assert membership is not None
    return server.wall_clock_ms() - membership.since_ms


async def test_the_next_master_has_messages_topics_and_the_route(brokers: Brokers) -> None:
    one, two = await brokers.start(2)
    await brokers.in_set(1, 2)
    assert (await brokers.send(one, b"before")).code == codes.SUCCESS
    await brokers.elect(2)
    await until(
        lambda: two.election.is_master and one.election.epoch == 2 and one.broker is not None
    )
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
    await until(lambda: two.election.is_master)
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
    await until(lambda: two.election.is_master)
    code = codes.GET_BROKER_EPOCH_CACHE
    answer = await brokers.peers.request(two.address, code, timeout_s=LONG)
    found = EpochEntryCache.decode(answer.body)
    assert (found.broker_id, found.broker_name, found.max_offset) == (0, NAME, end)
    spans = [(one.epoch, one.start_offset, one.end_offset) for one in found.epoch_list]
    assert spans == [(1, 0, end), (2, end, (1 << 63) - 1)]
    code = codes.EXCHANGE_BROKER_HA_INFO
    answer = await brokers.peers.request(two.address, code, timeout_s=LONG)
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
    assert (one.broker, one.election.epoch) == (broker, 1)


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
    assert answer.code == codes.SUBSCRIPTION_GROUP_NOT_EXIST  # it is checked again
    assert await brokers.bodies(one, commit=1) == [b"x"]
    assert broker.offsets.to_body().offset_table == {"T@r": {1: 1}}


async def test_a_new_master_locks_no_queue_while_one_may_be_locked_at_a_master_that_crashed(
    brokers: Brokers,
) -> None:
    one, two = await brokers.start(2)
    await brokers.in_set(1, 2)
    assert await brokers.lock(one, "c1")  # the first master had none before it
    assert not await brokers.lock(two, "c2")
    await brokers.crash(one)
    await until(lambda: two.election.is_master)
    assert not await brokers.lock(two, "c1")
    # The controller has named it, so what refuses the lock is the gate.
    await until(lambda: two.broker is not None and two.broker.role.change_refusal() is None)
    assert not await brokers.lock(two, "c1")
    await brokers.until_locked(two, "c1")
    assert age_ms(two) >= AUTHORITY_MS + CLIENT_LOCK_MS
    assert not await brokers.lock(two, "c2")


async def test_a_master_that_was_elected_by_hand_has_the_locks_of_the_one_before(
    brokers: Brokers,
) -> None:
    one, two = await brokers.start(2)
    await brokers.in_set(1, 2)
    assert await brokers.lock(one, "c1")
    await brokers.elect(2)
    await until(
        lambda: two.election.is_master and one.election.epoch == 2 and one.broker is not None
    )
    assert not await brokers.lock(one, "c1")
    await brokers.until_locked(two, "c1")
    assert not await brokers.lock(two, "c2")
    await brokers.in_set(1, 2)
    await brokers.elect(1)  # and back
    await until(lambda: one.election.is_master and one.election.epoch == 3)
    await brokers.until_locked(one, "c1")
    assert not await brokers.lock(one, "c2")


async def test_a_master_that_stops_hands_its_locks_to_the_next(brokers: Brokers) -> None:
    one, two = await brokers.start(2)
    await brokers.in_set(1, 2)
    assert await brokers.lock(one, "c1")
    brokers.members.remove(one)
    await one.stop()
    await until(lambda: two.election.is_master)
    assert not await brokers.lock(two, "c2")
    assert await brokers.lock(two, "c1")
    # The one that stopped has no locks to come back with.
    assert not json_file.exists(brokers.folder / "broker-1" / "config" / "queueLocks.json")


async def test_a_master_alone_has_its_locks_after_a_clean_stop(brokers: Brokers) -> None:
    (one,) = await brokers.start(1)
    assert await brokers.lock(one, "c1")
    one = await brokers.again(one, hand_over=True)
    await until(lambda: one.election.is_master)
    assert not await brokers.lock(one, "c2")
    assert await brokers.lock(one, "c1")


async def test_a_master_alone_locks_no_queue_after_a_crash(brokers: Brokers) -> None:
    (one,) = await brokers.start(1)
    assert await brokers.lock(one, "c1")
    one = await brokers.again(one, hand_over=False)
    await until(lambda: one.election.is_master)
    assert not await brokers.lock(one, "c1")
    await brokers.until_locked(one, "c1")
    assert age_ms(one) >= AUTHORITY_MS + CLIENT_LOCK_MS


async def test_locks_that_are_no_table_are_refused(brokers: Brokers) -> None:
    (one,) = await brokers.start(1)
    code = codes.HAND_OVER_QUEUE_LOCKS
    answer = await brokers.peers.request(one.address, code, None, b'{"epoch":')
    assert answer.code == codes.SYSTEM_ERROR
    assert "no table of queue locks" in (answer.remark or "")


async def test_the_status_tells_role_set_and_last_switch(brokers: Brokers) -> None:
    one, two = await brokers.start(2)
    state = broker_of(one).sync_state
    assert state is not None
    await until(lambda: state.members == {1, 2})
    found = result_of(overview(broker_of(one)))
    assert (found["master_id"], found["master"]) == (1, one.address)
    assert found["master_epoch"] == 1
    assert found["sync_state_set"] == [1, 2]
    assert found["sync_state_set_number"] > 0
    assert found["switches"] == 1
    assert datetime.fromisoformat(found["last_switch"]).tzinfo is not None
    assert result_of(overview(broker_of(two)))["broker_id"] == 2
