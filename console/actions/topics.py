"""Topics: create, change, delete."""

from collections.abc import Mapping
from functools import partial

from ...client.cluster.route import QUEUES_MAX
from ...protocol.bodies.topic import TopicConfig
from ...protocol.headers.topics import UpdateTopic
from ...protocol.names import is_system_topic
from ..clusters.clusters import Watched
from ..texts import Text, counted, joined
from .action import Action, Change, Field, Pins, Plan, Unfit, Values
from .names import fit_topic
from .places import ask_all, chosen, masters_of, mind_absent, refuse_nothing, topic_on

TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "UNSPECIFIED")
TYPE = "message.type"
PERMS = {"read and write": 6, "read": 4, "write": 2, "none": 0}
NAMES_OF_PERMS = {value: name for name, value in PERMS.items()}
NOT_THERE, DELETED = Text("not there"), Text("deleted")


def told(config: TopicConfig | None) -> str:
    """A topic's settings in one line."""
    if config is None:
        return NOT_THERE
    return setting(
        config.write_queue_nums,
        config.read_queue_nums,
        config.perm,
        config.order,
        config.attributes.get(TYPE, ""),
    )


def setting(write: int, read: int, perm: int, order: bool, kind: str) -> str:
    """The settings of a topic in one line."""
    name = NAMES_OF_PERMS.get(perm)
    may = Text(name) if name else Text("permission %(perm)s", perm=perm)
    words: list[str] = [
        counted(write, "1 write queue", "%(count)s write queues"),
        counted(read, "1 read queue", "%(count)s read queues"),
        may,
    ]
    if order:
        words.append(Text("ordered"))
    words.append(kind or Text("no type"))
    return joined(", ", words)


def wanted(topic: str, values: Values, had: TopicConfig | None) -> UpdateTopic:
    """The request for these values; a type that stays is not named."""
    kind, before = values["type"], "" if had is None else had.attributes.get(TYPE, "")
    attributes = f"+{TYPE}={kind}" if kind and kind != before else None
    return UpdateTopic(
        topic,
        values["read"],
        values["write"],
        PERMS[values["perm"]],
        sys_flag=0 if had is None else had.topic_sys_flag,
        order=values["order"],
        attributes=attributes,
    )


async def _put(watched: Watched, values: Values, is_new: bool) -> Plan:
    topic = values["topic"]
    fit_topic(topic, "topic")
    if is_system_topic(topic):
        raise Unfit("topic %(topic)s is the system's own; choose another name", topic=topic)
    addresses = await chosen(watched, values["brokers"])
    found, faults = await topic_on(watched, addresses, topic)
    plan = Plan(refusals=faults)
    for name, had in found.items():
        if is_new and had is not None:
            plan.refuse(
                "topic %(topic)s is on broker %(name)s already; change it instead",
                topic=topic,
                name=name,
            )
            continue
        header = wanted(topic, values, had)
        kind = values["type"] or ("" if had is None else had.attributes.get(TYPE, ""))
        after = setting(header.write_queues, header.read_queues, header.perm, header.order, kind)
        if after == told(had):
            continue
        if had is not None and header.read_queues < had.read_queue_nums:
            plan.note(
                "on %(name)s, messages in queues %(first)s to %(last)s are read no more",
                name=name,
                first=header.read_queues,
                last=had.read_queue_nums - 1,
            )
        do = partial(watched.admin.put_topic, addresses[name], header)
        plan.changes.append(Change(Text("broker %(name)s", name=name), told(had), after, do))
    refuse_nothing(plan, Text("topic %(topic)s", topic=topic), found, is_new=is_new)
    if values["write"] > values["read"]:
        plan.note("there are more write queues than read queues: some messages are unread")
    return plan


async def _create(watched: Watched, values: Values, pins: Pins) -> Plan:
    return await _put(watched, values, True)


async def _update(watched: Watched, values: Values, pins: Pins) -> Plan:
    return await _put(watched, values, False)


async def _delete(watched: Watched, values: Values, pins: Pins) -> Plan:
    topic = values["topic"]
    if is_system_topic(topic):
        raise Unfit("topic %(topic)s is the system's own; it can't be deleted", topic=topic)
    addresses = await masters_of(watched, topic)
    found, faults = await ask_all(addresses, lambda one: watched.admin.topic_at(one, topic))
    plan = Plan(
        notes=[Text("its messages are deleted with it, and so are the groups' offsets in it")],
        refusals=faults,
    )
    total = 0
    for name, stats in found.items():
        total += stats.messages
        before = joined(
            ", ",
            [
                counted(len(stats.offset_table), "1 queue", "%(count)s queues"),
                counted(stats.messages, "1 message", "%(count)s messages"),
            ],
        )
        do = partial(watched.admin.drop_topic, addresses[name], topic)
        plan.changes.append(Change(Text("broker %(name)s", name=name), before, DELETED, do))
    plan.sentence = counted(
        total,
        "Delete topic %(topic)s with its message",
        "Delete topic %(topic)s with its %(count)s messages",
        topic=topic,
    )
    mind_absent(watched, plan, addresses, faults)
    groups = await watched.admin.groups_of_topic(topic)
    if groups:
        plan.note("groups that read it or have read it: %(groups)s", groups=", ".join(groups[:50]))
    forget = partial(watched.admin.forget_topic, topic)
    plan.changes.append(Change(Text("name servers"), Text("known"), DELETED, forget, phase=1))
    return plan


async def _prefill(watched: Watched, query: Mapping[str, str]) -> dict[str, str]:
    topic = query.get("topic", "")
    found, _ = await topic_on(watched, await masters_of(watched, topic), topic)
    had = next((one for one in found.values() if one is not None), None)
    if had is None:
        return {}
    return {
        "write": str(had.write_queue_nums),
        "read": str(had.read_queue_nums),
        "perm": NAMES_OF_PERMS.get(had.perm, ""),
        "order": "1" if had.order else "",
        "type": had.attributes.get(TYPE, ""),
        "brokers": ", ".join(name for name, one in found.items() if one is not None),
    }


TOPIC = Field("topic", "Topic", is_required=True, chars_max=255, names="topics")
BROKERS = Field("brokers", "Brokers", note="names with commas between; empty: all masters")
_FIELDS = (
    TOPIC,
    Field("write", "Write queues", "number", True, "4", least=1, most=QUEUES_MAX),
    Field("read", "Read queues", "number", True, "4", least=1, most=QUEUES_MAX),
    Field("perm", "Clients may", "choice", True, "read and write", tuple(PERMS)),
    Field("type", "Message type", "choice", choices=TYPES, note="empty: as it is, or none"),
    Field("order", "Ordered", "flag"),
    BROKERS,
)
ACTIONS = (
    Action("topic-create", "Create a topic", _FIELDS, _create, topics=("topic",)),
    Action("topic-update", "Change a topic", _FIELDS, _update, topics=("topic",), prefill=_prefill),
    Action("topic-delete", "Delete a topic", (TOPIC,), _delete, topics=("topic",), typed="topic"),
)
