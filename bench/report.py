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
from dataclasses import dataclass
from operator import ge, gt, le, lt
from pathlib import Path
from typing import ClassVar

from ..harness.java_side import ROCKETMQ_VERSION

# Parts that are measured once; the rows of all others are medians.
ONCE = ("calls", "console", "keys")
IDLE_SECONDS = 2.0  # the period over which the idle fraction is measured
MISSED = "**no**"
CALLS_MARK, GROWTH_MARK = "<= 12", "> -10 %"
HEAD = f"""# Performance

Each part says with which command it was measured, when and where. RocketMQ {ROCKETMQ_VERSION} ran
with a heap of 1 GiB unless the command says otherwise, ours with its defaults; both flush in the
background. One of them at a time was under load, in turns; each number is the median of the rounds,
after one to warm up. Bodies have 128 bytes unless a line says otherwise. Read the ratios: the
numbers move with the machine.

"""
SIGNS = {">=": ge, ">": gt, "<=": le, "<": lt}
_MARK = re.compile(r"([<>]=?) ([\d,.]+)")
_BLOCK = re.compile(r"<!-- (\w+): begin -->.*?<!-- \1: end -->", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Compared:
    """A row for both. `wanted` is the mark of the ratio, or of our number of times, as text."""

    name: str
    unit: str
    java: float
    ours: float
    wanted: str = ""
    note: str = ""
    titles: ClassVar = ("what", "RocketMQ", "aerobee", "ratio", "wanted", "reached", "")
    sides: ClassVar = "lrrrlll"

    @property
    def ratio(self) -> float:
        """aerobee's value divided by Java's."""
        return self.ours / self.java

    @property
    def holds(self) -> bool:
        """True if the mark was reached."""
        return reaches(self.ours if self.unit.startswith("times") else self.ratio, self.wanted)

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        digits = 2 if self.unit == "s" or self.unit.startswith("times") else 0
        values = (f"{value:,.{digits}f}" for value in (self.java, self.ours))
        return (
            f"{self.name}, {self.unit}",
            *values,
            f"{self.ratio:.2f}",
            self.wanted,
            _mark(self.holds, self.wanted),
            self.note,
        )


@dataclass(frozen=True, slots=True)
class Calls:
    """A row of the calls of Python functions for each send."""

    name: str
    calls: float
    titles: ClassVar = ("calls of Python functions", "calls", "wanted", "reached")
    sides: ClassVar = "lrll"

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        reached = _mark(reaches(self.calls, CALLS_MARK), CALLS_MARK)
        return self.name, f"{self.calls:.2f}", CALLS_MARK, reached


@dataclass(frozen=True, slots=True)
class Held:
    """A row for aerobee alone, compared with a mark."""

    name: str
    value: str
    wanted: str = ""
    holds: bool = True
    note: str = ""
    titles: ClassVar = ("what", "found", "wanted", "reached", "")
    sides: ClassVar = "lrlll"

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        return self.name, self.value, self.wanted, _mark(self.holds, self.wanted), self.note


@dataclass(frozen=True, slots=True)
class Growth:
    """A row for aerobee alone: a rate before and after the store has grown."""

    name: str
    small: float
    grown: float
    titles: ClassVar = ("messages/s", "small", "grown", "change", "wanted", "reached")
    sides: ClassVar = "lrrrll"

    @property
    def holds(self) -> bool:
        """Less than a tenth slower."""
        return self.grown > 0.9 * self.small

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        rates = f"{self.small:,.0f}", f"{self.grown:,.0f}"
        change = f"{self.grown / self.small - 1:+.1%}"
        return self.name, *rates, change, GROWTH_MARK, _mark(self.holds, GROWTH_MARK)


Row = Compared | Calls | Held | Growth
KINDS = (Compared, Calls, Held, Growth)  # a table for each, in this order


def held(name: str, value: float, form: str, wanted: str = "", note: str = "") -> Held:
    """The row of a value: `form` is for `str.format`."""
    return Held(name, form.format(value), wanted, reaches(value, wanted), note)


def reaches(value: float, wanted: str) -> bool:
    """True if a value reaches a mark such as ">= 2,000/s"; every one reaches the empty mark."""
    if not wanted:
        return True
    mark = _MARK.match(wanted)
    return mark is not None and SIGNS[mark[1]](value, float(mark[2].replace(",", "")))


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


def block(
    part: str,
    heading: str,
    words: Sequence[str],
    rounds: int,
    rows: Sequence[Row],
    load: float,
    idle: float | None,
) -> str:
    """A part in Markdown, with MISSED at each mark that was not reached.

    `load` is the load average of the machine when the part began, `idle` how much of its cores no
    process used in the moment before, from 0 to 1.
    """
    lines = [
        f"<!-- {part}: begin -->",
        f"## {heading}",
        "",
        f"Written by `{_command(words)}` on {time.strftime('%Y-%m-%d')}: {_machine()}."
        + (f" Medians of {rounds}, in turns." if part not in ONCE else "")
        + f" The load average of the machine was {load:.1f} when it began: that much other"
        " work ran beside it."
        + (f" Its cores were idle for {idle:.0%} then." if idle is not None else ""),
        "",
    ]
    for kind in KINDS:
        if cells := [row.cells() for row in rows if isinstance(row, kind)]:
            lines += table(kind.titles, kind.sides, cells)
    return "\n".join([*lines, f"<!-- {part}: end -->", "", ""])


def merged(old: str, blocks: dict[str, str], parts: Iterable[str]) -> str:
    """The report: the new blocks, and the old report's blocks that were not measured now.

    The blocks stand in the order of `parts`, others behind them. The text before the first block
    stays.
    """
    first = _BLOCK.search(old)
    head = old[: first.start()] if first else HEAD
    found = {one[1]: f"{one[0]}\n\n" for one in _BLOCK.finditer(old)} | blocks
    order = dict.fromkeys([*parts, *found])
    return (head + "".join(found[part] for part in order if part in found)).rstrip("\n") + "\n"


def table(titles: Sequence[str], sides: str, rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table and an empty one; `sides` has l or r for each column."""
    lines = [titles, [{"l": "---", "r": "---:"}[side] for side in sides], *rows]
    return [*("| " + " | ".join(line) + " |" for line in lines), ""]


def _ticks() -> list[int] | None:
    """The ticks of all cores together since the start, by kind of work."""
    try:
        return [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except (OSError, ValueError):
        return None


def _mark(holds: bool, wanted: str) -> str:
    return ("yes" if holds else MISSED) if wanted else ""


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
