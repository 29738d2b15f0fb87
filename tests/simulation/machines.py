"""Machines: each with a loop, a place in the network, and a disk that loses power.

`Machines` makes them in one world. While a machine runs, `store.files.disk.current` is its disk,
`client.base.identity.current` its clocks and its ip, and the client's table of the consumers of a
process is its own. Its process can be killed, its power cut, and it can be started again on what
its disk has kept.
"""

import asyncio
import os
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from aerobee.client.base import identity
from aerobee.client.cluster import heartbeat
from aerobee.protocol.aio import slices
from aerobee.store.files import disk as disks
from aerobee.store.timer import timer_wheel

from ..loss.power import Image, PowerDisk
from .loop import Loop, World
from .network import Host, MachineLoop, Network

START_MS = 1_800_000_000_000  # the wall clock when a world begins
ROUND_SLOTS = 1_800  # of a timer wheel, whose file a disk in memory compares at each sync
SLOW = 100.0  # times what a job of a thread takes on a slow disk

Result = TypeVar("Result")


class Disk(PowerDisk):
    """A disk whose files are as old as the world."""

    def __init__(self, now_ms: Callable[[], int], image: Image | None = None) -> None:
        super().__init__(image)
        self._now_ms = now_ms

    def stat(self, path: Any) -> Any:  # type: ignore[override]
        found = super().stat(path)
        found.st_mtime_ns = self._now_ms() * 1_000_000
        return found

    def room(self, path: Any) -> tuple[int, int]:
        return 1 << 30, 1 << 40

    def absent(self, address: int, size: int) -> int:
        return 0

    def will_need(self, fd: int, at: int, size: int) -> None:
        pass

    def let_go(self) -> None:
        """The process that used it was killed: what it has written stays."""
        self.held.clear()
        self._open.clear()
        for node in self.nodes.values():
            if node is not None and node.is_mapped:
                node.refresh()
                node.is_mapped = False


class Machine:
    """One machine. `loop` is the loop of its process, while that runs."""

    def __init__(self, machines: "Machines", name: str, host: Host) -> None:
        self.name = name
        self.host = host
        self.disk = Disk(machines.now_ms)
        self.is_gone = False  # for good
        self._machines = machines
        self._slow = 1.0
        self._consumers: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        self._identity: Any = SimpleNamespace(
            ip=lambda: host.ip,
            pid=lambda: 1,
            time_ns=lambda: machines.now_ms() * 1_000_000,
            monotonic=lambda: machines.world.now,
        )

    @property
    def is_up(self) -> bool:
        return self.host.loop is not None

    @property
    def loop(self) -> Loop:
        assert self.host.loop is not None, f"{self.name} is not running"
        return self.host.loop

    def boot(self) -> Loop:
        """Start a process."""
        world = self._machines.world
        loop = MachineLoop(world, self.name, self._enter)  # type: ignore[abstract]
        loop.network, loop.host = self._machines.network, self.host
        loop.slow = self._slow
        self._consumers = WeakValueDictionary()
        world.add_loop(loop)
        self.host.loop, self.host.has_power = loop, True
        return loop

    def kill(self, *, power: bool) -> None:
        """End the process at once; with `power` the machine, and what its disk was not told to
        keep is lost or not, as the seed decides."""
        world = self._machines.world
        world.kill(self.loop)
        self._machines.network.died(self.host, power=power)
        self.disk.let_go()
        if power:
            image = next(self.disk.cut().images(1, world.draw))
            self.disk = Disk(self._machines.now_ms, image)

    def slow_disk(self, *, slow: bool) -> None:
        """Have the jobs of its threads take longer, or no longer."""
        self._slow = SLOW if slow else 1.0
        if self.host.loop is not None:
            self.host.loop.slow = self._slow

    def _enter(self) -> None:
        disks.current = self.disk
        identity.current = self._identity
        heartbeat._here = self._consumers


class Machines:
    """The world, its network and its machines, by name. Use it within `simulated`."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.network = Network(self.world)
        self.table: dict[str, Machine] = {}

    def now_ms(self) -> int:
        """The wall clock of every machine."""
        return START_MS + int(self.world.now * 1000)

    def add(self, name: str) -> Machine:
        """A new machine; the first has the ip 10.0.0.1."""
        host = self.network.host(f"10.0.0.{len(self.table) + 1}")
        made = self.table[name] = Machine(self, name, host)
        return made

    async def on(self, machine: Machine, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of this work in another machine's process. ConnectionError when that dies."""
        here = asyncio.get_running_loop()
        done: asyncio.Future[Result] = here.create_future()
        there = machine.loop
        assert isinstance(there, MachineLoop)

        def ended(task: asyncio.Task[Result]) -> None:
            if task.cancelled():
                done.cancel()
            elif (wrong := task.exception()) is not None:
                done.set_exception(wrong)
            else:
                done.set_result(task.result())

        there.create_task(work).add_done_callback(
            lambda task: here.call_soon_threadsafe(ended, task)
        )
        while not done.done():
            if machine.host.loop is not there:
                raise ConnectionError(f"{machine.name} was killed")
            await asyncio.wait([done], timeout=0.5)
        return done.result()


@contextmanager
def simulated(seed: int) -> Iterator[Machines]:
    """Machines whose history follows from the seed; the product takes its clocks from them."""
    before = disks.current, identity.current, slices.work_clock, os.getpid, random.getstate()
    consumers = heartbeat._here
    machines = Machines(seed)
    random.seed(seed)
    slices.work_clock = lambda: machines.world.now
    os.getpid = lambda: 1
    wheel = timer_wheel.ROUND_SLOTS, timer_wheel.SLOTS, timer_wheel.FILE_BYTES
    _size_wheel(ROUND_SLOTS, 2 * ROUND_SLOTS, 2 * ROUND_SLOTS * timer_wheel.SLOT_BYTES)
    try:
        yield machines
    finally:
        disks.current = Disk(machines.now_ms)  # what dies now writes nowhere
        machines.world.close()
        disks.current, identity.current, slices.work_clock, os.getpid, state = before
        heartbeat._here = consumers
        random.setstate(state)
        _size_wheel(*wheel)


def _size_wheel(*sizes: int) -> None:
    timer_wheel.ROUND_SLOTS, timer_wheel.SLOTS, timer_wheel.FILE_BYTES = sizes
