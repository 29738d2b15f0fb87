"""Consumer groups: create, change, delete."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec

from ...client.errors import NoRouteError
from ...protocol.bodies.group import SubscriptionGroupConfig
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_GROUPS, is_system_group
from ..clusters.clusters import Watched
from ..texts import Text, counted, joined
from .action import Action, Change, Field, Pins, Plan, Unfit, Values
from .names import fit_group
from .places import ask_all, chosen, group_on, masters_of, refuse_nothing, without_proxied
from .topics import BROKERS, DELETED, NOT_THERE

# A field of the form and the setting that it is.
SETTINGS = {
    "enabled": "consume_enable",
    "broadcast": "consume_broadcast_enable",
    "ordered": "consume_message_orderly",
    "tries": "retry_max_times",
    "retry_queues": "retry_queue_nums",
    "timeout": "consume_timeout_minute",
}


def told(config: SubscriptionGroupConfig | None) -> str:
    """A group's settings in one line."""
    if config is None:
        return NOT_THERE
    words = [
        Text("may consume") if config.consume_enable else Text("may not consume"),
        Text("broadcasting allowed")
        if config.consume_broadcast_enable
        else Text("no broadcasting"),
        counted(config.retry_max_times, "1 try again", "%(count)s tries again"),
        counted(config.retry_queue_nums, "1 retry queue", "%(count)s retry queues"),
        counted(
            config.consume_timeout_minute,
            "1 minute for a message",
            "%(count)s minutes for a message",
        ),
    ]
    if config.consume_message_orderly:
        words.append(Text("in order"))
    return joined(", ", words)


def copy_with(config: SubscriptionGroupConfig, changes: dict[str, Any]) -> SubscriptionGroupConfig:
    """The settings with these changes, and the rest as it is.

    Attributes in a request are changes with a sign before the name: none keeps them.
    """
    return msgspec.structs.replace(config, attributes={}, **changes)


async def _put(watched: Watched, values: Values, is_new: bool) -> Plan:
    group = values["group"]
    fit_group(group, "group")
    addresses = await chosen(watched, values["brokers"])
    found, faults = await group_on(watched, addresses, group)
    plan = Plan(refusals=faults)
    for name, had in found.items():
        if is_new and had is not None:
            plan.refuse(
                "group %(group)s is on broker %(name)s already; change it instead",
                group=group,
                name=name,
            )
            continue
        given = {key: values[field] for field, key in SETTINGS.items()}
        config = copy_with(had or SubscriptionGroupConfig(group), given)
        if had is not None and told(config) == told(had):
            continue  # nothing of the form is another
        do = partial(watched.admin.put_group, addresses[name], config)
        plan.changes.append(Change(Text("broker %(name)s", name=name), told(had), told(config), do))
    refuse_nothing(plan, Text("group %(name)s", name=group), found, is_new=is_new)
    return plan


async def _create(watched: Watched, values: Values, pins: Pins) -> Plan:
    return await _put(watched, values, True)


async def _update(watched: Watched, values: Values, pins: Pins) -> Plan:
    return await _put(watched, values, False)


async def _delete(watched: Watched, values: Values, pins: Pins) -> Plan:
    group = values["group"]
    if group in SYSTEM_GROUPS or is_system_group(group):
        raise Unfit("group %(group)s is the system's own; it can't be deleted", group=group)
    addresses = await chosen(watched, None)
    found, faults = await group_on(watched, addresses, group)
    plan = Plan(refusals=faults)
    await without_proxied(watched, group, plan)
    for name, had in found.items():
        if had is None:
            continue
        online = await watched.admin.members_at(addresses[name], group)
        if online is not None and online.connection_set:
            plan.refuse(
                "group %(group)s has %(count)s members at broker %(name)s; stop them first",
                group=group,
                count=len(online.connection_set),
                name=name,
            )
        do = partial(watched.admin.drop_group, addresses[name], group)
        plan.changes.append(
            Change(Text("broker %(name)s", name=name), told(had), Text("no group, no offsets"), do)
        )
    if not plan.changes and not plan.refusals:
        plan.refuse("group %(group)s is on no broker; see the list of groups", group=group)
    plan.sentence = Text(
        "Delete group %(group)s, its offsets, its retries and its dead letters", group=group
    )
    for topic in (RETRY_PREFIX + group, DLQ_PREFIX + group):
        await _with_topic(watched, topic, plan)
    return plan


async def _with_topic(watched: Watched, topic: str, plan: Plan) -> None:
    try:
        await watched.admin.route(topic)
    except NoRouteError:
        return  # it never had one
    addresses = await masters_of(watched, topic)
    found, faults = await ask_all(addresses, lambda one: watched.admin.topic_at(one, topic))
    plan.refusals += [one for one in faults if one not in plan.refusals]
    for name, stats in found.items():
        do = partial(watched.admin.drop_topic, addresses[name], topic)
        before = Text(
            "topic %(topic)s, %(messages)s",
            topic=topic,
            messages=counted(stats.messages, "1 message", "%(count)s messages"),
        )
        plan.changes.append(
            Change(Text("broker %(name)s", name=name), before, DELETED, do, phase=1)
        )
    forget = partial(watched.admin.forget_topic, topic)
    plan.changes.append(
        Change(Text("name servers"), Text("topic %(topic)s", topic=topic), DELETED, forget, phase=2)
    )


async def _prefill(watched: Watched, query: Mapping[str, str]) -> dict[str, str]:
    found, _ = await group_on(watched, await chosen(watched, None), query.get("group", ""))
    had = next((one for one in found.values() if one is not None), None)
    if had is None:
        return {}
    given: dict[str, str] = {}
    for field, key in SETTINGS.items():
        value = getattr(had, key)
        given[field] = ("1" if value else "") if isinstance(value, bool) else str(value)
    given["brokers"] = ", ".join(name for name, one in found.items() if one is not None)
    return given


GROUP = Field("group", "Group", is_required=True, chars_max=120, names="groups")
_FIELDS = (
    GROUP,
    Field("enabled", "May consume", "flag", default="1"),
    Field("broadcast", "Broadcasting allowed", "flag", default="1"),
    Field("ordered", "In order", "flag"),
    Field("tries", "Tries again before a dead letter", "number", True, "16", least=-1, most=10_000),
    Field("retry_queues", "Retry queues", "number", True, "1", least=0, most=100),
    Field("timeout", "Minutes for a message", "number", True, "15", least=1, most=10_000),
    BROKERS,
)
ACTIONS = (
    Action("group-create", "Create a group", _FIELDS, _create, groups=("group",)),
    Action("group-update", "Change a group", _FIELDS, _update, groups=("group",), prefill=_prefill),
    Action("group-delete", "Delete a group", (GROUP,), _delete, groups=("group",), typed="group"),
)
