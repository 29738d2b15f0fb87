"""A master in controller mode: its bytes on the wire, the set, what is confirmed, its refusals."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from aerobee.broker.replication import set_keeper, sync_set_acks
from aerobee.protocol.ha_auto_switch import NO_EPOCH, Chunk, SlaveHello, report
from aerobee.store.base.errors import DamagedStore, WritesRefused
from aerobee.store.epochs.entries import EPOCHS_MAX

from ...clocks import Clock
from ...waiting import until
from ..conftest import Config
from .auto_switch import SEGMENT, Node, RawSlave

IN_VIRTUAL_TIME = True

Raw = Callable[[], Awaitable[RawSlave]]
Connect = Callable[..., Awaitable[RawSlave]]


@pytest.fixture
async def a(config: Config, tmp_path: Path, clock: Clock) -> AsyncIterator[Node]:
    made = Node(config, tmp_path / "1", clock, 1)
    yield made
    await made.halt()
    made.store.close()


@pytest.fixture
async def raw(a: Node) -> AsyncIterator[Raw]:
    """`raw()`: a slave that is connected and has said nothing."""
    made: list[RawSlave] = []

    async def make() -> RawSlave:
        made.append(await RawSlave.connected(a))
        return made[-1]

    yield make
    for slave in made:
        slave.writer.close()
        with suppress(ConnectionError):
            await slave.writer.wait_closed()


@pytest.fixture
async def connect(raw: Raw) -> Connect:
    """`connect(id, end)`: a slave that has shaken hands and reported its end."""

    async def make(number: int, end: int = 0, **more: bool) -> RawSlave:
        slave = await raw()
        slave.greet(number, **more)
        await slave.hello()
        slave.report(end)
        return slave

    return make


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]


# --- the wire -------------------------------------------------------------------------------------


async def test_a_slave_gets_the_epochs_and_the_log_in_chunks_of_one_file_and_one_epoch(
    a: Node, raw: Raw
) -> None:
    await a.lead(1)
    first = a.put(40, b"x" * 1_000)
    await a.lead(2)
    end = a.put(40, b"x" * 1_000)
    slave = await raw()
    slave.greet(2)
    hello = await slave.hello()
    assert (hello.end, hello.last_epoch, hello.epochs) == (end, 2, ((1, 0), (2, first)))
    slave.report(0)
    chunks = await slave.log(end)
    assert b"".join(chunk.data for chunk in chunks) == a.log()[:end]
    borders = {first, SEGMENT}
    for chunk in chunks:
        last = chunk.place + len(chunk.data)
        assert len(chunk.data) <= a.config.ha_transfer_batch_size
        assert (chunk.epoch, chunk.epoch_start) == ((1, 0) if chunk.place < first else (2, first))
        assert not any(chunk.place < border < last for border in borders)
        assert chunk.confirmed == end


async def test_a_slave_goes_on_where_its_first_report_says(a: Node, connect: Connect) -> None:
    await a.lead(1)
    end = a.put(10)
    slave = await connect(2, 100)
    assert (await slave.log(end))[0].place == 100
    new = a.put()
    assert [chunk.place for chunk in await slave.log(new)] == [end]


async def test_a_heartbeat_names_the_epoch_of_the_last_byte_each_second(
    a: Node, connect: Connect, clock: Clock
) -> None:
    """A Java slave notes what a heartbeat names, and could then note no other epoch there."""
    await a.lead(1)
    slave = await connect(2, 0)
    await until(lambda: bool(a.master and a.master.slaves[0].acked == 0))
    clock.ms += 1_000
    assert await slave.chunk() == Chunk(0, NO_EPOCH, 0, 0, b"")
    end = a.put()
    await slave.log(end)
    slave.writer.close()
    await a.lead(2)  # without a message
    slave = await connect(3, end)
    await until(lambda: bool(a.master and a.master.slaves[0].acked == end))
    clock.ms += 1_000
    assert await slave.chunk() == Chunk(end, 1, 0, end, b"")


async def test_a_java_slave_may_shake_hands_again_while_it_waits(a: Node, raw: Raw) -> None:
    await a.lead(1)
    end = a.put()
    slave = await raw()
    slave.greet(2)
    slave.greet(2)
    await slave.hello()
    slave.report(0)
    assert (await slave.log(end))[-1].data


async def test_of_more_epochs_than_a_handshake_takes_the_newest_are_told(
    a: Node, raw: Raw, connect: Connect
) -> None:
    a.store.state.epochs.adopt((number, number) for number in range(1, EPOCHS_MAX + 10))
    a.put(100)
    await a.lead(EPOCHS_MAX + 20)
    slave = await raw()
    slave.greet(2)
    hello = await slave.hello()
    assert len(hello.epochs) == EPOCHS_MAX
    assert hello.epochs[-1][0] == hello.last_epoch == EPOCHS_MAX + 20
    slave.writer.close()


# --- what is confirmed ----------------------------------------------------------------------------


async def test_alone_in_the_set_a_master_confirms_what_it_has_written(a: Node) -> None:
    await a.lead(1)
    end = a.put(3)
    assert (a.acked[-1], a.bodies(), a.store.confirmed_end) == (end, 3, end)


async def test_with_sync_flush_a_master_confirms_only_what_its_disk_has(
    a: Node, connect: Connect
) -> None:
    """A power cut takes the rest, and another message may get its offset."""
    await a.reopen(sync_flush=True)
    acks = await a.lead(1, 2)
    end = a.put(3)
    slave = await connect(2, end)
    await until(lambda: bool(a.master and a.master.slaves[0].acked == end))
    assert (a.store.confirmed_end, a.acked) == (0, [])
    a.store.sync()
    acks.confirm()
    assert (a.store.confirmed_end, a.acked) == (end, [end])
    slave.writer.close()


async def test_the_log_is_confirmed_as_far_as_every_member_has_it(
    a: Node, connect: Connect
) -> None:
    acks = await a.lead(1, 2, 3)
    end = a.put(3)
    assert (a.acked, a.bodies()) == ([], 0)
    two = await connect(2, 0)
    three = await connect(3, 0)
    two.report(end)
    three.report(end // 3)
    await until(lambda: a.bodies() == 1)
    assert end // 3 <= acks.state.confirm_offset < end
    three.report(end)
    await until(lambda: acks.state.confirm_offset == end)
    assert a.acked[-1] == acks.state.confirm_offset == end


async def test_a_slave_with_two_connections_counts_once(
    a: Node, connect: Connect, clock: Clock
) -> None:
    await a.lead(1, 2, 3)
    end = a.put(3)
    old = await connect(2, end)
    await until(lambda: bool(a.master and a.master.slaves[0].acked == end))
    clock.ms += sync_set_acks.ALIVE_MS
    await connect(2, end)
    await old.closed()
    await until(lambda: bool(a.master and len(a.master.slaves) == 1))
    assert a.bodies() == 0  # member 3 has nothing


async def test_a_connection_that_gave_way_to_another_of_its_slave_is_no_slave(
    a: Node, raw: Raw, connect: Connect, clock: Clock
) -> None:
    await a.lead(1, 2)
    end = a.put(3)
    old = await connect(2, end)
    await until(lambda: a.bodies() == 3)
    clock.ms += sync_set_acks.ALIVE_MS
    assert a.master is not None
    a.master.sweep()  # the old connection has all of the log
    new = await raw()
    new.writer.write(SlaveHello(2, False, False).encode() + report(end))  # read at once
    await old.closed()
    await until(lambda: bool(a.master and [each.acked for each in a.master.slaves] == [end]))
    assert a.controller.asked == []


async def test_without_all_ack_in_sync_replicas_counts(a: Node, connect: Connect) -> None:
    a.config.in_sync_replicas = 2
    await a.lead(1, 2, 3, all_ack=False)
    end = a.put(3)
    assert (a.bodies(), a.acked) == (3, [])
    await connect(2, end)
    await until(lambda: a.acked == [end])


async def test_what_is_confirmed_stays_so_while_a_member_is_away(a: Node, connect: Connect) -> None:
    await a.lead(1, 2)
    end = a.put(3)
    slave = await connect(2, end)
    await until(lambda: a.bodies() == 3)
    a.controller.is_silent = True
    slave.writer.close()
    await until(lambda: bool(a.controller.asked))
    a.put(2)
    assert (a.bodies(), a.acked[-1]) == (3, end)
    a.controller.is_silent = False
    await until(lambda: a.bodies() == 5)
    assert a.controller.members == {1}


async def test_a_set_of_another_master_confirms_nothing(a: Node) -> None:
    acks = await a.lead(1)
    acks.apply({2}, 9)
    a.put(3)
    assert a.bodies() == 0


async def test_too_small_a_set_takes_no_messages(a: Node, connect: Connect) -> None:
    a.config.min_in_sync_replicas = 2
    await a.lead(1)
    with pytest.raises(WritesRefused, match=r"^in-sync replicas not enough.* 1 .* 2 \(minInSync"):
        a.put()
    await connect(2, 0)
    await until(lambda: a.controller.members == {1, 2})
    a.put()


# --- the set --------------------------------------------------------------------------------------


async def test_a_slave_that_has_caught_up_becomes_a_member(a: Node, connect: Connect) -> None:
    await a.lead(1)
    end = a.put(3)
    slave = await connect(2, 0)
    await slave.log(end)
    assert a.controller.asked == []
    slave.report(end)
    await until(lambda: a.controller.members == {1, 2})
    assert a.controller.asked == [[1, 2]]
    a.put()
    assert a.bodies() == 3  # it counts


async def test_a_learner_never_does(a: Node, connect: Connect) -> None:
    await a.lead(1)
    end = a.put(3)
    await connect(2, end, learner=True)
    await connect(3, end)
    await until(lambda: a.controller.members == {1, 3})
    assert a.controller.asked == [[1, 3]]


async def test_a_slave_that_lacks_the_begin_of_the_epoch_does_not(
    a: Node, connect: Connect, clock: Clock
) -> None:
    await a.lead(1, 9)
    a.put(3)
    await a.lead(2, 9)  # whose member 9 is not there: nothing is confirmed
    a.put(3)
    slave = await connect(2, 0)
    await slave.log(a.store.log_end)
    slave.report(100)
    await until(lambda: bool(a.master and a.master.slaves[0].acked == 100))
    assert a.controller.asked == []


async def test_until_the_controller_answers_the_old_and_the_proposed_set_count(
    a: Node, connect: Connect
) -> None:
    acks = await a.lead(1)
    a.put(3)
    a.controller.is_silent = True
    await connect(2, a.store.log_end)
    await until(lambda: a.controller.asked == [[1, 2]])
    end = a.put()
    assert a.bodies() == 3  # the slave may be a member by now
    assert acks.state.counted() == {1, 2}
    a.controller.is_silent = False
    await until(lambda: a.controller.members == {1, 2})
    assert a.acked[-1] < end


async def test_a_proposed_set_counts_on_when_the_answer_is_lost(
    a: Node, connect: Connect, clock: Clock
) -> None:
    acks = await a.lead(1)
    a.put(3)
    a.controller.wrong = TimeoutError("no answer within 3 s")
    await connect(2, a.store.log_end)
    await until(lambda: a.controller.asked == [[1, 2]])
    a.controller.tell()  # an answer to another question: the set as it is known
    assert acks.state.counted() == {1, 2}
    clock.ms += set_keeper.RETRY_MS
    a.controller.wrong = None
    await until(lambda: a.controller.members == {1, 2})
    assert acks.state.proposed == frozenset()


async def test_a_refused_set_counts_until_the_controller_has_told_the_set(
    a: Node, connect: Connect
) -> None:
    acks = await a.lead(1)
    a.put(3)
    a.controller.refuses = True
    await connect(2, a.store.log_end)
    await until(lambda: a.controller.asked == [[1, 2]])
    assert acks.state.counted() == {1, 2}
    a.controller.tell()
    assert acks.state.counted() == {1}


async def test_an_older_set_changes_nothing(a: Node) -> None:
    acks = await a.lead(1)
    acks.apply({1, 2}, 5)
    acks.apply({1}, 4)
    assert acks.state.members == {1, 2}
    assert acks.state.set_epoch == 5


async def test_a_member_whose_connection_closes_leaves_at_once(a: Node, connect: Connect) -> None:
    await a.lead(1, 2)
    slave = await connect(2, 0)
    await until(lambda: bool(a.master and a.master.slaves[0].acked == 0))
    slave.writer.close()
    await until(lambda: a.controller.members == {1})


# Upstream 9897: of two connections that close at once RocketMQ leaves one member in the set.
async def test_fault_10_7_two_members_whose_connections_close_at_once_both_leave(
    a: Node, connect: Connect
) -> None:
    await a.lead(1, 2, 3)
    two, three = await connect(2, 0), await connect(3, 0)
    await until(lambda: bool(a.master and [each.acked for each in a.master.slaves] == [0, 0]))
    a.controller.is_silent = True
    two.writer.close()
    three.writer.close()
    await until(lambda: bool(a.controller.asked and a.master and not a.master.slaves))
    a.controller.is_silent = False
    await until(lambda: a.controller.members == {1})


async def test_a_member_that_stays_behind_leaves_after_a_while(
    a: Node, connect: Connect, clock: Clock
) -> None:
    await a.lead(1, 2)
    slave = await connect(2, 0)
    a.put(3)
    await until(lambda: bool(a.master and a.master.slaves[0].acked == 0))
    late = a.config.ha_max_time_slave_not_catchup
    for _ in range(late // 1_000):
        clock.ms += 1_000
        slave.report(100)
        await until(lambda: bool(a.master and a.master.slaves[0].heard_ms == clock.ms))
    assert a.controller.asked == []
    clock.ms += 1
    await until(lambda: a.controller.members == {1})


async def test_a_member_that_never_comes_leaves_after_a_while(a: Node, clock: Clock) -> None:
    await a.lead(1, 2)
    assert a.master is not None
    clock.ms += set_keeper.FIRST_MS - 1
    a.master.sweep()
    assert a.controller.asked == []
    clock.ms += 1
    await until(lambda: a.controller.members == {1})


async def test_a_slave_joins_while_messages_come_all_the_time(a: Node, connect: Connect) -> None:
    """The slave is always a little behind, so the master waits for it for a moment."""
    await a.lead(1)
    a.put(3)
    slave = await connect(2, 0)
    reported = 0
    for _ in range(100):
        end = a.put()
        chunks = await slave.log(end)
        a.put()  # before its report comes
        slave.report(chunks[-1].place)
        reported = chunks[-1].place
        await until(partial(lambda at: bool(a.master and a.master.slaves[0].acked >= at), reported))
        if a.controller.members == {1, 2}:
            break
    assert a.controller.members == {1, 2}
    assert a.store.confirmed_end <= reported


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, -5, 1])
async def test_an_id_that_no_slave_has_is_refused(
    a: Node, raw: Raw, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    await a.lead(1)
    slave = await raw()
    slave.greet(number)
    await slave.closed()
    assert f"its controller id is {number}, and this master is 1" in errors(caplog)[-1]


async def test_an_id_that_the_controller_does_not_know_is_refused(
    a: Node, raw: Raw, caplog: pytest.LogCaptureFixture, connect: Connect
) -> None:
    await a.lead(1, replicas=lambda: {1: "127.0.0.1:1", 2: "127.0.0.1:2"})
    await connect(2)
    slave = await raw()
    slave.greet(7)
    await slave.closed()
    assert (
        "the controller knows no replica 7 of this broker name, only [1, 2]" in (errors(caplog)[-1])
    )


async def test_an_id_whose_slave_is_alive_is_refused(
    a: Node, raw: Raw, caplog: pytest.LogCaptureFixture, connect: Connect, clock: Clock
) -> None:
    await a.lead(1)
    await connect(2)
    await until(lambda: bool(a.master and a.master.slaves[0].acked == 0))
    clock.ms += sync_set_acks.ALIVE_MS - 1
    twin = await raw()
    twin.greet(2)
    await twin.closed()
    assert "delete the file brokerIdentity of one" in errors(caplog)[-1]


async def test_a_log_that_reaches_beyond_the_masters_is_refused(
    a: Node, caplog: pytest.LogCaptureFixture, connect: Connect
) -> None:
    await a.lead(1)
    end = a.put()
    slave = await connect(2, end + 1)
    await slave.closed()
    assert f"its log ends at {end + 1}, this one at {end}" in errors(caplog)[-1]


async def test_a_report_before_a_handshake_and_other_bytes_are_refused(
    a: Node, raw: Raw, caplog: pytest.LogCaptureFixture
) -> None:
    await a.lead(1)
    slave = await raw()
    slave.report(0)
    await slave.closed()
    assert "without a handshake before" in errors(caplog)[-1]
    slave = await raw()
    slave.writer.write(b"GET / HTTP/1.1\r\n\r\n")
    await slave.closed()
    assert "doesn't speak as a slave does" in errors(caplog)[-1]


async def test_a_slave_that_says_nothing_is_left(
    a: Node, caplog: pytest.LogCaptureFixture, connect: Connect, clock: Clock
) -> None:
    await a.lead(1)
    slave = await connect(2)
    await until(lambda: bool(a.master and a.master.slaves[0].acked == 0))
    clock.ms += a.config.ha_housekeeping_interval + 1
    await slave.closed()
    assert "(haHousekeepingInterval)" in errors(caplog)[-1]


async def test_an_address_that_is_not_allowed_is_refused(
    a: Node, caplog: pytest.LogCaptureFixture
) -> None:
    acks = await a.lead(1, replicas=lambda: {2: "10.0.0.2:10911"})
    assert acks.may_come("127.0.0.1")
    assert acks.may_come("10.0.0.2")
    assert not acks.may_come("10.0.0.3")
    a.config.ha_allowed_addresses = "10.0.0.3;192.168.0.0/16"
    assert acks.may_come("10.0.0.3")
    assert acks.may_come("::ffff:192.168.7.7")
    assert not acks.may_come("10.0.0.4")


async def test_an_epoch_older_than_the_stores_does_not_begin(a: Node) -> None:
    a.store.epochs.append(5, 0)
    with pytest.raises(DamagedStore, match="epoch 4-0 follows 5-0"):
        await a.lead(4)


async def test_reports_from_before_a_standstill_of_the_process_are_no_proof(
    a: Node, connect: Connect, clock: Clock
) -> None:
    acks = await a.lead(1, 2)
    slave = await connect(2)
    await until(lambda: 2 in acks.state.last_report_ms)
    before = clock.ms
    clock.ms += sync_set_acks.FROZEN_MS
    slave.report(0)  # it may have waited in the socket since then
    await until(lambda: bool(a.master and a.master.slaves[0].heard_ms == clock.ms))
    assert acks.state.last_report_ms[2] == before
    assert a.master is not None
    a.master.sweep()
    clock.ms += sync_set_acks.THAW_MS
    slave.report(0)
    await until(lambda: bool(a.master and a.master.slaves[0].heard_ms == clock.ms))
    assert acks.state.last_report_ms[2] == clock.ms
