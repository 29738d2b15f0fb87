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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from ..harness.child import Child
from ..harness.clusters import READY_SECONDS, AerobeeCluster, Cluster, JavaCluster
from ..scripts.processes.plan import cores
from .loads import loadgen
from .loads.loadgen import Load
from .measures import (
    CASES,
    SETTLE_SECONDS,
    Compared,
    Say,
    cpu_seconds,
    fill_at,
    median,
    resident_mib,
)
from .store_measures import Held

BROKERS = 2
# The loads that can be divided among brokers.
LOADS = [case.load for case in CASES if case.load.conns > 1 or case.load.mode == "pull"]


def brokers(
    folder: Path, program: Path, rounds: int, scale: float, flags: tuple[str, ...], say: Say
) -> list[Compared]:
    """Messages per second of the two brokers of each kind, after a warm-up round."""
    java: list[Cluster] = [
        JavaCluster(folder / f"java-{one}", flags=flags) for one in range(BROKERS)
    ]
    ours: list[Cluster] = [AerobeeCluster(folder / f"ours-{one}") for one in range(BROKERS)]
    rows = []
    with ExitStack() as stack:
        for side in (*java, *ours):
            stack.callback(side.stop)
            side.start()
            loadgen.create_topic(side.broker, "Warm")
            for case in (CASES[2], CASES[0]):  # as `rates` does, and for its reason
                loadgen.run(program, side.broker, "Warm", case.load)
        for number, whole in enumerate(LOADS):
            load = part_of(whole, scale, BROKERS)
            found: dict[str, list[dict[str, float]]] = {"java": [], "aerobee": []}
            for repeat in range(rounds + 1):
                for sides in (java, ours):
                    addresses = [side.broker for side in sides]
                    topic = f"Both{number}"
                    result = at_once(addresses, program, topic, load, is_first=not repeat)
                    kind = sides[0].kind
                    if repeat:
                        found[kind].append(result)
                    say(f"{load.name}, {BROKERS} brokers: {kind} {result['msgs_per_s']:,.0f}/s")
            speeds = {kind: median(results, "msgs_per_s") for kind, results in found.items()}
            tails = {kind: median(results, "p99_us") for kind, results in found.items()}
            rows.append(
                Compared(
                    load.name,
                    "messages/s",
                    speeds["java"],
                    speeds["aerobee"],
                    "",
                    holds=True,
                    note=f"p99 {tails['java']:,.0f} / {tails['aerobee']:,.0f} us",
                )
            )
    return rows


def part_of(load: Load, scale: float, brokers: int) -> Load:
    """The part of a load that one of the brokers gets."""
    count = int(load.count * scale) // brokers
    return replace(load, conns=max(1, load.conns // brokers), count=count)


def at_once(
    addresses: Sequence[str], program: Path, topic: str, load: Load, *, is_first: bool
) -> dict[str, float]:
    """Run the load on each of these brokers at the same time; returns their joint result."""
    if is_first:
        for address in addresses:
            loadgen.create_topic(address, topic)
            if load.mode == "pull":
                fill_at(program, address, topic, load.count)
    with ThreadPoolExecutor(len(addresses)) as pool:
        results = list(pool.map(lambda each: loadgen.run(program, each, topic, load), addresses))
    messages = sum(result["messages"] for result in results)
    return {
        "messages": messages,
        "msgs_per_s": messages / max(result["seconds"] for result in results),
        "p99_us": max(result["p99_us"] for result in results),
    }


BY_HAND_MIN = 0.9  # of the rate of two brokers that are started by hand
SUPERVISOR_PERCENT_MAX = 1.0


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
        tasks = Path(f"/proc/{self.broker_pid()}/task")
        found = [
            int(pid) for each in tasks.iterdir() for pid in (each / "children").read_text().split()
        ]
        return [pid for pid in found if b"broker" in _words(pid)]


def _words(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def groups(folder: Path, program: Path, rounds: int, scale: float, say: Say) -> list[Held]:
    """Rates and memory of groups of 1, 2 and as many as cores, and the supervisors' time."""
    sizes = sorted({1, BROKERS, cores()})
    with ExitStack() as stack:
        sides: dict[str, _Group] = {}
        for size in sizes:
            name = f"--processes {size}"
            sides[name] = _Group(folder / f"group-{size}", size)
        hand = [AerobeeCluster(folder / f"hand-{one}") for one in range(BROKERS)]
        for each in (*sides.values(), *hand):
            stack.callback(each.stop)
            each.start()
        addresses = {name: group.addresses for name, group in sides.items()}
        by_hand = f"{BROKERS} by hand"
        addresses[by_hand] = [one.broker for one in hand]
        pids = {name: group.pids() for name, group in sides.items()}
        pids[by_hand] = [one.broker_pid() for one in hand]
        before = {name: cpu_seconds(group.broker_pid()) for name, group in sides.items()}
        begun = time.monotonic()
        rows = []
        for number, load in enumerate(LOADS):
            rates = _measured(addresses, pids, program, (number, load), rounds, scale, say)
            rows += _rows(load, rates, by_hand)
        seconds = time.monotonic() - begun
        for name, group in sides.items():
            share = (cpu_seconds(group.broker_pid()) - before[name]) / seconds * 100
            rows.append(
                Held(
                    f"{name}: the supervisor, of a core",
                    f"{share:.2f} %",
                    f"< {SUPERVISOR_PERCENT_MAX:g} %",
                    share < SUPERVISOR_PERCENT_MAX,
                    f"in {seconds:,.0f} s with load in turns",
                )
            )
            resident = [f"{resident_mib(pid)['VmRSS']:,.0f}" for pid in pids[name]]
            own = resident_mib(group.broker_pid())["VmRSS"]
            note = f"the supervisor {own:,.0f} MiB"
            rows.append(
                Held(f"{name}: memory of the members, MiB", ", ".join(resident), "", True, note)
            )
    return rows


def _measured(
    addresses: dict[str, list[str]],
    pids: dict[str, list[int]],
    program: Path,
    numbered: tuple[int, Load],
    rounds: int,
    scale: float,
    say: Say,
) -> dict[str, list[dict[str, float]]]:
    """The results of a load by side, in turns, after a round to warm up."""
    number, load = numbered
    found: dict[str, list[dict[str, float]]] = {name: [] for name in addresses}
    for repeat in range(rounds + 1):
        for name, brokers in addresses.items():
            time.sleep(SETTLE_SECONDS)
            part = part_of(load, scale, len(brokers))
            before = sum(map(cpu_seconds, pids[name]))
            topic = f"Group{number}"
            result = at_once(brokers, program, topic, part, is_first=not repeat)
            if repeat:  # the first one warms up
                spent = sum(map(cpu_seconds, pids[name])) - before
                found[name].append(result | {"cpu_us": spent / result["messages"] * 1e6})
            say(f"{load.name}, {name}: {result['msgs_per_s']:,.0f}/s")
    return found


def _rows(load: Load, found: dict[str, list[dict[str, float]]], by_hand: str) -> list[Held]:
    hand = median(found[by_hand], "msgs_per_s")
    rows = []
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
