"""The benchmark: ours beside the real Java broker, in one run, in turns, as one table.

Every number is a median of rounds on both sides; what counts is the ratio, for it moves less than
the numbers do with the machine and what else it is doing.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from . import (
    burst_measures,
    filter_measures,
    java_side,
    loadgen,
    measures,
    spark_measures,
    store_measures,
    transaction_measures,
)
from .clusters import JAVA_BROKER_FLAGS, AerobeeCluster, JavaCluster
from .measures import Compared, Growth
from .store_measures import Held

# Parts about the store, and the one about Spark. Each is written by itself, because its runs take
# long: heading, what it is.
STORE_PARTS = {
    "sync": "Senders that wait for the disk",
    "recovery": "Starts after kill -9",
    "keys": "Look-ups by key",
    "spark": "PySpark's source",
}
PARTS = (
    *("rates", "delayed", "pops", "transactions", "filters", "burst"),
    *("start", "memory", "calls", "growth", *STORE_PARTS),
)
REPORT = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
CALLS_MAX = 12.0
MISSED = "**no**"
_BLOCK = re.compile(r"<!-- (\w+): begin -->.*?<!-- \1: end -->", re.DOTALL)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures what was asked for; 0 if all of it reached its mark, 1 if not, 2 if it could not."""
    words = list(sys.argv[1:] if argv is None else argv)
    options = read_options(words)
    folder = Path(tempfile.mkdtemp(prefix="aerobee-bench-", dir=options.scratch))
    try:
        text = _measure(options, folder, words) if set(options.only) - {*STORE_PARTS} else ""
        store = _measure_store(options, folder, words)
    except (java_side.JavaMissing, java_side.NotCompiled, loadgen.LoadFailed) as why:
        print(f"bench: {why}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(text + "".join(store.values()))
    if options.write:
        REPORT.parent.mkdir(exist_ok=True)
        REPORT.write_text(merged(REPORT.read_text() if REPORT.exists() else "", text, store))
    return 0 if MISSED not in text + "".join(store.values()) else 1


def read_options(words: list[str]) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description="Measures aerobee beside the real RocketMQ broker."
    )
    parser.add_argument("--loadgen", type=Path, default=loadgen.DEFAULT_SOURCE, metavar="PATH")
    parser.add_argument("--quick", action="store_true", help="a tenth of the load, one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--load", type=float, default=1.0, metavar="PART", help="of the full load, 0.3 for a third"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--stored", type=int, default=0, metavar="N", help="growth: also with N stored messages"
    )
    parser.add_argument(
        "--gib", type=float, default=1.0, metavar="N", help="store: the size of a log to recover"
    )
    parser.add_argument(
        "--keyed", type=int, default=10_000_000, metavar="N", help="store: messages to look up in"
    )
    parser.add_argument("--messages", type=int, default=measures.MILLION, help="for the memory")
    parser.add_argument("--java-flags", default=" ".join(JAVA_BROKER_FLAGS))
    parser.add_argument("--scratch", type=Path, help="a folder on the disk to measure")
    parser.add_argument("--write", action="store_true", help=f"writes docs/{REPORT.name}")
    return parser.parse_args(words)


def _measure(options: argparse.Namespace, folder: Path, words: list[str]) -> str:
    program = loadgen.build(options.loadgen, folder)
    flags = tuple(shlex.split(options.java_flags))
    rounds, scale = (1, 0.1) if options.quick else (options.rounds, options.load)
    compared: list[Compared] = []
    grown: list[Growth] = []
    calls: dict[str, float] = {}
    if "rates" in options.only:
        java, ours = JavaCluster(folder / "java", flags=flags), AerobeeCluster(folder / "ours")
        try:
            java.start()
            ours.start()
            compared += measures.rates(java, ours, program, rounds, scale, _say)
        finally:
            java.stop()
            ours.stop()
        _clear(folder)
    if "delayed" in options.only:
        programs = [loadgen.build(options.loadgen, folder, extra) for _, extra in measures.DELAYED]
        java, ours = JavaCluster(folder / "java", flags=flags), AerobeeCluster(folder / "ours")
        try:
            java.start()
            ours.start()
            compared += measures.delayed(java, ours, programs, rounds, scale, _say)
        finally:
            java.stop()
            ours.stop()
        _clear(folder)
    if "burst" in options.only:
        java, ours = JavaCluster(folder / "java", flags=flags), AerobeeCluster(folder / "ours")
        try:
            java.start()
            ours.start()
            compared.append(burst_measures.burst(java, ours, program, rounds, scale, _say))
        finally:
            java.stop()
            ours.stop()
        _clear(folder)
    if "transactions" in options.only:
        java, ours = JavaCluster(folder / "java", flags=flags), AerobeeCluster(folder / "ours")
        try:
            java.start()
            ours.start()
            compared += transaction_measures.transactions(java, ours, rounds, scale, _say)
        finally:
            java.stop()
            ours.stop()
        _clear(folder)
    if "pops" in options.only:
        java, ours = JavaCluster(folder / "java", flags=flags), AerobeeCluster(folder / "ours")
        try:
            java.start()
            ours.start()
            compared += measures.pops(java, ours, program, rounds, scale, _say)
        finally:
            java.stop()
            ours.stop()
        _clear(folder)
    held: list[Held] = []
    if "filters" in options.only:
        settings = filter_measures.SETTINGS
        java = JavaCluster(folder / "java", settings, flags=flags)
        ours = AerobeeCluster(folder / "ours", settings)
        try:
            java.start()
            ours.start()
            compared += filter_measures.pulls(
                java, ours, options.loadgen, folder, rounds, scale, _say
            )
        finally:
            java.stop()
            ours.stop()
        held = filter_measures.evaluations(rounds, _say)
        _clear(folder)
    if "start" in options.only:
        compared.append(measures.starts(folder, rounds, flags, _say))
        _clear(folder)
    if "memory" in options.only:
        compared += measures.memory(folder, program, options.messages, flags, _say)
        _clear(folder)
    if "calls" in options.only:
        calls = measures.calls_per_send(folder, program, 20_000, _say)
        _clear(folder)
    if "growth" in options.only:
        grown = measures.growth(folder, program, rounds, scale, options.stored, _say)
    return report(words, options, compared, calls, grown, held)


def _measure_store(options: argparse.Namespace, folder: Path, words: list[str]) -> dict[str, str]:
    """What was asked for of the parts about the store, in Markdown, by part."""
    parts = [part for part in STORE_PARTS if part in options.only]
    if not parts:
        return {}
    # The part about Spark fills its topics through our client.
    program = folder if parts == ["spark"] else loadgen.build(options.loadgen, folder)
    flags = tuple(shlex.split(options.java_flags))
    rounds, scale = (1, 0.1) if options.quick else (options.rounds, options.load)
    gib = options.gib / 10 if options.quick else options.gib
    keyed = options.keyed // 100 if options.quick else options.keyed
    found = {}
    for part in parts:
        busy = os.getloadavg()[0]
        compared: list[Compared] = []
        held: list[Held] = []
        if part == "sync":
            compared = [store_measures.sync_sends(folder, program, rounds, scale, flags, _say)]
        elif part == "recovery":
            compared = store_measures.recovery(folder, program, rounds, gib, flags, _say)
        elif part == "keys":
            held = store_measures.keys(folder, keyed, _say)
        else:
            held = spark_measures.source(folder, rounds, scale, _say)
        _clear(folder)
        found[part] = store_report(part, words, rounds, compared, held, busy)
    return found


def store_report(
    part: str,
    words: list[str],
    rounds: int,
    compared: list[Compared],
    held: list[Held],
    busy: float,
) -> str:
    """A part about the store, in Markdown. `busy` is the load average when it began."""
    lines = [
        _begin(part),
        f"## {STORE_PARTS[part]}",
        "",
        f"Written by `{_command(words)}` on {time.strftime('%Y-%m-%d')}: {_machine()}."
        + (f" Numbers are medians of {rounds}, in turns." if compared else "")
        + f" The load average of the machine was {busy:.1f} when it began: that much other work"
        " ran beside it.",
        "",
        *(_table(compared) if compared else ()),
    ]
    if held:
        lines += _held(held)
    return "\n".join([*lines, _end(part), "", ""])


def merged(old: str, text: str, store: dict[str, str]) -> str:
    """The report: what was measured now, and from the old one what was not.

    Blocks that others write (`timer_measures`) stay as they are, behind ours.
    """
    kept = {found[1]: f"{found[0]}\n\n" for found in _BLOCK.finditer(old)}
    first = _BLOCK.search(old)
    before = old if first is None else old[: first.start()]
    found = {**kept, **store}
    order = [*STORE_PARTS, *(part for part in found if part not in STORE_PARTS)]
    blocks = "".join(found[part] for part in order if part in found)
    return ((text or before).rstrip("\n") + "\n\n" + blocks).rstrip("\n") + "\n"


def _begin(part: str) -> str:
    return f"<!-- {part}: begin -->"


def _end(part: str) -> str:
    return f"<!-- {part}: end -->"


def report(
    words: list[str],
    options: argparse.Namespace,
    compared: list[Compared],
    calls: dict[str, float],
    grown: list[Growth],
    held: Sequence[Held] = (),
) -> str:
    """The report in Markdown, with MISSED at each mark that was not reached."""
    lines = [
        "# Performance",
        "",
        f"Written by `{_command(words)}` on {time.strftime('%Y-%m-%d')}: {_machine()}.",
        f"RocketMQ {java_side.ROCKETMQ_VERSION} ran with `{options.java_flags}`, ours with its"
        " defaults; both flush in the background. One of them at a time was under load, in turns;"
        f" each number is the median of {1 if options.quick else options.rounds}, after a run to"
        " warm up. Bodies have 128 bytes unless a line says otherwise. Read the ratios: the"
        " numbers move with the machine.",
        "",
    ]
    if compared:
        lines += _table(compared)
    if calls:
        lines += [
            "Python-level calls of the broker for each SEND, counted by the interpreter"
            " (`scripts/call_count.py`):",
            "",
            "| load | calls | wanted | reached |",
            "| --- | ---: | --- | --- |",
            *(
                f"| {name} | {number:.2f} | <= {CALLS_MAX:g} | {_mark(number <= CALLS_MAX)} |"
                for name, number in calls.items()
            ),
            "",
        ]
    if held:
        lines += ["SQL92 expressions over a message with nine properties:", "", *_held(held)]
    if grown:
        lines += [
            "What growing changes, messages a second, a small broker and a grown one in turns:",
            "",
            "| what | small | grown | change | wanted | reached |",
            "| --- | ---: | ---: | ---: | --- | --- |",
            *(
                f"| {row.name} | {row.small:,.0f} | {row.grown:,.0f}"
                f" | {row.grown / row.small - 1:+.1%} | > -10 % | {_mark(row.holds)} |"
                for row in grown
            ),
            "",
        ]
    return "\n".join(lines)


def _command(words: list[str]) -> str:
    """The command that repeats it."""
    # Which folder was used says nothing to a reader who repeats it elsewhere.
    if "--scratch" in words:
        at = words.index("--scratch")
        words = words[:at] + words[at + 2 :]
    return shlex.join(["scripts/bench", *words])


def _held(rows: Sequence[Held]) -> list[str]:
    return [
        "| what | found | wanted | reached | |",
        "| --- | ---: | --- | --- | --- |",
        *(
            f"| {row.name} | {row.value} | {row.wanted}"
            f" | {_mark(row.holds) if row.wanted else ''} | {row.note} |"
            for row in rows
        ),
        "",
    ]


def _table(compared: list[Compared]) -> list[str]:
    return [
        "| what | RocketMQ | aerobee | ratio | wanted | reached | |",
        "| --- | ---: | ---: | ---: | --- | --- | --- |",
        *map(_compared, compared),
        "",
    ]


def _compared(row: Compared) -> str:
    digits = 2 if row.unit == "s" else 0
    mark = _mark(row.holds) if row.wanted else ""
    return (
        f"| {row.name}, {row.unit} | {row.java:,.{digits}f} | {row.ours:,.{digits}f}"
        f" | {row.ratio:.2f} | {row.wanted} | {mark} | {row.note} |"
    )


def _mark(holds: bool) -> str:
    return "yes" if holds else MISSED


def _machine() -> str:
    java = subprocess.run(
        ["java", "-version"],  # noqa: S607 - the java that the run used
        capture_output=True,
        text=True,
        check=False,
    ).stderr.splitlines()
    version = java[0].split('"')[1] if java and '"' in java[0] else "none"
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, Java {version}"


def _clear(folder: Path) -> None:
    for each in folder.iterdir():
        if each.is_dir():
            shutil.rmtree(each)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
