"""Another thread finds memory for the log while a broker takes messages."""

import asyncio
import threading
from pathlib import Path

import pytest
from aerobee.broker.log_ahead import LogAhead
from aerobee.broker.server import Broker
from aerobee.store import commit_log, disk
from aerobee.store.segment import Segment

from .conftest import Caller, Config


async def test_while_the_thread_is_at_work_nothing_more_is_asked_of_it(tmp_path: Path) -> None:
    begun, may_end = threading.Event(), threading.Event()
    asked: list[int] = []

    class Slow(Segment):
        __slots__ = ()

        def will_need(self, at: int, size: int) -> None:
            asked.append(at)
            begun.set()
            assert may_end.wait(20)

    ahead = LogAhead()
    segment = Slow(tmp_path / "0", 0, 4_096, writable=False)
    ahead.ask(segment, 1, 10)
    assert await asyncio.to_thread(begun.wait, 20)
    ahead.ask(segment, 2, 10)
    may_end.set()
    await ahead.stop()
    assert asked == [1]


async def test_a_broker_asks_for_what_comes_next(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()
    threads: list[str] = []

    class Spy(disk.Disk):
        def will_need(self, fd: int, at: int, size: int) -> None:
            threads.append(threading.current_thread().name)
            super().will_need(fd, at, size)
            asked.set()

    monkeypatch.setattr(disk, "current", Spy())
    monkeypatch.setattr(commit_log, "AHEAD_BYTES", 4_000)
    broker = Broker(config())
    await broker.start()
    caller = Caller(broker)
    for _ in range(3):
        await caller.send("T", bytes(1_000))
    assert await asyncio.to_thread(asked.wait, 20)
    assert threads[0].startswith("aerobee-ahead")
    await caller.peers.close()
    await broker.stop()
