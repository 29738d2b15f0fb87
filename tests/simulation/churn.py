"""The churn of one group in virtual time: members join, leave and are killed while messages flow.

`run` gives what happened and each breach of a promise:

- every message is consumed, and the group's offsets reach the ends of its queues;
- a message comes again only soon after it came first;
- in order, no queue skips a message or has two of them under way, and a message that was settled
  comes again only where its member was killed;
- what was done by a member that left while nothing else happened never comes again.

Each member is a process on a machine of its own. A kill ends it at once and resets its connections;
a member may come back with its client id. Servers have no faults here: `history` has those.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from aerobee.broker.server import Broker
from aerobee.client import Consumer, Limits, Message, MessageQueue, Producer, ReceivedMessage
from aerobee.client.admin.admin import Admin

from ..loss.ledger import Ledger
from .cluster import MasterCluster
from .machines import Machine, Machines, simulated

TOPIC, GROUP = "churn", "churners"
QUEUES = 3  # on each of two masters
FIRST_MEMBERS = 3
TASKS = 4  # of each member
MESSAGES_MAX = 32  # of each queue that a member has and has not settled
EVENTS = (
    *("join",) * 8,
    *("drain",) * 2,
    *("drain alone",) * 3,
    *("close",) * 2,
    *("kill",) * 4,
    *("kill it as it leaves",) * 2,
    *("kill it as it joins",),
)
SHORT_SECONDS, LONG_SECONDS = 2.0, 15.0  # between two events, at most
LONG_SHARE = 0.2  # of the pauses
SEND_SECONDS = 0.6  # between two bursts of messages, at most
BURST = 12  # messages, at most
WORK_SECONDS = 1.0  # on a message, at most, and mostly much less
IN_FLIGHT_SECONDS = 1.0  # a request reaches its broker by then
CALM_SECONDS = 3.0  # after an event: the members have their queues
DRAIN_SECONDS = 60.0
# A killed member has not reported what it settled in the last 10 s: it reports every 5 s, and first
# 10 s after its start. In order its lock has to end. Another member takes its queues within 2 s,
# and does again what came before. A queue that went to a member that drains waits until that has
# left: it takes no more, and counts as a member.
REPEAT_SECONDS = 15.0
LOCK_SECONDS = 60.0
CONSUMED_SECONDS = 200.0  # after the last event: a lock, and what has come meanwhile


@dataclass(eq=False)
class Member:
    """One run of a member's process."""

    machine: Machine
    consumer: Consumer
    life: asyncio.Task[None] | None = None  # until its process ends
    has_started: bool = False
    is_leaving: bool = False
    is_killed: bool = False
    ends: dict[MessageQueue, int] = field(default_factory=dict)  # behind what it has consumed

    @property
    def name(self) -> str:
        return self.machine.name


@dataclass
class Story:
    """The course of a run: a line for each event, the faults, and counts of what happened."""

    lines: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    sent: int = 0
    repeats: int = 0
    latest_repeat: float = 0.0  # seconds after the first delivery
    seconds: float = 0.0  # virtual


def run(seed: int, *, ordered: bool) -> Story:
    """The churn of this seed."""
    with simulated(seed) as machines:
        churn = _Churn(machines, seed, ordered=ordered)
        began = machines.world.now
        try:
            machines.world.run(machines.add("observer").boot(), churn.work())
        except AssertionError as wrong:
            churn.story.faults.append(str(wrong))
        story, churn.story = churn.story, Story()  # what members say at their end is no part of it
        story.seconds = machines.world.now - began
        story.faults += churn.ledger.faults() + machines.world.errors
        return story


class _Churn:
    def __init__(self, machines: Machines, seed: int, *, ordered: bool) -> None:
        self.story = Story()
        self.ledger = Ledger()
        self._machines = machines
        self._cluster = MasterCluster(machines)
        self._ordered = ordered
        self._draw = Random(f"churn {seed} {ordered}")
        self._members: list[Member] = []
        self._leaving: list[asyncio.Task[None]] = []
        self._leaves: dict[Member, tuple[float, float]] = {}  # from when to when
        self._is_over = False  # nothing is sent any more
        self._sent: dict[bytes, None] = {}
        self._ends: dict[MessageQueue, int] = {}
        self._kills: list[tuple[float, list[MessageQueue]]] = []  # when, and who had what
        self._first: dict[bytes, float] = {}  # when a message came first
        self._done: dict[bytes, None] = {}  # what a member has worked on to the end
        self._settled: dict[bytes, Member] = {}  # and who could report it
        self._next: dict[MessageQueue, int] = {}  # the first offset that is not done
        self._working: dict[MessageQueue, Member] = {}  # in order: who has a message in hand
        self._left_alone: list[tuple[Member, list[MessageQueue]]] = []  # and what they had

    # ---- the story

    async def work(self) -> None:
        await self._cluster.start_all()
        async with Admin(self._cluster.name_servers) as admin:
            await asyncio.sleep(1)
            await admin.create_topic(TOPIC, QUEUES)
        producing = asyncio.create_task(
            self._machines.on(self._booted("producer"), self._produce())
        )
        for _ in range(FIRST_MEMBERS):
            self._join()
        events = list(EVENTS)
        self._draw.shuffle(events)
        for event in events:
            is_long = self._draw.random() < LONG_SHARE
            await asyncio.sleep(self._draw.random() * (LONG_SECONDS if is_long else SHORT_SECONDS))
            await self._happen(event)
        self._is_over = True
        await producing
        await self._until(self._not_consumed, "not consumed:")
        await self._until(self._not_committed, "not as in a group at rest:")
        await asyncio.gather(*self._leaving)
        self._note("all is consumed")

    def _note(self, text: str) -> None:
        self.story.lines.append(f"{self._machines.world.now - 1_000:9.4f} {text}")

    def _fault(self, text: str) -> None:
        self._note(f"FAULT: {text}")
        self.story.faults.append(text)

    async def _until(self, missing: Callable[[], list[str]], what: str) -> None:
        deadline = self._machines.world.now + CONSUMED_SECONDS
        while left := missing():
            if self._machines.world.now > deadline:
                raise AssertionError(
                    f"{what} {', '.join(left[:5])} ({len(left)}) in {CONSUMED_SECONDS:g} s"
                )
            await asyncio.sleep(0.5)

    def _booted(self, name: str) -> Machine:
        machine = self._machines.table.get(name) or self._machines.add(name)
        machine.boot()
        return machine

    # ---- what happens to members

    def _staying(self) -> list[Member]:
        return [each for each in self._members if not each.is_leaving and not each.is_killed]

    async def _happen(self, event: str) -> None:
        if event == "join" or len(self._staying()) < 2:
            self._join()
        if event == "join":
            return
        if event == "kill it as it joins":
            member = self._join()
            await asyncio.sleep(self._draw.random() * 0.05)
        else:
            member = self._draw.choice(self._staying())
            await self._until(lambda: [] if member.has_started else [member.name], "not there:")
        if event in ("drain", "close"):
            self._leave(member, event)
        elif event == "drain alone":
            await asyncio.gather(*self._leaving)
            await asyncio.sleep(CALM_SECONDS)
            self._left_alone.append((member, member.consumer.queues))
            await self._leave(member, "drain")
        else:
            if event == "kill it as it leaves":
                self._leave(member, "drain")
                await asyncio.sleep(self._draw.random() * WORK_SECONDS)
            self._kill(member)

    def _join(self) -> Member:
        """A new member, or one that is back with its client id."""
        gone = sorted({each.name for each in self._members if not each.machine.is_up})
        is_back = gone and self._draw.random() < 0.3
        name = self._draw.choice(gone) if is_back else f"member-{len(self._members):02}"
        consumer = Consumer(
            self._cluster.name_servers,
            group=GROUP,
            topics=[TOPIC],
            start="earliest",
            client_id=name,
            ordered=self._ordered,
            limits=Limits(messages_max=MESSAGES_MAX),
        )
        member = Member(self._booted(name), consumer)
        self._members.append(member)
        self._note(f"{name}: it joins")
        member.life = asyncio.create_task(self._live(member))
        return member

    def _kill(self, member: Member) -> None:
        if member.life is None or member.life.done():
            return  # it was faster
        held = self._locked_by(member) if self._ordered else member.consumer.queues
        self._kills.append((self._machines.world.now, held))
        if self._ordered:  # a lock that it has just requested may still be granted
            asyncio.get_running_loop().call_later(
                IN_FLIGHT_SECONDS, lambda: held.extend(self._locked_by(member))
            )
        self._note(f"{member.name}: it is killed")
        member.is_killed = True
        self._forget(member)
        member.machine.kill(power=False)

    def _leave(self, member: Member, how: str) -> asyncio.Task[None]:
        self._note(f"{member.name}: {how}")
        member.is_leaving = True
        task = asyncio.create_task(self._left(member, how))
        self._leaving.append(task)
        return task

    async def _left(self, member: Member, how: str) -> None:
        if how == "close":
            self._forget(member)  # the messages that it has in hand go to others
        work = member.consumer.drain(DRAIN_SECONDS) if how == "drain" else member.consumer.close()
        began = self._machines.world.now
        self._leaves[member] = began, float("inf")
        try:
            is_whole = await self._machines.on(member.machine, work)
        except ConnectionError:
            assert member.is_killed
            return
        finally:
            self._leaves[member] = began, self._machines.world.now
        if is_whole is False:
            self._fault(f"{member.name} has open messages after {DRAIN_SECONDS:g} s")
        assert member.life is not None
        await member.life
        if not member.is_killed:
            self._note(f"{member.name}: it has left")
            member.machine.kill(power=False)  # its process ends

    def _forget(self, member: Member) -> None:
        self._working = {
            queue: other for queue, other in self._working.items() if other is not member
        }

    # ---- what clients do

    async def _produce(self) -> None:
        async with Producer(self._cluster.name_servers, group="makers") as producer:
            queues = sorted(await producer.queues(TOPIC))
            while not self._is_over:
                burst = self._draw.randrange(1, BURST)
                await asyncio.gather(*(self._send(producer, queues) for _ in range(burst)))
                await asyncio.sleep(self._draw.random() * SEND_SECONDS)

    async def _send(self, producer: Producer, queues: list[MessageQueue]) -> None:
        queue = self._draw.choice(queues)
        body = b"%d" % self.story.sent
        self.story.sent += 1
        self.ledger.sent(body, _place(queue))
        receipt = await producer.send(Message(TOPIC, body), queue=queue)
        self.ledger.acknowledged(body, receipt.queue_offset)
        self._sent[body] = None
        self._ends[queue] = max(self._ends.get(queue, 0), receipt.queue_offset + 1)

    async def _live(self, member: Member) -> None:
        try:
            await self._machines.on(member.machine, self._consume(member))
        except Exception as wrong:
            if not member.is_killed:
                self._fault(f"{member.name}: {wrong!r}")

    async def _consume(self, member: Member) -> None:
        await member.consumer.start()
        member.has_started = True
        await asyncio.gather(*(self._take(member) for _ in range(TASKS)))

    async def _take(self, member: Member) -> None:
        async for message in member.consumer:
            async with message.process():
                self._began(member, message)
                await asyncio.sleep(self._draw.random() ** 3 * WORK_SECONDS)
                self._ended(member, message)

    # ---- what must hold

    def _began(self, member: Member, message: ReceivedMessage) -> None:
        queue, offset, body = message.queue, message.offset, message.body
        text = f"{body.decode()} at {offset} of {queue.broker_name} {queue.queue_id}"
        self.ledger.delivered(_place(queue), offset, body)
        now = self._machines.world.now
        first = self._first.setdefault(body, now)
        if now > first:
            self.story.repeats += 1
            self.story.latest_repeat = max(self.story.latest_repeat, now - first)
        if now - first > self._repeat_seconds(queue, first):
            self._fault(
                f"{text} came to {member.name} again {now - first:g} s after the first time"
            )
        for gone, queues in self._left_alone:
            if member is not gone and queue in queues and offset < gone.ends.get(queue, 0):
                self._fault(f"{text} came to {member.name} after {gone.name} had left behind it")
        if self._ordered:
            self._in_order(member, message, text)

    def _repeat_seconds(self, queue: MessageQueue, first: float) -> float:
        """The time for which a message of this queue may come again that came first at this
        time."""
        kills = sum(when >= first and queue in held for when, held in self._kills)
        each = REPEAT_SECONDS + (LOCK_SECONDS if self._ordered and kills else 0)
        now = self._machines.world.now
        waits = [min(end, now) - max(began, first) for began, end in self._leaves.values()]
        return each * max(1, kills) + sum(wait for wait in waits if wait > 0)

    def _locked_by(self, member: Member) -> list[MessageQueue]:
        tables = [
            self._broker(name).locks.table(self._machines.now_ms(), name)
            for name in self._cluster.masters
        ]
        return [
            MessageQueue(topic, broker, queue_id)
            for table in tables
            for _, topic, broker, queue_id, client, _ in table.locks
            if client == member.name
        ]

    def _broker(self, name: str) -> Broker:
        found = self._cluster.broker(name)
        assert found is not None
        return found

    def _in_order(self, member: Member, message: ReceivedMessage, text: str) -> None:
        queue = message.queue
        following = self._next.get(queue, 0)
        if message.offset > following:
            self._fault(f"{text} came to {member.name} before {following}")
        settled = self._settled.get(message.body)
        if settled is not None and not settled.is_killed:
            self._fault(f"{text} came to {member.name} after {settled.name} had settled it")
        if queue in self._working:
            self._fault(f"{text} came to {member.name}, while {self._working[queue].name} has one")
        if not member.is_leaving:
            self._working[queue] = member

    def _ended(self, member: Member, message: ReceivedMessage) -> None:
        queue, end = message.queue, message.offset + 1
        self._done[message.body] = None
        self._next[queue] = max(self._next.get(queue, 0), end)
        member.ends[queue] = max(member.ends.get(queue, 0), end)
        if self._working.get(queue) is member:
            del self._working[queue]
        if not member.is_leaving and queue in member.consumer.queues:
            self._settled[message.body] = member  # else it is on its way to another member

    def _not_consumed(self) -> list[str]:
        return [body.decode() for body in self._sent if body not in self._done]

    def _not_committed(self) -> list[str]:
        """Queues of which the group has not all, or that not just one member has."""
        found = []
        for queue, end in self._ends.items():
            offsets = self._broker(queue.broker_name).offsets.to_body().offset_table
            at = offsets.get(f"{TOPIC}@{GROUP}", {}).get(queue.queue_id, 0)
            owners = [each.name for each in self._staying() if queue in each.consumer.queues]
            if at != end or len(owners) != 1:
                text = f"{queue.broker_name} {queue.queue_id} at {at} of {end}"
                found.append(f"{text}, with {' and '.join(owners) or 'nobody'}")
        return found


def _place(queue: MessageQueue) -> tuple[str, int]:
    return f"{queue.broker_name}:{queue.topic}", queue.queue_id
