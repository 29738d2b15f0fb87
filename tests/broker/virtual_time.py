"""Tests in virtual time: the loop of one simulated machine in place of the system's.

    IN_VIRTUAL_TIME = True  # each test of this module; or @in_virtual_time above one test

Fixtures and tests run on that loop. It jumps to the next timer when nothing else is to be done, so
a test takes no time but its work. Connections and files are in memory: 127.0.0.1 is this machine,
and a path is one of its disk. `AEROBEE_SIMULATIONS_SEED` decides the order of events.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

from aerobee.broker import server
from aerobee.broker.controlled.ports import VIP_PORT_DISTANCE, Ports
from aerobee.broker.runtime.threads import Threads
from aerobee.broker.settings.config import BrokerConfig
from aerobee.harness.java_side import free_ports

from ..simulation.loop import SimulatedThreads
from ..simulation.machines import Machine, Machines, simulated
from ..simulation.network import BoundPort, MachineLoop

SEED = int(os.environ.get("AEROBEE_SIMULATIONS_SEED", "1"))

Result = TypeVar("Result")
Test = TypeVar("Test", bound=Callable[..., object])


def in_virtual_time(test: Test) -> Test:
    """A test that runs in virtual time."""
    vars(test)["is_in_virtual_time"] = True
    return test


class VirtualLoop(MachineLoop):
    """A loop with a world of its own, which `asyncio.Runner` runs as any other."""

    machines: Machines
    ends: ExitStack  # what is undone when it closes

    def run_until_complete(  # type: ignore[override]
        self, future: Awaitable[Result]
    ) -> Result:
        async def whole() -> Result:
            return await future

        return self.world.run(self, whole())

    def set_debug(self, enabled: bool) -> None:
        pass

    async def shutdown_asyncgens(self) -> None:
        pass

    async def shutdown_default_executor(self) -> None:
        pass

    def close(self) -> None:
        self.ends.close()
        assert not self.world.errors, self.world.errors


class Here(Machine):
    """The machine of such a loop."""

    def __init__(self, machines: Machines) -> None:
        super().__init__(machines, "here", machines.network.host("127.0.0.1"))

    def boot(self) -> VirtualLoop:
        machines = self._machines
        loop = VirtualLoop(machines.world, self.name, self._enter)  # type: ignore[abstract]
        loop.machines, loop.network, loop.host = machines, machines.network, self.host
        machines.world.add_loop(loop)
        self.host.loop = loop
        self._enter()  # for fixtures that don't run in the loop
        return loop


def virtual_loop() -> asyncio.AbstractEventLoop:
    """A new loop; until it is closed, the product takes its clocks and its disk from it."""
    ends = ExitStack()
    machines = ends.enter_context(simulated(SEED))
    ends.enter_context(patch.object(server, "wall_clock_ms", machines.now_ms))
    loop = Here(machines).boot()
    loop.ends = ends
    return loop


def monotonic_ms() -> int:
    """A clock for timeouts. On a loop of the system it stands still, so that no machine is too
    slow."""
    loop = asyncio.get_running_loop()
    return int(loop.time() * 1000) if isinstance(loop, VirtualLoop) else 1


def threads() -> Threads:
    """The threads of a broker on the running loop."""
    loop = asyncio.get_running_loop()
    return SimulatedThreads(loop) if isinstance(loop, VirtualLoop) else Threads()


def free_port() -> int:
    """A port of the running loop that stays free for a restart; 0 for any one."""
    is_virtual = isinstance(asyncio.get_running_loop(), VirtualLoop)
    return 0 if is_virtual else free_ports(1)[0]


def open_ports(config: BrokerConfig) -> Any:
    """The ports of a broker in controller mode on the running loop."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        return Ports(config)
    free = [loop.network.port() for _ in range(4)]
    port = config.listen_port or free[VIP_PORT_DISTANCE]
    return SimpleNamespace(
        clients=BoundPort(loop.host, port),
        fast=BoundPort(loop.host, port - VIP_PORT_DISTANCE),
        slaves=BoundPort(loop.host, port + 1),
        port=port,
        close=lambda: None,
    )
