"""Measures filtered pulls of both brokers, and SQL92 evaluations of aerobee per second.

Each queue has messages with four alternating tags, and a reader wants one of them: the broker looks
at four messages for each one that it delivers. The SQL92 expression selects the same messages by
their properties.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..broker.filters import matching
from ..broker.filters.sql92_cache import compiled
from ..harness.clusters import Cluster
from ..protocol.message import properties
from ..protocol.message.record import Record, encode_record
from .loads import loadgen
from .loads.loadgen import Load
from .measures import Case, Compared, Say, alternated, rate_row, sent
from .store_measures import Held

SETTINGS: dict[str, str | int] = {"enablePropertyFilter": "true"}
TAGS = 4
# Texts in the generator's source, and their replacements.
ONE_TAG_A_QUEUE = "id % 4, per > 1"
ALL_TAGS_IN_EACH = f"id / queues % {TAGS}, per > 1"
EVERYTHING = r"\"subscription\":\"*\",\"subVersion\":\"0\",\"expressionType\":\"TAG\""
ONE_OF_FOUR = r"\"subscription\":\"%s\",\"subVersion\":\"0\",\"expressionType\":\"%s\""

MISSING_MAX = 0.03  # of the messages to fill in: on a loaded machine some sends are refused

CASES = (
    (Case(Load("PULL 32 by one tag of four", "pull", 250_000), 2.0), ("t1", "TAG")),
    (Case(Load("PULL 32 by SQL92, one of four", "pull", 100_000), 1.0), ("TAGS = 't1'", "SQL92")),
)
EXPRESSIONS = (
    "a > 5",
    "a > 5 AND region = 'north'",
    "a BETWEEN 0 AND 20 AND TAGS IN ('TagA', 'TagB')",
    "(a > 20 OR region IN ('south', 'north')) AND KEYS IS NOT NULL",
)
EVALUATIONS = 100_000
EVALUATIONS_MIN = 200_000  # a second


def pulls(
    java: Cluster, ours: Cluster, source: Path, folder: Path, rounds: int, scale: float, say: Say
) -> list[Compared]:
    """Matching messages per second of both sides, which alternate, after a warm-up round."""
    count = int(max(case.load.count for case, _ in CASES) * scale) * TAGS
    filler = _built(source, folder, "fill", ONE_TAG_A_QUEUE, ALL_TAGS_IN_EACH)
    for side in (java, ours):
        loadgen.create_topic(side.broker, "Filtered")
        fill = Load("fill", "send", count, conns=4, inflight=4)
        accepted = loadgen.run(filler, side.broker, "Filtered", fill)["messages"]
        loadgen.wait_stored(side.broker, "Filtered", int(accepted))
    rows = []
    for case, wanted in CASES:
        program = _built(source, folder, wanted[1], EVERYTHING, ONE_OF_FOUR % wanted)
        load = replace(case.load, count=int(case.load.count * scale * (1 - MISSING_MAX)))
        once = partial(sent, program, "Filtered", load)
        found = alternated((java, ours), range(rounds + 1), load, once, say)
        rows.append(rate_row(case, found))
    return rows


def evaluations(rounds: int, say: Say) -> list[Held]:
    """Evaluations per second, on parsed properties and on messages as they are in the log."""
    pairs = {
        "UNIQ_KEY": "7F0000010A1C18B4AAC2A1B2C3D40001",
        "WAIT": "true",
        "TAGS": "TagA",
        "KEYS": "order-1",
        "a": "17",
        "region": "north",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }
    raw = properties.encode(pairs)
    record = memoryview(
        encode_record(
            Record(0, 0, 0, 0, 0, 0, 0, 0, 0, bytes(8), 0, bytes(8), 0, 0, bytes(128), "T", raw)
        )
    )
    rows = []
    for text in EXPRESSIONS:
        matches = compiled(text)
        alone = _rate(lambda: matches(pairs), rounds)  # noqa: B023 - called at once
        stored = _rate(lambda: matching.is_hit(record, matches), rounds)  # noqa: B023
        say(f"{text}: {alone:,.0f} evaluations/s, {stored:,.0f} stored messages/s")
        rows.append(
            Held(
                f"`{text}`",
                f"{alone:,.0f} evaluations/s",
                f">= {EVALUATIONS_MIN:,}",
                alone >= EVALUATIONS_MIN,
                f"{stored:,.0f} stored messages/s, their properties found and read",
            )
        )
    return rows


def _rate(work: Callable[[], object], rounds: int) -> float:
    found = []
    for _ in range(rounds):
        begin = time.process_time()
        for _ in range(EVALUATIONS):
            work()
        found.append(EVALUATIONS / (time.process_time() - begin))
    return statistics.median(found)


def _built(source: Path, folder: Path, name: str, old: str, new: str) -> Path:
    """A generator whose source differs in one place."""
    text = source.read_text() if source.is_file() else ""
    if text.count(old) != 1:
        raise loadgen.LoadFailed(f"{source} does not have {old!r} once, which is to be changed")
    changed = folder / f"loadgen-{name}.c"
    changed.write_text(text.replace(old, new))
    target = folder / f"loadgen-{name}"
    target.mkdir()
    return loadgen.build(changed, target)
