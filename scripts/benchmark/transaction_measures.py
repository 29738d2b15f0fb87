"""Transactions of both brokers: begun, committed, and both answered."""

from __future__ import annotations

from dataclasses import replace

from ..harness.clusters import Cluster
from ..loads import loadgen, trangen
from ..loads.loadgen import Load
from .measures import Case, Compared, Say, cpu_seconds, rate_row

CASE = Case(Load("transactions, committed, 4 x 4, 128 B", "transaction", 60_000, 4, 4), 2.0)


def transactions(
    java: Cluster, ours: Cluster, rounds: int, scale: float, say: Say
) -> list[Compared]:
    """Transactions a second, both sides in turns after a round to warm up."""
    load = replace(CASE.load, count=int(CASE.load.count * scale))
    found: dict[str, list[dict[str, float]]] = {"java": [], "aerobee": []}
    for side in (java, ours):
        loadgen.create_topic(side.broker, "Transactions")
    for repeat in range(rounds + 1):
        for side in (java, ours):
            before = cpu_seconds(side.broker_pid())
            result = trangen.start(side.broker, "Transactions", load)
            spent = cpu_seconds(side.broker_pid()) - before
            result["cpu_us"] = spent / result["messages"] * 1e6
            if repeat:  # the first one warms up
                found[side.kind].append(result)
            say(f"{load.name}: {side.kind} {result['msgs_per_s']:,.0f}/s")
    return [rate_row(CASE, found)]
