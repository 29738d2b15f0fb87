"""Three brokers of one name under a controller, all processes: the master is stopped, deposed,
killed and silenced under load, and the ledger tells what became of the messages.

Each round prints how long other brokers took until they acknowledged a message.
`AEROBEE_SWITCHES` is the number of rounds of each kind.
"""

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest
from aerobee.client import Consumer, Message, Producer, ReceivedMessage
from aerobee.client.base.receipts import SendStatus
from aerobee.client.errors import AerobeeError
from aerobee.console.findings.replicas import Replicas, elect, replicas_of
from aerobee.harness.child import Child
from aerobee.harness.java_side import free_broker_port
from aerobee.protocol import codes
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.body import MessageQueue
from aerobee.protocol.headers.pull import SUBSCRIPTION, PullMessage
from aerobee.protocol.headers.topics import UpdateTopic
from aerobee.protocol.message.record import decode_all

from ..waiting import PROCESS, until
from .ledger import Ledger

SWITCHES = int(os.environ.get("AEROBEE_SWITCHES", "1"))
MEMBERS = 3
PRODUCERS = 8
QUEUES = 4
SEND_SECONDS = 3.0  # of one send: a fault is to cost a few of them, and not a minute
ACKNOWLEDGED = 300  # messages before and after a fault
KINDS = {"electMaster", "SIGTERM", "kill -9", "SIGSTOP"}
CLUSTER, NAME, TOPIC = "DefaultCluster", "set", "T"
SETTINGS = {
    "brokerName": NAME,
    "httpPort": "-1",
    "enableControllerMode": "true",
    "mappedFileSizeCommitLog": str(4 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "mappedFileSizeTimerLog": str(1 << 20),
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
}


@contextmanager
def running(folder: Path, name: str, *words: str) -> Iterator[tuple[Child, str]]:
    """One of our daemons in a process of its own, and its address."""
    command = [sys.executable, "-m", "aerobee.scripts.cli", *words]
    environment = {key: "" for key in os.environ if key.startswith("AEROBEE_")}
    with Child(command, folder / f"{name}.stderr", cwd=folder, env=environment) as child:
        yield child, address_of(child)


def address_of(child: Child) -> str:
    ready = child.wait_line(lambda line: "ready" in line, PROCESS)
    found = re.search(r"on (127\.0\.0\.1:\d+)", ready)
    assert found is not None, ready
    return found[1]


class Set:
    """The brokers of the name, by address; a broker that starts again keeps its address."""

    def __init__(self, folder: Path, namesrv: str, controller: str) -> None:
        self.folder = folder
        self.namesrv = namesrv
        self.controller = controller
        self.brokers: dict[str, tuple[int, Child]] = {}
        self.peers = Peers()

    def start(self, number: int, port: int) -> None:
        """Start a broker on its store."""
        settings = SETTINGS | {
            "listenPort": str(port),
            "controllerAddr": self.controller,
            "storePathRootDir": str(self.folder / f"broker-{number}"),
        }
        words = [sys.executable, "-m", "aerobee.scripts.cli", "broker", "-n", self.namesrv]
        for key, value in settings.items():
            words += ["--set", f"{key}={value}"]
        environment = {key: "" for key in os.environ if key.startswith("AEROBEE_")}
        stderr = self.folder / f"broker-{number}.stderr"
        child = Child(words, stderr, cwd=self.folder, env=environment)
        self.brokers[address_of(child)] = number, child

    def start_again(self, address: str) -> None:
        """Start a broker that has ended, on its port."""
        number, _ = self.brokers.pop(address)
        self.start(number, int(address.rpartition(":")[2]))

    def stop(self) -> None:
        for _, child in self.brokers.values():
            child.kill()

    async def state(self) -> Replicas:
        return await replicas_of(self.peers, [self.controller], NAME)

    async def until(self, holds: Callable[[Replicas], bool]) -> Replicas:
        """The state once it holds."""
        found: Replicas | None = None

        async def is_so() -> bool:
            nonlocal found
            with suppress(AerobeeError):
                found = await self.state()
                return holds(found)
            return False

        await until(is_so, lambda: f"the last state: {found}", seconds=PROCESS, pause=0.1)
        assert found is not None
        return found

    async def whole(self) -> str:
        """The master's address, once all brokers are in the sync state set."""
        found = await self.until(
            lambda state: sum(one.is_in_set and one.is_alive for one in state.members) == MEMBERS
        )
        return self.master_of(found)

    async def until_other(self, old: str) -> None:
        """Returns once another broker than this one is the master."""
        await self.until(lambda state: state.master_id is not None and self.master_of(state) != old)

    def master_of(self, state: Replicas) -> str:
        (found,) = [one.address for one in state.members if one.broker_id == state.master_id]
        return found


class Load:
    """Producers and a group that consume, with the ledger of what they were told."""

    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv
        self.ledger = Ledger()
        self.number = 0
        self.acknowledged: list[float] = []  # when, by a monotonic clock
        self.promised: set[bytes] = set()
        self.consumed: set[bytes] = set()
        self.may_send = asyncio.Event()
        self.sending = 0  # sends whose outcome is not known yet

    async def produce(self, producer: Producer, queue_id: int) -> None:
        queue = MessageQueue(TOPIC, NAME, queue_id)
        while True:
            await self.may_send.wait()
            self.number += 1
            body = (b"%08d " % self.number).ljust(20 + self.number * 37 % 400, b".")
            self.ledger.sent(body, (TOPIC, queue_id))
            self.sending += 1
            try:
                receipt = await producer.send(
                    Message(TOPIC, body), queue=queue, timeout=SEND_SECONDS
                )
            except AerobeeError:
                self.sending -= 1
                await asyncio.sleep(0.01)
                continue  # whether it is stored is unknown
            self.sending -= 1
            if receipt.status is SendStatus.OK:
                self.ledger.acknowledged(body, receipt.queue_offset)
                self.promised.add(body)
                self.acknowledged.append(time.monotonic())

    async def pause(self) -> None:
        """Send nothing more, and wait for the outcome of each send."""
        self.may_send.clear()
        await until(
            lambda: not self.sending, lambda: f"{self.sending} sends go on", seconds=PROCESS
        )

    async def on_message(self, message: ReceivedMessage) -> None:
        queue = TOPIC, message.queue_id
        if message.topic == TOPIC:  # not a retry
            self.ledger.delivered(queue, message.offset, message.body)
        self.consumed.add(message.body)

    async def until_acknowledged(self, count: int) -> None:
        end = len(self.acknowledged) + count
        await until(
            lambda: len(self.acknowledged) >= end,
            lambda: f"{end - len(self.acknowledged)} of {count} acknowledgements are missing",
            seconds=PROCESS,
        )

    async def until_consumed(self) -> None:
        """Returns once the group has all that was acknowledged."""
        await until(
            lambda: self.promised <= self.consumed,
            lambda: f"not consumed: {sorted(self.promised - self.consumed)[:5]}",
            seconds=PROCESS,
        )

    def pause_after(self, fault: float) -> float:
        """The longest time without an acknowledgement from the fault on, in seconds."""
        times = [fault, *(one for one in self.acknowledged if one > fault)]
        return max(later - earlier for earlier, later in pairwise(times))

    async def check(self, brokers: Set) -> str:
        """Read everything at the master, and compare it with what was promised; the master.

        A master that is replaced meanwhile refuses to be read; then its successor is read.
        """
        master = ""

        async def has_read() -> bool:
            nonlocal master
            master = await brokers.whole()
            with suppress(OSError):
                return await self._read_all(brokers.peers, master)
            return False

        await until(has_read, lambda: f"{master} is not read to its end", seconds=PROCESS)
        self.ledger.check()
        return master

    async def _read_all(self, peers: Peers, master: str) -> bool:
        """True if this broker let all its queues be read."""
        for queue_id in range(QUEUES):
            queue = TOPIC, queue_id
            fields = {"topic": TOPIC, "queueId": str(queue_id)}
            answer = await peers.request(master, codes.GET_MAX_OFFSET, fields, b"", PROCESS)
            end, offset = int(answer.fields()["offset"]), 0
            while offset < end:
                header = PullMessage("r", TOPIC, queue_id, offset, 32, SUBSCRIPTION, 0, 0, 0, "*")
                answer = await peers.request(master, codes.PULL_MESSAGE, header, b"", PROCESS)
                if answer.code != codes.SUCCESS:
                    return False
                for record in decode_all(answer.body or b""):
                    self.ledger.delivered(queue, record.queue_offset, record.body)
                offset = int(answer.fields()["nextBeginOffset"])
            self.ledger.read_all(queue, 0, end)
        return True


class Faults:
    """The faults of a master; each returns once another broker may lead."""

    def __init__(self, brokers: Set) -> None:
        self.brokers = brokers

    async def stopped(self, master: str) -> None:
        _, child = self.brokers.brokers[master]
        child.process.send_signal(signal.SIGTERM)

    async def deposed(self, master: str) -> None:
        state = await self.brokers.state()
        other = next(one.broker_id for one in state.members if one.address != master)
        await elect(self.brokers.peers, self.brokers.controller, CLUSTER, NAME, other)

    async def killed(self, master: str) -> None:
        self.brokers.brokers[master][1].process.kill()

    async def silenced(self, master: str) -> None:
        self.brokers.brokers[master][1].process.send_signal(signal.SIGSTOP)

    async def over(self, master: str) -> None:
        """The broker is back."""
        _, child = self.brokers.brokers[master]
        child.process.send_signal(signal.SIGCONT)

    async def ended(self, master: str) -> None:
        """The process has ended; it starts again."""
        _, child = self.brokers.brokers[master]
        await asyncio.to_thread(child.wait, PROCESS)
        await asyncio.to_thread(self.brokers.start_again, master)

    async def nothing(self, master: str) -> None:
        """Let the master go on by itself."""


@pytest.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Set]:
    namesrv = ["namesrv", "--listen-port", "0", "--set", "httpPort=-1", "--set", "kvConfigPath="]
    controller = ["controller", "--listen-port", "0", "--set", "httpPort=-1"]
    controller += ["--store", str(tmp_path / "controller-state")]
    with (
        running(tmp_path, "namesrv", *namesrv) as (_, names),
        running(tmp_path, "controller", *controller) as (_, address),
    ):
        found = Set(tmp_path, names, address)
        try:
            for number in range(MEMBERS):
                await asyncio.to_thread(found.start, number, free_broker_port())
            yield found
        finally:
            found.stop()
            await found.peers.close()
    for path in tmp_path.glob("*.stderr"):  # noqa: ASYNC240
        assert "Traceback" not in path.read_text(), path.read_text()


async def make_topic(brokers: Set, master: str) -> None:
    header = UpdateTopic(TOPIC, QUEUES, QUEUES, 6)
    answer = await brokers.peers.request(
        master, codes.UPDATE_AND_CREATE_TOPIC, header, timeout_s=PROCESS
    )
    assert answer.code == codes.SUCCESS, answer.remark


@pytest.mark.parametrize("kinds", [pytest.param({"kill -9"}, marks=pytest.mark.smoke), KINDS])
async def test_no_acknowledged_message_is_lost_whatever_happens_to_the_master(
    kinds: set[str], brokers: Set
) -> None:
    master = await brokers.whole()
    await make_topic(brokers, master)
    load, faults = Load(brokers.namesrv), Faults(brokers)
    rounds: list[tuple[str, Callable[[str], Awaitable[None]], Callable[[str], Awaitable[None]]]] = [
        ("electMaster", faults.deposed, faults.nothing),
        ("SIGTERM", faults.stopped, faults.ended),
        ("kill -9", faults.killed, faults.ended),
        ("SIGSTOP", faults.silenced, faults.over),
    ]
    consumer = Consumer(brokers.namesrv, group="g", topics=[TOPIC], start="earliest")
    consumer.listener(concurrency=20)(load.on_message)
    async with Producer(brokers.namesrv) as producer, consumer:
        load.may_send.set()
        tasks = [asyncio.create_task(load.produce(producer, n % QUEUES)) for n in range(PRODUCERS)]
        for name, fault, after in [each for each in rounds * SWITCHES if each[0] in kinds]:
            await load.until_acknowledged(ACKNOWLEDGED)
            begin = time.monotonic()
            await fault(master)
            await brokers.until_other(master)
            await load.until_acknowledged(ACKNOWLEDGED)
            print(f"{name}: others write again after {load.pause_after(begin):.2f} s")
            await after(master)
            await load.pause()
            master = await load.check(brokers)
            load.may_send.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await load.until_consumed()
