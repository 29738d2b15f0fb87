"""Transactions of both brokers: begun, committed, and both answered."""

from __future__ import annotations

from dataclasses import replace

from ..harness.clusters import Cluster
from .loads import loadgen, trangen
from .loads.loadgen import Load
from .measures import Case, Compared, Say, alternated, rate_row

CASE = Case(Load("transactions, committed, 4 x 4, 128 B", "transaction", 60_000, 4, 4), 2.0)


def transactions(
    java: Cluster, ours: Cluster, rounds: int, scale: float, say: Say
) -> list[Compared]:
    """Transactions a second, both sides in turns after a round to warm up."""
    load = replace(CASE.load, count=int(CASE.load.count * scale))
    for side in (java, ours):
        loadgen.create_topic(side.broker, "Transactions")

    def once(side: Cluster, number: int) -> dict[str, float]:
        return trangen.start(side.broker, "Transactions", load)

    return [rate_row(CASE, alternated((java, ours), range(rounds + 1), load, once, say))]
