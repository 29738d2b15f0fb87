"""A set of three brokers whose master is deposed, stopped, killed and silenced while two lakes
commit: what a table has, the next master has too."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg")

from aerobee.client import Producer
from aerobee.client.errors import AerobeeError
from aerobee.lake.opening import open_catalog
from aerobee.lake.progress import progress_of
from aerobee.lake.service import Lake
from aerobee.lake.settings import LakeSettings, TableSettings
from aerobee.lake.topic_log import TopicLog
from aerobee.lake.verify import QueueFindings, verify

from ..loss.test_member import (
    ACKNOWLEDGED,
    NAME,
    PRODUCERS,
    QUEUES,
    TOPIC,
    Faults,
    Load,
    Set,
    brokers,
    make_topic,
)
from ..waiting import PROCESS, until
from .tables import contents

__all__ = ["brokers"]  # a fixture


@asynccontextmanager
async def two_lakes(settings: LakeSettings) -> AsyncIterator[list[Lake]]:
    """Two lakes that write the same tables."""
    lakes = [Lake(settings), Lake(settings)]
    try:
        for each in lakes:
            await each.start()
        yield lakes
    finally:
        for each in lakes:
            await each.stop()


def compared(settings: LakeSettings) -> list[QueueFindings] | None:
    """What aerobee lake verify finds; None unless the table is at the ends of the queues, and the
    brokers answer."""
    source = TopicLog(settings.namesrv_addr)
    try:
        table = open_catalog(settings).load(TOPIC, TOPIC)
        offsets = progress_of(table.metadata, TOPIC).offsets
        with suppress(AerobeeError):
            bounds, failures = source.bounds(TOPIC)
            ends = {f"{NAME}:{queue.queue_id}": each.end for queue, each in bounds.items()}
            if offsets == ends and not failures:
                return list(verify(table, source, TOPIC))
        return None
    finally:
        source.close()


async def test_a_table_has_what_the_set_has_whatever_happens_to_the_master(
    brokers: Set, tmp_path: Path
) -> None:
    master = await brokers.whole()
    await make_topic(brokers, master)
    settings = LakeSettings(
        place=str(tmp_path / "tables"),
        namesrv_addr=brokers.namesrv,
        catalog={"type": "sql", "uri": f"sqlite:///{tmp_path / 'catalog.db'}"},
        tables=(TableSettings(topic=TOPIC, commit_seconds=0.2),),
    )
    await asyncio.to_thread(open_catalog(settings).create, TOPIC, TOPIC)
    load, faults = Load(brokers.namesrv), Faults(brokers)
    rounds = [
        ("electMaster", faults.deposed, faults.nothing),
        ("SIGTERM", faults.stopped, faults.ended),
        ("kill -9", faults.killed, faults.ended),
        ("SIGSTOP", faults.silenced, faults.over),
    ]
    async with Producer(brokers.namesrv) as producer, two_lakes(settings) as lakes:
        tasks = [asyncio.create_task(load.produce(producer, n % QUEUES)) for n in range(PRODUCERS)]
        for name, fault, after in rounds:
            load.may_send.set()
            await load.until_acknowledged(ACKNOWLEDGED)
            commits = sum(each.reports[TOPIC].commits for each in lakes)
            begin = time.monotonic()
            await fault(master)
            await brokers.until_other(master)
            await load.until_acknowledged(ACKNOWLEDGED)
            await until(
                lambda so_far=commits: sum(e.reports[TOPIC].commits for e in lakes) > so_far,  # type: ignore[misc]
                lambda: f"no commit since the fault: {[each.reports[TOPIC] for each in lakes]}",
                seconds=PROCESS,
            )
            print(f"{name}: a lake commits again after {time.monotonic() - begin:.2f} s")
            await after(master)
            await load.pause()
            master = await load.check(brokers)
            await _check(settings, load, lakes)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    print([each.reports[TOPIC] for each in lakes])


async def _check(settings: LakeSettings, load: Load, lakes: list[Lake]) -> None:
    found: list[QueueFindings] | None = None

    async def is_compared() -> bool:
        nonlocal found
        found = await asyncio.to_thread(compared, settings)
        return found is not None

    await until(
        is_compared,
        lambda: f"the table is not at the end: {[each.reports[TOPIC] for each in lakes]}",
        seconds=PROCESS,
        pause=0.2,
    )
    assert found is not None
    assert [each for each in found if not each.is_clean] == []
    rows = await asyncio.to_thread(contents, open_catalog(settings).load(TOPIC, TOPIC))
    queues = {body: queue for kind, body, queue in _notes(load, "sent")}
    for _, body, offset in _notes(load, "acknowledged"):
        assert rows[NAME, queues[body][1], offset] == body


def _notes(load: Load, kind: str) -> list[tuple[Any, ...]]:
    return [each for each in load.ledger.events if each[0] == kind]
