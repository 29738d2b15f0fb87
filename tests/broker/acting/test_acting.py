"""The slave with the smallest id acts for a master that is gone."""

import pytest
from aerobee.broker.acting.acting import not_smallest
from aerobee.broker.acting.pair_locks import PairLocks
from aerobee.broker.groups.queue_locks import CLIENT_LOCK_MS
from aerobee.broker.monitoring.overview import note
from aerobee.protocol import codes
from aerobee.protocol.headers.admin import HaAddresses
from aerobee.protocol.headers.namesrv import MinBrokerIdChange
from aerobee.protocol.headers.offsets import QueryConsumerOffset, UpdateConsumerOffset

from ...waiting import until
from .pairs import Pair

IN_VIRTUAL_TIME = True


async def test_the_slave_acts_while_its_master_is_gone_and_the_route_shows_it(pair: Pair) -> None:
    assert not pair.acting.is_acting
    assert (await pair.route())["broker-a"] == (
        {0: pair.master.address, 1: pair.slave.address},
        6,
    )
    await pair.lose_master()
    assert (await pair.route())["broker-a"] == ({0: pair.slave.address}, 4)
    assert note(pair.slave) == "acting for the master of broker-a, which is gone; start it"
    await pair.return_master()
    await until(lambda: not pair.acting.is_acting)
    assert (await pair.route())["broker-a"] == (
        {0: pair.master.address, 1: pair.slave.address},
        6,
    )


async def test_a_slave_does_not_act_while_its_master_sends_its_log(pair: Pair) -> None:
    pair.namesrv.routes.unregister("DefaultCluster", pair.master.address, "broker-a", 0)
    await pair.acting.tick()
    assert not pair.acting.is_acting
    # Silent for longer than the limit, it counts as gone.
    await pair.halt(pair.master)
    await until(lambda: pair.acting.is_acting)


async def test_a_planned_change_hands_the_queue_locks_over_both_ways(pair: Pair) -> None:
    assert await pair.lock(pair.master, "c1")
    assert not await pair.lock(pair.slave, "c1")
    await pair.lose_master()
    assert await pair.lock(pair.slave, "c1")
    assert not await pair.lock(pair.slave, "c2")
    await pair.return_master()
    assert await pair.lock(pair.master, "c1")
    assert not await pair.lock(pair.master, "c2")
    assert not await pair.lock(pair.slave, "c1")


async def test_locks_that_the_slave_did_not_need_come_back_to_the_master(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair.acting, "_why_not", lambda now_ms: "it is slow")
    assert await pair.lock(pair.master, "c1")
    await pair.halt(pair.master)
    await pair.return_master()
    assert await pair.lock(pair.master, "c1")
    assert not await pair.lock(pair.master, "c2")


async def test_a_master_without_a_slave_keeps_its_locks_for_its_next_start(pair: Pair) -> None:
    await pair.halt(pair.slave)
    assert await pair.lock(pair.master, "c1")
    await pair.halt(pair.master)
    await pair.return_master()
    assert await pair.lock(pair.master, "c1")
    assert not await pair.lock(pair.master, "c2")
    await pair.halt(pair.master)
    pair.ahead_ms += CLIENT_LOCK_MS + 1  # a slave may have acted, and is gone again
    await pair.return_master()
    assert not await pair.lock(pair.master, "c1")
    pair.alive_ahead_ms += CLIENT_LOCK_MS
    assert await pair.lock(pair.master, "c2")


async def test_one_of_master_and_slave_locks_queues_and_none_for_as_long_as_a_lock_may_last(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PairLocks, "give", lambda self: None)  # as a broker that crashes
    assert await pair.lock(pair.master, "c1")
    assert not await pair.lock(pair.slave, "c2")
    await pair.lose_master()
    assert not await pair.lock(pair.slave, "c2")
    pair.alive_ahead_ms += CLIENT_LOCK_MS
    await until(lambda: pair.acting.is_acting and pair.acting.locks.gate.is_open)
    assert await pair.lock(pair.slave, "c2")
    await pair.return_master()
    await until(lambda: not pair.acting.is_acting)
    assert not await pair.lock(pair.slave, "c1")
    assert not await pair.lock(pair.master, "c1")
    pair.alive_ahead_ms += CLIENT_LOCK_MS
    assert await pair.lock(pair.master, "c1")


async def test_a_master_that_no_name_server_lists_locks_no_queues(pair: Pair) -> None:
    await pair.returning.tick(pair.master.registration.register_all)
    pair.alive_ahead_ms += CLIENT_LOCK_MS
    assert await pair.lock(pair.master, "c1")
    await pair.namesrv.stop()
    pair.alive_ahead_ms += 11_000
    await until(lambda: not pair.returning.locks.gate.is_opening)
    assert not await pair.lock(pair.master, "c1")


async def test_offsets_of_groups_are_copied_every_few_seconds(pair: Pair) -> None:
    where = ("cg", "T", 0)
    pair.master.offsets.commit("T", "cg", 0, 4)
    pair.ahead_ms += 3_000
    await pair.replica.tick()
    answer = await pair.caller(pair.slave).ask(
        codes.QUERY_CONSUMER_OFFSET, QueryConsumerOffset(*where)
    )
    assert answer.fields() == {"offset": "4"}


async def test_an_offset_reported_to_the_slave_reaches_a_master_that_is_back(pair: Pair) -> None:
    await until(lambda: pair.replica.sync.synced_ms > 0)
    caller = pair.caller(pair.slave)
    await caller.heartbeat(topics={"T": "*"})
    answer = await caller.ask(codes.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffset("cg", "T", 0, 7))
    assert answer.code == codes.SUCCESS, answer.remark
    await until(lambda: pair.master.offsets.get("T", "cg", 0) == 7)


async def test_a_notice_is_only_the_occasion_to_ask_the_name_servers(pair: Pair) -> None:
    caller = pair.caller(pair.slave)
    for notice in (
        MinBrokerIdChange(1, "broker-a", pair.slave.address, pair.master.address, None),
        MinBrokerIdChange(7, "nonsense", "nowhere", "x:y", "\x00"),
        MinBrokerIdChange(-1, None, None, None, None),
        MinBrokerIdChange(),
    ):
        answer = await caller.ask(codes.NOTIFY_MIN_BROKER_ID_CHANGE, notice)
        assert answer.code == codes.SUCCESS
        await pair.acting.tick()
        assert not pair.acting.is_acting
    assert pair.replica.master() == pair.master.address


@pytest.mark.parametrize("told", ["nowhere", "the other broker", "another port"])
async def test_a_false_announcement_of_a_master_is_not_followed(
    pair: Pair, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    await pair.lose_master()
    slave = pair.slave.ha_slave
    assert slave is not None
    before = slave.master
    other, port = pair.other.address, pair.other.ha_port
    header = {
        "nowhere": HaAddresses("127.0.0.1:1", 0, "127.0.0.1:1"),
        "the other broker": HaAddresses(f"127.0.0.1:{port}", 0, other),
        "another port": HaAddresses("127.0.0.1:9", 0, other),
    }[told]
    answer = await pair.caller(pair.slave).ask(codes.EXCHANGE_BROKER_HA_INFO, header)
    assert answer.code == codes.SUCCESS
    await until(lambda: "not following the master announced" in caplog.text)
    assert slave.master == before
    assert pair.acting.is_acting


async def test_a_master_tells_where_it_replicates(pair: Pair) -> None:
    answer = await pair.caller(pair.master).ask(codes.EXCHANGE_BROKER_HA_INFO, HaAddresses())
    assert answer.fields() == {
        "masterHaAddress": f"127.0.0.1:{pair.master.ha_port}",
        "masterFlushOffset": str(pair.master.store.durable_end),
        "masterAddress": pair.master.address,
    }


async def test_of_two_brokers_with_one_id_only_one_acts(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    twin = await pair.broker("twin", broker_role="SLAVE", broker_id=1)
    assert twin.acting is not None
    await pair.halt(pair.master)
    await until(lambda: twin.acting is not None and twin.acting.is_acting)
    await until(lambda: "brokerId 1 is that of another broker, too" in caplog.text)
    assert not pair.acting.is_acting


async def test_a_sync_master_refuses_sends_at_once_while_its_slave_is_away(pair: Pair) -> None:
    await pair.halt(pair.master)
    await pair.return_master(broker_role="SYNC_MASTER", in_sync_replicas=2)
    master, caller = pair.master, pair.caller(pair.master)
    await until(lambda: not master.syncer.shortage)
    assert (await caller.send("T", b"0")).code == codes.SUCCESS
    await pair.halt(pair.slave)
    await until(lambda: bool(master.syncer.shortage))
    refused = await caller.send("T", b"1")
    assert refused.code == codes.SYSTEM_ERROR
    assert (refused.remark or "").startswith("in-sync replicas not enough: 1 ")
    assert master.store.max_offset("T", 0) == 1
    assert (await caller.send("T", b"2", WAIT="false")).code == codes.SUCCESS
    # Fewer may do.
    master.config.enable_auto_in_sync_replicas = True
    await until(lambda: not master.syncer.shortage)
    assert (await caller.send("T", b"3")).code == codes.SUCCESS
    master.config.min_in_sync_replicas = 2
    await until(lambda: bool(master.syncer.shortage))
    assert (await caller.send("T", b"4")).code == codes.SYSTEM_ERROR
    assert await pair.bodies(master) == [b"0", b"2", b"3"]


def test_the_smallest_id_of_the_group_acts() -> None:
    assert not_smallest(1, "b:1", {1: ["b:1"], 2: ["c:1"]}) == ""
    assert not_smallest(2, "c:1", {1: ["b:1"], 2: ["c:1"]}) == "broker 1 is alive at b:1"
    assert not_smallest(1, "b:1", {0: ["a:1"], 1: ["b:1"]}) == "broker 0 is alive at a:1"
    assert not_smallest(1, "b:1", {2: ["c:1"]}) == "no name server lists it"
    assert not_smallest(1, "b:1", {}) == "no name server lists it"
    assert "give each broker of a name its own" in not_smallest(1, "b:1", {1: ["x:1", "b:1"]})
