"""Random histories of a group that pops: nothing is lost, whatever happens in between; and nothing
that was acknowledged comes again while no broker is killed."""

import random
from pathlib import Path
from typing import Any

import pytest
from aerobee.broker.server import Broker
from aerobee.protocol import codes

from ...clocks import Clock
from ..conftest import Caller, Config, Run
from ..popping import Popper, crashed

STEPS = 120
DRAIN_MS = 400_000  # beyond the longest time that a message is made invisible here


class History:
    """One group on one topic with two queues, and what it knows of its messages."""

    def __init__(self, seed: int, run: Run, config: Config, clock: Clock, folder: Path) -> None:
        self.random = random.Random(seed)
        self.run, self.config, self.clock, self.folder = run, config, clock, folder
        self.settings: dict[str, Any] = {
            "enable_pop_buffer_merge": self.random.random() < 0.7,
            "pop_ck_max_buffer_size": self.random.choice([2, 200_000]),
            "pop_ck_offset_max_queue_size": self.random.choice([2, 20_000]),
            "revive_queue_num": self.random.choice([1, 3]),
        }
        self.sent: set[bytes] = set()
        self.acked: set[bytes] = set()
        self.handles: dict[bytes, str] = {}
        self.crashes = 0

    async def open(self) -> None:
        broker, caller = await self.run(self.config(**self.settings))
        self.broker: Broker = broker
        self.caller: Caller = caller
        self.p = Popper(broker, caller, self.clock, queues=2)

    async def step(self) -> None:
        choices = [self.send, self.pop, self.pop, self.ack, self.ack, self.change, self.wait]
        rare = [self.sync, self.stop] if self.random.random() < 0.1 else [self.sync]
        await self.random.choice([*choices, *rare])()
        self.clock.ms += 1

    async def send(self) -> None:
        for _ in range(self.random.randrange(1, 5)):
            body = b"%d" % len(self.sent)
            await self.p.send(body, queue_id=self.random.randrange(2))
            self.sent.add(body)

    async def pop(self) -> None:
        found = await self.p.pop(
            max_messages=self.random.choice([1, 2, 32]),
            queue_id=self.random.choice([-1, 0, 1]),
            invisible_ms=self.random.choice([1_000, 5_000, 20_000, 60_000]),
        )
        self.check(found)
        self.handles |= found

    def check(self, found: dict[bytes, str]) -> None:
        assert found.keys() <= self.sent
        if not self.crashes:  # else it may have been in memory only
            assert not found.keys() & self.acked, "what was acknowledged has come again"

    async def ack(self) -> None:
        for body in self.some():
            answer = await self.p.ack(self.handles.pop(body))
            assert answer.code == 0, answer.remark
            if not answer.remark:  # else it came too late, and the message comes again
                self.acked.add(body)

    async def change(self) -> None:
        for body in self.some()[:2]:
            answer = await self.p.change(
                self.handles.pop(body), self.random.choice([0, 3_000, 90_000, 300_000])
            )
            assert answer.code in (0, codes.NO_MESSAGE), answer.remark

    def some(self) -> list[bytes]:
        known = sorted(self.handles)
        return self.random.sample(known, min(len(known), self.random.randrange(1, 6)))

    async def wait(self) -> None:
        await self.p.later(self.random.choice([10, 900, 4_000, 15_000, 70_000]))

    async def sync(self) -> None:
        await self.p.synced()
        self.broker.pop.sweep()
        self.broker.offsets.save()

    async def stop(self) -> None:
        await self.caller.peers.close()
        await self.broker.stop()
        await self.open()

    async def crash(self) -> None:
        """Crash the broker as a kill does: what was only in memory is lost, what was written
        stays."""
        self.crashes += 1
        self.settings |= crashed(self.broker, self.folder / f"crash-{self.crashes}")
        await self.caller.peers.close()
        await self.broker.stop()
        await self.open()

    async def drain(self) -> set[bytes]:
        """All that can still be popped, with what was acknowledged."""
        found = set(self.acked)
        for _ in range(20):
            await self.p.later(DRAIN_MS)
            while popped := await self.p.pop(invisible_ms=30_000):
                self.check(popped)
                for body, text in popped.items():
                    assert (await self.p.ack(text)).code == 0
                    self.acked.add(body)
                found |= popped.keys()
                self.clock.ms += 1
            if found == self.sent and not sum(self.broker.pop.revive.behind()):
                break
        return found


@pytest.mark.parametrize("seed", range(5))
async def test_nothing_is_lost_and_nothing_comes_twice_while_no_broker_is_killed(
    run: Run, config: Config, clock: Clock, tmp_path: Path, seed: int
) -> None:
    history = History(seed, run, config, clock, tmp_path)
    await history.open()
    await history.send()
    for _ in range(STEPS):
        await history.step()
    assert await history.drain() == history.sent
    assert await history.drain() == history.sent


@pytest.mark.parametrize("seed", range(100, 106))
async def test_nothing_is_lost_when_brokers_are_killed(
    run: Run, config: Config, clock: Clock, tmp_path: Path, seed: int
) -> None:
    history = History(seed, run, config, clock, tmp_path)
    await history.open()
    for _ in range(4):
        await history.send()
        for _ in range(STEPS // 4):
            await history.step()
        await history.crash()
    assert await history.drain() == history.sent
