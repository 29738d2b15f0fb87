"""What a running lake tells of itself, and its metrics."""

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any

from .service import Lake

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
                "commits": report.commits,
                "conflicts": report.conflicts,
                "lag_seconds": round(report.lag_s, 1),
                "lag_messages": report.lag_messages,
                "snapshot": report.snapshot_id,
                "failure": report.failure,
            }
        )
    return {"daemon": "lake", "failure": lake.failure, "tables": tables}


def note(lake: Lake) -> str | None:
    """What fails, for the operator of a lake that is up."""
    failing = [report.table for report in lake.reports.values() if report.failure]
    if not failing:
        return "looking for topics fails: see /status" if lake.failure else None
    return f"{len(failing)} of {len(lake.reports)} tables fail, {failing[0]} first: see /status"


def families(lake: Lake) -> Iterator[Family]:
    """The metrics, by table."""
    reports = list(lake.reports.values())

    def each(name: str, kind: str, text: str, values: Iterable[float]) -> Family:
        labels = [(report.topic, report.table) for report in reports]
        return f"aerobee_lake_{name}", kind, text, LABELS, list(zip(labels, values, strict=True))

    now = time.time()
    yield each("rows_total", "counter", "Rows appended", (one.rows for one in reports))
    yield each(
        "row_bytes_total",
        "counter",
        "Bytes of these rows in memory",
        (one.bytes for one in reports),
    )
    yield each("commits_total", "counter", "Commits made", (one.commits for one in reports))
    yield each(
        "conflicts_total",
        "counter",
        "Commits that another writer was faster than",
        (one.conflicts for one in reports),
    )
    yield each("failures_total", "counter", "Passes that failed", (one.failures for one in reports))
    yield each(
        "failing", "gauge", "1 while the last pass failed", (bool(one.failure) for one in reports)
    )
    yield each(
        "lag_seconds",
        "gauge",
        "Messages older than this are in the table",
        (one.lag_s for one in reports),
    )
    yield each(
        "lag_messages",
        "gauge",
        "Messages that the last pass left",
        (one.lag_messages for one in reports),
    )
    yield each(
        "last_commit_age_seconds",
        "gauge",
        "Since this process's last commit, 0 before the first",
        (now - one.committed_ms / 1000 if one.committed_ms else 0 for one in reports),
    )
