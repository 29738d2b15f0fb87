"""Ten members that join, leave and are killed at random during consumption, checked by a ledger.

Each member is a process, and a kill is a kill -9. No message may be lost; an ordered queue may not
skip a message or have two consumers at a time. Repeated messages are counted; each must have been
consumed shortly before, by a killed member that had not reported it yet.
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
from aerobee.client import Admin, Message, MessageQueue, Producer
from aerobee.client.cluster.cluster import Cluster
from aerobee.client.group.queue_locks import QueueLocks
from aerobee.scripts.harness.child import Reporter

from ...loss.ledger import Ledger

QUEUES = 8
MEMBERS = 10
EVENTS = int(os.environ.get("AEROBEE_CHURN_EVENTS", "22"))  # joins, leaves and kills
BETWEEN_SECONDS = 0.5
# Between a message's first and its last delivery: 5 s until it is reported, the time in which the
# others notice a kill (at once by the closed connection, a second between two rebalances), and a
# busy machine.
REPEAT_SECONDS_MAX = 15.0
WAIT_SECONDS = 40


@dataclass
class Group:
    """The members of the group, living and gone."""

    address: str
    topic: str
    kind: str
    folder: Path
    living: dict[str, Reporter] = field(default_factory=dict)
    gone: list[Reporter] = field(default_factory=list)

    def join(self) -> None:
        """A new member; it is there when it is there."""
        name = f"member-{len(self.living) + len(self.gone):02}"
        argv = [sys.executable, str(Path(__file__).parents[1] / "member.py")]
        argv += [self.address, "churn", self.topic, name, self.kind]
        self.living[name] = Reporter(argv, self.folder / f"{name}.stderr")

    def leave(self, name: str, order: str) -> None:
        """Tell a member to go; it ends by itself."""
        program = self.living.pop(name)
        program.say(order)
        self.gone.append(program)

    async def kill(self, name: str) -> None:
        """kill -9; a lock of its would be held for a minute, so we give it back in its name."""
        program = self.living.pop(name)
        await asyncio.to_thread(program.kill)
        self.gone.append(program)
        if self.kind == "ordered":
            cluster = Cluster(self.address, client_id=name)
            await cluster.route(self.topic)
            broker = next(iter(cluster.masters))
            queues = [MessageQueue(self.topic, broker, number) for number in range(QUEUES)]
            await QueueLocks(cluster, "churn").unlock(queues, oneway=False)
            await cluster.close()

    def deliveries(self) -> list[dict[str, Any]]:
        """All that was consumed, in the order of time, with the member's number."""
        found = []
        for number, program in enumerate([*self.gone, *self.living.values()]):
            found += [{**each, "member": number} for each in program.events("message")]
        return sorted(found, key=lambda each: each["at"])

    def stop(self) -> None:
        """End every process."""
        for program in [*self.living.values(), *self.gone]:
            program.kill()


async def churn(group: Group, dice: random.Random) -> list[str]:
    """Let members come and go; what was done."""
    done = []
    for _ in range(3):
        group.join()
    for _ in range(EVENTS):
        await asyncio.sleep(BETWEEN_SECONDS)
        names = sorted(group.living)
        action = dice.choice(["join", "join", "join", "drain", "close", "kill"])
        if action == "join" or len(names) < 2:
            action = "join"
            if len(group.gone) + len(names) < 3 + EVENTS and len(names) < MEMBERS:
                group.join()
        elif action == "kill":
            await group.kill(dice.choice(names))
        else:
            group.leave(dice.choice(names), action)
        done.append(action)
    return done


@pytest.mark.requirement("Progress: Duplicates are bounded")
@pytest.mark.requirement(
    "Rebalance: A queue has one consumer at a time, through joins, leaves, crashes"
)
@pytest.mark.parametrize("kind", ["concurrent", "ordered"])
async def test_members_that_come_go_and_are_killed_lose_nothing(
    address: str, tmp_path: Path, kind: str
) -> None:
    topic, ledger = "churn", Ledger()
    dice = random.Random(f"churn-{kind}")
    group = Group(address, topic, kind, tmp_path)
    sent = 0
    ended = asyncio.Event()
    async with Admin(address) as admin, Producer(address) as producer:
        await admin.create_topic(topic, QUEUES)
        queues = await producer.queues(topic)

        async def produce() -> None:
            nonlocal sent
            while not ended.is_set():
                queue = queues[sent % QUEUES]
                body = b"%d" % sent
                ledger.sent(body, (topic, queue.queue_id))
                receipt = await producer.send(Message(topic, body), queue=queue, timeout=60)
                ledger.acknowledged(body, receipt.queue_offset)
                sent += 1
                await asyncio.sleep(0.002)

        producing = asyncio.create_task(produce())
        try:
            done = await churn(group, dice)
            ended.set()
            await producing
            async with asyncio.timeout(WAIT_SECONDS):
                while len({each["body"] for each in group.deliveries()}) < sent:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)  # other processes have no event to wait for
        finally:
            ended.set()
            await asyncio.gather(producing, return_exceptions=True)
            await asyncio.to_thread(group.stop)
    assert {"join", "kill", "close", "drain"} <= set(done)
    deliveries = group.deliveries()
    for each in deliveries:
        ledger.delivered((topic, each["queue"]), each["offset"], each["body"].encode())
    ledger.check()
    assert {each["body"] for each in deliveries} == {str(number) for number in range(sent)}
    repeats = check_repeats(deliveries)
    print(f"{kind}: {sent} sent, {repeats} came again, {done.count('kill')} kills of {len(done)}")
    assert repeats < sent
    if kind == "ordered":
        check_order(deliveries)


def check_repeats(deliveries: list[dict[str, Any]]) -> int:
    """How many messages came again; each of them soon after the first time."""
    first: dict[str, float] = {}
    repeats = 0
    for each in deliveries:
        began = first.setdefault(each["body"], each["at"])
        repeats += each["at"] > began
        assert each["at"] - began <= REPEAT_SECONDS_MAX, each
    return repeats


def check_order(deliveries: list[dict[str, Any]]) -> None:
    """In each queue no message is skipped, and two members never take turns."""
    by_queue: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for each in deliveries:
        by_queue[each["queue"]].append(each)
    for every in by_queue.values():
        following, owners = 0, list[int]()
        last: dict[int, int] = {}
        for each in every:
            assert each["offset"] <= following, f"{each} came before offset {following}"
            following = max(following, each["offset"] + 1)
            member = each["member"]
            if not owners or owners[-1] != member:
                owners.append(member)
            else:
                # Or it has let the queue go and taken it again: from what was not reported on.
                assert each["offset"] <= last[member] + 1, f"{each} follows {last[member]}"
            last[member] = each["offset"]
