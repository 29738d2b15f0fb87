"""The master's replication port: its bytes on the wire, and the reasons to disconnect."""

import asyncio
import gc
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from socket import SO_SNDBUF, SOL_SOCKET
from threading import Event
from typing import Any

import pytest
from aerobee.broker import upkeep
from aerobee.broker.monitoring.overview import overview
from aerobee.broker.replication import counted_acks
from aerobee.broker.replication import master as ha_master
from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.protocol.bodies.ha import HARuntimeInfo
from aerobee.protocol.ha import CHUNK_HEAD, CHUNK_HEAD_BYTES, REPORT
from aerobee.protocol.message.batch import Entry, encode_batch
from aerobee.store.engine.sync import SyncPlan

from ...clocks import Clock
from ...steps import result_of
from ...waiting import LONG, until
from ..conftest import Caller, Config, Run
from ..monitoring.test_metrics import values

ON_BOTH_ENGINES = True

SEGMENT = 64 << 10
CHUNK = 32 << 10  # haTransferBatchSize


class Slave:
    """A raw socket that acts as a slave."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @property
    def address(self) -> str:
        host, port = self.writer.get_extra_info("sockname")
        return f"{host}:{port}"

    def report(self, *places: int) -> None:
        self.writer.write(b"".join(map(REPORT.pack, places)))

    async def chunk(self) -> tuple[int, bytes]:
        async with asyncio.timeout(LONG):
            place, size = CHUNK_HEAD.unpack(await self.reader.readexactly(CHUNK_HEAD_BYTES))
            return place, await self.reader.readexactly(size)

    async def log(self, end: int) -> tuple[int, bytes]:
        """Reads the log up to `end`; returns its first offset and the bytes."""
        first, data = await self.chunk()
        while first + len(data) < end:
            place, more = await self.chunk()
            assert place == first + len(data)
            data += more
        return first, data

    async def closed(self) -> None:
        async with asyncio.timeout(LONG):
            with suppress(ConnectionResetError):
                assert await self.reader.read() == b""


Connect = Callable[[Broker], Awaitable[Slave]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    made: list[Slave] = []

    async def make(broker: Broker) -> Slave:
        made.append(Slave(*await asyncio.open_connection("127.0.0.1", broker.ha_port)))
        return made[-1]

    yield make
    for slave in made:
        slave.writer.close()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables periodic transfers, so that only the end of a loop iteration sends."""
    monkeypatch.setattr(upkeep, "HA_SECONDS", 3_600.0)


async def master(run: Run, config: Config, **more: object) -> tuple[Broker, Caller]:
    broker, caller = await run(config(mapped_file_size_commit_log=SEGMENT, **more))
    return broker, caller


async def fill(caller: Caller, count: int, size: int = 1_000) -> None:
    for _ in range(count):
        assert (await caller.send("T", b"x" * size)).code == codes.SUCCESS


def log_bytes(broker: Broker, start: int, end: int) -> bytes:
    files = sorted(broker.store.state.log_folder.iterdir())
    whole = b"".join(path.read_bytes() for path in files)
    return whole[start:end]


@pytest.mark.usefixtures("alone")
async def test_a_slave_gets_each_message_at_the_end_of_the_tick_that_stored_it(
    run: Run, config: Config, connect: Connect
) -> None:
    broker, caller = await master(run, config)
    slave = await connect(broker)
    slave.report(0)
    at = 0
    for _ in range(3):
        await caller.send("T", b"new")
        place, data = await slave.chunk()
        assert (place, data) == (at, log_bytes(broker, at, broker.store.log_end))
        at += len(data)
    assert at == broker.store.log_end


# A Java broker does the same: for offset 0 it sends the last file; for offset 100 it sends 32768
# bytes, then 32668 up to the end of the file, then the next file.
async def test_an_empty_slave_gets_the_last_file(
    run: Run, config: Config, connect: Connect
) -> None:
    broker, caller = await master(run, config)
    await fill(caller, 130)
    start = broker.store.log_end - broker.store.log_end % SEGMENT
    assert start >= 2 * SEGMENT
    slave = await connect(broker)
    slave.report(0)
    assert await slave.log(broker.store.log_end) == (
        start,
        log_bytes(broker, start, broker.store.log_end),
    )


async def test_a_chunk_ends_with_its_file_and_the_padding_of_the_file_is_sent(
    run: Run, config: Config, connect: Connect
) -> None:
    broker, caller = await master(run, config)
    await fill(caller, 130)
    slave = await connect(broker)
    slave.report(100)
    sizes = []
    place = 100
    while place < broker.store.log_end:
        at, data = await slave.chunk()
        assert at == place
        assert data == log_bytes(broker, at, at + len(data))
        sizes.append(len(data))
        place += len(data)
    assert sizes[:4] == [CHUNK, SEGMENT - CHUNK - 100, CHUNK, CHUNK]


async def test_the_chunk_size_is_a_setting(run: Run, config: Config, connect: Connect) -> None:
    broker, caller = await master(run, config, ha_transfer_batch_size=500)
    await fill(caller, 3)
    slave = await connect(broker)
    slave.report(1)
    assert [len((await slave.chunk())[1]) for _ in range(3)] == [500] * 3


async def test_an_idle_master_sends_a_heartbeat_every_five_seconds(
    run: Run, config: Config, connect: Connect, clock: Clock
) -> None:
    broker, caller = await master(run, config)
    await fill(caller, 1)
    end = broker.store.log_end
    slave = await connect(broker)
    slave.report(end)
    await until(lambda: any(one.next >= 0 for one in broker.ha.slaves))
    clock.ms += 5_000
    broker.ha.sweep()
    clock.ms += 1
    broker.ha.sweep()
    assert await slave.chunk() == (end, b"")
    clock.ms += 5_001
    broker.ha.sweep()
    assert await slave.chunk() == (end, b"")
    await fill(caller, 1)
    assert (await slave.chunk())[0] == end


async def test_a_slave_that_is_silent_for_twenty_seconds_is_disconnected(
    run: Run, config: Config, connect: Connect, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    broker, _ = await master(run, config)
    slave, silent = await connect(broker), await connect(broker)
    await until(lambda: len(broker.ha.slaves) == 2)
    clock.ms += 20_000
    slave.report(0)
    await until(lambda: any(one.acked == 0 for one in broker.ha.slaves))
    clock.ms += 1
    broker.ha.sweep()
    await silent.closed()
    assert len(broker.ha.slaves) == 1
    assert "said nothing for 20001 ms, the limit is 20000 (haHousekeepingInterval)" in caplog.text


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (REPORT.pack(1 << 40), f"its log ends at {1 << 40}, this one at "),
        (b"GET / HTTP/1.1\r\n", "its log ends at "),
        (REPORT.pack(-1), "reported as -1, which is below 0"),
    ],
)
async def test_an_invalid_report_closes_the_connection_and_logs_one_line(
    run: Run,
    config: Config,
    connect: Connect,
    caplog: pytest.LogCaptureFixture,
    sent: bytes,
    told: str,
) -> None:
    broker, _ = await master(run, config)
    slave = await connect(broker)
    slave.writer.write(sent)
    await slave.closed()
    lines = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert len(lines) == 1
    assert told in lines[0]
    assert slave.address in lines[0]
    assert broker.ha.refused == 1
    await until(lambda: not broker.ha.slaves)


async def test_a_slave_that_asks_for_a_deleted_offset_is_disconnected(
    run: Run, config: Config, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    broker, caller = await master(run, config)
    await fill(caller, 130)
    broker.store.state.log.segments.items.pop(0).delete()
    slave = await connect(broker)
    slave.report(8)
    await slave.closed()
    assert f"is to get the log from 8 on, which begins at {SEGMENT} by now" in caplog.text


async def test_a_slave_that_falls_behind_the_deleted_files_is_disconnected(
    run: Run, config: Config, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    broker, caller = await master(run, config)
    slave = await connect(broker)
    slave.report(0)
    await until(lambda: any(one.next == 0 for one in broker.ha.slaves))
    (held,) = broker.ha.slaves
    held.pause_writing()
    await fill(caller, 130)
    broker.store.state.log.segments.items.pop(0).delete()
    held.resume_writing()
    await slave.closed()
    assert f"which begins at {SEGMENT} by now" in caplog.text


async def test_a_slave_over_the_limit_is_refused(
    run: Run,
    config: Config,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(counted_acks, "SLAVES_MAX", 1)
    broker, _ = await master(run, config)
    await connect(broker)
    await until(lambda: len(broker.ha.slaves) == 1)
    await (await connect(broker)).closed()
    assert "1 are connected, the limit is 1" in caplog.text


async def test_a_slave_that_does_not_read_uses_at_most_its_buffer(
    run: Run, config: Config, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ha_master, "BUFFER_BYTES_MAX", 100_000)
    monkeypatch.setattr(ha_master, "SEND_BYTES_MAX", 50_000)
    broker, caller = await run(config(mapped_file_size_commit_log=16 << 20))
    await fill(caller, 1)
    slow, quick = await connect(broker), await connect(broker)
    slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
    for slave in (slow, quick):
        slave.report(1)
    await until(lambda: [one.acked for one in broker.ha.slaves] == [1, 1])
    held = next(one for one in broker.ha.slaves if one.address == slow.address)
    held._transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_SNDBUF, 64 << 10)
    while not held._is_full:
        await fill(caller, 1, 100_000)
    await fill(caller, 5, 100_000)
    end = broker.store.log_end
    assert len((await quick.log(end))[1]) == end - 1
    assert held.next < end - 400_000
    assert held._transport.get_write_buffer_size() <= 100_000 + 50_000 + CHUNK + 100
    slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
    assert len((await slow.log(end))[1]) == end - 1


async def test_the_replication_status_is_that_of_a_java_master(
    run: Run, config: Config, connect: Connect, clock: Clock
) -> None:
    broker, caller = await master(run, config, ha_max_gap_not_in_sync=500)
    await fill(caller, 1)
    end = broker.store.log_end
    slave, behind = await connect(broker), await connect(broker)
    slave.report(1)
    await slave.chunk()
    slave.report(end - 400)
    behind.report(1)
    await behind.chunk()
    await until(lambda: {one.acked for one in broker.ha.slaves} == {end - 400, 1})
    clock.ms += 1_000
    broker.ha.sweep()
    answer = await caller.ask(codes.GET_BROKER_HA_STATUS)
    found = HARuntimeInfo.decode(answer.body or b"")
    assert (found.master, found.master_commit_log_max_offset) == (True, end)
    assert found.in_sync_slave_nums == 1
    one, other = sorted(found.ha_connection_info, key=lambda each: -each.slave_ack_offset)
    assert (one.addr, one.slave_ack_offset, one.diff) == (slave.address, end - 400, 400)
    assert (one.in_sync, one.transfer_from_where) == (True, end)
    assert one.transferred_byte_in_second == end - 1 + CHUNK_HEAD_BYTES
    assert (other.in_sync, other.diff) == (False, end - 1)


async def test_slaves_are_in_the_metrics_and_in_the_status(
    run: Run, config: Config, connect: Connect
) -> None:
    broker, caller = await master(run, config, **SYNC)
    assert values(broker, "aerobee_slaves") == {(): 0}
    found = result_of(overview(broker))
    assert (found["role"], found["slaves_waited_for"]) == ("SYNC_MASTER", 1)
    assert found["ha_port"] == broker.ha_port
    await caller.send("T", WAIT="false")
    end = broker.store.log_end
    slave, other = await connect(broker), await connect(broker)
    slave.report(end - 10)
    other.report(end + 10)
    await other.closed()
    await until(lambda: [one.acked for one in broker.ha.slaves] == [end - 10])
    assert values(broker, "aerobee_slaves") == {(): 1}
    assert values(broker, "aerobee_slave_behind_bytes") == {(slave.address,): 10}
    assert values(broker, "aerobee_slaves_refused_total") == {(): 1}
    [row] = result_of(overview(broker))["slaves"]
    assert list(row.items())[:4] == [
        ("addr", slave.address),
        ("slave_ack_offset", end - 10),
        ("diff", 10),
        ("in_sync", True),
    ]


async def test_a_stop_sends_the_rest_of_the_log_to_a_slave(
    run: Run, config: Config, connect: Connect
) -> None:
    broker, caller = await master(run, config)
    slave = await connect(broker)
    slave.report(0)
    await fill(caller, 20)
    end = broker.store.log_end
    stopping = asyncio.ensure_future(broker.stop())
    _, data = await slave.log(end)
    assert not stopping.done()
    slave.report(end)
    await asyncio.wait_for(stopping, LONG)
    assert len(data) == end
    await slave.closed()


@pytest.mark.parametrize("iterations", range(6))
async def test_a_slave_that_is_accepted_as_the_master_stops_is_closed(
    run: Run, config: Config, iterations: int
) -> None:
    broker, _ = await master(run, config)
    with socket.create_connection(("127.0.0.1", broker.ha_port)) as slave:
        for _ in range(iterations):  # of the loop, in one of which the connection is accepted
            await asyncio.sleep(0)
        await broker.ha.stop()
        gc.collect()  # an open transport would be a warning, which fails this test
        assert broker.ha.slaves == []
        slave.setblocking(False)
        async with asyncio.timeout(LONG):
            with suppress(ConnectionResetError):
                assert await asyncio.get_running_loop().sock_recv(slave, 1) == b""


async def test_a_replication_port_in_use_is_a_one_line_error(run: Run, config: Config) -> None:
    broker, _ = await master(run, config)
    with pytest.raises(OSError, match=rf"can't listen on 127.0.0.1:{broker.ha_port}: another .*ha"):
        await run(config(ha_listen_port=broker.ha_port, store_path_root_dir="/nowhere"))


# ---- SYNC_MASTER


SYNC: dict[str, object] = {"broker_role": "SYNC_MASTER", "in_sync_replicas": 2}


async def joined(broker: Broker, slave: Slave) -> None:
    """The slave asks for the log from its current end on."""
    count = len([one for one in broker.ha.slaves if one.next >= 0])
    slave.report(broker.store.log_end)
    await until(lambda: len([one for one in broker.ha.slaves if one.next >= 0]) > count)


async def test_a_response_waits_until_a_slave_has_the_message(
    run: Run, config: Config, connect: Connect
) -> None:
    broker, caller = await master(run, config, **SYNC)
    await caller.send("T", b"first", WAIT="false")  # a sender may choose not to wait
    slave = await connect(broker)
    await joined(broker, slave)
    sends = [asyncio.ensure_future(caller.send("T", b"%d" % number)) for number in range(3)]
    await until(lambda: broker.store.max_offset("T", 0) == 4)
    end = broker.store.log_end
    await slave.log(end)
    slave.report(end - 1)
    await until(lambda: [one.acked for one in broker.ha.slaves] == [end - 1])
    done, _ = await asyncio.wait(sends, timeout=0.01)
    assert not done  # messages of one loop iteration are acknowledged together
    slave.report(end)
    answers = await asyncio.gather(*sends)
    assert [answer.code for answer in answers] == [codes.SUCCESS] * 3
    assert [answer.fields()["queueOffset"] for answer in answers] == ["1", "2", "3"]


async def test_without_a_slave_the_send_gets_a_slave_timeout_and_the_message_stays(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await master(run, config, **SYNC)
    batch = encode_batch([Entry(0, b"one", b""), Entry(0, b"two", b"")])
    sends = [
        asyncio.ensure_future(caller.send("T", b"single")),
        asyncio.ensure_future(caller.send("T", batch, batch=True, code=codes.SEND_BATCH_MESSAGE)),
        asyncio.ensure_future(caller.send("T", b"half", TRAN_MSG="true", PGROUP="pg")),
    ]
    await until(lambda: broker.store.max_offset("RMQ_SYS_TRANS_HALF_TOPIC", 0) == 1)
    clock.ms += 2_999
    broker.syncer.sweep()
    done, _ = await asyncio.wait(sends, timeout=0.01)
    assert not done
    clock.ms += 1
    broker.syncer.sweep()
    answers = await asyncio.gather(*sends)
    assert [answer.code for answer in answers] == [codes.FLUSH_SLAVE_TIMEOUT] * 3
    assert broker.store.max_offset("T", 0) == 3


@pytest.mark.parametrize(
    "more",
    [
        {"broker_role": "SYNC_MASTER"},
        {"broker_role": "SYNC_MASTER", "in_sync_replicas": 1},
        {"broker_role": "ASYNC_MASTER", "in_sync_replicas": 3},
    ],
)
async def test_a_send_without_required_slaves_does_not_wait(
    run: Run, config: Config, more: dict[str, Any]
) -> None:
    broker, caller = await master(run, config, **more)
    assert broker.syncer.for_responses is None
    assert (await caller.send("T")).code == codes.SUCCESS


async def test_three_replicas_are_the_master_and_two_slaves(
    run: Run, config: Config, connect: Connect
) -> None:
    broker, caller = await master(run, config, **SYNC | {"in_sync_replicas": 3})
    slaves = [await connect(broker) for _ in range(3)]
    for slave in slaves:
        await joined(broker, slave)
    sending = asyncio.ensure_future(caller.send("T"))
    await until(lambda: broker.store.max_offset("T", 0) == 1)
    end = broker.store.log_end
    slaves[2].report(end)
    await until(lambda: max(one.acked for one in broker.ha.slaves) == end)
    slaves[0].report(end - 1)
    await until(lambda: end - 1 in [one.acked for one in broker.ha.slaves])
    assert not (await asyncio.wait([sending], timeout=0.01))[0]
    slaves[0].report(end)
    assert (await sending).code == codes.SUCCESS


async def test_a_send_waits_for_both_disk_and_slave(
    run: Run, config: Config, connect: Connect
) -> None:
    broker, caller = await master(run, config, **SYNC, flush_disk_type="SYNC_FLUSH")
    slave = await connect(broker)
    await joined(broker, slave)
    sending = asyncio.ensure_future(caller.send("T"))
    await until(lambda: broker.store.durable_end == broker.store.log_end > 0)
    assert not (await asyncio.wait([sending], timeout=0.01))[0]
    slave.report(broker.store.log_end)
    assert (await sending).code == codes.SUCCESS


async def test_with_sync_flush_a_slave_gets_nothing_that_a_power_cut_takes_from_the_master(
    run: Run, config: Config, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, caller = await master(run, config, **SYNC, flush_disk_type="SYNC_FLUSH")
    slave = await connect(broker)
    await joined(broker, slave)
    sync, may_sync = SyncPlan.run, Event()

    def late_sync(plan: SyncPlan) -> None:
        may_sync.wait(LONG)
        sync(plan)

    monkeypatch.setattr(SyncPlan, "run", late_sync)
    sending = asyncio.ensure_future(caller.send("T"))
    try:
        await until(lambda: broker.store.written_end > 0)
        broker.ha.sweep()
        (sender,) = broker.ha.slaves
        assert (sender.next, broker.store.durable_end) == (0, 0)
    finally:
        may_sync.set()
    end = broker.store.written_end
    assert await slave.log(end) == (0, log_bytes(broker, 0, end))
    assert broker.store.durable_end == end
    slave.report(end)
    assert (await sending).code == codes.SUCCESS


async def test_a_transaction_ends_with_or_without_its_slaves(
    run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await master(run, config, **SYNC)
    half = asyncio.ensure_future(caller.send("T", b"half", TRAN_MSG="true", PGROUP="pg"))
    await until(lambda: broker.store.max_offset("RMQ_SYS_TRANS_HALF_TOPIC", 0) == 1)
    clock.ms += 3_000
    broker.syncer.sweep()
    sent = (await half).fields()
    fields = {
        "producerGroup": "pg",
        "tranStateTableOffset": sent["queueOffset"],
        "commitLogOffset": str(int(sent["msgId"][-16:], 16)),
        "commitOrRollback": "8",
    }
    ending = asyncio.ensure_future(caller.ask(codes.END_TRANSACTION, fields))
    await until(lambda: broker.store.max_offset("T", 0) == 1)
    clock.ms += 3_000
    broker.syncer.sweep()
    assert (await ending).code == codes.SUCCESS  # as RocketMQ answers
