"""Periodic tasks that fail: they go on, and say once what is wrong."""

import asyncio
import errno
import logging

import pytest
from aerobee.broker.periodic import Periodic
from aerobee.store.errors import DiskFull


async def test_a_periodic_task_that_fails_again_and_again_is_told_once_and_when_it_works(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done = asyncio.Event()
    faults = [DiskFull("no room"), DiskFull("still no room"), OSError(errno.EIO, "bad disk"), None]
    faults += [RuntimeError("ours"), RuntimeError("ours")]

    def work() -> None:
        if not faults:
            done.set()
        elif (fault := faults.pop(0)) is not None:
            raise fault

    with caplog.at_level(logging.WARNING):
        periodic = Periodic()
        periodic.every(0.001, work)
        async with asyncio.timeout(60):
            await done.wait()
        await periodic.stop()
    told = [(one.getMessage(), one.exc_info is not None) for one in caplog.records]
    end = "; it is tried every 0.001 s"
    assert told == [
        (f"a periodic task failed: no room{end}", False),
        (f"a periodic task failed: [Errno 5] bad disk{end}", False),
        ("a periodic task that failed works again", False),
        (f"a periodic task failed: ours{end}", True),
        ("a periodic task that failed works again", False),
    ]
