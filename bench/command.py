"""The benchmark: ours beside the real Java broker, in one run, in turns, a table for each part.

Every number is a median of rounds on both sides; what counts is the ratio, for it moves less than
the numbers do with the machine and what else it is doing.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ..harness import java_side
from ..harness.clusters import JAVA_BROKER_FLAGS
from . import (
    clients,
    console_pages,
    copies,
    disk,
    filters,
    footprint,
    groups,
    lake_tables,
    proxies,
    rates,
    redistribution,
    replicas,
    spark_source,
    tails,
    timers,
)
from .loads import loadgen
from .report import MISSED, Row, block, idle_share, merged
from .turns import Run

REPORT = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
BY_NAME_ONLY = ("timers",)
# What is measured, in the order of the report: heading, and what gives the rows.
PARTS: dict[str, tuple[str, Callable[[Run], list[Row]]]] = {
    "rates": ("Sends and pulls", partial(rates.both, name="rates")),
    "limit": ("What one thread reaches", rates.limits),
    "access": ("Sends with access control", rates.access),
    "tls": ("Sends over TLS", partial(rates.both, name="tls")),
    "brokers": ("Two brokers on one machine", groups.brokers),
    "processes": ("Groups of brokers", groups.groups),
    "replication": ("A master with a slave", replicas.replication),
    "failover": ("Controller mode", replicas.failover),
    "redistribution": ("When members and brokers come and go", redistribution.redistribution),
    "calls": ("Calls for a send", footprint.calls),
    "start": ("Start", footprint.starts),
    "memory": ("Memory", footprint.memory),
    "growth": ("Growth", rates.growth),
    "delayed": ("Messages that wait", partial(rates.both, name="delayed")),
    "transactions": ("Transactions", partial(rates.both, name="transactions")),
    "pops": ("Pops", partial(rates.both, name="pops")),
    "filters": ("Filters", filters.filters),
    "grpc": ("gRPC", proxies.proxies),
    "burst": ("A burst beside another topic", tails.burst),
    "tables": ("Requests about whole tables", tails.tables),
    "console": ("The console", console_pages.console),
    "sync": ("Senders that wait for the disk", partial(rates.both, name="sync")),
    "recovery": ("Starts after kill -9", disk.recovery),
    "keys": ("Look-ups by key", disk.keys),
    "mirror": ("A mirror", copies.mirrors),
    "backup": ("A backup", copies.backups),
    "client": ("Clients", clients.beside),
    "spark": ("PySpark's source", spark_source.source),
    "lake": ("Tables of a lake", lake_tables.lake),
    "timers": ("Timer messages", timers.timers),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measures what was asked for; 0 if all of it reached its mark, 1 if not, 2 if it could not."""
    words = list(sys.argv[1:] if argv is None else argv)
    options = read_options(words)
    folder = Path(tempfile.mkdtemp(prefix="aerobee-bench-", dir=options.scratch))
    try:
        if options.only != ["spark"]:  # which fills its topics through our client
            loadgen.check_source(options.loadgen)
        # Else the first broker would go without its machine code for the first part.
        if importlib.util.find_spec("numba") is not None:
            subprocess.run([sys.executable, "-m", "aerobee.broker.send.engine"], check=True)
        blocks = {part: _measure(part, Run(folder, options), words) for part in options.only}
    except (java_side.JavaMissing, java_side.NotCompiled, loadgen.LoadFailed) as why:
        print(f"bench: {why}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = "".join(blocks.values())
    print(text)
    if options.write:
        REPORT.parent.mkdir(exist_ok=True)
        REPORT.write_text(merged(REPORT.read_text() if REPORT.exists() else "", blocks, PARTS))
    return 0 if MISSED not in text else 1


def read_options(words: list[str]) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description="Measures aerobee beside the real RocketMQ broker."
    )
    add = parser.add_argument
    add("--loadgen", type=Path, default=loadgen.DEFAULT_SOURCE, metavar="PATH")
    add("--quick", action="store_true", help="a tenth of the load, one round")
    add("--rounds", type=int, default=3)
    add("--load", type=float, default=1.0, metavar="PART", help="of the full load, 0.3 for a third")
    usual = [part for part in PARTS if part not in BY_NAME_ONLY]
    add("--only", nargs="+", choices=PARTS, default=usual)
    add("--stored", type=int, default=0, metavar="N", help="growth: also with N stored messages")
    log = "recovery, failover, backup: the size of a log"
    add("--gib", type=float, default=1.0, metavar="N", help=log)
    keyed = "store: messages to look up in"
    add("--keyed", type=int, default=10_000_000, metavar="N", help=keyed)
    add("--messages", type=int, default=rates.MILLION, help="for the memory, and with timers")
    add("--fill-rate", type=int, default=10_000, help="timers: sends a second, at least")
    cpp = "client: a Python that has rocketmq-client-python and its librocketmq"
    add("--cpp-python", type=Path, metavar="PATH", help=cpp)
    add("--java-flags", default=" ".join(JAVA_BROKER_FLAGS))
    add("--scratch", type=Path, help="a folder on the disk to measure")
    add("--write", action="store_true", help=f"writes docs/{REPORT.name}")
    return parser.parse_args(words)


def _measure(part: str, run: Run, words: list[str]) -> str:
    """A part of the report in Markdown; leaves the folder empty."""
    load, idle = os.getloadavg()[0], idle_share()
    heading, measure = PARTS[part]
    rows = measure(run)
    for each in run.folder.iterdir():
        if each.is_dir():
            shutil.rmtree(each)
    return block(part, heading, words, run.rounds, rows, load, idle)


if __name__ == "__main__":
    sys.exit(main())
