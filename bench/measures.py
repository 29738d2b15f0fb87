"""The measures of `scripts/bench`: each runs the same load on both sides, which alternate.

The side that is not being measured is idle, and has finished its background work after its last
load. Numbers are medians of the rounds. Stores are made in a folder that the caller gives.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..harness.child import Child
from ..harness.clusters import AerobeeCluster, Cluster, JavaCluster, start_seconds
from .loads import loadgen, popgen
from .loads.loadgen import Load

MILLION = 1_000_000
BATCH = 32  # messages a batch request when a topic is filled
SETTLE_SECONDS = 2.0  # for what brokers do after a load: keys, disk, memory


@dataclass(frozen=True, slots=True)
class Case:
    """A load with the ratio to Java's rate that it has to reach."""

    load: Load
    ratio_min: float


CASES = (
    Case(Load("SEND 64 x 1, 128 B", "send", 120_000, conns=64), 2.5),
    Case(Load("SEND 64 x 1, 1 KiB", "send", 80_000, conns=64, size=1024), 2.5),
    Case(Load("SEND 4 x 64, 128 B", "send", 200_000, conns=4, inflight=64), 2.5),
    Case(Load("SEND 1 x 1, 128 B", "send", 24_000), 1.2),
    Case(Load("SEND batches of 32, 4 x 8", "send", 16_000, conns=4, inflight=8, per=32), 1.5),
    Case(Load("PULL 32 from 4 queues", "pull", MILLION), 2.0),
)


# Sends of messages that wait, with the property that makes them do so: none is due in the run.
DELAYED = (
    (Case(Load("SEND 64 x 1, delay level 18", "send", 120_000, conns=64), 2.0), ("DELAY", "18")),
    (
        Case(Load("SEND 64 x 1, timer in an hour", "send", 120_000, conns=64), 2.0),
        ("TIMER_DELAY_SEC", "3600"),
    ),
)


# Pops of 32 with their acknowledgements, in messages: each alone, and all of a pop at once.
POPS = (
    (Case(Load("POP 32, each acknowledged alone, 4 x 1", "pop", 200_000, conns=4), 1.5), False),
    (Case(Load("POP 32, acknowledged together, 4 x 1", "pop", 400_000, conns=4), 1.5), True),
)


@dataclass(frozen=True, slots=True)
class Compared:
    """A row of the table. `ratio` is aerobee's value by Java's; `wanted` is its limit, as text."""

    name: str
    unit: str
    java: float
    ours: float
    wanted: str
    holds: bool
    note: str = ""

    @property
    def ratio(self) -> float:
        """aerobee's value divided by Java's."""
        return self.ours / self.java


Say = Callable[[str], None]


def rates(
    java: Cluster,
    ours: Cluster,
    program: Path,
    rounds: int,
    scale: float,
    say: Say,
    cases: tuple[Case, ...] = CASES,
) -> list[Compared]:
    """Messages a second in each case, both sides warmed up by the same case before.

    The real broker also needs some hundred thousand sends before its compiler is through.
    """
    rows = []
    for side in (java, ours):
        loadgen.create_topic(side.broker, "Warm")
        for case in (CASES[2], CASES[0]):
            loadgen.run(program, side.broker, "Warm", case.load)
    for number, case in enumerate(cases):
        topic = f"Rate{number}{program.name}"
        load = replace(case.load, count=int(case.load.count * scale))
        for side in (java, ours):
            loadgen.create_topic(side.broker, topic)
            if load.mode == "pull":
                fill(program, side, topic, load.count)
            loadgen.run(program, side.broker, topic, load)
        once = partial(sent, program, topic, load)
        found = alternated((java, ours), range(1, rounds + 1), load, once, say, SETTLE_SECONDS)
        rows.append(rate_row(case, found))
    return rows


def sent(program: Path, topic: str, load: Load, side: Cluster, number: int) -> dict[str, float]:
    """One run of the load generator against a side."""
    return loadgen.run(program, side.broker, topic, load)


def delayed(
    java: Cluster, ours: Cluster, programs: Sequence[Path], rounds: int, scale: float, say: Say
) -> list[Compared]:
    """Sends of delayed messages, each case with its own generator (see `DELAYED`)."""
    rows = []
    for (case, _), program in zip(DELAYED, programs, strict=True):
        rows += rates(java, ours, program, rounds, scale, say, (case,))
    return rows


def pops(
    java: Cluster, ours: Cluster, program: Path, rounds: int, scale: float, say: Say
) -> list[Compared]:
    """Messages popped and acknowledged per second, each round by a group of its own."""
    rows = []
    for number, (case, batched) in enumerate(POPS):
        load = replace(case.load, count=int(case.load.count * scale))
        topic = f"Pops{number}"
        for side in (java, ours):
            loadgen.create_topic(side.broker, topic)
            # More than is counted: the last pops must find something, too.
            fill(program, side, topic, load.count + load.conns * BATCH * BATCH)
        once = partial(_popped, topic, load, batched)
        found = alternated((java, ours), range(rounds + 1), load, once, say)
        rows.append(rate_row(case, found))
    return rows


def _popped(topic: str, load: Load, batched: bool, side: Cluster, number: int) -> dict[str, float]:
    return popgen.start(side.broker, topic, f"Poppers{number}", load, batched=batched)


def starts(folder: Path, rounds: int, flags: tuple[str, ...], say: Say) -> Compared:
    """Seconds from the start of a name server and a broker to both serving, empty store.

    Each in one process: `aerobee up`, and one JVM with both.
    """
    java: list[float] = []
    ours: list[float] = []
    for repeat in range(rounds):
        for kind, found in (("java", java), ("ours", ours)):
            where = folder / f"start-{kind}-{repeat}"
            side: Cluster = (
                JavaCluster(where, flags=flags)
                if kind == "java"
                else AerobeeCluster(where, together=True)
            )
            try:
                found.append(start_seconds(side))
                say(f"start to ready: {kind} {found[-1]:.2f} s")
            finally:
                side.stop()
    before, now = statistics.median(java), statistics.median(ours)
    return Compared("Start to ready", "s", before, now, "<= 0.2", now <= 0.2 * before)


def memory(
    folder: Path, program: Path, messages: int, flags: tuple[str, ...], say: Say
) -> list[Compared]:
    """Resident memory of the broker's process after sends of 128 bytes, one a request."""
    found: dict[str, dict[str, float]] = {}
    load = Load("fill", "send", messages, conns=4, inflight=64)
    for kind in ("java", "ours"):
        where = folder / f"memory-{kind}"
        side: Cluster = JavaCluster(where, flags=flags) if kind == "java" else AerobeeCluster(where)
        try:
            side.start()
            loadgen.create_topic(side.broker, "Memory")
            loadgen.run(program, side.broker, "Memory", load)
            found[kind] = resident_mib(side.broker_pid())
            say(f"memory: {kind} {found[kind]}")
        finally:
            side.stop()
    rows = []
    for field, what in (("VmRSS", "all"), ("RssAnon", "its own"), ("RssFile", "mapped files")):
        before, now = found["java"][field], found["ours"][field]
        wanted, holds = ("<= 0.25", now <= 0.25 * before) if field == "VmRSS" else ("", True)
        name = f"Resident after {messages:,} messages: {what}"
        rows.append(Compared(name, "MiB", before, now, wanted, holds))
    return rows


@dataclass(frozen=True, slots=True)
class Growth:
    """A row for aerobee alone: a rate before and after the store has grown."""

    name: str
    small: float
    grown: float

    @property
    def holds(self) -> bool:
        """Less than a tenth slower."""
        return self.grown > 0.9 * self.small


def growth(
    folder: Path, program: Path, rounds: int, scale: float, stored: int, say: Say
) -> list[Growth]:
    """SEND and PULL of a broker with one topic beside one with 1,000 topics or `stored` messages.

    Both stand side by side and are measured in turns, so that the machine's mood is shared.
    """
    sends = replace(CASES[0].load, count=int(CASES[0].load.count * scale))
    pulls = replace(CASES[-1].load, count=int(CASES[-1].load.count * scale))
    small, grown = AerobeeCluster(folder / "small"), AerobeeCluster(folder / "grown")
    try:
        for side in (small, grown):
            side.start()
            loadgen.create_topic(side.broker, "Sends")
            loadgen.create_topic(side.broker, "Pulls")
            fill(program, side, "Pulls", pulls.count)
        host, _, port = grown.broker.partition(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            loadgen.create_topics(connection, [f"One{number}" for number in range(1_000)], 4)
        one = Load("one message", "send", 4)
        for number in range(1_000):
            loadgen.run(program, grown.broker, f"One{number}", one)
        rows = _in_turns("1,000 topics", small, grown, program, rounds, (sends, pulls), say)
        if stored:
            loadgen.create_topic(grown.broker, "Stored")
            fill(program, grown, "Stored", stored)
            what = f"{stored:,} stored messages"
            rows += _in_turns(what, small, grown, program, rounds, (sends, pulls), say)
        return rows
    finally:
        small.stop()
        grown.stop()


def calls_per_send(folder: Path, program: Path, requests: int, say: Say) -> dict[str, float]:
    """Python-level calls of our broker for each SEND, by way of sending; and where they go."""
    cluster = AerobeeCluster(folder / "calls", under=("-m", "aerobee.bench.call_count"))
    found = {}
    try:
        cluster.start()
        loadgen.create_topic(cluster.broker, "Calls")
        for load in (CASES[0].load, CASES[2].load, CASES[3].load):
            load = replace(load, count=requests)
            loadgen.run(program, cluster.broker, "Calls", load)
            broker = cluster.broker_process
            assert broker is not None
            os.kill(broker.pid, signal.SIGUSR1)
            loadgen.run(program, cluster.broker, "Calls", load)
            calls, by_function = _counted(broker)
            found[load.name] = calls / requests
            each = {name: round(n / requests, 2) for name, n in by_function.items()}
            say(f"{load.name}: {found[load.name]:.2f} calls a SEND: {each}")
    finally:
        cluster.stop()
    return found


def fill(program: Path, side: Cluster, topic: str, messages: int) -> int:
    """Fills an empty topic with messages of 128 bytes, by batches, over its four queues.

    Returns how many there are now: on a loaded machine the real broker refuses a few batches.
    """
    return fill_at(program, side.broker, topic, messages)


def fill_at(program: Path, address: str, topic: str, messages: int) -> int:
    """`fill` for the broker at an address."""
    requests = -(-messages // BATCH)
    load = Load("fill", "send", requests, conns=4, inflight=8, per=BATCH)
    taken = int(loadgen.run(program, address, topic, load)["messages"])
    loadgen.wait_stored(address, topic, min(messages, taken))
    return taken


def resident_mib(pid: int) -> dict[str, float]:
    """VmRSS, RssAnon, RssFile of a process in MiB: all, its own, files."""
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.findall(r"^(VmRSS|RssAnon|RssFile):\s+(\d+) kB", text, re.MULTILINE)
    return {name: round(int(kib) / 1024, 1) for name, kib in found}


def cpu_seconds(pid: int) -> float:
    """The CPU seconds of a process, in user mode and in the kernel, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def disk_waits(pid: int) -> int:
    """The major page faults of a process: how often it waited for a page from the disk."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[9])


def median(results: Sequence[dict[str, float]], field: str) -> float:
    """The median of one field."""
    return statistics.median(result[field] for result in results)


def alternated(
    sides: tuple[Cluster, Cluster],
    numbers: range,
    load: Load,
    once: Callable[[Cluster, int], dict[str, float]],
    say: Say,
    settle_s: float = 0,
) -> dict[str, list[dict[str, float]]]:
    """The results of `once(side, number)` by kind, the sides alternating; number 0 only warms up.

    Each result gets the CPU time of the broker in us a message (`cpu_us`).
    """
    found: dict[str, list[dict[str, float]]] = {side.kind: [] for side in sides}
    for number in numbers:
        for side in sides:
            time.sleep(settle_s)
            before = cpu_seconds(side.broker_pid())
            result = once(side, number)
            spent = cpu_seconds(side.broker_pid()) - before
            result["cpu_us"] = spent / result["messages"] * 1e6
            if number:
                found[side.kind].append(result)
            say(f"{load.name}: {side.kind} {result['msgs_per_s']:,.0f}/s")
    return found


def rate_row(case: Case, found: dict[str, list[dict[str, float]]]) -> Compared:
    """The row of a case from the results of both sides' rounds."""
    speeds = {kind: median(results, "msgs_per_s") for kind, results in found.items()}
    tails = {kind: median(results, "p99_us") for kind, results in found.items()}
    costs = {kind: median(results, "cpu_us") for kind, results in found.items()}
    return Compared(
        case.load.name,
        "messages/s",
        speeds["java"],
        speeds["aerobee"],
        f">= {case.ratio_min:g}",
        speeds["aerobee"] >= case.ratio_min * speeds["java"],
        f"p99 {tails['java']:,.0f} / {tails['aerobee']:,.0f} us,"
        f" CPU {costs['java']:.1f} / {costs['aerobee']:.1f} us a message",
    )


def _in_turns(
    what: str,
    small: Cluster,
    grown: Cluster,
    program: Path,
    rounds: int,
    loads: tuple[Load, Load],
    say: Say,
) -> list[Growth]:
    rows = []
    for load, topic in zip(loads, ("Sends", "Pulls"), strict=True):
        found: dict[str, list[dict[str, float]]] = {"small": [], "grown": []}
        for repeat in range(rounds + 1):
            for name, side in (("small", small), ("grown", grown)):
                result = loadgen.run(program, side.broker, topic, load)
                if repeat:  # the first one warms up
                    found[name].append(result)
                say(f"{load.name}, {what}: {name} {result['msgs_per_s']:,.0f}/s")
        speeds = {name: median(results, "msgs_per_s") for name, results in found.items()}
        rows.append(Growth(f"{load.name}, {what}", speeds["small"], speeds["grown"]))
    return rows


def _counted(broker: Child) -> tuple[int, dict[str, int]]:
    since = len(broker.lines)
    os.kill(broker.pid, signal.SIGUSR2)
    line = broker.wait_line(lambda text: text.startswith('{"calls"'), 30, since)
    counted = json.loads(line)
    return counted["calls"], counted["by"]
