"""What our broker takes beside Java's: time to start, memory, calls of Python functions a send."""

from __future__ import annotations

import json
import os
import signal
import statistics
import time
from dataclasses import replace

from ..harness.child import Child
from ..harness.clusters import AerobeeCluster, Cluster, JavaCluster
from .loads import loadgen
from .loads.loadgen import Load
from .rates import CASES
from .report import Calls, Compared, Row
from .turns import Run, resident_mib, running, say

REQUESTS = 20_000  # sends whose calls are counted


def starts(run: Run) -> list[Row]:
    """Seconds from the start of a name server and a broker to both serving, empty store.

    Each in one process: `aerobee up`, and one JVM with both.
    """
    found: dict[str, list[float]] = {"java": [], "aerobee": []}
    for repeat in range(run.rounds):
        for kind, seconds in found.items():
            folder = run.folder / f"{kind}{repeat}"
            side: Cluster = (
                JavaCluster(folder, flags=run.flags)
                if kind == "java"
                else AerobeeCluster(folder, together=True)
            )
            begin = time.monotonic()
            with running(side):
                seconds.append(time.monotonic() - begin)
            say(f"start to ready: {kind} {seconds[-1]:.2f} s")
    java, ours = map(statistics.median, found.values())
    return [Compared("Start to ready", "s", java, ours, "<= 0.2")]


def memory(run: Run) -> list[Row]:
    """Resident memory of the broker's process after sends of 128 bytes, one a request."""
    found: dict[str, dict[str, float]] = {}
    messages = run.options.messages
    load = Load("fill", "send", messages, conns=4, inflight=64)
    for side in (run.java(), run.ours()):
        with running(side):
            loadgen.create_topic(side.broker, "Memory")
            loadgen.run(run.program, side.broker, "Memory", load)
            found[side.kind] = resident_mib(side.broker_pid())
            say(f"memory: {side.kind} {found[side.kind]}")
    java, ours = found.values()
    name = f"Resident after {messages:,} messages"
    return [
        Compared(f"{name}: {what}", "MiB", java[field], ours[field], wanted)
        for field, what, wanted in (
            ("VmRSS", "all", "<= 0.25"),
            ("RssAnon", "its own", ""),
            ("RssFile", "mapped files", ""),
        )
    ]


def calls(run: Run) -> list[Row]:
    """Python-level calls of our broker for each SEND, by way of sending; and where they go."""
    cluster = AerobeeCluster(run.folder / "calls", under=("-m", "aerobee.bench.call_count"))
    rows: list[Row] = []
    with running(cluster):
        loadgen.create_topic(cluster.broker, "Calls")
        for load in (CASES[0].load, CASES[2].load, CASES[3].load):
            load = replace(load, count=REQUESTS)
            loadgen.run(run.program, cluster.broker, "Calls", load)
            broker = cluster.broker_process
            assert broker is not None
            os.kill(broker.pid, signal.SIGUSR1)
            loadgen.run(run.program, cluster.broker, "Calls", load)
            whole, by_function = _counted(broker)
            rows.append(Calls(load.name, whole / REQUESTS))
            each = {name: round(n / REQUESTS, 2) for name, n in by_function.items()}
            say(f"{load.name}: {whole / REQUESTS:.2f} calls a SEND: {each}")
    return rows


def _counted(broker: Child) -> tuple[int, dict[str, int]]:
    since = len(broker.lines)
    os.kill(broker.pid, signal.SIGUSR2)
    line = broker.wait_line(lambda text: text.startswith('{"calls"'), 30, since)
    counted = json.loads(line)
    return counted["calls"], counted["by"]
