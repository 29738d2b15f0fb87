"""scripts/rolling: restarts each daemon of a compose profile under load, and keeps a ledger.

The load is producers whose messages go to any queue, producers of ordered keys whose messages go to
one queue each, a group that consumes with a listener, and a group that consumes in order.
"""

import argparse
import asyncio
import itertools
import logging
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from aerobee.client import Consumer, Message, Producer, ReceivedMessage
from aerobee.client.admin.admin import Admin
from aerobee.client.base.receipts import SendStatus
from aerobee.client.errors import AerobeeError
from aerobee.console.findings.replicas import replicas_of
from aerobee.harness.child import ChildFailed
from aerobee.protocol.aio.peers import Peers
from aerobee.protocol.bodies.body import MessageQueue

from ..waiting import PROCESS, until
from .profiles import PROFILES, Daemon, Daemons

ANY, ORDERED = "rolling", "rolling-ordered"
QUEUES = 4
PRODUCERS = 4
KEYS_PER_BROKER = 4
PAUSE_SECONDS = 0.005  # of a producer after each message
MORE = 10  # messages of each key, and of all others together ten times that, between two restarts


class Book:
    """The acknowledged and the delivered messages; `faults` are findings that can't be true at
    once."""

    def __init__(self) -> None:
        self.acknowledged: dict[bytes, float] = {}  # when, in seconds
        self.delivered: dict[bytes, int] = {}  # how often
        self.keys: dict[str, int] = {}  # the last number of each key that was acknowledged
        self.seen: dict[str, int] = {}  # the last number of each key that was delivered first
        self.places: dict[tuple[MessageQueue, int], bytes] = {}  # queue and offset
        self.wrong: list[str] = []
        self.slowest = 0.0  # send, in seconds

    def sent(self, body: bytes, began: float) -> None:
        """A send was acknowledged."""
        now = time.monotonic()
        self.acknowledged[body] = now
        self.slowest = max(self.slowest, now - began)

    def got(self, message: ReceivedMessage) -> None:
        """The group without order got a message."""
        self._place(message)
        self.delivered[message.body] = self.delivered.get(message.body, 0) + 1

    def got_in_order(self, message: ReceivedMessage) -> None:
        """The ordered group got a message; one that it gets again was delivered before."""
        self._place(message)
        key, _, number = message.body.decode().partition(" ")
        last = self.seen.get(key, 0)
        if int(number) > last + 1:
            self.wrong.append(f"key {key}: number {number} was delivered after {last}")
        self.seen[key] = max(last, int(number))

    def _place(self, message: ReceivedMessage) -> None:
        body = self.places.setdefault((message.queue, message.offset), message.body)
        if body != message.body:
            self.wrong.append(
                f"offset {message.offset} of {message.queue} had {body!r}, then {message.body!r}"
            )

    def is_complete(self) -> bool:
        """True if all that was acknowledged was delivered."""
        return self.acknowledged.keys() <= self.delivered.keys() and all(
            self.seen.get(key, 0) >= last for key, last in self.keys.items()
        )

    def faults(self) -> list[str]:
        """A line for each fault; empty when all is well."""
        lost = [body for body in self.acknowledged if body not in self.delivered]
        late = [
            f"key {key}: acknowledged up to {last}, delivered up to {self.seen.get(key, 0)}"
            for key, last in self.keys.items()
            if self.seen.get(key, 0) < last
        ]
        found = (
            [f"{len(lost)} acknowledged messages were not delivered: {lost[:5]}"] if lost else []
        )
        return found + late + self.wrong

    def pause_after(self, begin: float) -> float:
        """The longest time without an acknowledgement since `begin`, in seconds."""
        times = [begin, *(one for one in self.acknowledged.values() if one > begin)]
        return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)


class Load:
    """The producers and consumers of a cluster, with their book."""

    def __init__(self, namesrv: str, broker_names: list[str]) -> None:
        self.book = Book()
        self._namesrv = namesrv
        self._broker_names = broker_names
        self._number = 0
        self._is_over = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send and consume; at the end wait until everything is delivered."""
        any_group = Consumer(self._namesrv, group="any", topics=[ANY], start="earliest")
        ordered = Consumer(
            self._namesrv, group="ordered", topics=[ORDERED], start="earliest", ordered=True
        )
        any_group.listener(concurrency=20)(self._on_any)
        ordered.listener()(self._on_ordered)
        producer = Producer(self._namesrv, retry_not_stored=True)
        async with producer, any_group, ordered:
            work = [self._produce(producer) for _ in range(PRODUCERS)]
            for name in self._broker_names:
                work += [self._produce_key(producer, name, n) for n in range(KEYS_PER_BROKER)]
            tasks = [asyncio.create_task(one) for one in work]
            try:
                yield
            finally:
                self._is_over = True
                await asyncio.gather(*tasks)
            with suppress(TimeoutError):
                await until(self.book.is_complete, seconds=PROCESS)

    async def more(self) -> None:
        """Returns once each key and all others went on. TimeoutError."""
        book = self.book
        keys = {key: last + MORE for key, last in book.keys.items()}
        count = len(book.acknowledged) + 10 * MORE
        await until(
            lambda: (
                len(book.acknowledged) >= count
                and all(book.keys[key] >= wanted for key, wanted in keys.items())
            ),
            lambda: f"{len(book.acknowledged)} of {count} acknowledged, keys {book.keys}",
            seconds=PROCESS,
        )

    async def _produce(self, producer: Producer) -> None:
        while not self._is_over:
            self._number += 1
            body = b"%08d" % self._number
            began = time.monotonic()
            try:
                receipt = await producer.send(Message(ANY, body), timeout=PROCESS)
            except AerobeeError as wrong:
                self.book.wrong.append(f"a send failed after its retries: {wrong}")
                continue
            if receipt.status is SendStatus.OK:
                self.book.sent(body, began)
            else:
                self.book.wrong.append(f"a send ended with {receipt.status} after its retries")
            await asyncio.sleep(PAUSE_SECONDS)

    async def _produce_key(self, producer: Producer, broker_name: str, number: int) -> None:
        key = f"{broker_name}/{number}"
        queue = MessageQueue(ORDERED, broker_name, number % QUEUES)
        self.book.keys[key] = 0
        message, why = Message(ORDERED, b""), ""

        async def is_sent() -> bool:
            nonlocal why
            try:
                receipt = await producer.send(message, queue=queue, timeout=PROCESS)
            except AerobeeError as wrong:  # its queue's broker may be the one that restarts
                why = str(wrong)
                return False
            why = str(receipt.status)
            return receipt.status is SendStatus.OK

        while not self._is_over:
            wanted = self.book.keys[key] + 1
            message = Message(ORDERED, f"{key} {wanted}".encode())
            try:
                await until(is_sent, lambda: why, seconds=PROCESS, pause=0.1)
            except TimeoutError:
                self.book.wrong.append(f"a send of key {key} failed after its retries: {why}")
                return
            self.book.keys[key] = wanted
            await asyncio.sleep(PAUSE_SECONDS)

    async def _on_any(self, message: ReceivedMessage) -> None:
        self.book.got(message)

    async def _on_ordered(self, message: ReceivedMessage) -> None:
        self.book.got_in_order(message)


async def until_whole(daemons: Daemons) -> None:
    """Returns once each broker name has a master, and in controller mode all members in its set."""
    peers = Peers()
    members = len(daemons.of("broker"))
    state: object = None

    async def is_whole() -> bool:
        nonlocal state
        with suppress(AerobeeError):
            masters = await admin.masters()
            found = [
                await replicas_of(peers, daemons.controllers, name)
                for name in daemons.broker_names
                if daemons.controllers
            ]
            state = masters, found
            inside = sum(one.is_in_set for each in found for one in each.members)
            has_masters = set(masters) == set(daemons.broker_names)
            return has_masters and (not found or inside == members)
        return False

    async with Admin(daemons.namesrv) as admin:
        try:
            await until(is_whole, lambda: f"masters and sets: {state}", seconds=PROCESS, pause=0.1)
        finally:
            await peers.close()


async def make_topics(namesrv: str) -> None:
    """The two topics, on every master."""
    async with Admin(namesrv) as admin:
        await admin.create_topic(ANY, QUEUES)
        await admin.create_topic(ORDERED, QUEUES)


async def restart(daemon: Daemon, daemons: Daemons, load: Load) -> str:
    """Restart one daemon under load; what that meant, in one line. TimeoutError."""
    begin = time.monotonic()
    await asyncio.to_thread(daemon.stop)
    await asyncio.to_thread(daemon.start)
    took = time.monotonic() - begin
    await until_whole(daemons)
    await load.more()
    pause = load.book.pause_after(begin)
    return f"{daemon.name:16} back after {took:5.1f} s, nothing acknowledged for {pause:5.2f} s"


async def roll(profile: str, folder: Path, rounds: int = 1) -> list[str]:
    """Start the profile, restart each daemon `rounds` times, and return the faults."""
    daemons = await asyncio.to_thread(Daemons(profile, folder).__enter__)
    try:
        await until_whole(daemons)
        await make_topics(daemons.namesrv)
        load = Load(daemons.namesrv, daemons.broker_names)
        book = load.book
        try:
            async with load.running():
                await load.more()
                for daemon in daemons.all * rounds:
                    print(await restart(daemon, daemons, load), flush=True)
        except TimeoutError as late:
            book.wrong.append(f"something did not come: {late}")
        again = sum(count - 1 for count in book.delivered.values())
        print(
            f"{len(book.acknowledged)} messages acknowledged, {len(book.delivered)} delivered, "
            f"{again} of them again; {sum(book.keys.values())} of {len(book.keys)} keys in order; "
            f"the slowest send took {book.slowest:.2f} s"
        )
        return book.faults()
    finally:
        await asyncio.to_thread(daemons.__exit__)
        for daemon in daemons.all:
            if "Traceback" in daemon.errors:
                print(f"{daemon.name} logged:\n{daemon.errors[-4_000:]}")


def main() -> int:
    """1 when the ledger has a fault, 2 when a daemon does not start."""
    parser = argparse.ArgumentParser(
        prog="scripts/rolling",
        description="Restart each daemon of a profile of docker-compose.yml under load, as "
        "processes on this host, and check that no send fails and nothing is lost or out of order.",
    )
    parser.add_argument("profile", choices=PROFILES)
    parser.add_argument("--rounds", type=int, default=1, help="restarts of each daemon (1)")
    given = parser.parse_args()
    logging.disable()
    with tempfile.TemporaryDirectory(prefix="aerobee-rolling-") as folder:
        try:
            faults = asyncio.run(roll(given.profile, Path(folder), given.rounds))
        except ChildFailed as wrong:
            print(f"{given.profile}: a daemon does not start: {wrong}", file=sys.stderr)
            return 2
    for fault in faults[:20]:
        print(f"FAULT: {fault}")
    print(f"{given.profile}: {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
