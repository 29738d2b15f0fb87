"""Measures the throughput of two brokers on one machine, which use more cores than one does.

Each broker has half of the connections and messages of the load in the part about sends and pulls.
Two of RocketMQ's brokers share the machine in the same way.
The part `processes` compares a group of two with two brokers that are started by hand.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from ..harness.child import Child
from ..harness.clusters import READY_SECONDS, AerobeeCluster, Cluster
from ..scripts.processes.plan import cores
from .loads import loadgen
from .loads.loadgen import Load
from .rates import CASES, WARM, Case, fill
from .report import Held, Row, held
from .turns import (
    Found,
    Result,
    Run,
    children,
    command,
    compared,
    cpu_seconds,
    in_turns,
    median,
    resident_mib,
    running,
)

BROKERS = 2
# The loads that can be divided among brokers.
DIVIDED = [case for case in CASES if case.load.conns > 1 or case.load.mode == "pull"]
BY_HAND_MIN = 0.9  # of the rate of two brokers that are started by hand
SUPERVISOR_MARK = "< 1 %"


@dataclass(frozen=True, slots=True)
class Together:
    """Brokers that share a load: their addresses and processes."""

    addresses: list[str]
    pids: list[int]


def brokers(run: Run) -> list[Row]:
    """Messages per second of the two brokers of each kind, after a warm-up round."""
    java = [run.java(f"java-{one}") for one in range(BROKERS)]
    ours = [run.ours(f"ours-{one}") for one in range(BROKERS)]
    with running(*java, *ours):
        for side in (*java, *ours):
            loadgen.create_topic(side.broker, "Warm")
            for load in WARM:
                loadgen.run(run.program, side.broker, "Warm", load)
        sides = {"java": _together(java), "aerobee": _together(ours)}
        return [
            compared(
                case.load.name,
                "messages/s",
                _measured(run, sides, number, case),
                "msgs_per_s",
                more=["p99_us"],
            )
            for number, case in enumerate(DIVIDED)
        ]


def _together(clusters: Sequence[Cluster]) -> Together:
    return Together([one.broker for one in clusters], [one.broker_pid() for one in clusters])


def _measured(run: Run, sides: Mapping[str, Together], number: int, case: Case) -> Found:
    """The results of a case, each side's brokers at the same time."""
    topic, program = f"Part{number}", run.program

    def once(side: Together, round_number: int) -> Result:
        count = len(side.addresses)
        load = run.load(case.load)
        load = replace(load, conns=max(1, load.conns // count), count=load.count // count)
        if not round_number:
            for address in side.addresses:
                loadgen.create_topic(address, topic)
                if case.stored:
                    fill(run, address, topic, case, load.count)
        with ThreadPoolExecutor(count) as pool:
            results = list(
                pool.map(lambda each: loadgen.run(program, each, topic, load), side.addresses)
            )
        messages = sum(result["messages"] for result in results)
        return {
            "messages": messages,
            "msgs_per_s": messages / max(result["seconds"] for result in results),
            "p99_us": max(result["p99_us"] for result in results),
        }

    return in_turns(run, case.load.name, sides, once, lambda side: side.pids)


class _Group(AerobeeCluster):
    """A name server and `aerobee broker --processes N`."""

    def __init__(self, folder: Path, members: int) -> None:
        super().__init__(folder, {"listenPort": 0, "haListenPort": 0})
        self._members = members
        self.addresses: list[str] = []

    def start_broker(self, seconds: float = READY_SECONDS) -> None:
        """Start the group; its members listen on any free ports."""
        words = ["broker", "--processes", str(self._members), "-c", str(self.broker_file)]
        argv = [sys.executable, *self._under, *words]
        self.broker_process = Child(argv, self.folder / "broker.stderr", cwd=self.folder)
        ready = self.broker_process.wait_line(lambda line: "ready" in line, seconds)
        self.addresses = re.findall(r"-\d+ on ([\d.]+:\d+)", ready)

    def pids(self) -> list[int]:
        """The processes of the members."""
        return [pid for pid in children(self.broker_pid()) if b"broker" in command(pid)]


def groups(run: Run) -> list[Row]:
    """Rates and memory of groups of 1, 2 and as many as cores, and the supervisors' time."""
    sizes = sorted({1, BROKERS, cores()})
    names = {f"--processes {size}": _Group(run.folder / f"group-{size}", size) for size in sizes}
    hand = [run.ours(f"hand-{one}") for one in range(BROKERS)]
    by_hand = f"{BROKERS} by hand"
    with running(*names.values(), *hand):
        sides = {name: Together(group.addresses, group.pids()) for name, group in names.items()}
        sides[by_hand] = _together(hand)
        before = {name: cpu_seconds([group.broker_pid()]) for name, group in names.items()}
        begun = time.monotonic()
        rows: list[Row] = []
        for number, case in enumerate(DIVIDED):
            rows += _rows(case.load, _measured(run, sides, number, case), by_hand)
        seconds = time.monotonic() - begun
        for name, group in names.items():
            share = (cpu_seconds([group.broker_pid()]) - before[name]) / seconds * 100
            note = f"in {seconds:,.0f} s with load in turns"
            supervisor = f"{name}: the supervisor, of a core"
            rows.append(held(supervisor, share, "{:.2f} %", SUPERVISOR_MARK, note))
            resident = [f"{resident_mib(pid)['VmRSS']:,.0f}" for pid in sides[name].pids]
            note = f"the supervisor {resident_mib(group.broker_pid())['VmRSS']:,.0f} MiB"
            members = f"{name}: memory of the members, MiB"
            rows.append(Held(members, ", ".join(resident), note=note))
    return rows


def _rows(load: Load, found: Found, by_hand: str) -> list[Row]:
    hand = median(found[by_hand], "msgs_per_s")
    rows: list[Row] = []
    for name, results in found.items():
        rate, cost = median(results, "msgs_per_s"), median(results, "cpu_us")
        is_judged = name == f"--processes {BROKERS}" and (os.cpu_count() or 1) >= BROKERS
        rows.append(
            Held(
                f"{load.name}, {name}",
                f"{rate:,.0f} messages/s",
                f">= {BY_HAND_MIN:g} of {by_hand}" if is_judged else "",
                not is_judged or rate >= BY_HAND_MIN * hand,
                f"{rate / hand:.2f} of {by_hand}, CPU {cost:.1f} us a message,"
                f" p99 {median(results, 'p99_us'):,.0f} us",
            )
        )
    return rows
