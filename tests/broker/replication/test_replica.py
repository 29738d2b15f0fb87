"""A slave finds its master, and follows wherever it goes."""

import asyncio
from typing import Any

import pytest
from aerobee.broker.naming.registration import NO_MASTER, MasterAddresses
from aerobee.broker.replication.replica import Replica
from aerobee.broker.replication.synchronize import TICK_SECONDS

from ...waiting import until

IN_VIRTUAL_TIME = True

FIRST = MasterAddresses("a:10911", "a:10912")
SECOND = MasterAddresses("b:10911", "b:10912")


class Both:
    """The two followers of a master, of the log and of the rest; notes their calls in order."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.connected = False

    def set_master(self, address: str | None) -> None:
        self.told.append(str(address))

    def retry(self) -> None:
        self.told.append("retry")

    async def tick(self) -> None:
        self.told.append("tick")


class Log(Both):
    """The log's part, which notes into the other's list."""

    def __init__(self, other: Both) -> None:
        super().__init__()
        self.told = other.told


@pytest.fixture
def tables() -> Both:
    return Both()


@pytest.fixture
def log(tables: Both) -> Log:
    return Log(tables)


def replica(tables: Both, log: Log, fixed: str = "") -> Replica:
    sync: Any = tables
    follower: Any = log
    return Replica(sync, follower, lambda: tables.told.append("woken"), ha_master_address=fixed)


async def test_the_topics_are_asked_for_before_the_log(tables: Both, log: Log) -> None:
    one = replica(tables, log)
    await one.tick()
    one.on_master(FIRST)
    await one.tick()
    assert tables.told == ["tick", "a:10911", "tick", "a:10912"]
    assert one.master() == "a:10911"


async def test_another_master_is_followed_at_once(tables: Both, log: Log) -> None:
    one = replica(tables, log)
    running = asyncio.create_task(one.run())
    begun = asyncio.get_running_loop().time()
    for master in (FIRST, SECOND):
        one.on_master(master)
        await until(lambda: master.ha_address in tables.told)  # noqa: B023
    assert asyncio.get_running_loop().time() - begun < TICK_SECONDS
    running.cancel()
    assert one.master() == "b:10911"


async def test_a_master_that_is_gone_may_come_back_where_it_was(tables: Both, log: Log) -> None:
    one = replica(tables, log)
    one.on_master(FIRST)
    one.on_master(NO_MASTER)
    await one.tick()
    assert tables.told == ["a:10911", "", "tick", "a:10912"]
    assert one.master() == ""


async def test_an_address_in_the_settings_is_the_one_for_the_log(tables: Both, log: Log) -> None:
    one = replica(tables, log, "x:1")
    one.on_master(FIRST)
    await one.tick()
    assert tables.told == ["a:10911", "tick", "x:1"]


async def test_who_waits_is_woken_once_when_the_master_is_back(tables: Both, log: Log) -> None:
    one = replica(tables, log)
    one.sweep()
    log.connected = True
    assert one.is_master_there()
    one.sweep()
    one.sweep()
    log.connected = False
    one.sweep()
    assert tables.told == ["woken"]
