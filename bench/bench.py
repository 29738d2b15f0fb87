"""The benchmark: ours beside the real Java broker, in one run, in turns, a table for each part.

Every number is a median of rounds on both sides; what counts is the ratio, for it moves less than
the numbers do with the machine and what else it is doing.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..harness import java_side
from ..harness.clusters import JAVA_BROKER_FLAGS, AerobeeCluster, JavaCluster
from . import (
    access_measures,
    broker_measures,
    burst_measures,
    client_measures,
    console_measures,
    failover_measures,
    filter_measures,
    grpc_measures,
    limit_measures,
    measures,
    redistribution_measures,
    replication_measures,
    spark_measures,
    store_measures,
    table_measures,
    transaction_measures,
)
from .bench_report import MISSED, PARTS, Measured, block, idle_share, merged
from .loads import loadgen

# The parts that compare a Java cluster and ours, both running.
BESIDE = frozenset(
    {"rates", "access", "delayed", "burst", "transactions", "pops", "filters", "client"}
)
Effort = tuple[int, float]  # rounds, and the part of the usual load
REPORT = Path(__file__).resolve().parents[1] / "docs" / "performance.md"


def main(argv: Sequence[str] | None = None) -> int:
    """Measures what was asked for; 0 if all of it reached its mark, 1 if not, 2 if it could not."""
    words = list(sys.argv[1:] if argv is None else argv)
    options = read_options(words)
    folder = Path(tempfile.mkdtemp(prefix="aerobee-bench-", dir=options.scratch))
    try:
        if options.only != ["spark"]:  # which fills its topics through our client
            loadgen.look_for(options.loadgen)
        # Else the first broker would go without its machine code for the first part.
        if importlib.util.find_spec("numba") is not None:
            subprocess.run([sys.executable, "-m", "aerobee.broker.send.engine"], check=True)
        blocks = {part: _measure(part, options, folder, words) for part in options.only}
    except (java_side.JavaMissing, java_side.NotCompiled, loadgen.LoadFailed) as why:
        print(f"bench: {why}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = "".join(blocks.values())
    print(text)
    if options.write:
        REPORT.parent.mkdir(exist_ok=True)
        REPORT.write_text(merged(REPORT.read_text() if REPORT.exists() else "", blocks))
    return 0 if MISSED not in text else 1


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
        "--gib",
        type=float,
        default=1.0,
        metavar="N",
        help="recovery, failover, backup: the size of a log",
    )
    parser.add_argument(
        "--keyed", type=int, default=10_000_000, metavar="N", help="store: messages to look up in"
    )
    parser.add_argument("--messages", type=int, default=measures.MILLION, help="for the memory")
    parser.add_argument(
        "--cpp-python",
        type=Path,
        metavar="PATH",
        help="client: a Python that has rocketmq-client-python and its librocketmq",
    )
    parser.add_argument("--java-flags", default=" ".join(JAVA_BROKER_FLAGS))
    parser.add_argument("--scratch", type=Path, help="a folder on the disk to measure")
    parser.add_argument("--write", action="store_true", help=f"writes docs/{REPORT.name}")
    return parser.parse_args(words)


def _measure(part: str, options: argparse.Namespace, folder: Path, words: list[str]) -> str:
    """A part of the report in Markdown; leaves the folder empty."""
    flags = tuple(shlex.split(options.java_flags))
    rounds, scale = (1, 0.1) if options.quick else (options.rounds, options.load)
    found = Measured(os.getloadavg()[0], idle=idle_share())
    # The part about Spark fills its topics through our client.
    program = folder if part == "spark" else loadgen.build(options.loadgen, folder)

    @contextmanager
    def both(
        settings: dict[str, str | int] | None = None,
    ) -> Iterator[tuple[JavaCluster, AerobeeCluster]]:
        java = JavaCluster(folder / "java", settings, flags=flags)
        ours = AerobeeCluster(folder / "ours", settings)
        try:
            java.start()
            ours.start()
            yield java, ours
        finally:
            java.stop()
            ours.stop()

    if part in BESIDE:
        settings = {"filters": filter_measures.SETTINGS, "access": access_measures.settings(folder)}
        with both(settings.get(part)) as sides:
            _measure_beside(part, options, folder, program, sides, (rounds, scale), found)
    else:
        _measure_alone(part, options, folder, program, flags, (rounds, scale), found)
    for each in folder.iterdir():
        if each.is_dir():
            shutil.rmtree(each)
    return block(part, words, rounds, found)


def _measure_beside(
    part: str,
    options: argparse.Namespace,
    folder: Path,
    program: Path,
    sides: tuple[JavaCluster, AerobeeCluster],
    effort: Effort,
    found: Measured,
) -> None:
    """Fill `found` with a part that needs both clusters, which are running."""
    rounds, scale = effort
    if part == "rates":
        found.compared = measures.rates(*sides, program, rounds, scale, _say)
    elif part == "access":
        found.compared = access_measures.signed_sends(*sides, rounds, scale, _say)
        found.held = [access_measures.cost(folder, rounds, scale, _say)]
    elif part == "delayed":
        programs = [loadgen.build(options.loadgen, folder, extra) for _, extra in measures.DELAYED]
        found.compared = measures.delayed(*sides, programs, rounds, scale, _say)
    elif part == "burst":
        found.compared = [burst_measures.burst(*sides, program, rounds, scale, _say)]
    elif part == "transactions":
        found.compared = transaction_measures.transactions(*sides, rounds, scale, _say)
    elif part == "pops":
        found.compared = measures.pops(*sides, program, rounds, scale, _say)
    elif part == "filters":
        found.compared = filter_measures.pulls(*sides, options.loadgen, folder, rounds, scale, _say)
        found.held = filter_measures.evaluations(rounds, _say)
    else:
        compared = client_measures.clients(options.cpp_python)
        found.held = client_measures.beside(sides, compared, program, folder, rounds, scale, _say)
        found.held.append(client_measures.idle(sides[1], folder))


def _measure_alone(
    part: str,
    options: argparse.Namespace,
    folder: Path,
    program: Path,
    flags: tuple[str, ...],
    effort: Effort,
    found: Measured,
) -> None:
    """Fill `found` with a part that starts its own brokers, or none."""
    rounds, scale = effort
    if part == "limit":
        source = options.loadgen.with_name("limit.c")
        found.held = limit_measures.limits(folder, program, source, rounds, scale, _say)
    elif part == "brokers":
        found.compared = broker_measures.brokers(folder, program, rounds, scale, flags, _say)
    elif part == "processes":
        found.held = broker_measures.groups(folder, program, rounds, scale, _say)
    elif part == "tls":
        found.compared = access_measures.tls_sends(folder, rounds, scale, flags, _say)
    elif part == "mirror":
        found.held = replication_measures.mirrors(folder, program, rounds, scale, _say)
    elif part == "backup":
        gib = options.gib / 10 if options.quick else options.gib
        found.held = replication_measures.backups(folder, program, rounds, scale, gib, _say)
    elif part == "replication":
        found.compared = replication_measures.replication(
            folder, program, rounds, scale, flags, _say
        )
    elif part == "failover":
        gib = options.gib / 10 if options.quick else options.gib
        found.compared, found.held = failover_measures.failover(
            folder, program, rounds, scale, gib, flags, _say
        )
    elif part == "redistribution":
        found.held = redistribution_measures.redistribution(folder, rounds, _say)
        found.held += redistribution_measures.kills(folder, rounds, _say)
    elif part == "tables":
        found.compared, found.held = table_measures.tables(
            folder, program, rounds, scale, flags, _say
        )
    elif part == "grpc":
        found.compared, found.held = grpc_measures.proxies(
            folder, program, rounds, scale, flags, _say
        )
    elif part == "console":
        found.held = console_measures.console(folder, program, rounds, scale, flags, _say)
    elif part == "start":
        found.compared = [measures.starts(folder, rounds, flags, _say)]
    elif part == "memory":
        found.compared = measures.memory(folder, program, options.messages, flags, _say)
    elif part == "calls":
        found.calls = measures.calls_per_send(folder, program, 20_000, _say)
    elif part == "growth":
        found.grown = measures.growth(folder, program, rounds, scale, options.stored, _say)
    elif part == "sync":
        found.compared = [store_measures.sync_sends(folder, program, rounds, scale, flags, _say)]
    elif part == "recovery":
        gib = options.gib / 10 if options.quick else options.gib
        found.compared = store_measures.recovery(folder, program, rounds, gib, flags, _say)
        found.held = [store_measures.restarts(folder, program, 2 * gib, _say)]
    elif part == "keys":
        keyed = options.keyed // 100 if options.quick else options.keyed
        found.held = store_measures.keys(folder, keyed, _say)
    else:
        found.held = spark_measures.source(folder, rounds, scale, _say)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
