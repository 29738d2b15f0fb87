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
from pathlib import Path

from ...client import Admin, Consumer, Message, Producer
from ...client.errors import AerobeeError
from ...protocol import codes
from ...protocol.aio.peers import Peers
from ...protocol.bodies.stats import TopicStatsTable
from ...protocol.headers.topics import TopicName
from ..harness.child import Child
from ..harness.clusters import BROKER_NAME, CLUSTER_NAME, AerobeeCluster, Cluster
from .measures import Say
from .replication_measures import pair
from .store_measures import Held

TOPIC, GROUP, QUEUES = "Shared", "sharers", 6
LOOK_SECONDS = 0.01
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


def redistribution(folder: Path, rounds: int, say: Say) -> list[Held]:
    """The seconds from each event until every queue has one consumer that is there."""
    found: dict[str, list[float]] = {}
    for number in range(rounds):
        with ExitStack() as stack:
            first = AerobeeCluster(folder / f"first{number}")
            stack.callback(first.stop)
            first.start()
            settings: dict[str, str | int] = {
                "namesrvAddr": first.namesrv,
                "brokerName": "second",
                "brokerClusterName": CLUSTER_NAME,
            }
            second = AerobeeCluster(folder / f"second{number}", settings)
            stack.callback(second.stop)
            for event, seconds in asyncio.run(_events(first, second)):
                say(f"{event}: {seconds:.2f} s")
                found.setdefault(event, []).append(seconds)
    return [
        Held(event, f"{statistics.median(times):.1f} s", "", True, BOUNDS[event])
        for event, times in found.items()
    ]


BOUNDS = {
    "a member joins": "the broker tells the others when its heartbeat comes",
    "a member leaves": "it tells the broker, which tells the others",
    "a member is killed": "its connection closes; the others look again within a second",
    "a broker is added": "routes are asked for every 30 s (pollNameServerInterval)",
    "a broker is killed": "the same; the name server forgets it as its connection closes",
    "a topic gets 2 more queues": "the same",
}


async def _events(first: AerobeeCluster, second: AerobeeCluster) -> list[tuple[str, float]]:
    found = []
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Admin(first.namesrv))
        await admin.create_topic(TOPIC, QUEUES, broker=BROKER_NAME)

        def member() -> Consumer:
            return Consumer(first.namesrv, group=GROUP, topics=[TOPIC])

        one = await stack.enter_async_context(member())
        await _seconds(lambda: _shares([one]) == [QUEUES])
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
        seconds = await _seconds(lambda: _shares([one]) == [QUEUES])
        found.append(("a member is killed", seconds))
        await asyncio.to_thread(second.start_broker)
        await admin.create_topic(TOPIC, QUEUES, broker="second")
        seconds = await _seconds(lambda: _shares([one]) == [2 * QUEUES])
        found.append(("a broker is added", seconds))
        await asyncio.to_thread(second.stop_broker, kill=True)
        seconds = await _seconds(lambda: _shares([one]) == [QUEUES])
        found.append(("a broker is killed", seconds))
        await admin.create_topic(TOPIC, QUEUES + 2, broker=BROKER_NAME)
        seconds = await _seconds(lambda: _shares([one]) == [QUEUES + 2])
        found.append(("a topic gets 2 more queues", seconds))
    return found


def _shares(members: list[Consumer]) -> list[int]:
    """How many queues of the topic each member has; [] while two have the same one."""
    owned = [[queue for queue in one.queues if queue.topic == TOPIC] for one in members]
    together = [queue for each in owned for queue in each]
    return [len(each) for each in owned] if len(set(together)) == len(together) else []


async def _seconds(holds: Callable[[], bool]) -> float:
    begin = time.monotonic()
    async with asyncio.timeout(WAIT_SECONDS):
        while not holds():  # noqa: ASYNC110 - what a client has is not told
            await asyncio.sleep(LOOK_SECONDS)
    return time.monotonic() - begin


def kills(folder: Path, rounds: int, say: Say) -> list[Held]:
    """What an asynchronous slave lacks when its master is killed under load."""
    lacked, rates = [], []
    for number in range(rounds):
        with ExitStack() as stack:
            role: dict[str, str | int] = {"brokerRole": "ASYNC_MASTER"}
            master = pair(stack, folder / f"killed{number}", "ours", role, ())
            sent, seconds, there = asyncio.run(_kill(master))
            lacked.append(max(0, sent - there))
            rates.append(sent / seconds)
            say(f"killed after {sent:,} messages: the slave lacked {lacked[-1]:,}")
    most, rate = max(lacked), statistics.median(rates)
    return [
        Held(
            "acknowledged messages that an asynchronous slave lacked, kill -9 of its master",
            f"{statistics.median(lacked):,.0f}, at most {most:,}",
            "",
            True,
            f"{SENDERS} senders in one process, {rate:,.0f} messages a second; at that rate "
            f"{most / rate * 1_000:,.1f} ms",
        )
    ]


async def _kill(master: Cluster) -> tuple[int, float, int]:
    """Messages that were acknowledged, in how many seconds, and how many the slave has."""
    sent = 0
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
            await asyncio.sleep(SEND_SECONDS)
            await asyncio.to_thread(master.stop_broker, kill=True)
            seconds = time.monotonic() - begin
            end.set()
            await asyncio.gather(*senders)
        info = await admin.cluster_info()
        slave = info.broker_addr_table[BROKER_NAME].broker_addrs[SLAVE_ID]
    peers = Peers(upgrade=False)
    try:
        code, name = codes.GET_TOPIC_STATS_INFO, TopicName(TOPIC)
        answer = await peers.request(slave, code, name, b"", WAIT_SECONDS)
    finally:
        await peers.close()
    table = TopicStatsTable.decode(answer.body or b"").offset_table
    return sent, seconds, sum(one.max_offset for one in table.values())
