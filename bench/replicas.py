"""Measures brokers with copies: sends to a master with a slave, and brokers in controller mode.

All brokers share the machine, each in its own process; aerobee replicates to aerobee, RocketMQ to
RocketMQ. The pairs and the set that are not being measured are idle. For controller mode: what it
costs, how a slave catches up, how a role changes.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

from ..client import Message, Producer
from ..client.base.receipts import SendStatus
from ..client.errors import AerobeeError
from ..console.findings.replicas import Replicas, elect, replicas_of
from ..harness.clusters import (
    BROKER_NAME,
    CLUSTER_NAME,
    HERE,
    READY_SECONDS,
    AerobeeCluster,
    Cluster,
)
from ..harness.java_side import free_ports
from ..protocol import codes
from ..protocol.aio.peers import Peers
from ..protocol.bodies.ha import HARuntimeInfo
from .disk import GIB
from .loads import loadgen
from .loads.loadgen import Load
from .rates import CASES, RECORD_BYTES, SENDS
from .report import Held, Row, held
from .turns import (
    QUIET_SECONDS,
    Found,
    Result,
    Run,
    Settings,
    compared,
    in_turns,
    median,
    say,
    seconds_row,
)

JOIN_SECONDS = 60
ROLES: dict[str, Settings] = {
    "slave not waited for": {"brokerRole": "ASYNC_MASTER"},
    "slave waited for": {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2},
}
DOUBLE_WRITE = "slave waited for"
JAVA_MARK = ">= 2"
# A real slave says nothing before that has passed.
QUICK: Settings = {"haSendHeartbeatInterval": 500}
CATCH_UP_MB_MIN = 300.0
BARE_PART_MIN = 0.8
COPY_BYTES = 256 << 10
SEEDS = 7  # histories, those of even seeds in controller mode
LOG_BYTES = 256 << 20  # a file of the log
WAIT_SECONDS = 600
ROOT = Path(__file__).resolve().parents[1]


def replication(run: Run) -> list[Row]:
    """Messages per second and their latencies, for both kinds, after a warm-up round."""
    rows: list[Row] = []
    for number, (name, role) in enumerate(ROLES.items()):
        with ExitStack() as stack:
            sides = {
                "java": pair(run, stack, f"java{number}", role | QUICK, is_java=True),
                "aerobee": pair(run, stack, f"ours{number}", role | QUICK),
            }
            for load in (SENDS, CASES[3].load):
                is_marked = load is SENDS and name == DOUBLE_WRITE
                found = _sent(run, f"{load.name}, {name}", sides, load)
                rows.append(
                    compared(
                        f"{load.name}, {name}",
                        "messages/s",
                        found,
                        "msgs_per_s",
                        JAVA_MARK if is_marked else "",
                        ("p50_us", "p99_us"),
                    )
                )
    return rows


def _sent(run: Run, name: str, sides: Mapping[str, Cluster], load: Load) -> Found:
    """The results of a load, the sides in turns."""
    load, topic = run.load(load), f"Copied{load.conns}"
    for side in sides.values():
        loadgen.create_topic(side.broker, topic)

    def once(side: Cluster, _: int) -> Result:
        return loadgen.run(run.program, side.broker, topic, load)

    return in_turns(run, name, sides, once)


def pair(
    run: Run, stack: ExitStack, name: str, settings: Settings, *, is_java: bool = False
) -> Cluster:
    """A master whose slave has joined it."""

    def made(part: str, more: Settings) -> Cluster:
        where = f"{name}/{part}"
        one = (
            run.java(where, settings | more, apart=True)
            if is_java
            else run.ours(where, settings | more)
        )
        stack.callback(one.stop)
        return one

    master = made("master", {})
    master.start()
    slave: Settings = {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": master.namesrv}
    made("slave", slave).start_broker()
    asyncio.run(_joined(master.broker))
    return master


async def _joined(broker: str) -> None:
    """Wait until a slave has everything that its master has."""
    peers = Peers()
    try:
        async with asyncio.timeout(JOIN_SECONDS):
            while True:
                answer = await peers.request(broker, codes.GET_BROKER_HA_STATUS, None, b"", 10)
                status = HARuntimeInfo.decode(answer.body)
                if any(slave.diff == 0 for slave in status.ha_connection_info):
                    return
                await asyncio.sleep(0.1)
    finally:
        await peers.close()


class ControllerSet:
    """A controller, a name server and two brokers of one name, each a process. `brokers[0]` is the
    first master."""

    def __init__(self, run: Run, stack: ExitStack, name: str) -> None:
        folder = run.folder / name
        port = free_ports(1)[0]
        words = ["controller", "--listen-port", str(port), "--store", str(folder / "state")]
        self.controller = f"127.0.0.1:{port}"
        child = run.command(name, *words, "--set", "httpPort=0")
        stack.callback(child.stop)
        child.wait_line(lambda line: "ready" in line, READY_SECONDS)
        settings: Settings = HERE | {
            "enableControllerMode": "true",
            "controllerAddr": self.controller,
            "mappedFileSizeCommitLog": LOG_BYTES,
        }
        master = AerobeeCluster(folder / "one", settings)
        slave = AerobeeCluster(folder / "two", settings | {"namesrvAddr": master.namesrv})
        self.namesrv, self.brokers = master.namesrv, [master, slave]
        for one in self.brokers:
            stack.callback(one.stop)
        master.start()
        slave.start_broker()
        self.until(whole)

    def until(self, holds: Callable[[Replicas], bool]) -> tuple[Replicas, float]:
        """Wait until `holds` is true of the controller's replicas; returns them and the time, by
        `time.monotonic`."""
        return asyncio.run(self._until(holds))

    async def _until(self, holds: Callable[[Replicas], bool]) -> tuple[Replicas, float]:
        peers = Peers()
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while True:
                    with suppress(AerobeeError):
                        found = await replicas_of(peers, [self.controller], BROKER_NAME)
                        if holds(found):
                            return found, time.monotonic()
                    await asyncio.sleep(0.01)
        finally:
            await peers.close()

    async def switch(self) -> float:
        """Have broker 2 elected; the seconds until it acknowledges a message."""
        peers = Peers()
        try:
            async with Producer(self.namesrv, tries=1) as producer:
                await producer.send(Message("Switched", b"before"))
                began = time.monotonic()
                await elect(peers, self.controller, CLUSTER_NAME, BROKER_NAME, 2)
                while time.monotonic() < began + WAIT_SECONDS:
                    with suppress(AerobeeError):
                        receipt = await producer.send(Message("Switched", b"after"), timeout=3)
                        if receipt.status is SendStatus.OK:
                            return time.monotonic() - began
                    await asyncio.sleep(0.005)
                raise loadgen.LoadFailed(f"broker 2 took no message in {WAIT_SECONDS} s")
        finally:
            await peers.close()


def whole(found: Replicas) -> bool:
    """True if both brokers are alive in the sync state set."""
    return sum(one.is_in_set and one.is_alive for one in found.members) == 2


def failover(run: Run) -> list[Row]:
    """Sends that wait for a second broker in three kinds; then catching up by `run.gib` GiB, and a
    change of master on that log; then the processor time of a simulated cluster."""
    name = f"{SENDS.name}, {DOUBLE_WRITE}"
    with ExitStack() as stack:
        role = ROLES[DOUBLE_WRITE]
        sides = {
            "java": pair(run, stack, "java", role, is_java=True),
            "aerobee": pair(run, stack, "ours", role),
            "controller": ControllerSet(run, stack, "controller").brokers[0],
        }
        found = _sent(run, name, sides, SENDS)
    rate, beside = (median(found[kind], "msgs_per_s") for kind in ("controller", "aerobee"))
    cost = held(
        f"{SENDS.name}, controller mode, part of SYNC_MASTER with inSyncReplicas=2",
        rate / beside,
        "{:.2f}",
        ">= 0.95",
        f"{rate:,.0f} of {beside:,.0f} messages/s",
    )
    with ExitStack() as stack:
        behind = ControllerSet(run, stack, "behind")
        caught_up = _caught_up(run, behind)
        seconds = asyncio.run(behind.switch())
        say(f"another master on {run.gib:g} GiB after {seconds:.2f} s")
    elected = f"electMaster on a log of {run.gib:g} GiB until the other broker takes a message"
    return [
        compared(name, "messages/s", found, "msgs_per_s", JAVA_MARK),
        cost,
        caught_up,
        seconds_row(elected, seconds, "<= 1 s"),
        _minute(),
    ]


def _caught_up(run: Run, behind: ControllerSet) -> Held:
    """The speed at which a slave catches up, from its first new byte until it has everything."""
    master, slave = behind.brokers
    gib = run.gib
    loadgen.create_topic(master.broker, "Switched")
    loadgen.create_topic(master.broker, "Filled")
    slave.stop_broker(kill=False)
    behind.until(lambda found: sum(one.is_in_set for one in found.members) == 1)
    loadgen.fill(run.program, master.broker, "Filled", int(gib * GIB) // RECORD_BYTES)
    time.sleep(QUIET_SECONDS)
    bare = _bare_copy(run.folder / "bare", int(gib * GIB))
    begun: tuple[float, int] | None = None

    def caught(found: Replicas) -> bool:
        nonlocal begun
        ends = {one.broker_id: one.log_end for one in found.members}
        if begun is None and ends[2] > 0:
            begun = time.monotonic(), ends[2]
        return ends[1] == ends[2]

    with ThreadPoolExecutor() as starting:  # it catches up before it says that it is ready
        ready = starting.submit(slave.start_broker)
        found, at = behind.until(caught)
        ready.result()
    assert begun is not None
    since, first = begun
    copied = max(one.log_end for one in found.members) - first
    speed = copied / max(at - since, 1e-3) / 1e6
    say(f"a slave caught up at {speed:,.0f} MB/s, a bare copy at {bare:,.0f} MB/s")
    behind.until(whole)
    return Held(
        f"a slave that lacks {gib:g} GiB catches up",
        f"{speed:,.0f} MB/s",
        f">= {CATCH_UP_MB_MIN:g} MB/s, or {BARE_PART_MIN:g} of a bare copy",
        speed >= min(CATCH_UP_MB_MIN, BARE_PART_MIN * bare),
        f"the last {copied / 1e6:,.0f} MB; a bare copy: {bare:,.0f} MB/s",
    )


def _bare_copy(folder: Path, count: int) -> float:
    """The MB/s at which two threads copy a file by TCP into new mapped files, as long as the log's.

    No slave can be faster on this machine: it does this, and derives queues and keys besides."""
    folder.mkdir()
    source = folder / "source"
    with source.open("wb") as file:
        for _ in range(0, count, COPY_BYTES):
            file.write(os.urandom(COPY_BYTES))
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor() as pool:
        sending = pool.submit(_send_file, source, listening.getsockname())
        taken, _ = listening.accept()
        began, left = time.monotonic(), source.stat().st_size
        with taken:
            for number in range(-(-left // LOG_BYTES)):
                size = min(LOG_BYTES, left)
                with (folder / str(number)).open("w+b") as file:
                    file.truncate(size)
                    with mmap.mmap(file.fileno(), size) as mapped, memoryview(mapped) as view:
                        at = 0
                        while at < size:
                            at += taken.recv_into(view[at : at + COPY_BYTES])
                left -= size
        seconds = time.monotonic() - began
        sending.result()
    shutil.rmtree(folder)
    return count / seconds / 1e6


def _send_file(path: Path, address: tuple[str, int]) -> None:
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as view,
        socket.create_connection(address) as sock,
    ):
        for at in range(0, len(view), COPY_BYTES):
            sock.sendall(view[at : at + COPY_BYTES])


def _minute() -> Held:
    """The processor time of a virtual minute: histories of several seeds beside one of them."""
    one, several = _simulated(1), _simulated(SEEDS)
    seconds = (several[0] - one[0]) / (several[1] - one[1]) * 60
    say(f"a simulated minute takes {seconds:.2f} s of processor time")
    name = "a minute of a whole simulated cluster, processor time"
    return seconds_row(name, seconds, "<= 3 s", f"seeds 2 to {SEEDS} of `scripts/simulate`")


def _simulated(last: int) -> tuple[float, float]:
    """The processor time and the virtual time of the histories 1 to `last`, in seconds."""
    before = os.times()
    argv = [sys.executable, "-m", "tests.simulation.command", "--from", "1", "--to", str(last)]
    done = subprocess.run(  # noqa: S603 - no shell
        argv,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    after = os.times()
    virtual = sum(map(float, re.findall(r"^seed \d+: ([\d.]+) s,", done.stdout, re.MULTILINE)))
    spent = after.children_user + after.children_system
    return spent - before.children_user - before.children_system, virtual
