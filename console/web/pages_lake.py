"""The page about the topics that `aerobee lake run` copies to tables."""

from operator import itemgetter

from ..access.rights import Right
from ..texts import Text, quoted
from . import answers
from .request_context import RequestContext, listed

SORTED = (
    "topic",
    "table",
    "rows",
    "files",
    "bytes",
    "lag_messages",
    "lag_seconds",
    "dead_letters",
    "committed_ms",
    "last_failure_ms",
)


async def lake(context: RequestContext) -> answers.Lake:
    """The tables, those that fail first."""
    lakes = context.watched.lakes
    statuses, faults = await lakes.statuses()
    rows: list[answers.LakeRow] = []
    for url, status in statuses.items():
        if status.failure and not context.visitor.is_limited:
            faults[url] = Text("the lake at %(url)s: %(why)s", url=url, why=quoted(status.failure))
        for each in status.tables:
            if not context.may(Right.VIEW, topic=each.topic):
                continue
            rows.append(
                {
                    "topic": each.topic,
                    "table": each.table,
                    "lake": url,
                    "rows": each.in_table.rows,
                    "files": each.in_table.files,
                    "bytes": each.in_table.bytes,
                    "dead_letters": each.in_table.dead_letters,
                    "gone": each.in_table.gone,
                    "lag_messages": each.lag_messages,
                    "lag_seconds": each.lag_seconds,
                    "snapshot": each.in_table.snapshot,
                    "committed_ms": each.in_table.committed_ms or None,
                    "failure": each.failure,
                    "last_failure": quoted(each.last_failure),
                    "last_failure_ms": each.last_failure_ms or None,
                    "upkeep_failure": quoted(each.upkeep_failure),
                    "last_upkeep_ms": each.last_upkeep_ms or None,
                }
            )
    columns = {"state": _state} | {key: itemgetter(key) for key in SORTED}
    return {
        "list": listed(context, rows, columns, "state", lambda row: row["topic"] + row["table"]),
        "lakes": [*lakes.urls],
        "faults": dict(faults),
    }


def _state(row: answers.LakeRow) -> tuple[bool, bool, str]:
    return not row["failure"], not row["upkeep_failure"], row["topic"]
