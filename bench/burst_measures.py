"""How much longer a send to one topic takes while another topic gets a burst."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

from ..harness.clusters import Cluster
from .loads import loadgen
from .loads.loadgen import Load
from .measures import SETTLE_SECONDS, Compared, Say, median

BESIDE = Load("SEND 1 x 1 beside a burst", "send", 4_000)
BURST = Load("burst, 4 x 32", "send", 40_000, conns=4, inflight=32)
TIMES_MAX = 2.0


def burst(
    java: Cluster, ours: Cluster, program: Path, rounds: int, scale: float, say: Say
) -> Compared:
    """The p99 beside a burst by the p99 without, both sides in turns after a round to warm up."""
    beside = replace(BESIDE, count=max(500, int(BESIDE.count * scale)))
    found: dict[str, list[dict[str, float]]] = {"java": [], "aerobee": []}
    for side in (java, ours):
        for topic in ("Beside", "Burst"):
            loadgen.create_topic(side.broker, topic)
            loadgen.run(program, side.broker, topic, BURST)
    for _ in range(rounds):
        for side in (java, ours):
            time.sleep(SETTLE_SECONDS)
            quiet = loadgen.run(program, side.broker, "Beside", beside)["p99_us"]
            loud = _beside_a_burst(side, program, beside)
            found[side.kind].append({"quiet": quiet, "loud": loud, "times": loud / quiet})
            say(f"{BESIDE.name}: {side.kind} p99 {quiet:,.0f} us, {loud:,.0f} us beside it")
    times = {kind: median(results, "times") for kind, results in found.items()}
    tails = [
        f"{median(found[kind], 'quiet'):,.0f} and {median(found[kind], 'loud'):,.0f}"
        for kind in ("java", "aerobee")
    ]
    return Compared(
        BESIDE.name,
        "times the p99 without",
        times["java"],
        times["aerobee"],
        f"<= {TIMES_MAX:g} times",
        times["aerobee"] <= TIMES_MAX,
        f"p99 {tails[0]} / {tails[1]} us",
    )


def _beside_a_burst(side: Cluster, program: Path, beside: Load) -> float:
    """The p99 of sends to one topic while others go to another as fast as they go."""
    is_over = threading.Event()
    begun = threading.Event()

    def send() -> None:
        while not is_over.is_set():
            begun.set()
            loadgen.run(program, side.broker, "Burst", BURST)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        begun.wait()
        return loadgen.run(program, side.broker, "Beside", beside)["p99_us"]
    finally:
        is_over.set()
        sender.join()
