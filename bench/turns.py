"""How measures are taken: sides in turns, a load beside other work, and the figures of processes.

The side that is not being measured is idle, and has finished its background work after its last
load. Numbers are medians of the rounds. Stores are made in the folder of the run.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from ..harness.child import Child
from ..harness.clusters import AerobeeCluster, Cluster, JavaCluster
from .loads import loadgen
from .loads.loadgen import Change, Load
from .report import Compared, Held, Row, held

QUIET_SECONDS = 2.0  # for what brokers do after a load: keys, disk, memory
QUICK_PART = 0.1
BESIDE_MIN = 500  # requests of a load whose p99 is measured
FIGURES = {
    "p50_us": "p50 {:,.0f} / {:,.0f} us",
    "p99_us": "p99 {:,.0f} / {:,.0f} us",
    "cpu_us": "CPU {:.1f} / {:.1f} us a message",
}
BOTH = ("java", "aerobee")

Side = TypeVar("Side")
Result = dict[str, float]
Found = dict[str, list[Result]]  # by side, one for each round
Settings = dict[str, str | int]


@dataclass(frozen=True, slots=True)
class Run:
    """One part of the benchmark: its folder, which is empty, and the options of the command."""

    folder: Path
    options: argparse.Namespace

    @property
    def rounds(self) -> int:
        """The rounds that count."""
        return 1 if self.options.quick else int(self.options.rounds)

    @property
    def scale(self) -> float:
        """The part of the usual load."""
        return QUICK_PART if self.options.quick else float(self.options.load)

    @property
    def gib(self) -> float:
        """The size of a log."""
        return float(self.options.gib) * (QUICK_PART if self.options.quick else 1)

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of a Java broker."""
        return tuple(shlex.split(self.options.java_flags))

    @property
    def program(self) -> Path:
        """The load generator as it is."""
        return self.built()

    def built(self, change: Change | None = None) -> Path:
        """The load generator with a change in its source."""
        return loadgen.build(self.options.loadgen, self.folder, change)

    def load(self, load: Load, least: int = 1) -> Load:
        """The part of a load that `scale` says."""
        return replace(load, count=max(least, int(load.count * self.scale)))

    def java(
        self,
        name: str = "java",
        settings: Settings | None = None,
        *,
        apart: bool = False,
        flags: tuple[str, ...] = (),
    ) -> JavaCluster:
        """A cluster of RocketMQ that does not run yet."""
        return JavaCluster(self.folder / name, settings, apart=apart, flags=self.flags + flags)

    def ours(self, name: str = "ours", settings: Settings | None = None) -> AerobeeCluster:
        """A cluster of aerobee that does not run yet."""
        return AerobeeCluster(self.folder / name, settings)

    def command(self, name: str, *words: str) -> Child:
        """An aerobee command; its standard error goes to a file of this name."""
        argv = [*COMMAND, *words]
        return Child(argv, self.folder / f"{name}.stderr", cwd=self.folder)


COMMAND = (sys.executable, "-m", "aerobee.scripts.cli")


def say(line: str) -> None:
    """Write a line about the progress."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def running(*clusters: Cluster) -> Iterator[None]:
    """The clusters run until the block ends."""
    with ExitStack() as stack:
        for each in clusters:
            stack.callback(each.stop)
            each.start()
        yield


def broker_pids(side: Cluster) -> list[int]:
    """The process of a cluster's broker."""
    return [side.broker_pid()]


def in_turns(
    run: Run,
    name: str,
    sides: Mapping[str, Side],
    once: Callable[[Side, int], Result],
    pids: Callable[[Side], list[int]] | None = None,
) -> Found:
    """The results of `once(side, round)`, the sides in turns. Round 0 warms up and does not count.

    With `pids` each result gets their CPU time in us a message (`cpu_us`).
    """
    found: Found = {kind: [] for kind in sides}
    for number in range(run.rounds + 1):
        for kind, side in sides.items():
            time.sleep(QUIET_SECONDS)
            before = cpu_seconds(pids(side)) if pids else 0
            result = once(side, number)
            if pids:
                result["cpu_us"] = (cpu_seconds(pids(side)) - before) / result["messages"] * 1e6
            if number:
                found[kind].append(result)
            say(f"{name}: {kind} {result['msgs_per_s']:,.0f}/s")
    return found


def beside(
    run: Run,
    load: Load,
    topic: str,
    sides: Mapping[str, Cluster],
    others: Callable[[Any], Iterable[tuple[str, AbstractContextManager[None]]]],
) -> dict[str, Found]:
    """The p99 of a load alone and beside each of the `others` of a side, by their names."""
    load = run.load(load, BESIDE_MIN)
    program = run.program
    found: dict[str, Found] = {}
    for side in sides.values():
        loadgen.run(program, side.broker, topic, load)
    for _ in range(run.rounds):
        for kind, side in sides.items():
            time.sleep(QUIET_SECONDS)
            alone = loadgen.run(program, side.broker, topic, load)["p99_us"]
            for other, work in others(side):
                with work:
                    tail = loadgen.run(program, side.broker, topic, load)["p99_us"]
                result = {"alone": alone, "beside": tail, "times": tail / alone}
                found.setdefault(other, {}).setdefault(kind, []).append(result)
                say(f"{load.name} beside {other}: {kind} p99 {alone:,.0f} us, {tail:,.0f} us")
    return found


@contextmanager
def repeating(
    work: Callable[[threading.Event], object], pause_seconds: float = 0
) -> Iterator[None]:
    """Do `work` again and again in a thread, with a pause between; its error is raised here.

    The event that `work` gets is set when the block has ended.
    """
    is_over, begun = threading.Event(), threading.Event()

    def repeat() -> None:
        while not is_over.is_set():
            begun.set()
            work(is_over)
            is_over.wait(pause_seconds)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(repeat)
        try:
            begun.wait()
            yield
        finally:
            is_over.set()
    done.result()


def median(results: Sequence[Result], field: str) -> float:
    """The median of one field."""
    return statistics.median(result[field] for result in results)


def compared(
    name: str,
    unit: str,
    found: Found,
    field: str,
    wanted: str = "",
    more: Sequence[str] = (),
    sides: tuple[str, str] = BOTH,
) -> Compared:
    """The row of both sides' medians; its note has the fields `more`, of FIGURES."""

    def both(field: str) -> tuple[float, float]:
        return median(found[sides[0]], field), median(found[sides[1]], field)

    note = ", ".join(FIGURES[each].format(*both(each)) for each in more)
    return Compared(name, unit, *both(field), wanted, note)


def tail_row(name: str, found: Found, wanted: str) -> Row:
    """The row of one of the others of `beside`."""
    unit = "times the p99 without"
    times = {kind: median(results, "times") for kind, results in found.items()}
    tails = [
        f"{median(results, 'alone'):,.0f} and {median(results, 'beside'):,.0f}"
        for results in found.values()
    ]
    note = f"p99 {' / '.join(tails)} us"
    if "java" in times:
        return Compared(name, unit, times["java"], times["aerobee"], wanted, note)
    return held(name, times["aerobee"], f"{{:.2f}} {unit}", wanted, note)


def seconds_row(name: str, seconds: float, wanted: str, note: str = "") -> Held:
    """The row of a time."""
    return held(name, seconds, "{:.2f} s", wanted, note)


def resident_mib(pid: int) -> dict[str, float]:
    """VmRSS, RssAnon, RssFile, VmHWM of a process in MiB: all, its own, files, the most ever."""
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.findall(r"^(VmRSS|RssAnon|RssFile|VmHWM):\s+(\d+) kB", text, re.MULTILINE)
    return {name: round(int(kib) / 1024, 1) for name, kib in found}


def cpu_seconds(pids: Iterable[int], *, with_children: bool = False) -> float:
    """The CPU seconds of processes, in user mode and in the kernel, of all their threads.

    `with_children` adds those of the children that they have waited for. A process that has ended
    has none.
    """
    fields = slice(11, 15 if with_children else 13)
    ticks = sum(int(each) for pid in pids for each in stat(pid)[fields])
    return ticks / os.sysconf("SC_CLK_TCK")


def disk_waits(pid: int) -> int:
    """The major page faults of a process: how often it waited for a page from the disk."""
    return int(stat(pid)[9])


def command(pid: int) -> list[bytes]:
    """The words of the command of a process; none when it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return []


def stat(pid: int) -> list[str]:
    """The fields of a process from its state on; none when it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []


def children(pid: int) -> list[int]:
    """The processes that a process has started; none when it has ended."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    with suppress(OSError):
        return [int(each) for one in lists for each in one.read_text().split()]
    return []


def descendants(pid: int) -> list[int]:
    """The processes below a process, however deep."""
    own = children(pid)
    return own + [each for one in own for each in descendants(one)]
