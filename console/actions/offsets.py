"""Offsets of a group: reset by time, to the begin or end, in one queue, by steps; clone.

Brokers of RocketMQ 5 and aerobee's reset a queue themselves (useServerSideResetOffset), with
members or without. Older ones have members reset, all queues by a time; without members the offset
is committed instead.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple

from ...client.errors import AerobeeError
from ...protocol.bodies.body import MessageQueue
from ...protocol.codec import java_properties
from ..clusters.clusters import Watched
from ..texts import Text, counted, joined
from .action import Action, Change, Field, Pins, Plan, Unfit, Values
from .groups import GROUP
from .places import ask_all, chosen, group_on, masters_of, mind_absent, without_proxied
from .topics import TOPIC

BEGIN, END, TIME, OFFSET, FORWARD = "begin", "end", "time", "offset", "forward"
KINDS = (BEGIN, END, TIME, OFFSET, FORWARD)
SERVER_SIDE = "useServerSideResetOffset"
OFFSET_MAX = 1 << 62


class Bounds(NamedTuple):
    """A queue: its first offset and its end, and how far the group is."""

    least: int
    most: int
    at: int


async def bounds_of(
    watched: Watched, address: str, group: str, topic: str
) -> dict[MessageQueue, Bounds]:
    """The queues of a topic on one broker."""
    stats = await watched.admin.topic_at(address, topic)
    progress = (await watched.admin.progress_at(address, group)).offset_table
    found = {}
    for queue, one in sorted(stats.offset_table.items()):
        had = progress.get(queue)
        at = 0 if had is None else max(0, had.consumer_offset)
        found[queue] = Bounds(max(0, one.min_offset), max(0, one.max_offset), at)
    return found


async def _reset(watched: Watched, values: Values, pins: Pins) -> Plan:
    group, topic = values["group"], values["topic"]
    kind = values["kind"]
    for name in {TIME: ("time",), OFFSET: ("offset", "queue"), FORWARD: ("steps",)}.get(kind, ()):
        if values[name] is None:
            raise Unfit(
                "%(name)s is missing; a reset to %(kind)s needs it", name=name, kind=f"{kind!r}"
            ).at(name)
    addresses = await masters_of(watched, topic)
    if values["broker"]:
        if values["broker"] not in addresses:
            raise Unfit(
                "topic %(topic)s is not on a broker %(broker)s",
                topic=topic,
                broker=values["broker"][:80],
            ).at("broker")
        addresses = {values["broker"]: addresses[values["broker"]]}
    if kind == OFFSET and len(addresses) > 1:
        raise Unfit(
            "broker is missing; queue %(queue)s is on %(addresses)s",
            queue=values["queue"],
            addresses=", ".join(addresses),
        ).at("broker")
    known, faults = await group_on(watched, addresses, group)
    plan = Plan(refusals=faults)
    pins.setdefault("at", {})
    plan.pins = pins
    moves: list[tuple[Bounds, int]] = []
    for name, had in known.items():
        if had is None:
            plan.refuse("broker %(name)s does not know group %(group)s", name=name, group=group)
            continue
        try:
            moves += await _of_broker(watched, values, pins, plan, name, addresses[name])
        except AerobeeError as wrong:
            faults = [*faults, Text("broker %(name)s: %(wrong)s", name=name, wrong=wrong)]
            plan.refusals.append(faults[-1])
    if not plan.changes and not plan.refusals:
        plan.refuse("no queue would change")
    skipped = sum(_skipped(one, target) for one, target in moves)
    again = sum(_again(one, target) for one, target in moves)
    plan.sentence = moved(group, topic, skipped, again)
    if not values["broker"]:
        mind_absent(watched, plan, addresses, faults)
    return plan


def moved(group: str, topic: str, skipped: int, again: int) -> Text:
    """What a move of offsets does, in a sentence."""
    names = {"group": group, "topic": topic}
    if skipped and again:
        return Text(
            "Skip %(skipped)s messages of %(topic)s for %(group)s, and have it read %(again)s "
            "again",
            skipped=f"{skipped:,}",
            again=f"{again:,}",
            **names,
        )
    if skipped:
        return counted(
            skipped,
            "Skip 1 message of %(topic)s for %(group)s",
            "Skip %(count)s messages of %(topic)s for %(group)s",
            **names,
        )
    if again:
        return counted(
            again,
            "Have %(group)s read 1 message of %(topic)s again",
            "Have %(group)s read %(count)s messages of %(topic)s again",
            **names,
        )
    return Text("Move the offsets of %(group)s in %(topic)s", **names)


async def _of_broker(
    watched: Watched, values: Values, pins: Pins, plan: Plan, name: str, address: str
) -> list[tuple[Bounds, int]]:
    """Adds the changes at a broker to the plan; the queues that move, and where to."""
    group, topic, kind = values["group"], values["topic"], values["kind"]
    online = await watched.admin.members_at(address, group)
    members = sorted(one.client_id or "" for one in online.connection_set) if online else []
    is_server_side = await _is_server_side(watched, address)
    queues = await bounds_of(watched, address, group, topic)
    wanted = values["queue"]
    if wanted is not None:
        queues = {queue: one for queue, one in queues.items() if queue.queue_id == wanted}
        if not queues:
            raise Unfit(
                "topic %(topic)s has no queue %(wanted)s on broker %(name)s",
                topic=topic,
                wanted=wanted,
                name=name,
            ).at("queue")
    if members:
        plan.note(
            "%(count)s members of %(group)s are connected to %(name)s; they go on from "
            "there, and what they have in hand may be processed once more",
            count=len(members),
            group=group,
            name=name,
        )
    if members and not is_server_side:
        if kind in (OFFSET, FORWARD) or wanted is not None:
            plan.refuse(
                "broker %(name)s has its members reset, which do all queues by a time "
                "only: choose a time, the begin or the end, or stop the members",
                name=name,
            )
            return []
        ms: int = {BEGIN: 0, END: -1}[kind] if kind in (BEGIN, END) else values["time"]
        at = sum(max(0, one.most - one.at) for one in queues.values())
        do = partial(_through_members, watched, address, group, topic, ms)
        plan.changes.append(
            Change(
                Text("broker %(name)s", name=name),
                Text("%(count)s wait", count=f"{at:,}"),
                Text("all queues to %(kind)s", kind=Text(kind)),
                do,
                bound="members",
            )
        )
        return []
    moves: list[tuple[Bounds, int]] = []
    for queue, one in queues.items():
        target = await _target(watched, values, pins, queue, one)
        if target == one.at and not members:
            continue
        set_it = _setter(watched, address, is_server_side, group, queue, target)
        # The progress of a group with members moves on while its preview is read.
        bound = "members" if members else None
        place, note = (
            Text("%(name)s, queue %(queue)s", name=name, queue=queue.queue_id),
            _meaning(one, target),
        )
        plan.changes.append(Change(place, str(one.at), str(target), set_it, bound=bound, note=note))
        moves.append((one, target))
    return moves


def _setter(
    watched: Watched,
    address: str,
    is_server_side: bool,
    group: str,
    queue: MessageQueue,
    target: int,
) -> Callable[[], Awaitable[None]]:
    if is_server_side:
        return partial(watched.admin.reset_queue, address, group, queue, target)
    return partial(watched.admin.commit, address, group, queue, target)


async def _is_server_side(watched: Watched, address: str) -> bool:
    settings = java_properties.parse(await watched.admin.broker_config(address))
    return settings.get(SERVER_SIDE) == "true"


async def _through_members(watched: Watched, address: str, group: str, topic: str, ms: int) -> str:
    found = await watched.admin.reset_members(address, group, topic, ms)
    return joined(
        ", ",
        (
            Text("queue %(queue)s: %(offset)s", queue=queue.queue_id, offset=at)
            for queue, at in sorted(found.items())
        ),
    )


async def _target(
    watched: Watched, values: Values, pins: Pins, queue: MessageQueue, one: Bounds
) -> int:
    """The offset at which a queue is to go on; a moving target is pinned by the preview."""
    kind = values["kind"]
    if kind == BEGIN:
        return one.least
    if kind == TIME:
        return min(one.most, await watched.reader.offset_at(queue, values["time"]))
    if kind == OFFSET:
        offset: int = values["offset"]
        if not one.least <= offset <= one.most:
            raise Unfit(
                "offset is %(offset)s; queue %(queue_id)s has %(least)s to %(most)s",
                offset=offset,
                queue_id=queue.queue_id,
                least=one.least,
                most=one.most,
            ).at("offset")
        return offset
    key = f"{queue.broker_name}/{queue.queue_id}"
    if key not in pins["at"]:
        end = one.most if kind == END else one.at + values["steps"]
        pins["at"][key] = min(max(end, one.least), one.most)
    kept: int = pins["at"][key]
    return kept


def _skipped(one: Bounds, target: int) -> int:
    return max(0, target - max(one.at, one.least))


def _again(one: Bounds, target: int) -> int:
    return max(0, one.at - max(target, one.least))


def _meaning(one: Bounds, target: int) -> str:
    if skipped := _skipped(one, target):
        return Text("%(count)s are skipped", count=f"{skipped:,}")
    if again := _again(one, target):
        return Text("%(count)s are read again", count=f"{again:,}")
    return Text("as it is")


async def _topic_of(watched: Watched, query: Mapping[str, str]) -> dict[str, str]:
    """The topic of a group that reads only one."""
    group = watched.collector.groups().get(query.get("group", ""))
    topics = [one.topic for one in group.topics if not one.is_retry] if group is not None else []
    return {"topic": topics[0]} if len(topics) == 1 else {}


async def _clone(watched: Watched, values: Values, pins: Pins) -> Plan:
    source, target, topic = values["source"], values["target"], values["topic"]
    if source == target:
        raise Unfit(Text("both groups are the same; give another target"))
    addresses = await chosen(watched, None)
    plan = Plan(notes=[Text("messages between the two positions are read again, or skipped")])
    known, faults = await group_on(watched, addresses, target)
    tables, more = await ask_all(addresses, lambda one: watched.admin.progress_at(one, source))
    others, most = await ask_all(addresses, lambda one: watched.admin.progress_at(one, target))
    faults = [*dict.fromkeys(faults + more + most)]
    plan.refusals += faults
    await without_proxied(watched, target, plan)
    skipped = again = 0
    for name, table in tables.items():
        if known.get(name) is None:
            plan.refuse(
                "broker %(name)s does not know group %(target)s; create it first",
                name=name,
                target=target,
            )
            continue
        online = await watched.admin.members_at(addresses[name], target)
        if online is not None and online.connection_set:
            plan.refuse(
                "group %(target)s has members at %(name)s; stop them first",
                target=target,
                name=name,
            )
            continue
        is_server_side = await _is_server_side(watched, addresses[name])
        had = others[name].offset_table if name in others else {}
        for queue, one in sorted(table.offset_table.items()):
            if queue.topic != topic:
                continue
            at = max(0, one.consumer_offset)
            before = max(0, had[queue].consumer_offset) if queue in had else 0
            if before == at:
                continue
            do = _setter(watched, addresses[name], is_server_side, target, queue, at)
            place = Text("%(name)s, queue %(queue)s", name=name, queue=queue.queue_id)
            skipped += max(0, at - before)
            again += max(0, before - at)
            count = f"{abs(at - before):,}"
            note = (
                Text("%(count)s are skipped", count=count)
                if at > before
                else Text("%(count)s are read again", count=count)
            )
            plan.changes.append(Change(place, str(before), str(at), do, note=note))
    if not plan.changes and not plan.refusals:
        plan.refuse("no queue of %(topic)s would change; see both groups' pages", topic=topic)
    plan.sentence = moved(target, topic, skipped, again)
    mind_absent(watched, plan, addresses, faults)
    return plan


ACTIONS = (
    Action(
        "offsets-reset",
        "Reset a group's offsets",
        (
            GROUP,
            TOPIC,
            Field(
                "kind",
                "Go on from",
                "choice",
                True,
                choices=KINDS,
                note="end skips what waits, begin reads all again, forward adds to each queue",
            ),
            Field("time", "Time", "time", note="UTC, or ms since 1970", only=("kind", (TIME,))),
            Field("broker", "Broker", note="empty: all that have the topic", names="brokers"),
            Field("queue", "Queue", "number", most=100_000, note="empty: all"),
            Field("offset", "Offset", "number", most=OFFSET_MAX, only=("kind", (OFFSET,))),
            Field(
                "steps",
                "Forward by",
                "number",
                least=1,
                most=OFFSET_MAX,
                note="messages",
                only=("kind", (FORWARD,)),
            ),
        ),
        _reset,
        topics=("topic",),
        groups=("group",),
        typed="group",
        prefill=_topic_of,
    ),
    Action(
        "offsets-clone",
        "Give one group the offsets of another",
        (
            Field("source", "From group", is_required=True, chars_max=120, names="groups"),
            Field("target", "To group", is_required=True, chars_max=120, names="groups"),
            TOPIC,
        ),
        _clone,
        topics=("topic",),
        groups=("source", "target"),
        typed="target",
    ),
)
