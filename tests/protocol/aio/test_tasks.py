"""Waiting for the end of a task: its cancellation is not that of the task that waits."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aerobee.protocol.aio.tasks import end, ended


async def for_ever() -> None:
    await asyncio.Event().wait()


async def test_a_cancelled_task_is_waited_for_without_an_error() -> None:
    task = asyncio.create_task(for_ever())
    await end(task)
    assert task.cancelled()
    await ended(task)


async def test_the_error_of_a_task_is_raised() -> None:
    async def fail() -> None:
        raise OSError("broken")

    with pytest.raises(OSError, match="broken"):
        await ended(asyncio.create_task(fail()))


@pytest.mark.parametrize("wait", [end, ended])
async def test_the_task_that_waits_can_be_cancelled(
    wait: Callable[[asyncio.Task[None]], Awaitable[None]],
) -> None:
    gate = asyncio.Event()

    async def slow_to_end() -> None:
        try:
            await for_ever()
        finally:
            await gate.wait()

    inner = asyncio.create_task(slow_to_end())
    await asyncio.sleep(0)

    async def waiting() -> None:
        await wait(inner)

    outer = asyncio.create_task(waiting())
    await asyncio.sleep(0)
    outer.cancel()
    inner.cancel()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await outer
    await ended(inner)
