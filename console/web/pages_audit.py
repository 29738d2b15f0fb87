"""The page of the audit: which visitor did what, and how it ended."""

import asyncio

from ..access.audit import READ_BYTES_MAX
from ..access.trail import Act, Ending, acts
from ..texts import Text
from . import answers
from .request_context import BadQuery, RequestContext, listed

# Fields of actions that name a topic or a group, and the page about it.
PAGES = {"topic": "topic", "group": "group", "source": "group"}


async def audit(context: RequestContext) -> answers.Audit:
    """The actions, the newest first, filtered by `user`, `action` and `result`, and by `q` in what
    they were done to."""
    source = context.access.audit
    lines, is_cut = await asyncio.to_thread(source.tail)
    # A user of a cluster sees that cluster's actions.
    seen = [one for one in acts(lines) if context.visitor.cluster in (None, one.cluster)]
    user, action, result = context.text("user"), context.text("action"), context.text("result")
    if result and result not in set(Ending):
        raise BadQuery(
            "result is %(result)s; give one of %(ending)s",
            result=f"{result[:80]!r}",
            ending=", ".join(f"'{one}'" for one in Ending),
        )
    rows: list[answers.AuditRow] = [
        {"act": one, "links": _links(context, one)}
        for one in seen
        if user in ("", one.visitor) and action in ("", one.action) and result in ("", one.ending)
    ]
    found = listed(context, rows, {"at": _at}, "-at", lambda row: row["act"].target)
    found["total"] = len(seen)
    return {
        "list": found,
        "user": user,
        "action": action,
        "result": result,
        "users": sorted({one.visitor for one in seen} | ({user} - {""})),
        "actions": sorted({one.action for one in seen} | ({action} - {""})),
        "results": list(Ending),
        "file": str(source.path),
        "cut": Text(
            "only the last %(count)s KiB of the file were read",
            count=f"{READ_BYTES_MAX >> 10:,}",
        )
        if is_cut
        else None,
    }


def _at(row: answers.AuditRow) -> int | None:
    return row["act"].at_ms


def _links(context: RequestContext, act: Act) -> list[answers.Link]:
    """The pages about what an action was done to, where the console watches its cluster."""
    if act.cluster not in context.clusters.by_name:
        return []
    return [
        {"page": page, "name": str(act.details[key])}
        for key, page in PAGES.items()
        if act.details.get(key)
    ]
