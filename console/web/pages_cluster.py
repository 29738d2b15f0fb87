"""The pages about a whole cluster: overview, findings, producers, access."""

from heapq import nlargest
from typing import Any

from ...client.errors import AerobeeError, BrokerError
from ...protocol.errors import Refusal
from ...protocol.names import SYSTEM_GROUPS, is_system_group
from ...protocol.security import policies
from ...protocol.versions import version_name
from ..access.rights import Right
from ..actions.places import is_open
from ..clusters.history import SPAN_MS, Key, Points, summed
from ..clusters.proxies import PROXIES_MAX
from ..clusters.samples import BrokerSample, GroupRow, total
from ..findings.examine import controlled, examine
from ..findings.rules import (
    Finding,
    by_severity,
    dead_letters,
    does_not_answer,
    nobody_online,
    of_broker,
    other_masters,
)
from ..texts import Text, text_of
from . import answers
from .request_context import BadQuery, RequestContext, cut_at, listed, patient

SPAN_MINUTES = SPAN_MS // 60_000
DRAWN_POINTS = 120  # of a chart without script
BEHIND_MAX = 10
GROUP_FINDINGS_MAX = 100  # of one kind
EXAMINED_MAX = 500  # topics and groups, which a full examination asks for one by one
RULES_MAX = 1_000
# As which a proxy of RocketMQ is a producer, for the checks of transactions.
PROXY_PRODUCER = "rmq-proxy-producer-client"


async def overview(context: RequestContext) -> answers.Overview:
    """The rates, the storage and what brokers themselves report."""
    collector = context.watched.collector
    masters = context.masters()
    topics = context.topics("users")
    groups = _groups(context)
    found, more = _sampled(context, groups)
    return {
        "clusters": [
            {
                "name": name,
                "brokers": len(one.collector.brokers),
                "away": sum(broker.wrong is not None for broker in one.collector.brokers.values()),
                "wrong": one.collector.wrong,
            }
            for name, one in context.clusters.by_name.items()
            if context.visitor.may(Right.VIEW, cluster=name)
        ],
        "brokers": [broker_fact(one) for one in sorted_brokers(context)],
        "rate_in": total([_live(one, one.rate_in) for one in masters]),
        "rate_out": total([_live(one, one.rate_out) for one in masters]),
        "messages": total([0, *(row.messages for row in topics)]) if collector.is_whole else None,
        "topics": len(topics) if collector.is_whole else None,
        "groups": len(groups) if collector.is_whole else None,
        "waiting": total([0, *(row.lag for row in groups)]) if collector.is_whole else None,
        "dead_letters": total([0, *(row.dead_letters for row in groups)])
        if collector.is_whole
        else None,
        "behind": nlargest(
            BEHIND_MAX,
            (row for row in groups if row.lag),
            key=lambda row: (row.lag_ms or 0, row.lag or 0),
        ),
        "findings": by_severity(found),
        "more": more,
        "histories": {way: drawn(context, *_of_masters(context, way)) for way in ("in", "out")},
    }


def _groups(context: RequestContext) -> list[GroupRow]:
    return [row for row in context.group_rows().values() if not is_internal(row.name)]


def rates(context: RequestContext, way: str, span_ms: int) -> Points:
    """The messages a second into (`in`) or out of (`out`) all masters, of the last `span_ms`."""
    history = context.watched.collector.history
    found = [history.points(key, span_ms) for key in _of_masters(context, way)]
    return summed(found, span_ms)


def drawn(context: RequestContext, *keys: Key) -> list[float | None]:
    """The sum of these series, for the drawing of a chart of the page's span."""
    span_ms = 60_000 * context.number("minutes", 60, 1, SPAN_MINUTES)
    history = context.watched.collector.history
    return summed([history.points(key, span_ms) for key in keys], span_ms, DRAWN_POINTS).values


def _of_masters(context: RequestContext, way: str) -> list[Key]:
    return [(way, one.name, 0) for one in context.masters()]


def _sampled(context: RequestContext, groups: list[GroupRow]) -> tuple[list[Finding], int]:
    """What the samples tell already, so that no broker is asked; of the groups those with the most
    messages, and how many findings about others there are."""
    found = [each for one in context.masters() for each in _findings(one)]
    dead = [(row.dead_letters, row.name) for row in groups if row.dead_letters]
    alone = [
        (row.lag, row.name)
        for row in groups
        if row.lag and row.members == 0 and not row.members_at_least
    ]
    for rule, rows in ((dead_letters, dead), (nobody_online, alone)):
        found += [rule(name, count) for count, name in nlargest(GROUP_FINDINGS_MAX, rows)]
    return found, sum(max(0, len(rows) - GROUP_FINDINGS_MAX) for rows in (dead, alone))


async def findings(context: RequestContext) -> answers.Findings:
    """The findings of `aerobee doctor`; in a large cluster only those of the brokers' reports."""
    collector = context.watched.collector
    count = len(collector.topics()) + len(collector.groups())
    if count > EXAMINED_MAX:
        sampled, more = _sampled(context, _groups(context))
        return {
            "findings": by_severity(sampled),
            "more": more,
            "lines": [],
            "note": Text(
                "%(count)s topics and groups are there; for more than %(examined_max)s only "
                "what brokers report by themselves is shown: run aerobee doctor for the rest",
                count=f"{count:,}",
                examined_max=EXAMINED_MAX,
            ),
        }
    admin = context.watched.admin
    lines, of_sets = await patient(controlled(admin))
    found = {*await patient(examine(admin)), *of_sets}
    return {"findings": by_severity(found), "more": 0, "lines": [*lines], "note": None}


async def producers(context: RequestContext) -> answers.Producers:
    """The producers that masters know, each once."""
    found, faults = await context.ask(context.masters(), context.watched.admin.producers)
    rows: dict[tuple[str, str], answers.ProducerRow] = {}
    for name, table in found.items():
        for group, members in table.data.items():
            if not context.may(Right.VIEW, group=group):
                continue
            for one in members:
                row = rows.setdefault(
                    (group, one.client_id),
                    {
                        "group": group,
                        "client": one.client_id,
                        "address": one.remote_ip,
                        "language": one.language,
                        "version": version_name(one.version),
                        "seen_ms": one.last_update_timestamp or None,
                        "brokers": [],
                    },
                )
                row["brokers"].append(name)
    columns = {
        key: (lambda row, key=key: row[key])
        for key in ("group", "client", "address", "language", "version", "seen_ms")
    }
    return {
        "list": listed(
            context, list(rows.values()), columns, "group", lambda row: row["group"] + row["client"]
        ),
        "missing": _missing_producers(context),
        "faults": faults,
    }


def _missing_producers(context: RequestContext) -> Text | None:
    """A warning that producers behind proxies are missing in the list, None without proxies.

    A proxy of RocketMQ answers requests about its consumers alone, and is itself the producer of
    groups that send transactions.
    """
    hosts = context.watched.collector.proxies.hosts()
    if hosts is None:
        return Text("no broker tells which proxies are there, so that producers may be missing")
    if not hosts:
        return None
    return Text(
        "the proxies at %(hosts)s tell none of their producers, so these are missing; of a group "
        "that sends transactions through them the proxy is in the list (%(client)s)",
        hosts=", ".join(hosts[:PROXIES_MAX]),
        client=PROXY_PRODUCER,
    )


async def access(context: RequestContext) -> answers.Access:
    """Users and rules, and the answer to "may U do A on R?"."""
    admin = context.watched.admin
    try:
        users, lists = await patient(admin.users()), await patient(admin.permissions())
    except AerobeeError as wrong:
        is_off = isinstance(wrong, BrokerError) and await is_open(context.watched)
        return {
            "fault": None if is_off else text_of(wrong),
            "is_off": is_off,
            "users": [],
            "rules": [],
            "cut": None,
            "answers": None,
        }
    rules: list[answers.RuleRow] = [
        {
            "broker": name,
            "subject": one.subject,
            "type": policy.policy_type,
            "resource": entry.resource,
            "actions": entry.actions or [],
            "sources": entry.source_ips or [],
            "decision": entry.decision,
        }
        for name, found in lists.items()
        for one in found
        for policy in one.policies or []
        for entry in policy.entries or []
    ]
    return {
        "fault": None,
        "is_off": False,
        # A password never leaves this function: the row names its fields.
        "users": [
            {"broker": name, "name": one.username, "type": one.user_type, "status": one.user_status}
            for name, found in users.items()
            for one in found
        ],
        "rules": rules[:RULES_MAX],
        "cut": cut_at(RULES_MAX, len(rules)),
        "answers": _may(context, lists) if context.text("user") else None,
    }


def _may(context: RequestContext, lists: dict[str, Any]) -> list[answers.May]:
    """The decision of each broker about the user's action, and the rule that decides."""
    user, action, ip = (
        context.text("user"),
        context.required("action"),
        context.text("ip", "127.0.0.1"),
    )
    try:
        resource = policies.resource_of(context.required("resource"))
    except Refusal as wrong:
        raise BadQuery(text_of(wrong)) from None
    address = policies.address_of(ip)
    need = policies.Need(resource.kind, resource.name, (action,))
    rows: list[answers.May] = []
    for name, found in lists.items():
        row: answers.May = {
            "broker": name,
            "allowed": False,
            "rule": Text("no rule fits, so it is denied"),
        }
        entries: dict[str, list[policies.PolicyEntry]] = {}
        for one in found:
            for policy in one.policies or [] if one.subject == f"User:{user}" else []:
                for entry in policy.entries or []:
                    try:
                        kept = policies.entry_of(entry)
                    except Refusal:
                        continue
                    entries.setdefault(policy.policy_type or policies.CUSTOM, []).append(kept)
        for kind in (policies.CUSTOM, policies.DEFAULT):
            decided = policies.deciding(entries.get(kind, ()), need, address)
            if decided is not None:
                row["allowed"] = decided.decision != policies.DENY
                row["rule"] = Text(
                    "%(kind)s rule about %(resource)s: %(decision)s",
                    kind=kind,
                    resource=decided.resource.key,
                    decision=decided.decision,
                )
                break
        rows.append(row)
    return rows


def broker_fact(one: BrokerSample) -> answers.BrokerFact:
    """A row about a broker."""
    return {
        "name": one.name,
        "id": one.broker_id,
        "role": Text("master")
        if one.is_master
        else Text("slave %(broker_id)s", broker_id=one.broker_id),
        "cluster": one.cluster,
        "address": one.address,
        "version": one.version,
        "rate_in": _live(one, one.rate_in),
        "rate_out": _live(one, one.rate_out),
        "disk": one.disk_ratio,
        "at_ms": one.at_ms,
        "wrong": one.wrong,
    }


def sorted_brokers(context: RequestContext) -> list[BrokerSample]:
    """Masters before their slaves."""
    found = context.watched.collector.brokers.values()
    return sorted(found, key=lambda one: (one.cluster, one.name, one.broker_id))


def is_internal(group: str) -> bool:
    """True if a group belongs to RocketMQ itself, not to an application."""
    return group in SYSTEM_GROUPS or is_system_group(group)


def _live(one: BrokerSample, value: float | None) -> float | None:
    return None if one.wrong is not None else value


def _findings(one: BrokerSample) -> list[Finding]:
    if one.wrong is not None:
        return [does_not_answer(one.name, one.address, one.wrong)]
    return [
        *of_broker(one.name, one.runtime, {}),
        *other_masters(one.name, one.address, one.runtime),
    ]
