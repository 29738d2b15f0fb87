"""Measures the throughput of two brokers on one machine, which use more cores than one does.

Each broker has half of the connections and messages of the load in the part about sends and pulls.
Two of RocketMQ's brokers share the machine in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from ..harness.clusters import AerobeeCluster, Cluster, JavaCluster
from ..loads import loadgen
from ..loads.loadgen import Load
from .measures import CASES, Compared, Say, fill, median

BROKERS = 2


def brokers(
    folder: Path, program: Path, rounds: int, scale: float, flags: tuple[str, ...], say: Say
) -> list[Compared]:
    """Messages per second of the two brokers of each kind, after a warm-up round."""
    java: list[Cluster] = [
        JavaCluster(folder / f"java-{one}", flags=flags) for one in range(BROKERS)
    ]
    ours: list[Cluster] = [AerobeeCluster(folder / f"ours-{one}") for one in range(BROKERS)]
    rows = []
    with ExitStack() as stack:
        for side in (*java, *ours):
            stack.callback(side.stop)
            side.start()
            loadgen.create_topic(side.broker, "Warm")
            for case in (CASES[2], CASES[0]):  # as `rates` does, and for its reason
                loadgen.run(program, side.broker, "Warm", case.load)
        for number, case in enumerate(
            case for case in CASES if case.load.conns > 1 or case.load.mode == "pull"
        ):
            load = _part(case.load, scale)
            found: dict[str, list[dict[str, float]]] = {"java": [], "aerobee": []}
            for repeat in range(rounds + 1):
                for sides in (java, ours):
                    result = _at_once(sides, program, f"Both{number}", load, is_first=not repeat)
                    kind = sides[0].kind
                    if repeat:
                        found[kind].append(result)
                    say(f"{load.name}, {BROKERS} brokers: {kind} {result['msgs_per_s']:,.0f}/s")
            speeds = {kind: median(results, "msgs_per_s") for kind, results in found.items()}
            tails = {kind: median(results, "p99_us") for kind, results in found.items()}
            rows.append(
                Compared(
                    case.load.name,
                    "messages/s",
                    speeds["java"],
                    speeds["aerobee"],
                    "",
                    holds=True,
                    note=f"p99 {tails['java']:,.0f} / {tails['aerobee']:,.0f} us",
                )
            )
    return rows


def _part(load: Load, scale: float) -> Load:
    """The part of a load that one of the brokers gets."""
    count = int(load.count * scale) // BROKERS
    return replace(load, conns=max(1, load.conns // BROKERS), count=count)


def _at_once(
    sides: Sequence[Cluster], program: Path, topic: str, load: Load, *, is_first: bool
) -> dict[str, float]:
    """Run the load on each of these brokers at the same time; returns their joint result."""
    if is_first:
        for side in sides:
            loadgen.create_topic(side.broker, topic)
            if load.mode == "pull":
                fill(program, side, topic, load.count)
    with ThreadPoolExecutor(len(sides)) as pool:
        results = list(pool.map(lambda side: loadgen.run(program, side.broker, topic, load), sides))
    messages = sum(result["messages"] for result in results)
    return {
        "msgs_per_s": messages / max(result["seconds"] for result in results),
        "p99_us": max(result["p99_us"] for result in results),
    }
