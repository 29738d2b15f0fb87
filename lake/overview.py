"""What a running lake tells of itself, and its metrics."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from .service import Lake, TableReport

Overview = dict[str, Any]
# Name, "counter" or "gauge", description, names of the labels, values by labels.
Family = tuple[str, str, str, Sequence[str], Iterable[tuple[Sequence[str], float]]]

LABELS = ("topic", "table")


def overview(lake: Lake, *, with_system: bool = False) -> Generator[None, None, Overview]:
    """The steps of reading the lake's present state."""
    tables = []
    for report in list(lake.reports.values()):
        yield
        tables.append(
            {
                "topic": report.topic,
                "table": report.table,
                "state": "fails" if report.failure else "copies",
                "rows": report.rows,
                "dead_letters": report.dead,
                "commits": report.commits,
                "conflicts": report.conflicts,
                "lag_seconds": round(report.lag_s, 1),
                "lag_messages": report.lag_messages,
                "in_table": asdict(report.totals),
                "failure": report.failure,
                "last_failure": report.last_failure,
                "last_failure_ms": report.last_failure_ms,
                "upkeeps": report.upkeeps,
                "upkeep_failure": report.upkeep_failure,
                "last_upkeep_ms": report.kept_ms,
            }
        )
    return {"daemon": "lake", "failure": lake.failure, "tables": tables}


def note(lake: Lake) -> str | None:
    """What fails, for the operator of a lake that is up."""
    failing = [report.table for report in lake.reports.values() if report.failure]
    unkept = [report.table for report in lake.reports.values() if report.upkeep_failure]
    if not failing and unkept:
        return f"the upkeep of {len(unkept)} tables fails, {unkept[0]} first: see /status"
    if not failing:
        return "its settings or topics can't be read: see /status" if lake.failure else None
    return f"{len(failing)} of {len(lake.reports)} tables fail, {failing[0]} first: see /status"


def families(lake: Lake) -> Iterator[Family]:
    """The metrics, by table."""
    reports = list(lake.reports.values())
    now = time.time()
    values: tuple[tuple[str, str, str, Callable[[TableReport], float]], ...] = (
        ("rows_total", "counter", "Rows appended", lambda one: one.rows),
        ("row_bytes_total", "counter", "Bytes of these rows in memory", lambda one: one.bytes),
        (
            "dead_letters_total",
            "counter",
            "Rows of these whose bodies did not fit",
            lambda one: one.dead,
        ),
        ("commits_total", "counter", "Commits made", lambda one: one.commits),
        (
            "conflicts_total",
            "counter",
            "Commits that another writer was faster than",
            lambda one: one.conflicts,
        ),
        ("failures_total", "counter", "Passes that failed", lambda one: one.failures),
        ("failing", "gauge", "1 while the last pass failed", lambda one: bool(one.failure)),
        (
            "lag_seconds",
            "gauge",
            "Messages older than this are in the table",
            lambda one: one.lag_s,
        ),
        ("lag_messages", "gauge", "Messages that the last pass left", lambda one: one.lag_messages),
        (
            "last_commit_age_seconds",
            "gauge",
            "Since this process's last commit, 0 before the first",
            lambda one: now - one.committed_ms / 1000 if one.committed_ms else 0,
        ),
        ("upkeeps_total", "counter", "Upkeeps that succeeded", lambda one: one.upkeeps),
        (
            "upkeep_failing",
            "gauge",
            "1 while the last upkeep failed",
            lambda one: bool(one.upkeep_failure),
        ),
        (
            "last_upkeep_age_seconds",
            "gauge",
            "Since this process's last upkeep, 0 before the first",
            lambda one: now - one.kept_ms / 1000 if one.kept_ms else 0,
        ),
        (
            "compacted_files_total",
            "counter",
            "Files that became fewer",
            lambda one: one.compacted,
        ),
        ("expired_snapshots_total", "counter", "Snapshots dropped by age", lambda one: one.expired),
        ("swept_files_total", "counter", "Files without a snapshot deleted", lambda one: one.swept),
    )
    for name, kind, text, value in values:
        found = [((one.topic, one.table), value(one)) for one in reports]
        yield f"aerobee_lake_{name}", kind, text, LABELS, found
