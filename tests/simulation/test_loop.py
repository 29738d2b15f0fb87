"""The event loop of the simulation: time moves when nothing is left to do."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from .loop import Loop, OneThread, Stuck, World


def made(world: World, name: str) -> Loop:
    """A loop of this world."""
    loop = Loop(world, name)  # type: ignore[abstract]
    world.add_loop(loop)
    return loop


def play(seed: int, work: Coroutine[Any, Any, Any], *others: Coroutine[Any, Any, Any]) -> Any:
    """The result of the first, in a world where each has a loop."""
    world = World(seed)
    loops = [made(world, str(number)) for number in range(1 + len(others))]
    for loop, other in zip(loops[1:], others, strict=True):
        loop.create_task(other)
    try:
        return world.run(loops[0], work)
    finally:
        world.close()


def test_time_jumps_to_the_next_timer() -> None:
    async def wait() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(100 * 86_400)
        return loop.time() - began

    assert 100 * 86_400 <= play(1, wait()) < 100 * 86_400 + 1


def test_call_soon_keeps_its_order() -> None:
    async def order() -> list[int]:
        found: list[int] = []
        for number in range(100):
            asyncio.get_running_loop().call_soon(found.append, number)
        await asyncio.sleep(0)
        return found

    assert play(1, order()) == list(range(100))


def timers(seed: int) -> list[int]:
    async def order() -> list[int]:
        found: list[int] = []
        for number in range(20):
            asyncio.get_running_loop().call_later(1, found.append, number)
        await asyncio.sleep(2)
        return found

    found: list[int] = play(seed, order())
    return found


def test_timers_that_are_due_together_run_in_the_order_of_the_seed() -> None:
    assert timers(1) == timers(1)
    assert timers(1) != timers(2)
    assert sorted(timers(1)) == list(range(20))


def busy(seed: int) -> list[str]:
    found: list[str] = []

    async def work(name: str) -> None:
        for _ in range(20):
            found.append(name)
            await asyncio.sleep(0)

    play(seed, work("a"), work("b"), work("c"))
    return found


def test_machines_take_turns_in_the_order_of_the_seed() -> None:
    assert busy(1) == busy(1)
    assert busy(1) != busy(2)


def test_work_for_threads_runs_in_the_loop_after_a_while() -> None:
    async def work() -> list[str]:
        found: list[str] = []
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        thread = OneThread(loop)
        waiting = [loop.run_in_executor(thread, found.append, text) for text in "abcdefgh"]
        assert not found
        assert await asyncio.to_thread(lambda: 7) == 7
        with ThreadPoolExecutor(1) as real:  # never used
            await loop.run_in_executor(real, found.append, "real")
        await asyncio.gather(*waiting)
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        found.remove("real")
        return found

    assert play(1, work()) == list("abcdefgh")


def test_the_shutdown_of_an_executor_runs_what_waits() -> None:
    async def work() -> list[str]:
        found: list[str] = []
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop)
        thread = OneThread(loop)
        for text in "abc":
            loop.run_in_executor(thread, found.append, text)
        thread.shutdown()
        return found

    assert play(1, work()) == list("abc")


def test_nothing_of_a_killed_loop_runs_not_even_what_is_to_run_at_last() -> None:
    world = World(1)
    here, there = made(world, "here"), made(world, "there")
    found: list[str] = []

    async def victim() -> None:
        try:
            while True:
                await asyncio.sleep(1)
                found.append("alive")
        finally:
            found.append("at last")

    async def killer() -> None:
        await asyncio.sleep(3.5)
        world.kill(there)
        await asyncio.sleep(10)

    there.create_task(victim())
    world.run(here, killer())
    assert found == ["alive"] * 3
    world.close()


def test_work_that_nothing_will_end_is_an_error() -> None:
    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stuck, match="nothing is left to run"):
        play(1, wait())


def test_an_exception_that_nobody_handles_is_noted() -> None:
    world = World(1)
    loop = made(world, "here")

    async def work() -> None:
        loop.call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    world.run(loop, work())
    assert "ZeroDivisionError" in world.errors[0]
    world.close()
