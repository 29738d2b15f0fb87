"""Measures brokers in controller mode: what they cost, how a slave catches up, how a role changes.

All brokers share the machine, each in its own process. The pairs and the set that are not being
measured are idle.
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
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from ..client import Message, Producer
from ..client.base.receipts import SendStatus
from ..client.errors import AerobeeError
from ..console.findings.replicas import Replicas, elect, replicas_of
from ..harness.child import Child
from ..harness.clusters import (
    BROKER_NAME,
    CLUSTER_NAME,
    HERE,
    READY_SECONDS,
    AerobeeCluster,
    Cluster,
)
from ..harness.java_side import free_ports
from ..protocol.aio.peers import Peers
from .loads import loadgen
from .measures import CASES, SETTLE_SECONDS, Compared, Say, fill, median
from .replication_measures import ROLES, pair
from .store_measures import GIB, RECORD_BYTES, Held

DOUBLE_WRITE = ROLES["slave waited for"]
LOAD = CASES[0].load
COST_RATIO_MIN = 0.95  # of the sends of a SYNC_MASTER
JAVA_RATIO_MIN = 2.0
CATCH_UP_MB_MIN = 300.0
BARE_PART_MIN = 0.8
COPY_BYTES = 256 << 10
PROMOTION_SECONDS_MAX = 1.0
MINUTE_SECONDS_MAX = 3.0
SEEDS = 7  # histories, those of even seeds in controller mode
LOG_BYTES = 256 << 20  # a file of the log
WAIT_SECONDS = 600
ROOT = Path(__file__).resolve().parents[1]


class ControllerSet:
    """A controller, a name server and two brokers of one name, each a process. `brokers[0]` is the
    first master; `kind` names the set in results."""

    kind = "controller"

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        port = free_ports(1)[0]
        words = ["controller", "--listen-port", str(port), "--store", str(folder / "state")]
        argv = [sys.executable, "-m", "aerobee.scripts.cli", *words, "--set", "httpPort=0"]
        self.controller = f"127.0.0.1:{port}"
        child = Child(argv, folder / "controller.stderr", cwd=folder)
        stack.callback(child.stop)
        child.wait_line(lambda line: "ready" in line, READY_SECONDS)
        settings: dict[str, str | int] = HERE | {
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

    @property
    def master(self) -> Cluster:
        return self.brokers[0]

    def until(self, holds: Callable[[Replicas], bool]) -> tuple[Replicas, float]:
        """What the controller says once it holds, and when that was, by `time.monotonic`."""
        return asyncio.run(self._until(holds))

    async def _until(self, holds: Callable[[Replicas], bool]) -> tuple[Replicas, float]:
        peers = Peers(upgrade=False)
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
        peers = Peers(upgrade=False)
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
    """Whether both brokers are alive in the sync state set."""
    return sum(one.is_in_set and one.is_alive for one in found.members) == 2


def failover(
    folder: Path,
    program: Path,
    rounds: int,
    scale: float,
    gib: float,
    flags: tuple[str, ...],
    say: Say,
) -> tuple[list[Compared], list[Held]]:
    """Sends that wait for a second broker in three kinds; then catching up by `gib` GiB, and a
    change of master on that log; then the processor time of a simulated cluster."""
    with ExitStack() as stack:
        java, ours = (
            pair(stack, folder / kind, kind, DOUBLE_WRITE, flags) for kind in ("java", "ours")
        )
        mode = ControllerSet(stack, folder / "controller")
        loadgen.create_topic(mode.master.broker, f"Copied{LOAD.conns}")
        found = _sent(program, {"java": java, "ours": ours, mode.kind: mode.master}, rounds, scale)
        for kind, speed in found.items():
            say(f"{LOAD.name}, waiting for a second broker: {kind} {speed:,.0f}/s")
    with ExitStack() as stack:
        behind = ControllerSet(stack, folder / "behind")
        held = [_cost(found), _caught_up(behind, program, gib, say)]
        seconds = asyncio.run(behind.switch())
        say(f"another master on {gib:g} GiB after {seconds:.2f} s")
        held.append(
            Held(
                f"electMaster on a log of {gib:g} GiB until the other broker takes a message",
                f"{seconds:.2f} s",
                f"<= {PROMOTION_SECONDS_MAX:g} s",
                seconds <= PROMOTION_SECONDS_MAX,
            )
        )
    held.append(_minute(say))
    return [_row(found)], held


def _sent(program: Path, sides: dict[str, Cluster], rounds: int, scale: float) -> dict[str, float]:
    """The median rate of each side, in turns after a round that warms up."""
    load = replace(LOAD, count=int(LOAD.count * scale))
    results: dict[str, list[dict[str, float]]] = {kind: [] for kind in sides}
    for number in range(rounds + 1):
        for kind, side in sides.items():
            time.sleep(SETTLE_SECONDS)
            result = loadgen.run(program, side.broker, f"Copied{load.conns}", load)
            if number:
                results[kind].append(result)
    return {kind: median(each, "msgs_per_s") for kind, each in results.items()}


def _row(found: dict[str, float]) -> Compared:
    """Our pair beside the Java pair."""
    java, ours = found["java"], found["ours"]
    name, wanted = f"{LOAD.name}, slave waited for", f">= {JAVA_RATIO_MIN:g}"
    return Compared(name, "messages/s", java, ours, wanted, ours >= JAVA_RATIO_MIN * java)


def _cost(found: dict[str, float]) -> Held:
    """Controller mode beside our pair."""
    part = found[ControllerSet.kind] / found["ours"]
    return Held(
        f"{LOAD.name}, controller mode, part of SYNC_MASTER with inSyncReplicas=2",
        f"{part:.2f}",
        f">= {COST_RATIO_MIN:g}",
        part >= COST_RATIO_MIN,
        f"{found[ControllerSet.kind]:,.0f} of {found['ours']:,.0f} messages/s",
    )


def _caught_up(behind: ControllerSet, program: Path, gib: float, say: Say) -> Held:
    """How fast a slave gets what it lacks, from its first new byte until it has everything."""
    master, slave = behind.brokers
    loadgen.create_topic(master.broker, "Switched")
    loadgen.create_topic(master.broker, "Filled")
    slave.stop_broker(kill=False)
    behind.until(lambda found: sum(one.is_in_set for one in found.members) == 1)
    fill(program, master, "Filled", int(gib * GIB) // RECORD_BYTES)
    time.sleep(SETTLE_SECONDS)
    bare = _bare_copy(behind.folder / "bare", int(gib * GIB))
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


def _minute(say: Say) -> Held:
    """The processor time of a virtual minute: histories of several seeds beside one of them."""
    one, several = _simulated(1), _simulated(SEEDS)
    seconds = (several[0] - one[0]) / (several[1] - one[1]) * 60
    say(f"a simulated minute takes {seconds:.2f} s of processor time")
    return Held(
        "a minute of a whole simulated cluster, processor time",
        f"{seconds:.2f} s",
        f"<= {MINUTE_SECONDS_MAX:g} s",
        seconds <= MINUTE_SECONDS_MAX,
        f"seeds 2 to {SEEDS} of `scripts/simulate`",
    )


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
