"""One history of a cluster: clients at work, faults that a seed draws, and what must hold after.

`run` gives its lines and faults. The checks: no acknowledged message is lost, an offset has one
message for ever, a first delivery to an orderly group is in order, every group gets every
acknowledged message, committed offsets go back by at most `OFFSETS_SECONDS`, and when the faults
have ended all servers start and all masters take messages. `scheduled` and `set_watch` have more.

Odd seeds run a pair and a broker on its own, even ones three brokers in controller mode.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from aerobee.broker.server import Broker
from aerobee.client import (
    Consumer,
    Message,
    MessageQueue,
    PoppedMessage,
    Producer,
    ReceivedMessage,
    SendStatus,
    SimpleConsumer,
)
from aerobee.client.admin.admin import Admin
from aerobee.client.errors import AerobeeError, NoRouteError
from aerobee.client.pull.reader import Reader
from aerobee.protocol.message.record import Record, decode_all
from aerobee.store.base.errors import StoreError

from ..loss.ledger import Event, Ledger, Queue
from .cluster import MEMBERS, PairCluster, SetCluster
from .lock_watch import LockWatch
from .machines import Machine, Machines, simulated
from .scheduled import TOPICS, Scheduled
from .set_watch import SetWatch

log = logging.getLogger(__name__)

EVENTS = 10
QUEUES = 2  # of each topic on each master
PAUSE_SECONDS = 2.0  # between two faults, at most
DOWN_SECONDS = 4.0  # how long a machine is down, at most
SEND_SECONDS = 0.5  # between two sends to a queue, at most
START_SECONDS = 30.0  # a start that fails is tried again for so long
WORKS_SECONDS = 60.0  # after the faults, until all masters take messages
CONSUMED_SECONDS = 150.0  # after that, until every group has every message
OFFSETS_SECONDS = 6.0  # flushConsumerOffsetInterval, and the time that writing the file takes
# A machine's own fault: its process is killed, or its power goes.
DYING = ("kill", "kill", "power")
BETWEEN = ("partition", "stall", "cut")
CLIENTS = ("observer", "producer", "consumer-1", "consumer-2")

Offsets = dict[str, dict[int, int]]


@dataclass
class Story:
    """The course of a run: a line for each event, the faults, and a digest of it all."""

    seed: int
    lines: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    digest: str = ""
    acknowledged: int = 0
    delivered: int = 0
    seconds: float = 0.0  # virtual


def run(seed: int, events: int = EVENTS) -> Story:
    """The history of this seed."""
    with simulated(seed) as machines:
        history = _History(machines, seed, events)
        observer = machines.add("observer")
        began = machines.world.now
        try:
            machines.world.run(observer.boot(), history.work())
        except AssertionError as wrong:
            history.fault(str(wrong))
        except Exception as wrong:
            log.exception("the history of seed %d ends", seed)
            history.fault(f"the history ends: {wrong!r}")
        story = history.story
        story.seconds = machines.world.now - began
        story.faults += history.ledger.faults() + machines.world.errors + history.more_faults()
        text = [*story.lines, *map(_text, history.ledger.events), *story.faults]
        text.append(machines.network.digest.hexdigest())
        story.digest = hashlib.sha256("\n".join(text).encode()).hexdigest()[:16]
        history.story = Story(seed)  # what its clients say at their end is no part of it
        return story


class _History:
    def __init__(self, machines: Machines, seed: int, events: int) -> None:
        self.story = Story(seed)
        self.ledger = Ledger()
        self._machines = machines
        self._set = SetCluster(machines) if seed % 2 == 0 else None
        self._pair = PairCluster(machines) if self._set is None else None
        self._cluster = self._set or self._pair or PairCluster(machines)
        self._set_watch = None if self._set is None else SetWatch(self._set)
        self._lock_watch = LockWatch()
        self._scheduled = Scheduled(self._cluster.name_servers, seed, machines.now_ms)
        self._draw = Random(f"faults {seed}")
        self._events = events
        self._ends_with_promotion = self._draw.random() < 0.4 and self._pair is not None
        self._is_over = False  # the faults have ended
        self._heals: list[Callable[[], None]] = []
        self._starting: dict[str, asyncio.Task[None]] = {}
        self._electing: list[asyncio.Task[None]] = []
        self._body = 0
        self._acknowledged: dict[str, dict[bytes, None]] = {}  # by topic
        self._sent: dict[bytes, Queue] = {}
        self._worked: dict[Queue, float] = {}  # when a queue took a message last
        self._got: dict[str, dict[bytes, None]] = {}  # by topic, which has one group
        self._last_first: dict[Queue, int] = {}
        self._offsets: dict[str, list[tuple[float, Offsets]]] = {}  # of each master
        self._lost_power: set[str] = set()
        self._forgiven: frozenset[bytes] = frozenset()  # the promoted slave may lack these

    # ---- the story

    async def work(self) -> None:
        cluster = self._cluster
        for name in list(self._servers()):
            await cluster.start(name)
        async with Admin(cluster.name_servers) as admin:
            await asyncio.sleep(1)
            for topic in ("push", "orderly", "pop", *TOPICS):
                await admin.create_topic(topic, QUEUES)
        self._begin_clients()
        watching = asyncio.create_task(self._watch())
        await asyncio.sleep(3)
        for _ in range(self._events):
            await asyncio.sleep(self._draw.random() * PAUSE_SECONDS)
            self._one_fault()
        if self._ends_with_promotion:
            await self._promote()
        await self._end_faults()
        self._scheduled.end()
        await self._until(self._all_work, WORKS_SECONDS, "no message was taken by")
        self._note("all queues take messages")
        await self._until(self._all_consumed, CONSUMED_SECONDS, "not consumed:")
        self._note("all is consumed")
        if watching.done():
            watching.result()  # it never ends by itself
        watching.cancel()
        await self._read_all()

    def fault(self, text: str) -> None:
        self.story.faults.append(text)

    def more_faults(self) -> list[str]:
        """The faults that the parts have found."""
        watched = [] if self._set_watch is None else self._set_watch.faults
        return [*watched, *self._lock_watch.faults, *self._scheduled.faults]

    def _note(self, text: str) -> None:
        self.story.lines.append(f"{self._machines.world.now - 1_000:9.4f} {text}")

    def _servers(self) -> list[str]:
        return [
            machine.name
            for machine in self._machines.table.values()
            if machine.name not in CLIENTS and not machine.is_gone
        ]

    async def _until(self, missing: Callable[[], list[str]], seconds: float, what: str) -> None:
        deadline = self._machines.world.now + seconds
        while missing():
            if self._machines.world.now > deadline:
                left = missing()
                raise AssertionError(f"{what} {', '.join(left[:5])} ({len(left)}) in {seconds:g} s")
            await asyncio.sleep(0.5)

    # ---- faults

    def _one_fault(self) -> None:
        draw = self._draw
        by_hand = () if self._set is None else ("elect",)
        kind = draw.choice((*DYING, *BETWEEN, *BETWEEN, "slow", *by_hand))
        name = draw.choice(self._servers())
        if kind == "elect":
            self._elect(draw.choice(MEMBERS))
            return
        if kind in BETWEEN:
            others = [each for each in self._machines.table if each not in (name, "observer")]
            self._between(kind, name, draw.choice(others))
        elif kind == "slow":
            machine = self._machines.table[name]
            machine.slow_disk(slow=True)
            self._later(f"{name}: the disk is slow", lambda: machine.slow_disk(slow=False))
        elif self._machines.table[name].is_up and name not in self._starting:
            power = kind == "power" and not (
                # What a slave confirms is in its memory: promotion needs that.
                self._ends_with_promotion and name == "broker-a-slave"
            )
            self._die(name, power=power)

    def _between(self, kind: str, one: str, other: str) -> None:
        network = self._machines.network
        a, b = (self._machines.table[name].host.ip for name in (one, other))
        if kind == "cut":
            self._note(f"{one} and {other}: connections are reset")
            network.cut(a, b)
            return
        pairs = [(a, b), (b, a)] if kind == "partition" else [(a, b)]
        for pair in pairs:
            network.stall(*pair)

        def heal() -> None:
            for pair in pairs:
                network.heal(*pair)

        arrow = "and" if kind == "partition" else "to"
        self._later(
            f"{one} {arrow} {other}: nothing arrives",
            heal,
        )

    def _elect(self, name: str) -> None:
        """Have a member elected by hand, if it serves. One that is the master stops instead."""
        assert self._set is not None
        if name not in self._set.members() or name in self._starting:
            return
        if self._set.members()[name] is self._set.master():
            self._note(f"{name}: it is stopped")
            seconds = self._draw.random() * DOWN_SECONDS
            self._starting[name] = asyncio.create_task(self._stop(name, seconds))
            return
        self._note(f"{name}: it is elected by hand")

        async def elect() -> None:
            assert self._set is not None
            with suppress(OSError, TimeoutError):
                await self._set.elect(name)

        self._electing.append(asyncio.create_task(elect()))

    def _later(self, text: str, heal: Callable[[], None]) -> None:
        """A fault that ends after a drawn time, at the latest when the faults end."""
        self._note(text)

        def end() -> None:
            if end in self._heals:
                self._heals.remove(end)
                self._note(f"{text}: over")
                heal()

        self._heals.append(end)
        seconds = self._draw.random() * 3 * DOWN_SECONDS
        asyncio.get_running_loop().call_later(seconds, end)

    def _die(self, name: str, *, power: bool) -> None:
        self._note(f"{name}: {'its power is cut' if power else 'it is killed'}")
        if power:
            self._lost_power.add(name)
        self._cluster.kill(name, power=power)
        seconds = self._draw.random() * DOWN_SECONDS
        self._starting[name] = asyncio.create_task(self._start(name, seconds))

    async def _stop(self, name: str, seconds: float) -> None:
        """Stop a member as SIGTERM does, and start it again."""
        assert self._set is not None
        member, machine = self._set.members()[name], self._machines.table[name]
        await self._machines.on(machine, member.stop())
        self._note(f"{name}: it has stopped")
        self._cluster.kill(name, power=False)
        await self._start(name, seconds)

    async def _start(self, name: str, seconds: float) -> None:
        died = self._machines.world.now
        deadline = died + seconds + START_SECONDS
        try:
            while True:
                await asyncio.sleep(seconds)
                try:
                    await self._cluster.start(name)
                    break
                except (OSError, StoreError) as wrong:
                    self._note(f"{name}: it does not start: {wrong}")
                    if self._machines.world.now > deadline:
                        raise AssertionError(f"{name} does not start: {wrong}") from None
                    self._cluster.kill(name, power=False)
                    seconds = 2.0
            self._note(f"{name}: it serves again")
            self._compare_offsets(name, died)
        finally:
            self._starting.pop(name, None)

    async def _promote(self) -> None:
        """The master's machine is gone for good, whatever else goes on."""
        assert self._pair is not None
        self._note("broker-a: its machine is gone; its slave is to be the master")
        self._forgiven = frozenset(
            body
            for body, (topic, _) in self._sent.items()
            if topic.startswith("broker-a:")
            and body not in self._acknowledged.get(topic.partition(":")[2], {})
        )
        for name in ("broker-a", "broker-a-slave"):
            starting = self._starting.pop(name, None)
            if starting is not None:
                starting.cancel()
                await asyncio.wait([starting])
        self._offsets.pop("broker-a", None)
        self.ledger.crashed(self._forgiven)
        for heal in self._heals.copy():
            heal()
        await self._pair.promote()
        self._note("broker-a-slave: it is the master")

    async def _end_faults(self) -> None:
        for heal in self._heals.copy():
            heal()
        while self._starting:
            await asyncio.gather(*self._starting.values())
        self._is_over = True
        self._over_at = self._machines.world.now
        self._note("the faults are over")

    # ---- clients

    def _begin_clients(self) -> None:
        work: dict[str, list[Callable[[], Awaitable[None]]]] = {
            "producer": [self._produce, self._scheduled.produce],
            "consumer-1": [
                lambda: self._push("push"),
                lambda: self._push("orderly", "consumer-1"),
                self._pop,
            ],
            "consumer-2": [
                lambda: self._push("push"),
                lambda: self._push("orderly", "consumer-2"),
                *(lambda: self._scheduled.consume("transactions"),),
                *(lambda: self._scheduled.consume("delays"),),
            ],
        }
        for name, programs in work.items():
            machine = self._machines.add(name)
            loop = machine.boot()
            for program in programs:
                loop.create_task(self._again(machine, program))

    async def _again(self, machine: Machine, program: Callable[[], Awaitable[None]]) -> None:
        """Run a client's program, and again when it fails."""
        while True:
            try:
                await program()
                return
            except (AerobeeError, OSError) as wrong:
                self._note(f"{machine.name}: {type(wrong).__name__}")
                await asyncio.sleep(1)
            except Exception as wrong:
                self.fault(f"{machine.name}: {wrong!r}")
                raise

    async def _produce(self) -> None:
        async with Producer(self._cluster.name_servers, group="makers", tries=1) as producer:
            await asyncio.gather(
                *(
                    self._send_to(producer, MessageQueue(topic, broker, number))
                    for topic in ("push", "orderly", "pop")
                    for broker in self._cluster.masters
                    for number in range(QUEUES)
                )
            )

    async def _send_to(self, producer: Producer, queue: MessageQueue) -> None:
        draw = Random(f"{queue} {self.story.seed}")
        place = _place(queue)
        while not (self._is_over and self._worked.get(place, 0) > self._over_at):
            await asyncio.sleep(draw.random() * SEND_SECONDS)
            self._body += 1
            body = b"%06d " % self._body + b"x" * draw.randrange(200)
            self._sent[body] = place
            self.ledger.sent(body, place)
            began = self._machines.world.now
            try:
                receipt = await producer.send(Message(queue.topic, body), queue=queue, timeout=3)
            except AerobeeError:
                continue
            if receipt.status == SendStatus.OK:
                self.ledger.acknowledged(body, receipt.queue_offset)
                self._acknowledged.setdefault(queue.topic, {})[body] = None
                self._worked[place] = began
                self.story.acknowledged += 1

    async def _push(self, topic: str, machine: str = "") -> None:
        """Consume, in order on the machine that is named."""
        consumer = Consumer(
            self._cluster.name_servers,
            group=f"{topic}-group",
            topics=[topic],
            start="earliest",
            ordered=bool(machine),
        )
        if machine:
            self._lock_watch.began(machine, consumer)
        async with consumer:
            async for message in consumer:
                async with message.process():
                    self._delivered(topic, message)

    async def _pop(self) -> None:
        consumer = SimpleConsumer(
            self._cluster.name_servers, group="pop-group", topics=["pop"], start="earliest"
        )
        async with consumer:
            while True:
                for message in await consumer.receive(invisible=10, timeout=5):
                    self._delivered("pop", message)
                    await message.ack()

    def _delivered(self, topic: str, message: ReceivedMessage | PoppedMessage) -> None:
        self.story.delivered += 1
        got = self._got.setdefault(topic, {})
        offset, body = message.offset, message.body
        # Else it comes from a retry topic, where a popped one has its own topic's name.
        if message.record.topic == topic and not message.reconsume_times:
            place = _place(message.queue)
            # What the lost master has sent may come after its end; `_read_all` notes what is there.
            if body not in self._forgiven:
                self.ledger.delivered(place, offset, body)
            if topic == "orderly" and body not in got:
                last = self._last_first.get(place, -1)
                if offset < last and not self._ends_with_promotion:
                    self.fault(f"{place}: {offset} was delivered first after {last}")
                self._last_first[place] = offset
        got[body] = None

    # ---- what must hold

    async def _watch(self) -> None:
        """Note the groups' offsets of each master, as they are in its memory."""
        while True:
            await asyncio.sleep(0.5)
            if self._set_watch is not None:
                is_calm = not self._heals and not self._starting
                self._set_watch.check(self._machines.world.now, is_calm=is_calm)
            masters = {name: self._cluster.broker(name) for name in self._cluster.masters}
            self._lock_watch.check(self._machines.world.now)
            for name, broker in masters.items():
                if broker is not None:
                    found = _offsets(broker)
                    self._offsets.setdefault(name, []).append((self._machines.world.now, found))

    def _compare_offsets(self, name: str, died: float) -> None:
        broker = self._cluster.broker(name)
        noted = [found for at, found in self._offsets.get(name, []) if at < died - OFFSETS_SECONDS]
        if broker is None:
            return
        now = _offsets(broker)
        self._offsets[name] = [(self._machines.world.now, now)]
        if not noted:
            return
        for key, queues in noted[-1].items():
            for queue_id, offset in queues.items():
                restored = now.get(key, {}).get(queue_id, 0)
                if restored < offset:
                    self.fault(
                        f"{name}: {key} {queue_id} went back from {offset} to {restored}, which "
                        f"was committed {OFFSETS_SECONDS:g} s before the crash"
                    )

    def _all_work(self) -> list[str]:
        return [
            f"{topic} {number}"
            for broker in self._cluster.masters
            for kind in ("push", "orderly", "pop")
            for topic, number in ((f"{broker}:{kind}", n) for n in range(QUEUES))
            if self._worked.get((topic, number), 0) < self._over_at
        ]

    def _all_consumed(self) -> list[str]:
        return [
            f"{body[:6].decode()} of {topic}"
            for topic, bodies in self._acknowledged.items()
            for body in bodies
            if body not in self._got.get(topic, {}) and not self._may_be_skipped(body)
        ] + self._scheduled.missing("broker-a" if self._ends_with_promotion else "")

    def _may_be_skipped(self, body: bytes) -> bool:
        """A consumer that got what only the old master had is ahead of the new one, and passes over
        the messages that get these offsets next: a classic pair has no confirm offset."""
        return self._ends_with_promotion and self._sent[body][0].startswith("broker-a:")

    async def _read_all(self) -> None:
        """Read every queue from its beginning, and note what is there."""
        async with Reader(self._cluster.name_servers) as reader:
            for topic in ("push", "orderly", "pop"):
                for queue in await self._queues(reader, topic):
                    first, end, records = await self._read_queue(reader, queue)
                    for record in records:
                        self.ledger.delivered(_place(queue), record.queue_offset, record.body)
                    self.ledger.read_all(_place(queue), first, end)
            await self._read_passed_over(reader)

    async def _read_passed_over(self, reader: Reader) -> None:
        """Scheduled messages that a consumer has passed over are in their queues all the same."""
        deadline = self._machines.world.now + CONSUMED_SECONDS
        while lost := set(self._scheduled.missing()):
            for topic in TOPICS:
                for queue in await self._queues(reader, topic):
                    _, _, records = await self._read_queue(reader, queue)
                    lost -= {record.body.decode() for record in records}
            if lost and self._machines.world.now > deadline:
                raise AssertionError(f"neither consumed nor in a queue: {', '.join(sorted(lost))}")
            if not lost:
                return
            await asyncio.sleep(1)

    async def _read_queue(
        self, reader: Reader, queue: MessageQueue
    ) -> tuple[int, int, list[Record]]:
        """First and end of a queue, and what its master has there.

        A name server whose connection to the master was reset has slaves only, for up to 30 s;
        these refuse to be pulled.
        """
        deadline = self._machines.world.now + WORKS_SECONDS
        while True:
            try:
                pulled = await reader.pull(queue, 0)
                # Not by requests for them, which a slave answers, too; it may lack messages.
                first, end = pulled.min_offset, pulled.max_offset
                at, records = first, list[Record]()
                while at < end:
                    pulled = await reader.pull(queue, at)
                    records += decode_all(pulled.body)
                    if pulled.next_offset <= at:
                        break
                    at = pulled.next_offset
                return first, end, records
            except (AerobeeError, OSError) as wrong:
                if self._machines.world.now > deadline:
                    raise AssertionError(f"{_place(queue)} can't be read: {wrong}") from None
            await asyncio.sleep(1)
            with suppress(AerobeeError, OSError):
                await reader.queues(queue.topic)  # the route of now

    async def _queues(self, reader: Reader, topic: str) -> list[MessageQueue]:
        """The queues of all masters. A name server that has started knows them after 30 s."""
        while True:
            with suppress(NoRouteError):
                found = await reader.queues(topic)
                if len(found) == QUEUES * len(self._cluster.masters):
                    return found
            await asyncio.sleep(1)


def _text(event: Event) -> str:
    return repr([sorted(each) if isinstance(each, frozenset) else each for each in event])


def _offsets(broker: Broker) -> Offsets:
    table = broker.offsets.to_body().offset_table
    return {key: dict(queues) for key, queues in table.items()}


def _place(queue: MessageQueue) -> Queue:
    return f"{queue.broker_name}:{queue.topic}", queue.queue_id
