"""Three brokers in controller mode: what happens to the master, and when others write again.

The times are those of docs/reliability.md, in virtual time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator

import pytest

from .cluster import MEMBERS
from .scene import Scene, play

Act = Callable[[Scene], Awaitable[None]]


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


class Fault:
    """An act that notes when it happened, and to which machine."""

    def __init__(self, act: Callable[[Scene, str], Awaitable[None]]) -> None:
        self.act = act
        self.at = 0.0
        self.name = ""

    async def __call__(self, scene: Scene) -> None:
        self.name, self.at = scene.master, scene.now
        await self.act(scene, self.name)


async def deposed(scene: Scene, master: str) -> None:
    await scene.cluster.elect(next(name for name in MEMBERS if name != master))


async def killed(scene: Scene, master: str) -> None:
    scene.cluster.kill(master, power=False)


async def without_power(scene: Scene, master: str) -> None:
    scene.cluster.kill(master, power=True)


async def alone(scene: Scene, master: str) -> None:
    """Clients and a controller that does not lead still reach it."""
    scene.part(master, "controller", *(name for name in MEMBERS if name != master))


@pytest.mark.parametrize(
    ("act", "seconds"), [(deposed, 1.0), (killed, 3.0), (without_power, 15.0), (alone, 15.0)]
)
def test_others_write_again_in_time(
    act: Callable[[Scene, str], Awaitable[None]], seconds: float
) -> None:
    fault = Fault(act)
    scene = play(fault)
    pause = scene.pause_after(fault.at)
    print(f"{act.__name__}: others write again after {pause:.2f} s")
    assert scene.watch.faults == []
    assert pause <= seconds
    assert scene.now - scene.acknowledged[-1] < 1


def test_a_master_that_only_a_following_controller_answers_refuses_changes_in_time() -> None:
    fault = Fault(alone)
    refused: list[float] = []

    async def act(scene: Scene) -> None:
        await fault(scene)
        broker = scene.member(fault.name).broker
        assert broker is not None

        def check() -> None:
            if not refused and broker.role.change_refusal() is not None:
                refused.append(scene.now - fault.at)

        for tenth in range(120):
            scene.machines.table["observer"].loop.call_later(tenth / 10, check)

    scene = play(act, seconds=20)
    assert scene.watch.faults == []
    assert refused
    assert 5 < refused[0] <= 8.3


def test_a_controller_that_is_away_interrupts_nothing() -> None:
    fault = Fault(lambda scene, master: killed(scene, "controller"))
    scene = play(fault)
    assert scene.watch.faults == []
    assert scene.pause_after(fault.at) < 1


def test_without_the_whole_set_nobody_writes_before_one_of_it_is_back() -> None:
    lost: list[list[int]] = []

    async def act(scene: Scene) -> None:
        cluster, master = scene.cluster, scene.master
        outside, member = (name for name in MEMBERS if name != master)
        cluster.kill(outside, power=False)
        await asyncio.sleep(5)  # it leaves the set
        for name in (member, master):
            cluster.kill(name, power=False)
        gone = scene.now
        await cluster.start(outside)
        await asyncio.sleep(30)
        assert cluster.master() is None
        assert scene.acknowledged[-1] <= gone
        back = scene.now
        await cluster.start(member)
        await asyncio.sleep(10)
        again = next(moment for moment in scene.acknowledged if moment > back)
        print(f"one of the set writes {again - back:.2f} s after it is back")
        lost.append(await scene.lost())

    scene = play(act, seconds=1)
    assert scene.watch.faults == []
    assert lost == [[]]


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_master_that_lost_its_unsynced_end_cuts_nobody(seed: int) -> None:
    """The master is back before the controller has missed it, as ASYNC_FLUSH leaves it."""
    lost: list[list[int]] = []
    epochs: list[int] = []

    async def act(scene: Scene) -> None:
        name, epoch = scene.master, scene.member(scene.master).election.epoch
        scene.cluster.kill(name, power=True)
        await asyncio.sleep(0.3)
        await scene.cluster.start(name)
        await asyncio.sleep(15)
        lost.append(await scene.lost())
        epochs.append(scene.member(scene.master).election.epoch - epoch)

    scene = play(act, seconds=1, seed=seed, flush="ASYNC_FLUSH")
    assert scene.watch.faults == []
    assert lost == [[]]
    assert epochs == [1]
    assert scene.now - scene.acknowledged[-1] < 1
