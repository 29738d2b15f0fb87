"""Three brokers in controller mode under load in virtual time, while a test makes things happen.

`play(act)` starts the cluster and a producer, waits until all three are in the sync state set, runs
`act(scene)`, and then watches for a while.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count, pairwise
from typing import Any

from aerobee.broker.controlled.member import Member
from aerobee.client import Message, MessageQueue, Producer, SendStatus
from aerobee.client.admin.admin import Admin
from aerobee.client.errors import AerobeeError
from aerobee.client.pull.reader import Reader
from aerobee.protocol.message.record import decode_all

from .cluster import MEMBERS, SET, SetCluster
from .machines import Machines, simulated
from .set_watch import SetWatch

WHOLE_SECONDS = 60.0  # until all are in the set
CHECK_SECONDS = 0.1  # between two checks
PAUSE_SECONDS = 0.02  # between two sends
QUEUE = MessageQueue("t", SET, 0)


class Scene:
    """The view of a test: `cluster`, the times of acknowledgements, and what was `promised`: the
    bodies of these messages by offset."""

    def __init__(self, machines: Machines, flush: str) -> None:
        self.machines = machines
        self.cluster = SetCluster(machines, flush)
        self.watch = SetWatch(self.cluster)
        self.acknowledged: list[float] = []
        self.promised: dict[int, bytes] = {}

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        return self.machines.world.now

    @property
    def master(self) -> str:
        """The machine of the master of the newest epoch."""
        leading = self.cluster.master()
        return next(name for name, one in self.cluster.members().items() if one is leading)

    def member(self, name: str) -> Member[Any]:
        """The member of this machine."""
        return self.cluster.members()[name]

    def part(self, one: str, *others: str) -> None:
        """Let nothing go between a machine and these, either way."""
        ips = [self.machines.table[name].host.ip for name in (one, *others)]
        for ip in ips[1:]:
            self.machines.network.stall(ips[0], ip)
            self.machines.network.stall(ip, ips[0])

    def pause_after(self, moment: float) -> float:
        """The longest time without an acknowledgement from this moment on, in seconds."""
        times = [moment, *(each for each in self.acknowledged if each > moment), self.now]
        return max(after - before for before, after in pairwise(times))

    async def run(self, act: Callable[["Scene"], Awaitable[None]], seconds: float) -> None:
        """See `play`."""
        cluster = self.cluster
        for name in list(self.machines.table):
            if name != "observer":
                await cluster.start(name)
        async with Admin(cluster.name_servers) as admin:
            await asyncio.sleep(1)
            await admin.create_topic("t", 1)
        watching = asyncio.create_task(self._watch())
        deadline = self.now + WHOLE_SECONDS
        while not self._is_whole():
            assert self.now < deadline, "not all brokers get into the set"
            await asyncio.sleep(CHECK_SECONDS)
        self.machines.add("producer").boot().create_task(self._produce())
        await asyncio.sleep(3)
        await act(self)
        await asyncio.sleep(seconds)
        watching.cancel()

    def _is_whole(self) -> bool:
        broker = self.cluster.broker(SET)
        state = None if broker is None else broker.sync_state
        return state is not None and len(state.members) == len(MEMBERS)

    async def _watch(self) -> None:
        while True:
            self.watch.check(self.now, is_calm=False)
            await asyncio.sleep(CHECK_SECONDS)

    async def lost(self) -> list[int]:
        """The offsets of acknowledged messages that the master does not have, or not there."""
        found: dict[int, bytes] = {}
        promised = dict(self.promised)  # the producer goes on
        async with Reader(self.cluster.name_servers) as reader:
            at, end = await reader.min_offset(QUEUE), await reader.max_offset(QUEUE)
            while at < end:
                pulled = await reader.pull(QUEUE, at)
                found |= {one.queue_offset: one.body for one in decode_all(pulled.body)}
                at = pulled.next_offset
        return [at for at, body in promised.items() if found.get(at) != body]

    async def _produce(self) -> None:
        async with Producer(self.cluster.name_servers, group="p", tries=1) as producer:
            for number in count():
                await asyncio.sleep(PAUSE_SECONDS)
                body = b"body %d" % number
                with suppress(AerobeeError):
                    receipt = await producer.send(Message("t", body), queue=QUEUE, timeout=3)
                    if receipt.status is SendStatus.OK:
                        self.acknowledged.append(self.now)
                        self.promised[receipt.queue_offset] = body


def play(
    act: Callable[[Scene], Awaitable[None]],
    seconds: float = 30.0,
    seed: int = 1,
    flush: str = "SYNC_FLUSH",
) -> Scene:
    """Run one scene; `seconds` is how long it goes on after `act`."""
    with simulated(seed) as machines:
        scene = Scene(machines, flush)
        machines.world.run(machines.add("observer").boot(), scene.run(act, seconds))
        return scene
