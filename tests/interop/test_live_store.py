"""The real broker's store, looked at and read as data while that broker writes it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from aerobee.client import Message, Producer
from aerobee.harness.clusters import TEST_BROKER_FLAGS, JavaCluster
from aerobee.store import StoreView
from aerobee.store.inspect.check import LOG, Report, check
from aerobee.store.inspect.check_timer import TIMER

from .programs import wait_until

TOPIC = "LiveStore"
COUNT = 1_500
SETTINGS: dict[str, str | int] = {
    "mappedFileSizeCommitLog": 1 << 17,
    "maxHashSlotNum": 1_000,
    "maxIndexNum": 4_000,
    "timerFlushIntervalMs": 1_000,  # the default: a look meets many flushes
}


@pytest.fixture
def cluster(java_is_here: None, tmp_path: Path) -> Iterator[JavaCluster]:
    started = JavaCluster(tmp_path / "java", SETTINGS, flags=TEST_BROKER_FLAGS)
    try:
        started.start()
        yield started
    finally:
        started.stop()


async def test_a_store_that_java_writes_is_clean_at_every_look_and_readable(
    cluster: JavaCluster,
) -> None:
    pytest.importorskip("pyarrow")

    async def send(producer: Producer) -> None:
        for number in range(COUNT):
            body = b"%d " % number + bytes(number % 200)
            await producer.send(Message(TOPIC, body, tags=f"t{number % 3}", keys=f"k{number}"))
            if number % 10 == 0:
                await producer.send(Message("Later", body, delay=1 + number % 7))

    reports: list[Report] = []
    async with Producer(cluster.namesrv) as producer:
        sending = asyncio.create_task(send(producer))
        while not sending.done():
            if (cluster.store / "commitlog").is_dir():
                reports.append(await asyncio.to_thread(check, cluster.store))
            await asyncio.sleep(0)
        await sending
    assert reports
    for report in reports:
        assert damage(report) == []

    def stored() -> list[bytes]:
        view = StoreView(cluster.store)
        return [
            row["body"].partition(b" ")[0]
            for queue_id in view.topics().get(TOPIC, [])
            for batch in view.batches(TOPIC, queue_id, columns=["body"])
            for row in batch.to_pylist()
        ]

    wait_until(lambda: len(stored()) == COUNT, lambda: len(stored()))
    assert sorted(map(int, stored())) == list(range(COUNT))
    cluster.stop()
    report = check(cluster.store)
    assert damage(report) == []
    assert report.parts[LOG].checked >= COUNT
    assert report.parts[TIMER].checked > 0


def damage(report: Report) -> list[str]:
    return [found.line for found in report.findings if found.is_damage]
