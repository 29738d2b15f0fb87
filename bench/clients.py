"""Measures of `scripts/bench --only client`: clients compared at the same broker.

A producer of 128-byte messages on one connection with a fixed number of pending sends, and a push
consumer of a full topic; messages a second, one process each. Our client on the stock loop, on
uvloop and from threads, Java's client, and with `--cpp-python` the C++ binding; at our broker and
at Java's, one client at a time, in rounds, each with a warm-up of a fifth. Also the memory of an
idle consumer.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..harness import java_side
from ..harness.child import Reporter
from ..harness.clusters import Cluster
from .loads import loadgen
from .report import Held, Row, held
from .turns import Result, Run, resident_mib, running, say

# Messages, and the mark of our client at our broker, a second from one process.
WORK = {"send": (150_000, ">= 60,000/s"), "receive": (400_000, ">= 150,000/s")}
SLOW_PART = 5  # slow clients do this fraction of the work
IN_FLIGHT, THREADS = 256, 64
SECONDS_MAX = 300
FILLS_MAX = 5
TOPIC = "ClientLoad"


@dataclass(frozen=True)
class Client:
    """A client and how to start its process, with the arguments of clientgen."""

    name: str
    start: Callable[[Path, list[str]], Reporter]
    in_flight: int
    how: str
    part: int = 1


def _ours(kind: str, folder: Path, words: list[str]) -> Reporter:
    argv = [sys.executable, "-m", "aerobee.bench.loads.clientgen", "--client", kind, *words]
    return Reporter(argv, folder / "clientgen.stderr", cwd=folder)


def _java(folder: Path, words: list[str]) -> Reporter:
    return java_side.start("Speed", *words, home=folder / "client", flags=("-server", "-Xmx1g"))


def _cpp(python: Path, folder: Path, words: list[str]) -> Reporter:
    argv = [str(python), str(Path(__file__).parent / "loads" / "cppgen.py"), *words]
    return Reporter(argv, folder / "cppgen.stderr", {"HOME": str(folder)}, folder)


def clients(cpp_python: Path | None) -> list[Client]:
    """The clients to compare."""
    many, threads = f"{IN_FLIGHT} under way", f"{THREADS} threads"
    found = [
        Client("ours on uvloop", partial(_ours, "uvloop"), IN_FLIGHT, many),
        Client("ours on the stock loop", partial(_ours, "asyncio"), IN_FLIGHT, many),
        Client("ours, blocking", partial(_ours, "blocking"), THREADS, threads, SLOW_PART),
        Client("Java's 5.3.3", _java, IN_FLIGHT, many),
    ]
    if cpp_python is not None:
        start = partial(_cpp, cpp_python)
        found.append(Client("the C++ binding", start, THREADS, threads, SLOW_PART))
    return found


def beside(run: Run) -> list[Row]:
    """The rows at our broker, at Java's, and of an idle consumer."""
    compared = clients(run.options.cpp_python)
    java, ours = run.java(), run.ours()
    rows: list[Row] = []
    with running(java, ours):
        for side in (ours, java):
            loadgen.create_topic(side.broker, TOPIC)
            _fill(run, side, round(WORK["receive"][0] * run.scale * 1.25))
            for what, (count, wanted) in WORK.items():
                found: dict[str, list[Result]] = {client.name: [] for client in compared}
                for number in range(run.rounds):
                    for at, client in enumerate(compared):
                        messages = round(count * run.scale / client.part)
                        words = ["--what", what, "--namesrv", side.namesrv, "--topic", TOPIC]
                        words += ["--count", str(messages), "--in-flight", str(client.in_flight)]
                        words += ["--group", f"Round-{number}-{at}"]
                        with client.start(run.folder, words) as child:
                            result = child.wait_event("rate", SECONDS_MAX)
                        found[client.name].append(result)
                        rate = result["count"] / result["seconds"]
                        say(f"{what}s at {side.kind}, {client.name}: {rate:,.0f}/s")
                for client in compared:
                    is_marked = side is ours and client is compared[0]
                    mark = wanted if is_marked else ""
                    rows.append(client_row(client, side.kind, what, found[client.name], mark))
        rows.append(_idle(run, ours))
    return rows


def _idle(run: Run, side: Cluster) -> Held:
    """The memory of an idle consumer."""
    words = ["--what", "idle", "--namesrv", side.namesrv, "--topic", TOPIC, "--group", "Idle"]
    with _ours("asyncio", run.folder, words) as child:
        child.wait_event("idle", SECONDS_MAX)
        mib = resident_mib(child.pid)["VmRSS"]
    return held("Resident memory of an idle consumer", mib, "{:.0f} MiB", "< 40 MiB")


def _fill(run: Run, side: Cluster, messages: int) -> None:
    """Fill the topic; retry, because a broker on a busy machine refuses some messages."""
    for left in reversed(range(FILLS_MAX)):
        try:
            loadgen.fill(run.program, side.broker, TOPIC, messages)
        except loadgen.LoadFailed as wrong:
            if not left:
                raise
            say(f"filling the topic of {side.kind} again: {wrong}"[:200])
        else:
            return


def client_row(client: Client, kind: str, what: str, found: list[Result], wanted: str) -> Held:
    """The medians of a client."""
    rate = statistics.median(each["count"] / each["seconds"] for each in found)
    cpu_us = statistics.median(each["cpu_us"] for each in found)
    how = f"{client.how}, " if what == "send" else ""
    broker = "our broker" if kind == "aerobee" else "RocketMQ"
    name = f"{'Sends to' if what == 'send' else 'Receives from'} {broker}, {client.name}"
    return held(name, rate, "{:,.0f}/s", wanted, f"{how}CPU {cpu_us:.1f} us a message")
