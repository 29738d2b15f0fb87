"""What `scripts/bench` found, as Markdown: one block for each part, kept until its next run."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..harness.java_side import ROCKETMQ_VERSION
from .measures import Compared, Growth
from .store_measures import Held

# What is measured, in the order of the report: part and heading.
PARTS = {
    "rates": "Sends and pulls",
    "limit": "What one thread reaches",
    "access": "Sends with access control",
    "tls": "Sends over TLS",
    "brokers": "Two brokers on one machine",
    "processes": "Groups of brokers",
    "replication": "A master with a slave",
    "failover": "Controller mode",
    "redistribution": "When members and brokers come and go",
    "calls": "Calls for a send",
    "start": "Start",
    "memory": "Memory",
    "growth": "Growth",
    "delayed": "Messages that wait",
    "transactions": "Transactions",
    "pops": "Pops",
    "filters": "Filters",
    "grpc": "gRPC",
    "burst": "A burst beside another topic",
    "tables": "Requests about whole tables",
    "console": "The console",
    "sync": "Senders that wait for the disk",
    "recovery": "Starts after kill -9",
    "keys": "Look-ups by key",
    "mirror": "A mirror",
    "backup": "A backup",
    "client": "Clients",
    "spark": "PySpark's source",
}
# Medians of aerobee alone.
ALONE = ("client", "limit", "processes", "redistribution", "mirror", "backup", "spark")
CALLS_MAX = 12.0
IDLE_SECONDS = 2.0  # the period over which the idle fraction is measured
MISSED = "**no**"
HEAD = f"""# Performance

Each part says with which command it was measured, when and where. RocketMQ {ROCKETMQ_VERSION} ran
with a heap of 1 GiB unless the command says otherwise, ours with its defaults; both flush in the
background. One of them at a time was under load, in turns; each number is the median of the rounds,
after one to warm up. Bodies have 128 bytes unless a line says otherwise. Read the ratios: the
numbers move with the machine.

"""
_BLOCK = re.compile(r"<!-- (\w+): begin -->.*?<!-- \1: end -->", re.DOTALL)


@dataclass(slots=True)
class Measured:
    """The results of one part.

    `busy` is the load average of the machine when it began, `idle` how much of its cores no process
    used in the moment before, from 0 to 1.
    """

    busy: float
    compared: list[Compared] = field(default_factory=list)
    calls: dict[str, float] = field(default_factory=dict)  # by load
    grown: list[Growth] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    idle: float | None = None


def idle_share(seconds: float = IDLE_SECONDS) -> float | None:
    """The idle fraction of all cores in that time; None where the system doesn't report it."""
    before = _ticks()
    time.sleep(seconds)
    after = _ticks()
    if before is None or after is None or sum(after) <= sum(before):
        return None
    # The fourth number is idle, the fifth idle with the disk at work.
    unused = sum(after[3:5]) - sum(before[3:5])
    return unused / (sum(after) - sum(before))


def block(part: str, words: Sequence[str], rounds: int, found: Measured) -> str:
    """A part in Markdown, with MISSED at each mark that was not reached."""
    lines = [
        f"<!-- {part}: begin -->",
        f"## {PARTS[part]}",
        "",
        f"Written by `{_command(words)}` on {time.strftime('%Y-%m-%d')}: {_machine()}."
        + (
            f" Medians of {rounds}, in turns."
            if found.compared or found.grown or part in ALONE
            else ""
        )
        + f" The load average of the machine was {found.busy:.1f} when it began: that much other"
        " work ran beside it."
        + (f" Its cores were idle for {found.idle:.0%} then." if found.idle is not None else ""),
        "",
    ]
    if found.compared:
        titles = ("what", "RocketMQ", "aerobee", "ratio", "wanted", "reached", "")
        lines += table(titles, "lrrrlll", map(_compared, found.compared))
    if found.calls:
        rows = [
            (name, f"{number:.2f}", f"<= {CALLS_MAX:g}", _mark(number <= CALLS_MAX))
            for name, number in found.calls.items()
        ]
        lines += table(("calls of Python functions", "calls", "wanted", "reached"), "lrll", rows)
    if found.held:
        rows_held = [
            (row.name, row.value, row.wanted, _mark(row.holds) if row.wanted else "", row.note)
            for row in found.held
        ]
        lines += table(("what", "found", "wanted", "reached", ""), "lrlll", rows_held)
    if found.grown:
        rows_grown = [
            (
                *(row.name, f"{row.small:,.0f}", f"{row.grown:,.0f}"),
                *(f"{row.grown / row.small - 1:+.1%}", "> -10 %", _mark(row.holds)),
            )
            for row in found.grown
        ]
        heads = ("messages/s", "small", "grown", "change", "wanted", "reached")
        lines += table(heads, "lrrrll", rows_grown)
    return "\n".join([*lines, f"<!-- {part}: end -->", "", ""])


def merged(old: str, blocks: dict[str, str]) -> str:
    """The report: the new blocks, and the old report's blocks that were not measured now.

    The text before the first block stays. Blocks that other modules write (`timer_measures`) stay
    behind the blocks of this one.
    """
    first = _BLOCK.search(old)
    head = old[: first.start()] if first else HEAD
    found = {one[1]: f"{one[0]}\n\n" for one in _BLOCK.finditer(old)} | blocks
    order = [*PARTS, *(part for part in found if part not in PARTS)]
    return (head + "".join(found[part] for part in order if part in found)).rstrip("\n") + "\n"


def table(titles: Sequence[str], sides: str, rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table and an empty one; `sides` has l or r for each column."""
    lines = [titles, [{"l": "---", "r": "---:"}[side] for side in sides], *rows]
    return [*("| " + " | ".join(line) + " |" for line in lines), ""]


def _ticks() -> list[int] | None:
    """What all cores together have done since the start, by kind."""
    try:
        return [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return None


def _compared(row: Compared) -> tuple[str, ...]:
    digits = 2 if row.unit == "s" or row.unit.startswith("times") else 0
    return (
        *(f"{row.name}, {row.unit}", f"{row.java:,.{digits}f}", f"{row.ours:,.{digits}f}"),
        *(f"{row.ratio:.2f}", row.wanted, _mark(row.holds) if row.wanted else "", row.note),
    )


def _mark(holds: bool) -> str:
    return "yes" if holds else MISSED


def _command(words: Sequence[str]) -> str:
    """The command that repeats it."""
    # Leave the folder out: elsewhere it means nothing.
    words = list(words)
    if "--scratch" in words:
        at = words.index("--scratch")
        words = words[:at] + words[at + 2 :]
    if "--cpp-python" in words:
        words[words.index("--cpp-python") + 1] = "PATH"
    return shlex.join(["scripts/bench", *words])


def _machine() -> str:
    said = ""
    with suppress(FileNotFoundError):
        said = subprocess.run(
            ["java", "-version"],  # noqa: S607 - the java that the run used
            capture_output=True,
            text=True,
            check=False,
        ).stderr
    version = said.split('"')[1] if '"' in said else "none"
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, Java {version}"
