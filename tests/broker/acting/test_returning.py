"""A master that returns takes offsets and progress back before it registers."""

import asyncio

import pytest
from aerobee.broker import server
from aerobee.broker.acting import returning, taking
from aerobee.broker.replication.synchronize import SlaveSynchronize
from aerobee.protocol import codes
from aerobee.protocol.headers.offsets import UpdateConsumerOffset
from aerobee.protocol.headers.pop import PopMessage

from ...waiting import until
from .pairs import Pair

IN_VIRTUAL_TIME = True

WHERE = ("T", "cg", 0)


async def messages(pair: Pair, count: int) -> None:
    caller = pair.caller(pair.master)
    for number in range(count):
        await caller.send("T", b"%d" % number)
    pair.master.offsets.commit(*WHERE, 5)
    await pair.copied()


async def consumed(pair: Pair, offset: int) -> None:
    """A group reports an offset to the acting master."""
    caller = pair.caller(pair.slave)
    await caller.heartbeat(topics={"T": "*"})
    answer = await caller.ask(
        codes.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffset("cg", "T", 0, offset)
    )
    assert answer.code == codes.SUCCESS, answer.remark


async def test_a_returning_master_has_the_offsets_of_the_acting_one(pair: Pair) -> None:
    await messages(pair, 20)
    await pair.lose_master()
    assert pair.slave.offsets.get(*WHERE) == 5
    await consumed(pair, 17)
    await pair.return_master()
    assert pair.master.offsets.get(*WHERE) == 17
    # The slave copies from it again, and has not fallen back.
    await pair.copied()
    assert pair.slave.offsets.get(*WHERE) == 17
    assert pair.slave.offsets.version == pair.master.offsets.version


async def nothing(sync: SlaveSynchronize, master: str) -> None:
    """Stands in for a copy of the master's tables."""


async def return_of_a_broker_that_was_away(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> int:
    """The master's offset after it has asked a slave with an older one."""
    await messages(pair, 20)
    await pair.halt(pair.slave)
    pair.master.offsets.commit(*WHERE, 19)
    # It is there again, and has not copied anything yet.
    pair.slave = pair.made("slave", broker_role="SLAVE", broker_id=1)
    monkeypatch.setattr(SlaveSynchronize, "sync_all", nothing)
    monkeypatch.setattr(SlaveSynchronize, "_sync_offsets", nothing)
    await pair.slave.start()
    pair.running.append(pair.slave)
    assert pair.slave.offsets.get(*WHERE) == 5
    await pair.returning.come_online()
    return pair.master.offsets.get(*WHERE)


async def test_offsets_of_a_broker_that_was_away_are_not_taken(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await return_of_a_broker_that_was_away(pair, monkeypatch) == 19


async def test_planted_fault_offsets_taken_from_an_older_master(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the comparison of versions the test above fails."""
    monkeypatch.setattr(taking, "is_older", lambda theirs, own: False)
    assert await return_of_a_broker_that_was_away(pair, monkeypatch) == 5


async def test_what_the_acting_master_never_had_is_delivered_by_the_master(pair: Pair) -> None:
    slave = pair.slave.ha_slave
    assert slave is not None
    await until(lambda: pair.replica.sync.synced_ms > 0)
    caller = pair.caller(pair.master)
    soon = str(server.wall_clock_ms() + 60_000)
    await caller.send("T", b"both have it", TIMER_DELIVER_MS=soon)
    await pair.copied()
    # The slave is cut off before the next messages, and the master dies with them.
    await slave.stop()
    await caller.send("T", b"unknown there", TIMER_DELIVER_MS=soon)
    await caller.send("T", b"by level", DELAY="5")
    timers = pair.master.timers
    assert timers is not None
    await until(lambda: timers.state.queue_offset == 2)
    await pair.halt(pair.master)
    slave.set_master(None)
    await slave.start()
    await until(lambda: pair.acting.is_acting)
    pair.ahead_ms = 120_000
    await until(lambda: pair.other.store.max_offset("T", 0) == 1)
    acted = pair.slave.timers
    assert acted is not None
    await until(lambda: acted.state.read_ms > server.wall_clock_ms() + 60_000)
    await pair.return_master()
    # The slave may get the rest of the log, and send a part of it, before it ends acting. So a
    # message that it never had may be there twice.
    brokers = (pair.master, pair.other)
    found: list[bytes] = []
    while set(found) != {b"both have it", b"by level", b"unknown there"}:
        await until(lambda: sum(one.store.max_offset("T", 0) for one in brokers) > len(found))  # noqa: B023
        await pair.master.catch_up()
        found = await pair.bodies(pair.master) + await pair.bodies(pair.other)
    assert found.count(b"both have it") == 1


async def test_check_points_of_pops_wait_for_the_master(pair: Pair) -> None:
    caller = pair.caller(pair.master)
    await caller.send("T", b"popped")
    pop = PopMessage("cg", "T", 0, 1, 60_000, 0, 0, server.wall_clock_ms(), "TAG", "*")
    popped = await caller.ask(codes.POP_MESSAGE, pop)
    assert popped.code == codes.SUCCESS, popped.remark
    await pair.master.catch_up()
    revive = f"rmq_sys_REVIVE_LOG_{pair.master.config.broker_cluster_name}"
    timers = pair.master.timers
    assert timers is not None
    pair.ahead_ms = 5_000  # the check point is not young any more
    await until(lambda: timers.state.check.queue_offset >= 1)
    await pair.copied()
    await pair.lose_master()
    pair.ahead_ms = 120_000
    acted = pair.slave.timers
    assert acted is not None
    await until(lambda: acted.state.read_ms > server.wall_clock_ms() + 60_000)
    assert all(key[0] != revive for key in pair.other.store.queue_keys())
    await pair.return_master()
    await until(
        lambda: sum(
            pair.master.store.max_offset(*key)
            for key in pair.master.store.queue_keys()
            if key[0] == revive
        )
    )


async def test_a_master_registers_after_a_while_where_nobody_answers(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(returning, "TAKE_BACK_SECONDS", 1.0)
    monkeypatch.setattr(returning, "HANDSHAKE_SECONDS", 0.05)
    await messages(pair, 20)
    await pair.lose_master()
    slave = pair.slave.ha_slave
    assert slave is not None
    await slave.stop()  # it answers, but follows no log any more
    await pair.return_master()
    assert "this master registers after" in caplog.text
    assert "it does not follow the log within 0.05 s" in caplog.text
    assert (await pair.caller(pair.master).send("T", b"20")).code == codes.SUCCESS


async def test_a_master_that_is_forgotten_by_the_name_servers_takes_back_and_registers(
    pair: Pair,
) -> None:
    await messages(pair, 20)
    pair.namesrv.routes.unregister("DefaultCluster", pair.master.address, "broker-a", 0)
    pair.alive_ahead_ms += returning.REJOIN_MS
    await until(lambda: pair.namesrv.routes.masters_of("broker-a"))
    assert pair.returning.is_online
    assert pair.master.offsets.get(*WHERE) == 5


async def test_nothing_due_is_delivered_before_the_return_has_ended(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pair.caller(pair.master).send("T", b"late", DELAY="1")
    await pair.copied()
    await pair.lose_master()
    await until(lambda: pair.other.store.max_offset("T", 0) == 1)
    entered, goes_on = asyncio.Event(), asyncio.Event()
    take = returning.ReturningMaster._take_from

    async def held(self: returning.ReturningMaster, address: str, followers: int) -> None:
        entered.set()
        await goes_on.wait()
        await take(self, address, followers)

    monkeypatch.setattr(returning.ReturningMaster, "_take_from", held)
    master = pair.made("master", listen_port=pair.master.port, ha_listen_port=pair.master.ha_port)
    starting = asyncio.create_task(master.start())
    pair.running.append(master)
    await entered.wait()
    await master.catch_up()
    assert master.store.max_offset("T", 0) == 0
    assert not master.returning or not master.returning.locks.gate.is_open
    assert not pair.namesrv.routes.masters_of("broker-a")
    goes_on.set()
    await starting
    await master.catch_up()
    assert master.store.max_offset("T", 0) == 0
    assert master.delays.offsets == {1: 1}
    pair.master = master


async def test_skip_pre_online_registers_at_once(pair: Pair) -> None:
    await messages(pair, 20)
    await pair.lose_master()
    await consumed(pair, 17)
    await pair.return_master(skip_pre_online=True)
    assert pair.master.offsets.get(*WHERE) == 5
