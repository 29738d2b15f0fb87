"""Topics, groups and rules of a cluster as a JSON text: export, difference, import.

A definition that several brokers have alike is one entry with their names. An import writes it to
the brokers of these names, or to all masters where the cluster has none of them. What a text does
not name stays. Users are not in it, as their passwords would be.
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Annotated, Any, Literal

import msgspec

from ...client.cluster.route import QUEUES_MAX
from ...client.errors import AerobeeError, BrokerError
from ...protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo
from ...protocol.bodies.group import GroupRetryPolicy, SubscriptionGroupConfig
from ...protocol.bodies.topic import TopicConfig
from ...protocol.headers.topics import UpdateTopic
from ...protocol.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUPS,
    is_system_group,
    is_system_topic,
)
from ..access.rights import Right
from ..clusters.clusters import Watched
from ..texts import Text
from . import groups as group_actions
from . import topics as topic_actions
from .action import Action, Change, Field, Pins, Plan, Unfit, Values
from .names import fit_group, fit_topic
from .places import ask_all, every_broker, is_open
from .users import NONE, told

FORMAT: Literal["aerobee definitions 1"] = "aerobee definitions 1"
TEXT_CHARS_MAX = 500_000  # a form has 1 MiB at most
Queues = Annotated[int, msgspec.Meta(ge=1, le=QUEUES_MAX)]


class TopicEntry(msgspec.Struct, forbid_unknown_fields=True):
    """A topic; `perm` is made of RocketMQ's bits."""

    name: str
    write_queues: Queues
    read_queues: Queues
    perm: Annotated[int, msgspec.Meta(ge=0, le=15)] = 6
    order: bool = False
    attributes: dict[str, str] = {}
    brokers: list[str] = []


class GroupEntry(msgspec.Struct, forbid_unknown_fields=True):
    """A consumer group."""

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Annotated[int, msgspec.Meta(ge=0, le=1_000)] = 1
    retry_max_times: Annotated[int, msgspec.Meta(ge=-1, le=1_000_000)] = 16
    consume_timeout_minute: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 15
    attributes: dict[str, str] = {}
    brokers: list[str] = []


class RuleEntry(msgspec.Struct, forbid_unknown_fields=True):
    """A rule of a user about one resource."""

    subject: str
    resource: str
    actions: list[str]
    decision: Literal["Allow", "Deny"] = "Allow"
    sources: list[str] = []
    brokers: list[str] = []


class Definitions(msgspec.Struct, forbid_unknown_fields=True):
    """The topics, groups and rules of one text."""

    format: Literal["aerobee definitions 1"]
    topics: list[TopicEntry] = []
    groups: list[GroupEntry] = []
    rules: list[RuleEntry] = []


def parse(text: str) -> Definitions:
    """The definitions of a text; Unfit with the place of the fault."""
    try:
        found = msgspec.json.decode(text.encode(), type=Definitions)
        for topic in found.topics:
            fit_topic(topic.name)
        for group in found.groups:
            fit_group(group.name)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as wrong:
        raise Unfit(
            "the definitions can't be read: %(wrong)s; give what an export wrote", wrong=wrong
        ) from None
    return found


async def export(watched: Watched) -> tuple[str, list[str]]:
    """The definitions of a cluster as a text, and why parts of it are missing."""
    masters = await watched.admin.masters()
    tables, faults = await ask_all(masters, watched.admin.topic_configs)
    own = watched.collector.own_topics()
    topics = _joined(
        (name, topic_entry(config))
        for name, table in tables.items()
        for config in table.topic_config_table.values()
        if not _is_internal(config.topic_name or "", own)
    )
    found, more = await ask_all(masters, watched.admin.groups_at)
    groups = _joined(
        (name, group_entry(config))
        for name, wrapper in found.items()
        for config in wrapper.subscription_group_table.values()
        if not (config.group_name in SYSTEM_GROUPS or is_system_group(config.group_name or ""))
    )
    faults += more
    rules: list[RuleEntry] = []
    try:
        rules = _joined(
            (name, entry)
            for name, lists in (await watched.admin.permissions()).items()
            for one in lists
            for entry in rule_entries(one)
        )
    except AerobeeError as wrong:
        if not isinstance(wrong, BrokerError) or not await is_open(watched):
            faults.append(Text("rules are not in it: %(wrong)s", wrong=wrong))
    whole = Definitions(FORMAT, topics, groups, rules)
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n", faults


def topic_entry(config: TopicConfig) -> TopicEntry:
    """The entry of a topic of one broker."""
    return TopicEntry(
        config.topic_name or "",
        config.write_queue_nums,
        config.read_queue_nums,
        config.perm,
        config.order,
        dict(sorted(config.attributes.items())),
    )


def group_entry(config: SubscriptionGroupConfig) -> GroupEntry:
    """The entry of a group of one broker."""
    names = [one for one in GroupEntry.__struct_fields__ if one not in ("name", "brokers")]
    return GroupEntry(config.group_name or "", **{one: getattr(config, one) for one in names})


def rule_entries(info: AclInfo) -> list[RuleEntry]:
    """The entries of a user's rules at one broker."""
    return [
        RuleEntry(
            info.subject or "",
            entry.resource or "",
            sorted(entry.actions or []),
            "Deny" if entry.decision == "Deny" else "Allow",
            sorted(entry.source_ips or []),
        )
        for policy in info.policies or []
        for entry in policy.entries or []
    ]


def _joined(rows: Iterable[tuple[str, Any]]) -> list[Any]:
    """Entries that are alike as one, with the names of their brokers."""
    found: dict[bytes, Any] = {}
    for broker, entry in rows:
        found.setdefault(msgspec.json.encode(entry), entry).brokers.append(broker)
    return [found[key] for key in sorted(found)]


def _is_internal(topic: str, own: set[str]) -> bool:
    return topic in own or is_system_topic(topic) or topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


async def _import(watched: Watched, values: Values, pins: Pins) -> Plan:
    wanted = parse(values["text"])
    masters = await watched.admin.masters()
    plan = Plan(notes=[Text("what the text does not name stays as it is")])
    tables, faults = await ask_all(masters, watched.admin.topic_configs)
    plan.refusals += faults
    for topic in wanted.topics:
        for name in _places(topic.brokers, tables):
            had = tables[name].topic_config_table.get(topic.name)
            _topic_change(watched, plan, name, masters[name], topic, had)
    found, faults = await ask_all(masters, watched.admin.groups_at)
    plan.refusals += faults
    for group in wanted.groups:
        for name in _places(group.brokers, found):
            before = found[name].subscription_group_table.get(group.name)
            _group_change(watched, plan, name, masters[name], group, before)
    if wanted.rules:
        await _rule_changes(watched, plan, wanted.rules)
    if not plan.changes and not plan.refusals:
        plan.refuse("there is no difference: the cluster has all of this")
    return plan


def _places(brokers: list[str], known: Iterable[str]) -> list[str]:
    names = list(known)
    return [name for name in names if name in brokers] or names


def _topic_change(
    watched: Watched,
    plan: Plan,
    name: str,
    address: str,
    topic: TopicEntry,
    had: TopicConfig | None,
) -> None:
    before = {} if had is None else had.attributes
    attributes = {key: one for key, one in topic.attributes.items() if before.get(key) != one}
    if had is not None:
        now = topic_entry(had)
        if not attributes and (now.write_queues, now.read_queues, now.perm, now.order) == (
            topic.write_queues,
            topic.read_queues,
            topic.perm,
            topic.order,
        ):
            return
    header = UpdateTopic(
        topic.name,
        topic.read_queues,
        topic.write_queues,
        topic.perm,
        sys_flag=0 if had is None else had.topic_sys_flag,
        order=topic.order,
        attributes=",".join(f"+{key}={one}" for key, one in attributes.items()) or None,
    )
    kind = topic.attributes.get(topic_actions.TYPE, before.get(topic_actions.TYPE, ""))
    after = topic_actions.setting(
        topic.write_queues, topic.read_queues, topic.perm, topic.order, kind
    )
    place = Text("broker %(name)s, topic %(topic)s", name=name, topic=topic.name)
    do = partial(watched.admin.put_topic, address, header)
    more = ", ".join(f"{key}={one}" for key, one in attributes.items())
    plan.changes.append(Change(place, topic_actions.told(had), after, do, note=more))


def _group_change(
    watched: Watched,
    plan: Plan,
    name: str,
    address: str,
    group: GroupEntry,
    had: SubscriptionGroupConfig | None,
) -> None:
    fields = [one for one in GroupEntry.__struct_fields__ if one not in ("name", "brokers")]
    config = msgspec.structs.replace(
        had or SubscriptionGroupConfig(group.name, group_retry_policy=GroupRetryPolicy()),
        **{one: getattr(group, one) for one in fields},
    )
    if had is not None and config == had:
        return
    known = {} if had is None else had.attributes
    config.attributes = {
        f"+{key}": value for key, value in group.attributes.items() if known.get(key) != value
    }
    place = Text("broker %(name)s, group %(group)s", name=name, group=group.name)
    do = partial(watched.admin.put_group, address, config)
    plan.changes.append(Change(place, group_actions.told(had), group_actions.told(config), do))


async def _rule_changes(watched: Watched, plan: Plan, rules: list[RuleEntry]) -> None:
    try:
        lists = await watched.admin.permissions()
    except AerobeeError as wrong:
        plan.refuse("rules can't be compared: %(wrong)s", wrong=wrong)
        return
    for place, address in (await every_broker(watched)).items():
        master = place.partition(" (slave ")[0]
        if master not in lists:
            continue
        had = {
            (one.subject, one.resource): one for info in lists[master] for one in rule_entries(info)
        }
        for rule in rules:
            if master not in _places(rule.brokers, lists):
                continue
            entry = _policy(rule)
            now = had.get((rule.subject, rule.resource))
            before = NONE if now is None else told(_policy(now))
            if before == told(entry):
                continue
            info = AclInfo(rule.subject, [PolicyInfo(entries=[entry])])
            put = watched.admin.make_rules if now is None else watched.admin.change_rules
            do: Callable[[], Awaitable[None]] = partial(put, address, info)
            where = Text(
                "broker %(name)s, %(subject)s about %(resource)s",
                name=place,
                subject=rule.subject,
                resource=rule.resource,
            )
            plan.changes.append(Change(where, before, told(entry), do))


def _policy(rule: RuleEntry) -> PolicyEntryInfo:
    return PolicyEntryInfo(rule.resource, rule.actions, rule.sources or None, rule.decision)


ACTIONS = (
    Action(
        "definitions-import",
        "Import topics, groups and rules",
        (Field("text", "Definitions (JSON)", "long", True, chars_max=TEXT_CHARS_MAX),),
        _import,
        right=Right.ADMINISTER,
    ),
)
