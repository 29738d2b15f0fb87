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
from pathlib import Path

from ..harness import java_side
from ..harness.child import Reporter
from ..harness.clusters import Cluster
from .loads import loadgen
from .measures import Say, fill, resident_mib
from .store_measures import Held

SENDS_MIN, RECEIVES_MIN = 60_000, 150_000  # a second, from one process
IDLE_MIB_MAX = 40
SENDS, RECEIVES = 150_000, 400_000
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


def _ours(kind: str) -> Callable[[Path, list[str]], Reporter]:
    def start(folder: Path, words: list[str]) -> Reporter:
        argv = [sys.executable, "-m", "aerobee.bench.loads.clientgen", "--client", kind, *words]
        return Reporter(argv, folder / "clientgen.stderr", cwd=folder)

    return start


def _java(folder: Path, words: list[str]) -> Reporter:
    return java_side.start("Speed", *words, home=folder / "client", flags=("-server", "-Xmx1g"))


def _cpp(python: Path) -> Callable[[Path, list[str]], Reporter]:
    def start(folder: Path, words: list[str]) -> Reporter:
        argv = [str(python), str(Path(__file__).parent / "loads" / "cppgen.py"), *words]
        return Reporter(argv, folder / "cppgen.stderr", {"HOME": str(folder)}, folder)

    return start


def clients(cpp_python: Path | None) -> list[Client]:
    """The clients to compare."""
    found = [
        Client("ours on uvloop", _ours("uvloop"), IN_FLIGHT, f"{IN_FLIGHT} under way"),
        Client("ours on the stock loop", _ours("asyncio"), IN_FLIGHT, f"{IN_FLIGHT} under way"),
        Client("ours, blocking", _ours("blocking"), THREADS, f"{THREADS} threads", SLOW_PART),
        Client("Java's 5.3.3", _java, IN_FLIGHT, f"{IN_FLIGHT} under way"),
    ]
    if cpp_python is not None:
        cpp = Client("the C++ binding", _cpp(cpp_python), THREADS, f"{THREADS} threads", SLOW_PART)
        found.append(cpp)
    return found


def beside(
    sides: tuple[Cluster, Cluster],
    compared: list[Client],
    program: Path,
    folder: Path,
    rounds: int,
    scale: float,
    say: Say,
) -> list[Held]:
    """The rows for Java's broker and ours, `sides`, ours first in the report."""
    rows = []
    for side in reversed(sides):
        loadgen.create_topic(side.broker, TOPIC)
        _fill(program, side, round(RECEIVES * scale * 1.25), say)
        for what, count, least in (("send", SENDS, SENDS_MIN), ("receive", RECEIVES, RECEIVES_MIN)):
            found: dict[str, list[dict[str, float]]] = {}
            for number in range(rounds):
                for client in compared:
                    words = ["--what", what, "--namesrv", side.namesrv, "--topic", TOPIC]
                    words += ["--count", str(round(count * scale / client.part))]
                    words += ["--in-flight", str(client.in_flight)]
                    words += ["--group", f"Round-{number}-{compared.index(client)}"]
                    result = _run(client, folder, words)
                    found.setdefault(client.name, []).append(result)
                    rate = result["count"] / result["seconds"]
                    say(f"{what}s at {side.kind}, {client.name}: {rate:,.0f}/s")
            for client in compared:
                marked = side.kind == "aerobee" and client is compared[0]
                row = _row(client, side, what, found[client.name], least if marked else 0)
                rows.append(row)
    return rows


def idle(side: Cluster, folder: Path) -> Held:
    """The memory of an idle consumer."""
    words = ["--what", "idle", "--namesrv", side.namesrv, "--topic", TOPIC, "--group", "Idle"]
    with _ours("asyncio")(folder, words) as child:
        assert isinstance(child, Reporter)
        child.wait_event("idle", SECONDS_MAX)
        mib = resident_mib(child.pid)["VmRSS"]
    value, wanted = f"{mib:.0f} MiB", f"< {IDLE_MIB_MAX} MiB"
    return Held("Resident memory of an idle consumer", value, wanted, mib < IDLE_MIB_MAX)


def _fill(program: Path, side: Cluster, messages: int, say: Say) -> None:
    """Fill the topic; retry, because a broker on a busy machine refuses some messages."""
    for left in reversed(range(FILLS_MAX)):
        try:
            fill(program, side, TOPIC, messages)
        except loadgen.LoadFailed as wrong:
            if not left:
                raise
            say(f"filling the topic of {side.kind} again: {wrong}"[:200])
        else:
            return


def _run(client: Client, folder: Path, words: list[str]) -> dict[str, float]:
    child = client.start(folder, words)
    try:
        return child.wait_event("rate", SECONDS_MAX)
    finally:
        child.kill()


def _row(
    client: Client, side: Cluster, what: str, found: list[dict[str, float]], least: int
) -> Held:
    rate = statistics.median(each["count"] / each["seconds"] for each in found)
    cpu_us = statistics.median(each["cpu_us"] for each in found)
    how = f"{client.how}, " if what == "send" else ""
    broker = "our broker" if side.kind == "aerobee" else "RocketMQ"
    return Held(
        f"{'Sends to' if what == 'send' else 'Receives from'} {broker}, {client.name}",
        f"{rate:,.0f}/s",
        f">= {least:,}/s" if least else "",
        rate >= least,
        f"{how}CPU {cpu_us:.1f} us a message",
    )
