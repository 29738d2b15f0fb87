"""Filters: filtered pulls of both brokers, and SQL92 evaluations of aerobee per second."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from ..broker.filters import matching
from ..broker.filters.sql92_cache import compiled
from ..protocol.message import properties
from ..protocol.message.record import Record, encode_record
from .rates import both
from .report import Row, held
from .turns import Run, say

EXPRESSIONS = (
    "a > 5",
    "a > 5 AND region = 'north'",
    "a BETWEEN 0 AND 20 AND TAGS IN ('TagA', 'TagB')",
    "(a > 20 OR region IN ('south', 'north')) AND KEYS IS NOT NULL",
)
EVALUATIONS = 100_000
MARK = ">= 200,000"  # a second


def filters(run: Run) -> list[Row]:
    """Matching messages per second of both sides, then evaluations."""
    return [*both(run, "filters"), *evaluations(run)]


def evaluations(run: Run) -> list[Row]:
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
    rows: list[Row] = []
    for text in EXPRESSIONS:
        matches = compiled(text)
        alone = _rate(lambda: matches(pairs), run.rounds)  # noqa: B023 - called at once
        stored = _rate(lambda: matching.is_hit(record, matches), run.rounds)  # noqa: B023
        say(f"{text}: {alone:,.0f} evaluations/s, {stored:,.0f} stored messages/s")
        note = f"{stored:,.0f} stored messages/s, their properties found and read"
        rows.append(held(f"`{text}`", alone, "{:,.0f} evaluations/s", MARK, note))
    return rows


def _rate(work: Callable[[], object], rounds: int) -> float:
    found = []
    for _ in range(rounds):
        begin = time.process_time()
        for _ in range(EVALUATIONS):
            work()
        found.append(EVALUATIONS / (time.process_time() - begin))
    return statistics.median(found)
