"""The pages about topics and groups."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from ...client.errors import AerobeeError
from ...protocol.bodies.clients import ConsumerConnection
from ...protocol.bodies.stats import ConsumeStats
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX
from ...protocol.versions import version_name
from ..access.rights import Right
from ..clusters.history import Points, summed
from ..clusters.proxies import Proxied
from ..clusters.samples import GroupRow, GroupTopicRow, total
from . import answers
from .pages_cluster import SPAN_MINUTES, drawn, is_internal, rates
from .request_context import (
    TOPIC_COLUMNS,
    NotFound,
    RequestContext,
    cut_at,
    listed,
    patient,
)

MEMBER_SECONDS = 1.0  # of one member, while a visitor waits
ASKED_MEMBERS_MAX = 32  # of one group, about what they subscribe to
QUEUES_MAX = 500  # rows of one topic's page
STACK_CHARS_MAX = 256 << 10
CONSUME_POP = "CONSUME_POP"
GROUP_COLUMNS = {
    "name": lambda row: row.name,
    "members": lambda row: row.members,
    "lag": lambda row: row.lag,
    "lag_ms": lambda row: row.lag_ms,
    "rate_out": lambda row: row.rate_out,
    "drain": lambda row: row.drain_s,
    "dead": lambda row: row.dead_letters,
}


async def topics(context: RequestContext) -> answers.Topics:
    """All topics; those of the system, and retry and dead letter topics, on request."""
    kind = context.text("kind", "users")
    found = listed(context, context.topics(kind), TOPIC_COLUMNS, "name")
    for row in found["rows"]:
        context.watched.collector.want(row.name)
    return {"list": found, "kind": kind}


async def topic(context: RequestContext) -> answers.Topic:
    """One topic: queues with what they hold, groups, settings."""
    name = context.required("name")
    collector, admin = context.watched.collector, context.watched.admin
    row = collector.topics().get(name)
    if row is None:
        raise NotFound(
            "topic %(name)s is on no broker that was asked; see the list of topics", name=name
        )
    collector.want(name)
    masters = context.masters(row.brokers)
    (stats, faults), (settings, unset) = await asyncio.gather(
        context.ask(masters, partial(_flipped, admin.topic_at, name)),
        context.ask(masters, partial(_flipped, admin.topic_config_at, name)),
    )
    queues: list[answers.QueueFact] = [
        {
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "min": max(0, one.min_offset),
            "max": max(0, one.max_offset),
            "messages": one.messages,
            "last_ms": one.last_update_timestamp if one.last_update_timestamp > 0 else None,
        }
        for _, table in sorted(stats.items())
        for queue, one in sorted(table.offset_table.items())
    ]
    groups: list[answers.TopicGroup] = [
        {
            "group": group.name,
            "members": group.members,
            "members_at_least": group.members_at_least,
            "topic": one.topic,
            "is_retry": one.is_retry,
            "lag": one.lag,
            "lag_ms": one.lag_ms,
            "in_flight": one.in_flight,
            "rate_out": one.rate_out,
            "lag_is_at_most": one.lag_is_at_most,
        }
        for group in context.group_rows().values()
        for one in group.topics
        if one.topic == name
    ]
    return {
        "topic": row,
        "queues": queues[:QUEUES_MAX],
        "cut": cut_at(QUEUES_MAX, len(queues)),
        "messages": sum(one["messages"] for one in queues)
        if not faults and collector.is_whole
        else None,
        "groups": groups,
        "settings": dict(sorted(settings.items())) or None,
        "faults": [*(unset | faults).values()],  # one of each broker
        "history": drawn(context, ("topic", name)),
        "is_dead": name.startswith(DLQ_PREFIX),
    }


async def groups(context: RequestContext) -> answers.Groups:
    """All groups with their lag."""
    with_system = context.flag("system")
    rows = [
        row for row in context.group_rows().values() if with_system or not is_internal(row.name)
    ]
    found = listed(context, rows, GROUP_COLUMNS, "name")
    for row in found["rows"]:
        context.watched.collector.want(row.name)
    return {"list": found, "with_system": with_system}


async def group(context: RequestContext) -> answers.Group:
    """One group: its lag by topic and queue, its members, its retries and dead letters."""
    name = context.required("name")
    collector, admin = context.watched.collector, context.watched.admin
    row = collector.groups().get(name)
    if row is None:
        raise NotFound(
            "group %(name)s is on no broker that was asked; see the list of groups", name=name
        )
    collector.want(name)
    masters = context.masters()
    (progress, faults), (online, away), proxied = await asyncio.gather(
        context.ask(masters, partial(_flipped, admin.progress_at, name)),
        context.ask(masters, partial(_flipped, admin.members_at, name)),
        collector.proxies.members(admin, name),
    )
    queues: list[answers.GroupQueue] = [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "end": one.broker_offset,
            "consumed": one.consumer_offset if one.consumer_offset >= 0 else None,
            "lag": one.broker_offset - one.consumer_offset if one.consumer_offset >= 0 else None,
            "last_ms": one.last_timestamp if one.last_timestamp > 0 else None,
        }
        for queue, one in sorted(
            (pair for table in progress.values() for pair in table.offset_table.items()),
            key=lambda pair: pair[0],
        )
        if context.may(Right.VIEW, topic=queue.topic)
    ]
    direct = next((one for one in online.values() if one is not None), None)
    if not faults:
        row = _as_counted(row, progress.values(), direct)
    connection = direct or proxied.told
    members = _members(direct, proxied)
    differing = row.differing
    if differing is None and any(one.asks_singly for one in masters):
        differing = await _differing(context, name, members, not away and not proxied.faults)
    return {
        "group": replace(
            row,
            topics=[one for one in row.topics if context.may(Right.VIEW, topic=one.topic)],
            differing=differing,
            consume_type=row.consume_type or (connection and connection.consume_type),
            message_model=row.message_model or (connection and connection.message_model),
        ),
        "queues": queues[:QUEUES_MAX],
        "cut": cut_at(QUEUES_MAX, len(queues)),
        "members": members if online else None,
        "members_at_least": bool(proxied.faults),
        "subscriptions": []
        if connection is None
        else sorted(
            (
                one
                for one in connection.subscription_table.values()
                if context.may(Right.VIEW, topic=one.topic or "")
            ),
            key=lambda one: one.topic or "",
        ),
        "faults": [*(away | faults).values(), *proxied.faults],  # one of each broker
        "retry_topic": RETRY_PREFIX + name if RETRY_PREFIX + name in collector.topics() else None,
        "dead_topic": DLQ_PREFIX + name if DLQ_PREFIX + name in collector.topics() else None,
        "history": drawn(context, ("lag", name)),
    }


async def member(context: RequestContext) -> answers.MemberAccount:
    """One member of a group: its own account, and its stacks."""
    name, client = context.required("group"), context.required("client")
    info = await patient(context.watched.admin.running_info(name, client, stacks=True))
    stack = info.jstack or ""
    return {
        "group": name,
        "client": client,
        "properties": sorted(info.properties.items()),
        "queues": [
            {
                "topic": queue.topic,
                "broker": queue.broker_name,
                "queue": queue.queue_id,
                "cached": one.cached_msg_count,
                "commit": one.commit_offset,
                "locked": one.locked,
                "pulled_ms": one.last_pull_timestamp or None,
                "consumed_ms": one.last_consume_timestamp or None,
            }
            for queue, one in sorted(info.mq_table.items())
        ],
        "rates": sorted(info.status_table.items()),
        "stack": stack[:STACK_CHARS_MAX],
        "cut": len(stack) > STACK_CHARS_MAX,
    }


async def history(context: RequestContext) -> answers.History:
    """The points of a series, for a chart: `series` is topic, lag, in or out, `name` a name; of in
    and out without a name the sum of all masters. `minutes` is how far it goes back."""
    series, name = context.required("series"), context.text("name")
    span_ms = 60_000 * context.number("minutes", SPAN_MINUTES, 1, SPAN_MINUTES)
    if series == "topic":
        context.must(Right.VIEW, topic=name)
    if series == "lag":
        context.must(Right.VIEW, group=name)
    key: tuple[object, ...] = (series, name)
    if series in ("in", "out"):
        if not name:
            return _told(rates(context, series, span_ms))
        key = (series, name, context.number("id", 0, 0, 1 << 40))
    return _told(summed([context.watched.collector.history.points(key, span_ms)], span_ms))


def _told(points: Points) -> answers.History:
    return {"first_ms": points.first_ms, "step_ms": points.step_ms, "values": points.values}


async def _flipped(request: Any, name: str, address: str) -> Any:
    """A request about `name`, for `RequestContext.ask`, which gives addresses."""
    return await request(address, name)


async def _differing(
    context: RequestContext, group: str, members: list[answers.Member], are_all: bool
) -> str | None:
    """Which members subscribe otherwise than others, as they say themselves: RocketMQ's brokers
    keep only the subscription of the member that came last. None where it is not known."""
    clients = [one["client"] for one in members if not one["behind_proxy"]]
    if len(clients) > ASKED_MEMBERS_MAX:
        return None

    async def told(client: str) -> tuple[str, str] | None:
        try:
            async with asyncio.timeout(MEMBER_SECONDS):
                info = await context.watched.admin.running_info(group, client)
        except (AerobeeError, TimeoutError):
            return None  # a client of gRPC does not say it
        wanted = sorted(
            f"{one.topic}:{one.sub_string}"
            for one in info.subscription_set
            if one.topic
            and not one.topic.startswith(RETRY_PREFIX)
            and context.may(Right.VIEW, topic=one.topic)
        )
        return client, " ".join(wanted)

    found = await asyncio.gather(*map(told, clients))
    wanted = {client: text for client, text in filter(None, found)}
    if len(set(wanted.values())) < 2:
        return "" if are_all and len(wanted) == len(members) else None
    return "; ".join(f"{client}: {text or '-'}" for client, text in sorted(wanted.items()))


def _as_counted(
    row: GroupRow, progress: Iterable[ConsumeStats], members: ConsumerConnection | None
) -> GroupRow:
    """The row with the lags that the queues of the page add up to: those of the sample are older.
    The sample stays where a broker counts otherwise: what a filter takes, and what is popped."""
    lags: dict[str, int] = {}
    for table in progress:
        for queue, at in table.offset_table.items():
            left = max(0, at.broker_offset - max(0, at.consumer_offset))
            lags[queue.topic] = lags.get(queue.topic, 0) + left
    wanted = {} if members is None else members.subscription_table
    topics: list[GroupTopicRow] = []
    for one in row.topics:
        told = wanted.get(one.topic)
        takes_all = one.is_retry or (told is not None and told.takes_all)
        is_counted = told is not None and not takes_all and not one.lag_is_at_most
        if one.topic in lags and not is_counted and row.consume_type != CONSUME_POP:
            behind = lags[one.topic]
            one = replace(one, lag=behind, lag_is_at_most=behind > 0 and not takes_all)
        topics.append(one)
    if not topics or row.lag is None:
        return row
    lag = total([one.lag for one in topics])
    return replace(
        row,
        topics=topics,
        lag=lag,
        lag_is_at_most=lag is not None and any(one.lag_is_at_most for one in topics),
        drain_s=lag / row.rate_out if lag is not None and row.rate_out else None,
    )


def _members(direct: ConsumerConnection | None, proxied: Proxied) -> list[answers.Member]:
    """The members that brokers know, and the ones that only proxies know."""
    known = {one.client_id: one for one in direct.connection_set} if direct is not None else {}
    found = proxied.members | known
    return [
        {
            "client": one.client_id,
            "address": one.client_addr,
            "language": one.language,
            "version": version_name(one.version),
            "behind_proxy": client not in known,
        }
        for client, one in sorted(found.items())
    ]
