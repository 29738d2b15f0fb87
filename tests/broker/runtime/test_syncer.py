"""SYNC_FLUSH: a success means that the message is on disk; a failed disk is reported, and a want of
file numbers passes."""

import asyncio
import threading

import pytest
from aerobee.broker.monitoring import overview
from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.protocol.bodies.cluster import KVTable
from aerobee.store.base.errors import Shortage
from aerobee.store.files import disk as disk_calls
from aerobee.store.files.segment import Segment

from ...waiting import until
from ..conftest import Caller, Config, Start, parked, records

ON_BOTH_ENGINES = True


class Disk:
    """Intercepts every sync: blocks it, or makes it fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.open.set()
        self.is_broken = False
        self.is_short = False
        self.syncs = 0
        real = Segment.sync

        def sync(segment: Segment) -> None:
            self.open.wait(20)
            self.syncs += 1
            if self.is_broken:
                raise OSError(5, "Input/output error")
            if self.is_short:
                raise Shortage("can't open x: raise ulimit -n")
            real(segment)

        monkeypatch.setattr(Segment, "sync", sync)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
async def synced(start: Start, config: Config, disk: Disk) -> Broker:
    return await start(config(flush_disk_type="SYNC_FLUSH"))


async def max_offset(caller: Caller) -> int:
    answer = await caller.ask(codes.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
    return int(answer.fields()["offset"])


async def test_a_message_is_neither_acknowledged_nor_readable_before_it_is_on_disk(
    synced: Broker, disk: Disk
) -> None:
    caller = Caller(synced)
    assert (await caller.send("T", b"first")).code == 0
    disk.open.clear()
    sends = [asyncio.ensure_future(caller.send("T", b"%d" % n)) for n in range(5)]
    waiting = asyncio.ensure_future(caller.pull("T", 1, suspend_ms=15_000))
    await parked(synced, 1)
    assert await max_offset(caller) == 1
    assert len(records(await caller.pull("T", 0))) == 1
    assert not any(send.done() for send in sends)
    disk.open.set()
    assert [answer.code for answer in await asyncio.gather(*sends)] == [0] * 5
    assert len(records(await waiting)) == 5
    assert await max_offset(caller) == 6
    await caller.peers.close()


async def test_one_sync_acknowledges_all_earlier_messages(synced: Broker, disk: Disk) -> None:
    caller = Caller(synced)
    await caller.send("T")
    disk.open.clear()
    before = disk.syncs
    sends = [asyncio.ensure_future(caller.send("T")) for _ in range(200)]
    await max_offset(caller)
    disk.open.set()
    assert {answer.code for answer in await asyncio.gather(*sends)} == {0}
    assert disk.syncs - before < 20
    await caller.peers.close()


async def test_a_send_with_wait_false_does_not_wait_for_the_disk(
    synced: Broker, disk: Disk
) -> None:
    caller = Caller(synced)
    await caller.send("T")
    disk.open.clear()
    assert (await caller.send("T", WAIT="false")).code == 0
    disk.open.set()
    await caller.peers.close()


async def test_a_slow_disk_gives_a_flush_timeout_and_the_message_stays(
    start: Start, config: Config, disk: Disk
) -> None:
    broker = await start(config(flush_disk_type="SYNC_FLUSH", sync_flush_timeout=1))
    caller = Caller(broker)
    disk.open.clear()
    answer = await caller.send("T", b"slow")
    assert answer.code == codes.FLUSH_DISK_TIMEOUT
    disk.open.set()
    assert answer.fields()["queueOffset"] == "0"
    assert [record.body for record in records(await caller.pull("T", 0, suspend_ms=9_000))] == [
        b"slow"
    ]
    await caller.peers.close()


async def test_sends_over_the_limit_of_waiting_sends_are_refused_with_the_reason(
    synced: Broker, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.broker.runtime.syncer.WAITING_MAX", 3)
    caller = Caller(synced)
    await caller.send("T")
    disk.open.clear()
    sends = [asyncio.ensure_future(caller.send("T")) for _ in range(3)]
    await max_offset(caller)
    refused = await caller.send("T")
    assert refused.code == codes.SYSTEM_BUSY
    assert (refused.remark or "").startswith("[OVERLOAD]")
    assert refused.fields()["MSG_REGION"] == "DefaultRegion"
    disk.open.set()
    assert [answer.code for answer in await asyncio.gather(*sends)] == [0] * 3
    assert (await caller.send("T")).code == 0
    await caller.peers.close()


async def test_after_a_failed_sync_the_broker_refuses_messages(synced: Broker, disk: Disk) -> None:
    caller = Caller(synced)
    assert (await caller.send("T", b"good")).code == 0
    disk.is_broken = True
    failed = await caller.send("T", b"lost")
    assert failed.code == codes.SERVICE_NOT_AVAILABLE
    assert "did not take a sync" in (failed.remark or "")
    disk.is_broken = False
    before = disk.syncs
    refused = await caller.send("T", b"later")
    assert refused.code == codes.SERVICE_NOT_AVAILABLE
    assert "did not take a sync" in (refused.remark or "")
    assert [record.body for record in records(await caller.pull("T", 0))] == [b"good"]
    assert await max_offset(caller) == 1
    assert disk.syncs == before
    fault = overview.fault(synced)
    assert fault is not None
    assert "did not take a sync" in fault
    await caller.peers.close()


async def test_a_send_during_a_want_of_file_numbers_waits_until_it_is_over(
    start: Start, config: Config, disk: Disk
) -> None:
    settings = config(
        flush_disk_type="SYNC_FLUSH", flush_interval_commit_log=1, sync_flush_timeout=1 << 30
    )
    broker = await start(settings)
    caller = Caller(broker)
    disk.is_short = True
    waits = asyncio.ensure_future(caller.send("T", b"later"))
    await until(lambda: overview.note(broker))
    told = "what it takes is not synced to the disk: can't open x: raise ulimit -n"
    assert overview.note(broker) == told
    answer = await caller.ask(codes.GET_BROKER_RUNTIME_INFO)
    assert KVTable.decode(answer.body or b"").table["notStored"] == told
    assert overview.fault(broker) is None
    assert not waits.done()
    disk.is_short = False
    assert (await waits).code == 0
    assert overview.note(broker) is None
    answer = await caller.ask(codes.GET_BROKER_RUNTIME_INFO)
    assert "notStored" not in KVTable.decode(answer.body or b"").table
    assert [record.body for record in records(await caller.pull("T", 0))] == [b"later"]
    await caller.peers.close()


async def test_a_stop_during_a_want_of_file_numbers_answers_that_the_disk_may_lack_it(
    start: Start, config: Config, disk: Disk
) -> None:
    broker = await start(config(flush_disk_type="SYNC_FLUSH", sync_flush_timeout=1 << 30))
    caller = Caller(broker)
    disk.is_short = True
    waits = asyncio.ensure_future(caller.send("T", b"kept"))
    await until(lambda: overview.note(broker))
    stopping = asyncio.ensure_future(broker.stop())
    assert (await waits).code == codes.FLUSH_DISK_TIMEOUT
    with pytest.raises(Shortage, match="ulimit -n"):
        await stopping
    await caller.peers.close()
    disk.is_short = False
    again = await start(broker.config)
    caller = Caller(again)
    assert [record.body for record in records(await caller.pull("T", 0))] == [b"kept"]
    await caller.peers.close()


async def test_a_message_dropped_before_the_end_of_its_tick_is_not_acknowledged(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = Caller(broker)
    assert (await caller.send("T", b"good")).code == 0
    # The second message does not fit the file, so the staged one is written first; that fails.
    broker.store.state.log.room_end = broker.store.log_end + 300

    def broken(fd: int, data: bytes, at: int) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(disk_calls.current, "pwrite", broken)
        answers = await asyncio.gather(
            caller.send("T", b"dropped"), caller.send("T", bytes(1_000)), return_exceptions=True
        )
    assert [getattr(answer, "code", None) for answer in answers].count(0) == 0
    await caller.peers.close()
    caller = Caller(broker)
    assert [record.body for record in records(await caller.pull("T", 0))] == [b"good"]
    assert await max_offset(caller) == 1
    assert (await caller.send("T", b"later")).code == codes.SERVICE_NOT_AVAILABLE
    await caller.peers.close()


async def test_messages_and_offsets_persist_over_a_restart(start: Start, config: Config) -> None:
    broker = await start(config())
    caller = Caller(broker)
    for number in range(20):
        await caller.send("T", b"%d" % number, queue_id=number % 4)
    fields = {"topic": "T", "consumerGroup": "cg", "queueId": "1", "commitOffset": "3"}
    await caller.pull("T", queue_id=1)
    assert (await caller.ask(codes.UPDATE_CONSUMER_OFFSET, fields)).code == 0
    await caller.peers.close()
    await broker.stop()
    broker = await start(config(auto_create_topic_enable=False))
    caller = Caller(broker)
    found = [
        record.body
        for queue in range(4)
        for record in records(await caller.pull("T", queue_id=queue))
    ]
    assert sorted(found) == sorted(b"%d" % number for number in range(20))
    fields = {"topic": "T", "consumerGroup": "cg", "queueId": "1"}
    answer = await caller.ask(codes.QUERY_CONSUMER_OFFSET, fields)
    assert answer.fields()["offset"] == "3"
    assert (await caller.send("T", queue_id=1)).fields()["queueOffset"] == "5"
    await caller.peers.close()
