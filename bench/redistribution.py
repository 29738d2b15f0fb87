"""Measures how long queues are without their consumer when members, brokers and queues come and go,
and what an asynchronous slave lacks when its master is killed.

The consumers are in this process but for the one that is killed; each broker is a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack

from ..client import Admin, Consumer, Message, Producer
from ..client.base.responses import header_of
from ..client.errors import AerobeeError
from ..harness.child import Child
from ..harness.clusters import BROKER_NAME, AerobeeCluster, Cluster
from ..protocol import codes
from ..protocol.aio.peers import Peers
from ..protocol.bodies.ha import HARuntimeInfo
from ..protocol.headers.offsets import OffsetResponse, QueueAddress
from .replicas import pair
from .report import Held, Row
from .turns import Run, Settings, running, say

TOPIC, GROUP, QUEUES = "Shared", "sharers", 6
POLL_SECONDS = 0.01
WAIT_SECONDS = 120.0
SENDERS, SEND_SECONDS = 8, 2.0
SLAVE_ID = 1
# A member that can be killed.
MEMBER = f"""
import asyncio, sys
from aerobee.client import Consumer

async def main():
    async with Consumer(sys.argv[1], group={GROUP!r}, topics=[{TOPIC!r}]) as consumer:
        print("ready", flush=True)
        async for message in consumer:
            await message.ack()

asyncio.run(main())
"""


def redistribution(run: Run) -> list[Row]:
    """The seconds from each event until every queue has one consumer that is there; then what a
    slave lacks."""
    found: dict[str, list[float]] = {}
    for number in range(run.rounds):
        first = run.ours(f"first{number}")
        settings: Settings = {"namesrvAddr": first.namesrv, "brokerName": "second"}
        second = run.ours(f"second{number}", settings)
        with running(first):
            try:
                events = asyncio.run(_events(first, second))
            finally:
                second.stop()
        for event, seconds in events:
            say(f"{event}: {seconds:.2f} s")
            found.setdefault(event, []).append(seconds)
    rows = [
        Held(event, f"{statistics.median(times):.1f} s", note=BOUNDS[event])
        for event, times in found.items()
    ]
    return [*rows, *_kills(run)]


BOUNDS = {
    "a member joins": "the broker tells the others at once; a client divides once a second at most",
    "a member leaves": "the same",
    "a member is killed": "the same, as its connection closes",
    "a broker is added": "routes are asked for every 30 s, queues are divided every 20 s",
    "a broker is killed": "a pull fails, so the route is asked for; divided every 20 s",
    "a topic gets 2 more queues": "routes every 30 s, divided every 20 s",
}


async def _events(first: AerobeeCluster, second: AerobeeCluster) -> list[tuple[str, float]]:
    found = list[tuple[str, float]]()
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Admin(first.namesrv))
        await admin.create_topic(TOPIC, QUEUES, broker=BROKER_NAME)

        def member() -> Consumer:
            return Consumer(first.namesrv, group=GROUP, topics=[TOPIC])

        one = await stack.enter_async_context(member())
        await _seconds(lambda: _shares([one]) == [QUEUES])

        async def note(event: str, shares: list[int]) -> None:
            found.append((event, await _seconds(lambda: _shares([one]) == shares)))

        begin = time.monotonic()
        async with member() as two:
            await _seconds(lambda: _shares([one, two]) == [QUEUES // 2] * 2)
            found.append(("a member joins", time.monotonic() - begin))
            begin = time.monotonic()
        await _seconds(lambda: _shares([one]) == [QUEUES])
        found.append(("a member leaves", time.monotonic() - begin))
        child = Child([sys.executable, "-c", MEMBER, first.namesrv], first.folder / "member.stderr")
        await asyncio.to_thread(child.wait_line, lambda line: "ready" in line, WAIT_SECONDS)
        await _seconds(lambda: _shares([one]) == [QUEUES // 2])
        child.kill()
        await note("a member is killed", [QUEUES])
        await asyncio.to_thread(second.start_broker)
        await admin.create_topic(TOPIC, QUEUES, broker="second")
        await note("a broker is added", [2 * QUEUES])
        await asyncio.to_thread(second.stop_broker, kill=True)
        await note("a broker is killed", [QUEUES])
        await admin.create_topic(TOPIC, QUEUES + 2, broker=BROKER_NAME)
        await note("a topic gets 2 more queues", [QUEUES + 2])
    return found


def _shares(members: list[Consumer]) -> list[int]:
    """The number of queues of the topic that each member has; [] while two share a queue."""
    owned = [[queue for queue in one.queues if queue.topic == TOPIC] for one in members]
    together = [queue for each in owned for queue in each]
    return [len(each) for each in owned] if len(set(together)) == len(together) else []


async def _seconds(holds: Callable[[], bool]) -> float:
    begin = time.monotonic()
    async with asyncio.timeout(WAIT_SECONDS):
        while not holds():  # noqa: ASYNC110 - what a client has is not told
            await asyncio.sleep(POLL_SECONDS)
    return time.monotonic() - begin


def _kills(run: Run) -> list[Row]:
    """The messages that an asynchronous slave lacks if its master is killed under load."""
    lacked, rates, behind = [], [], []
    for number in range(run.rounds):
        with ExitStack() as stack:
            master = pair(run, stack, f"killed{number}", {"brokerRole": "ASYNC_MASTER"})
            sent, seconds, there, bytes_behind = asyncio.run(_kill(master))
            lacked.append(max(0, sent - there))
            rates.append(sent / seconds)
            behind += bytes_behind
            say(f"killed after {sent:,} messages: the slave lacked {lacked[-1]:,}")
    rate = f"{SENDERS} senders in one process, {statistics.median(rates):,.0f} messages a second"
    return [
        Held(
            "acknowledged messages that an asynchronous slave lacked, kill -9 of its master",
            f"{statistics.median(lacked):,.0f}, at most {max(lacked):,}",
            note=f"{rate}; what a process has handed to the system arrives after its end",
        ),
        Held(
            "bytes that it had not confirmed, at 20 checks a second",
            f"{statistics.median(behind):,.0f}, at most {max(behind):,}",
            note="what the loss of the machine, or of the network, can take",
        ),
    ]


async def _kill(master: Cluster) -> tuple[int, float, int, list[int]]:
    """Messages that were acknowledged, in how many seconds, how many the slave has, and by how many
    bytes it was behind now and then."""
    sent, behind = 0, list[int]()
    peers = Peers()
    end = asyncio.Event()

    async def send(producer: Producer) -> None:
        nonlocal sent
        with contextlib.suppress(AerobeeError):
            while not end.is_set():
                await producer.send(Message(TOPIC, bytes(128)))
                sent += 1

    async with Admin(master.namesrv) as admin:
        await admin.create_topic(TOPIC, QUEUES)
        async with Producer(master.namesrv) as producer:
            senders = [asyncio.create_task(send(producer)) for _ in range(SENDERS)]
            begin = time.monotonic()
            while time.monotonic() < begin + SEND_SECONDS:
                await asyncio.sleep(0.05)
                code = codes.GET_BROKER_HA_STATUS
                answer = await peers.request(master.broker, code, None, b"", WAIT_SECONDS)
                status = HARuntimeInfo.decode(answer.body or b"")
                behind += [slave.diff for slave in status.ha_connection_info]
            await asyncio.to_thread(master.stop_broker, kill=True)
            seconds = time.monotonic() - begin
            end.set()
            await asyncio.gather(*senders)
        info = await admin.cluster_info()
        slave = info.broker_addr_table[BROKER_NAME].broker_addrs[SLAVE_ID]
    code, there = codes.GET_MAX_OFFSET, 0
    try:
        for queue_id in range(QUEUES):
            queue = QueueAddress(TOPIC, queue_id)
            answer = await peers.request(slave, code, queue, b"", WAIT_SECONDS)
            there += header_of(answer, OffsetResponse, code).offset
    finally:
        await peers.close()
    return sent, seconds, there, behind
