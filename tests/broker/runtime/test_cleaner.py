"""A broker deletes expired files and refuses messages while its disk is full."""

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from aerobee.broker.server import Broker
from aerobee.protocol import codes
from aerobee.store.files import disk

from ...clocks import Clock
from ...waiting import LONG, until
from ..conftest import Caller, Config, Run, records

FILE_BYTES = 8192
BODY = bytes(1_500)  # four messages per file of the log
AT_ONCE: dict[str, Any] = {  # files that may go do, at any hour
    "mapped_file_size_commit_log": FILE_BYTES,
    "delete_commit_log_files_interval": 0,
    "delete_consume_queue_files_interval": 0,
    "delete_when": ";".join(map(str, range(24))),
}


class Disk(disk.Disk):
    """A disk with the usage a test sets; deletion waits for `may_free`."""

    def __init__(self) -> None:
        super().__init__()
        self.percent = 10
        self.may_free = threading.Event()
        self.may_free.set()

    def room(self, path: Path) -> tuple[int, int]:
        return self.percent << 20, (100 - self.percent) << 20

    def sync(self, fd: int) -> None:  # type: ignore[override]
        if threading.current_thread().name.startswith("aerobee-cleaner"):
            assert self.may_free.wait(20)
        os.fsync(fd)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(disk, "current", made)
    return made


@pytest.fixture
async def running(full: Disk, run: Run, config: Config) -> tuple[Broker, Caller]:
    return await run(config(**AT_ONCE, mapped_file_size_consume_queue=80))


async def fill(broker: Broker, caller: Caller, count: int, clock: Clock, *, old: int) -> None:
    """Sends `count` messages to queue 0; the first `old` log files become four days old."""
    for _ in range(count):
        assert (await caller.send("T", BODY)).code == codes.SUCCESS
    clock.ms += 1_000  # queues are synced once a second
    await broker.syncer.sync()
    for number, path in enumerate(sorted((broker.root / "commitlog").iterdir())):
        when = clock.ms / 1000 - (4 * 86_400 if number < old else 0)
        os.utime(path, (when, when))


async def test_a_pull_of_deleted_messages_gets_the_first_remaining_offset(
    running: tuple[Broker, Caller], clock: Clock
) -> None:
    broker, caller = running
    await fill(broker, caller, 20, clock, old=2)
    await broker.cleaner.run()
    answer = await caller.pull("T", 3)
    assert answer.code == codes.PULL_OFFSET_MOVED
    fields = answer.fields()
    assert (fields["nextBeginOffset"], fields["minOffset"], fields["maxOffset"]) == (
        "8",
        "8",
        "20",
    )
    rest = await caller.pull("T", 8)
    assert [record.queue_offset for record in records(rest)] == [8, 9, 10, 11]  # one queue file
    assert (await caller.send("T", BODY)).fields()["queueOffset"] == "20"


async def test_a_full_disk_refuses_sends_until_there_is_room(
    running: tuple[Broker, Caller], clock: Clock, full: Disk
) -> None:
    broker, caller = running
    await fill(broker, caller, 3, clock, old=0)
    full.percent = 95
    await broker.cleaner.run()
    refused = await caller.send("T", BODY)
    assert refused.code == codes.SERVICE_NOT_AVAILABLE
    for text in ("disk is full", "95 %", "limit is 90 %", "diskSpaceWarningLevelRatio", "free"):
        assert text in (refused.remark or "")
    assert len(records(await caller.pull("T", 0, commit_offset=2))) == 3
    full.percent = 80
    await broker.cleaner.run()
    assert (await caller.send("T", BODY)).fields()["queueOffset"] == "3"


async def test_requests_are_served_while_a_slow_disk_deletes_files(
    running: tuple[Broker, Caller], clock: Clock, full: Disk
) -> None:
    broker, caller = running
    await fill(broker, caller, 20, clock, old=2)
    full.may_free.clear()
    cleaning = asyncio.create_task(broker.cleaner.run())
    await until(lambda: broker.store.log_start)
    async with asyncio.timeout(LONG):
        assert len(records(await caller.pull("T", 12))) == 4
        assert (await caller.send("T", BODY)).code == codes.SUCCESS
        assert not cleaning.done()
        full.may_free.set()
        await cleaning
    assert broker.store.log_start == 2 * FILE_BYTES


async def test_mqadmin_deletes_expired_files_at_any_hour(
    full: Disk, run: Run, config: Config, clock: Clock
) -> None:
    other_hour = (time.localtime(clock.ms // 1_000).tm_hour + 12) % 24
    broker, caller = await run(
        config(
            mapped_file_size_commit_log=FILE_BYTES,
            delete_when=str(other_hour),
            delete_commit_log_files_interval=0,
        )
    )
    await fill(broker, caller, 20, clock, old=2)
    await broker.cleaner.run()
    assert broker.store.log_start == 0
    assert (await caller.ask(codes.DELETE_EXPIRED_COMMITLOG)).code == codes.SUCCESS
    await broker.cleaner.finished()
    assert broker.store.log_start == 2 * FILE_BYTES


async def test_mqadmin_deletes_queue_files_whose_messages_are_gone(
    running: tuple[Broker, Caller], clock: Clock
) -> None:
    broker, caller = running
    await fill(broker, caller, 20, clock, old=2)
    folder = broker.root / "consumequeue" / "T" / "0"
    assert len(list(folder.iterdir())) == 5
    steps = broker.store.cleaner.clean()
    while broker.store.log_start < 2 * FILE_BYTES:
        next(steps)
    assert (await caller.ask(codes.CLEAN_EXPIRED_CONSUMEQUEUE)).code == codes.SUCCESS
    await broker.cleaner.finished()
    assert sorted(path.name for path in folder.iterdir()) == [f"{n:020d}" for n in (160, 240, 320)]
    assert broker.store.min_offset("T", 0) == 8


async def test_cleaning_runs_periodically_until_the_broker_stops(
    full: Disk, run: Run, config: Config, clock: Clock
) -> None:
    broker, caller = await run(config(clean_resource_interval=10))
    full.percent = 91
    await until(lambda: broker.store.pause_reason is not None)
    assert (await caller.send("T", BODY)).code == codes.SERVICE_NOT_AVAILABLE
    await broker.stop()
    threads = [thread.name for thread in threading.enumerate()]
    assert not [name for name in threads if name.startswith("aerobee-cleaner")]


async def test_a_shorter_retention_set_at_run_time_applies_to_the_next_round(
    running: tuple[Broker, Caller], clock: Clock
) -> None:
    broker, caller = running
    await fill(broker, caller, 20, clock, old=0)
    clock.ms += 2 * 3_600_000
    await broker.cleaner.run()
    assert broker.store.log_start == 0
    answer = await caller.ask(codes.UPDATE_BROKER_CONFIG, None, b"fileReservedTime=1")
    assert answer.code == codes.SUCCESS, answer.remark
    await broker.cleaner.run()
    assert broker.store.log_start == 4 * FILE_BYTES
