"""Members in processes of their own that join, leave and are killed with kill -9.

No message may be lost, and an ordered queue may not skip one. How late a message may come again is
tested in virtual time: tests/simulation/test_churn.py.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aerobee.client import Admin, Message, Producer
from aerobee.harness.child import Reporter

from ...loss.ledger import Ledger
from ...waiting import PROCESS, until

TOPIC, QUEUES = "churn", 8
MEMBERS = 10
EVENTS = int(os.environ.get("AEROBEE_CHURN_EVENTS", "22"))  # joins, leaves and kills
BETWEEN = 200  # messages that are sent from one event to the next
CHECK_SECONDS = 0.2  # between two checks of what members have reported


@dataclass
class Group:
    """The members of the group, living and gone."""

    address: str
    kind: str
    folder: Path
    living: dict[str, Reporter] = field(default_factory=dict)
    gone: list[Reporter] = field(default_factory=list)

    async def join(self) -> None:
        """A new member, which has started."""
        name = f"member-{len(self.living) + len(self.gone):02}"
        argv = [sys.executable, str(Path(__file__).parents[1] / "member.py")]
        argv += [self.address, "churn", TOPIC, name, self.kind]
        program = self.living[name] = Reporter(argv, self.folder / f"{name}.stderr")
        await until(
            lambda: program.events("started"),
            f"{name} does not start",
            seconds=PROCESS,
            pause=CHECK_SECONDS,
        )

    def leave(self, name: str, order: str) -> None:
        """Tell a member to go; it ends by itself."""
        program = self.living.pop(name)
        program.say(order)
        self.gone.append(program)

    async def kill(self, name: str) -> None:
        """kill -9; in order a queue waits until the broker ends the member's lock."""
        program = self.living.pop(name)
        await asyncio.to_thread(program.kill)
        self.gone.append(program)

    def deliveries(self) -> list[dict[str, Any]]:
        """All that was consumed, in the order of time."""
        programs = [*self.gone, *self.living.values()]
        found = [each for program in programs for each in program.events("message")]
        return sorted(found, key=lambda each: each["at"])

    def stop(self) -> None:
        """End every process."""
        for program in [*self.living.values(), *self.gone]:
            program.kill()


class Sender:
    """Sends to one queue after the other. `count` messages were acknowledged."""

    def __init__(self, producer: Producer) -> None:
        self.ledger = Ledger()
        self.count = 0
        self.is_over = False
        self._producer = producer

    async def run(self) -> None:
        """Send until it is over."""
        queues = await self._producer.queues(TOPIC)
        while not self.is_over:
            queue, body = queues[self.count % QUEUES], b"%d" % self.count
            self.ledger.sent(body, (TOPIC, queue.queue_id))
            receipt = await self._producer.send(Message(TOPIC, body), queue=queue, timeout=PROCESS)
            self.ledger.acknowledged(body, receipt.queue_offset)
            self.count += 1

    async def sent(self, count: int) -> None:
        """Wait until it has sent so many more messages."""
        end = self.count + count
        await until(lambda: self.count >= end, lambda: f"{self.count} of {end}", seconds=PROCESS)


async def churn(group: Group, sender: Sender, dice: random.Random) -> list[str]:
    """Let members come and go; what was done."""
    actions = ["join", "drain", "close", "kill"]
    actions += dice.choices(["join", "join", "join", "drain", "close", "kill"], k=EVENTS - 4)
    dice.shuffle(actions)
    for _ in range(3):
        await group.join()
    for action in actions:
        await sender.sent(BETWEEN)
        if len(group.living) < 2 or (action == "join" and len(group.living) < MEMBERS):
            await group.join()
        if action == "kill":
            await group.kill(dice.choice(sorted(group.living)))
        elif action != "join":
            group.leave(dice.choice(sorted(group.living)), action)
    return actions


@pytest.mark.parametrize("kind", ["concurrent", "ordered"])
async def test_processes_that_come_go_and_are_killed_lose_nothing(
    address: str, tmp_path: Path, kind: str
) -> None:
    group = Group(address, kind, tmp_path)

    def consumed() -> set[int]:
        return {int(each["body"]) for each in group.deliveries()}

    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic(TOPIC, QUEUES)
        sender = Sender(producer)
        sending = asyncio.create_task(sender.run())
        try:
            done = await churn(group, sender, random.Random(f"churn-{kind}"))
            sender.is_over = True
            await sending
            await until(
                lambda: len(consumed()) == sender.count,
                lambda: f"not consumed: {sorted(set(range(sender.count)) - consumed())[:20]}",
                seconds=PROCESS,
                pause=CHECK_SECONDS,
            )
        finally:
            sending.cancel()
            await asyncio.to_thread(group.stop)
    deliveries = group.deliveries()
    for each in deliveries:
        sender.ledger.delivered((TOPIC, each["queue"]), each["offset"], each["body"].encode())
    sender.ledger.check()
    if kind == "ordered":
        check_order(deliveries)
    again = len(deliveries) - sender.count
    print(f"{kind}: {sender.count} sent, {again} came again, {done.count('kill')} kills")


def check_order(deliveries: list[dict[str, Any]]) -> None:
    """In each queue no message is skipped."""
    following: dict[int, int] = defaultdict(int)
    for each in deliveries:
        queue, offset = each["queue"], each["offset"]
        assert offset <= following[queue], f"{each} came before offset {following[queue]}"
        following[queue] = max(following[queue], offset + 1)
