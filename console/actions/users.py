"""Users and rules of brokers with access control. Each broker keeps its own, slaves too."""

from collections.abc import Awaitable, Callable
from functools import partial

from ...protocol.bodies.access import (
    DISABLED,
    ENABLED,
    NORMAL,
    SUPER,
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
)
from ...protocol.errors import Refusal
from ...protocol.security import policies
from ..access.rights import Right
from ..clusters.clusters import Watched
from ..texts import Text, joined, text_of
from .action import Action, Change, Field, Pins, Plan, Unfit, Values
from .places import every_broker

ACTIONS_OF_RULES = ("Pub", "Sub", "Create", "Update", "Delete", "Get", "List", "All")
NONE = Text("none")
Do = Callable[[], Awaitable[None]]


async def _users(watched: Watched, name: str) -> dict[str, str]:
    """Kind and status of a user on each master, by broker name."""
    return {
        broker: next(
            (f"{one.user_type}, {one.user_status}" for one in found if one.username == name), NONE
        )
        for broker, found in (await watched.admin.users(name)).items()
    }


async def _rules(watched: Watched, subject: str, resource: str) -> dict[str, str]:
    """The rule of a user about a resource on each master, by broker name."""
    found: dict[str, str] = {}
    for broker, lists in (await watched.admin.permissions(subject)).items():
        entries = [
            entry
            for one in lists
            if one.subject == subject
            for policy in one.policies or []
            for entry in policy.entries or []
            if entry.resource == resource
        ]
        found[broker] = "; ".join(map(told, entries)) or NONE
    return found


def told(entry: PolicyEntryInfo) -> str:
    """A rule in one line."""
    sources = ", ".join(entry.source_ips or []) or Text("anywhere")
    return Text(
        "%(decision)s %(actions)s from %(sources)s",
        decision=entry.decision,
        actions=", ".join(sorted(entry.actions or [])),
        sources=sources,
    )


async def _to_all(
    watched: Watched, before: dict[str, str], after: str, make: Callable[[str], Do]
) -> Plan:
    """A change of every broker; a slave's state is its master's."""
    plan = Plan()
    for place, address in (await every_broker(watched)).items():
        known = before.get(place.partition(" (slave ")[0], NONE)
        if known != after:
            plan.changes.append(
                Change(Text("broker %(name)s", name=place), known, after, make(address))
            )
    if not plan.changes:
        plan.refuse("nothing would change")
    return plan


async def _create(watched: Watched, values: Values, pins: Pins) -> Plan:
    kind = SUPER if values["super"] else NORMAL
    user = UserInfo(values["user"], values["password"], kind)
    before = await _users(watched, values["user"])
    plan = await _to_all(
        watched,
        before,
        f"{kind}, {ENABLED}",
        lambda address: partial(watched.admin.make_user, address, user),
    )
    if any(state != NONE for state in before.values()):
        plan.refuse("user %(user)s is there already; change it instead", user=values["user"])
    return plan


async def _update(watched: Watched, values: Values, pins: Pins) -> Plan:
    kind = {"Super": SUPER, "Normal": NORMAL}.get(values["type"] or "")
    status = {"enabled": ENABLED, "disabled": DISABLED}.get(values["status"] or "")
    user = UserInfo(values["user"], values["password"], kind, status)
    before = await _users(watched, values["user"])
    words = [
        word for word in (kind, status, Text("new password") if user.password else None) if word
    ]
    plan = await _to_all(
        watched,
        before,
        joined(", ", words),
        lambda address: partial(watched.admin.change_user, address, user),
    )
    if not words:
        plan.refuse("nothing would change")
    plan.refusals += _strangers(before, values["user"])
    return plan


async def _delete(watched: Watched, values: Values, pins: Pins) -> Plan:
    before = await _users(watched, values["user"])
    plan = await _to_all(
        watched,
        before,
        NONE,
        lambda address: partial(watched.admin.drop_user, address, values["user"]),
    )
    plan.refusals += _strangers(before, values["user"])
    plan.note("its rules are deleted with it")
    return plan


def _strangers(before: dict[str, str], user: str) -> list[str]:
    missing = [broker for broker, state in before.items() if state == NONE]
    if not missing:
        return []
    return [
        Text("user %(user)s is not known to %(brokers)s", user=user, brokers=", ".join(missing))
    ]


async def _put_rule(watched: Watched, values: Values, is_new: bool) -> Plan:
    entry = entry_of(values)
    subject = f"User:{values['user']}"
    info = AclInfo(subject, [PolicyInfo(entries=[entry])])
    before = await _rules(watched, subject, entry.resource or "")
    request = watched.admin.make_rules if is_new else watched.admin.change_rules
    plan = await _to_all(
        watched, before, told(entry), lambda address: partial(request, address, info)
    )
    is_there = any(state != NONE for state in before.values())
    if is_new and is_there:
        plan.refuse("there is a rule about this resource already; change it instead")
    if not is_new and not is_there:
        plan.refuse("there is no rule about this resource; create it instead")
    return plan


def entry_of(values: Values) -> PolicyEntryInfo:
    """The rule of a form; Unfit."""
    try:
        resource = policies.resource_of(values["resource"]).key
    except Refusal as wrong:
        raise Unfit(text_of(wrong)) from None
    actions = [one.strip() for one in values["actions"].split(",") if one.strip()]
    odd = [one for one in actions if one not in ACTIONS_OF_RULES]
    if odd or not actions:
        raise Unfit(
            "actions is %(actions)s; give some of %(known)s with commas between",
            actions=f"{values['actions'][:80]!r}",
            known=", ".join(ACTIONS_OF_RULES),
        )
    sources = [one.strip() for one in (values["sources"] or "").split(",") if one.strip()]
    return PolicyEntryInfo(resource, actions, sources or None, values["decision"])


async def _create_rule(watched: Watched, values: Values, pins: Pins) -> Plan:
    return await _put_rule(watched, values, True)


async def _update_rule(watched: Watched, values: Values, pins: Pins) -> Plan:
    return await _put_rule(watched, values, False)


async def _delete_rule(watched: Watched, values: Values, pins: Pins) -> Plan:
    subject, resource = f"User:{values['user']}", values["resource"]
    before = await _rules(watched, subject, resource)
    plan = await _to_all(
        watched,
        before,
        NONE,
        lambda address: partial(watched.admin.drop_rule, address, subject, resource),
    )
    if all(state == NONE for state in before.values()):
        plan.refuse("there is no rule about this resource; see the page Access")
    return plan


USER = Field("user", "User", is_required=True, chars_max=200)
RESOURCE = Field(
    "resource",
    "Resource",
    is_required=True,
    chars_max=300,
    note="such as Topic:orders, Group:shop*",
)
_RULE = (
    USER,
    RESOURCE,
    Field("actions", "Actions", is_required=True, note="such as Pub, Sub, Get", chars_max=100),
    Field("sources", "From addresses", note="commas between; empty: from anywhere"),
    Field("decision", "Decision", "choice", True, "Allow", ("Allow", "Deny")),
)
ACTIONS = (
    Action(
        "user-create",
        "Create a user",
        (
            USER,
            Field("password", "Password", "secret", True, chars_max=200),
            Field("super", "May do everything", "flag"),
        ),
        _create,
        right=Right.ADMINISTER,
    ),
    Action(
        "user-update",
        "Change a user",
        (
            USER,
            Field("password", "New password", "secret", chars_max=200, note="empty: as it is"),
            Field("type", "Type", "choice", choices=("Normal", "Super"), note="empty: as it is"),
            Field(
                "status",
                "Status",
                "choice",
                choices=("enabled", "disabled"),
                note="empty: as it is",
            ),
        ),
        _update,
        right=Right.ADMINISTER,
    ),
    Action("user-delete", "Delete a user", (USER,), _delete, right=Right.ADMINISTER, loses=True),
    Action("rule-create", "Create a rule", _RULE, _create_rule, right=Right.ADMINISTER),
    Action("rule-update", "Change a rule", _RULE, _update_rule, right=Right.ADMINISTER),
    Action(
        "rule-delete",
        "Delete a rule",
        (USER, RESOURCE),
        _delete_rule,
        right=Right.ADMINISTER,
        loses=True,
    ),
)
