"""The history of one message: what happened to it, when, and what proves each step.

A committed offset beyond the message proves that a group passed it, not that it was processed; a
trace proves processing. Evidence that is missing is a step as well, and says why.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType

from ...client.admin.dead_letters import origin_of
from ...client.errors import AerobeeError, NoRouteError
from ...protocol.bodies.body import MessageQueue
from ...protocol.bodies.clients import ConsumerConnection
from ...protocol.bodies.subscription import SQL92, SUB_ALL, SubscriptionData
from ...protocol.errors import Malformed
from ...protocol.filters.sql92 import SqlError, predicate
from ...protocol.message import properties as props
from ...protocol.message.compression import CompressionMissing
from ...protocol.message.message_id import host_text
from ...protocol.message.pop_handles import retry_topic
from ...protocol.message.record import Record
from ...protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from ..clusters.asking import Asking
from ..clusters.samples import GroupRow
from ..texts import Text, counted, joined, text_of
from .shown import id_of, unpacked

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
BROADCASTING = "BROADCASTING"
GROUPS_MAX = 50
FOUND_MAX = 64  # records of one query by key
ABSENT = Text("the topic does not exist")
REDRIVEN = "redriven:"  # how the key of a dead letter that was sent again begins
NO_GROUPS: Mapping[str, GroupRow] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Step:
    """`at_ms` is None where no time is known; `group` is empty for steps of the message itself.
    `why` says why the group did not consume the message, where it did not; `letter` is the offset
    id of the dead letter that the step is about."""

    at_ms: int | None
    what: str
    proof: str
    group: str = ""
    why: str = ""
    letter: str = ""


@dataclass(frozen=True, slots=True)
class _Place:
    """The present or former place of the message. `first` is the first offset that the queue still
    has, None if unknown; `address` is None for a broker that can't be asked."""

    queue: MessageQueue
    offset: int
    first: int | None
    address: str | None

    @property
    def is_gone(self) -> bool:
        return self.first is not None and self.offset < self.first


async def history_of(
    admin: Asking, record: Record, broker: str, groups: Mapping[str, GroupRow] = NO_GROUPS
) -> list[Step]:
    """The history of a stored message; steps with a time come first. `groups` are those that are
    known, with their members."""
    key = id_of(record)
    stored = Step(
        record.store_ms,
        Text(
            "stored in %(topic)s, queue %(queue_id)s of %(broker)s, offset %(queue_offset)s",
            topic=record.topic,
            queue_id=record.queue_id,
            broker=broker,
            queue_offset=record.queue_offset,
        ),
        Text("the message itself"),
    )
    queue = MessageQueue(record.topic, broker, record.queue_id)
    place = await _place(admin, queue, record.queue_offset)
    # Steps of one millisecond stay in this order.
    steps = [_sent(record), *await _waits(admin, record.topic, key), stored]
    if record.topic.startswith(DLQ_PREFIX):
        steps += await _sent_again(admin, record)
    return await _whole(admin, record.topic, key, steps, place, record, groups)


async def history_of_deleted(
    admin: Asking, topic: str, key: str, queue: MessageQueue | None = None, offset: int = 0
) -> list[Step]:
    """Reconstruct the history of a deleted message from traces, retries and dead letters.

    The message is given by its id (`key`), or by queue and offset with an empty `key`. The list
    is empty when nothing proves that the message existed.
    """
    place = None if queue is None else await _place(admin, queue, offset)
    steps: list[Step] = []
    if place is None:
        steps += await _waits(admin, topic, key)
        proof = Text("no broker finds a record with this id in %(topic)s", topic=topic)
        gone = [Step(None, Text("is not in %(topic)s any more", topic=topic), proof)]
    elif not place.is_gone:
        return []
    else:
        gone = []
    found = await _whole(admin, topic, key, steps, place, None, NO_GROUPS)
    is_proved = place is not None or any(one.at_ms is not None for one in found)
    return found + gone if is_proved else []


async def _whole(
    admin: Asking,
    topic: str,
    key: str,
    steps: list[Step],
    place: _Place | None,
    record: Record | None,
    known: Mapping[str, GroupRow],
) -> list[Step]:
    """Add to `steps` what is known of the message, then what each group did with the message."""
    if place is not None and place.is_gone:
        proof = Text(
            "the queue begins at offset %(first)s, the message's was %(offset)s",
            first=place.first,
            offset=place.offset,
        )
        steps.append(Step(None, Text("gone from its queue by retention"), proof))
    traced: dict[str, list[Step]] = {}
    if key:
        traced = await _traces(admin, topic, key, steps)
    else:
        steps.append(Step(None, Text("no trace"), Text("the id of the message is not known")))
    groups: list[str] = []
    try:
        where = await admin.readable(topic)
        if place is not None and await admin.lacks_master(topic, place.queue.broker_name):
            proof = Text("a slave answers; what it has not copied is missing here")
            steps.append(Step(None, Text("its broker has no master now"), proof))
        for address in where.values():
            groups += await admin.readers_at(address, topic)
        if not groups and not topic.startswith(DLQ_PREFIX) and not is_system_topic(topic):
            proof = Text("no broker of the topic knows a group that has read it or has a member")
            why = Text("no group reads %(topic)s", topic=topic)
            steps.append(Step(None, Text("no group reads the topic"), proof, why=why))
    except AerobeeError as wrong:
        steps.append(Step(None, Text("which groups read the topic is not known"), text_of(wrong)))
    groups = sorted({*groups, *(one for one in traced if one)})
    for group in groups[:GROUPS_MAX]:
        steps += traced.get(group, [])
        steps += await _retries(admin, topic, group, key, known.get(group))
        steps += await _in_group(admin, record, place, group, traced.get(group, []), known)
    if len(groups) > GROUPS_MAX:
        cut = Text("%(count)s groups read the topic", count=len(groups))
        steps.append(
            Step(
                None,
                Text("only the first %(count)s groups are shown", count=GROUPS_MAX),
                cut,
            )
        )
    steps.sort(key=lambda one: (one.at_ms is None, one.at_ms or 0))
    return _with_last_whys(steps, traced)


def _with_last_whys(steps: list[Step], traced: Mapping[str, list[Step]]) -> list[Step]:
    """Of the sorted steps of a group only the last one says why it was not consumed. The clocks of
    members may be wrong, so that of what they traced only a processed message counts."""
    last: dict[str, Step] = {}
    for one in steps:
        is_traced = any(one is each for each in traced.get(one.group, []))
        if one.at_ms is not None and (not is_traced or "processed" in one.what):
            last[one.group] = one
    return [
        replace(one, why="")
        if one.why and one.at_ms is not None and one is not last[one.group]
        else one
        for one in steps
    ]


async def _place(admin: Asking, queue: MessageQueue, offset: int) -> _Place:
    first = address = None
    with suppress(AerobeeError):  # what is not known is said by the steps that need it
        address = (await admin.readable(queue.topic)).get(queue.broker_name)
        if address is not None:
            first = await admin.first_offset(queue)
    return _Place(queue, offset, first, address)


def _sent(record: Record) -> Step:
    """The step of the send; a message sent through a proxy names the client's address."""
    client = record.properties.get(props.BORN_HOST)
    if client is None:
        what, proof = (
            Text("sent from %(host)s", host=host_text(record.born_host)),
            Text("the time in the message"),
        )
    else:
        what = Text(
            "sent from %(client)s through the proxy at %(host)s",
            client=client,
            host=host_text(record.born_host),
        )
        proof = Text(
            "the time in the message, and its property %(born_host)s", born_host=props.BORN_HOST
        )
    return Step(record.born_ms, what, proof)


async def _retries(
    admin: Asking, topic: str, group: str, key: str, known: GroupRow | None
) -> list[Step]:
    """The steps that the records of a message in a group's retry and dead letter topics prove."""
    if not key:
        return []
    steps = []
    popped = [retry_topic(topic, group, v2=is_new) for is_new in (False, True)]
    for name in (RETRY_PREFIX + group, *popped, DLQ_PREFIX + group):
        found, wrong = await _query(admin, name, key)
        if wrong not in (None, ABSENT):
            steps.append(
                Step(None, Text("what %(name)s has is not known", name=name), wrong, group)
            )
        for one in found:
            proof = Text("a record in %(name)s", name=name)
            if name.startswith(DLQ_PREFIX):
                what = Text("given up: a dead letter")
                why = Text("%(how)s, and is a dead letter", how=given_up(one))
                steps.append(Step(one.store_ms, what, proof, group, why, one.offset_id))
                continue
            keys = one.properties.get(props.KEYS, "").split(props.KEY_SEPARATOR)
            if any(word.startswith(REDRIVEN) for word in keys) and not one.reconsume_times:
                what = Text("redriven: a dead letter sent to the group again")
                tried = Text("its dead letter was sent again and waits for the group")
            else:
                what = Text("retried, retry %(count)s", count=one.reconsume_times)
                tried = Text("retry %(count)s waits for the group", count=one.reconsume_times)
            is_last = one is found[-1]
            waits = await _waits_again(admin, one, group, tried, known) if is_last else ""
            steps.append(Step(one.store_ms, what, proof, group, waits))
    return steps


async def _waits_again(
    admin: Asking, record: Record, group: str, tried: Text, known: GroupRow | None
) -> str:
    """Why a group has not consumed a record of its retry topic; empty if it has, or that is not
    known."""
    try:
        for broker, address in (await admin.readable(record.topic)).items():
            if address == host_text(record.store_host):
                progress = await admin.progress_at(address, group, record.topic)
                queue = MessageQueue(record.topic, broker, record.queue_id)
                at = progress.offset_table.get(queue)
                if at is not None and at.consumer_offset > record.queue_offset:
                    return ""
                if known is not None and known.members == 0 and not known.members_at_least:
                    return Text("%(tried)s: no member is online", tried=tried)
                return tried
    except AerobeeError:
        pass
    return ""


def given_up(letter: Record) -> Text:
    """How a message became this dead letter."""
    return counted(
        letter.reconsume_times,
        "it was given up after 1 delivery",
        "it was given up after %(count)s deliveries",
    )


async def _sent_again(admin: Asking, letter: Record) -> list[Step]:
    """The copies of a dead letter in the topics where most redrives send them."""
    group = letter.topic.removeprefix(DLQ_PREFIX)
    first = origin_of(letter, group)
    topics = [RETRY_PREFIX + group, *(retry_topic(first, group, v2=v2) for v2 in (False, True))]
    steps = []
    for name in (*topics, first):
        found, _ = await _query(admin, name, REDRIVEN + letter.offset_id)
        steps += [
            Step(
                one.store_ms,
                Text("sent again to %(name)s", name=name),
                Text("a record with the key of the dead letter"),
            )
            for one in found
        ]
    return steps


async def _in_group(
    admin: Asking,
    record: Record | None,
    place: _Place | None,
    group: str,
    traced: list[Step],
    known: Mapping[str, GroupRow],
) -> list[Step]:
    """The step that a group's offset proves about the message, or that it is not known."""
    if place is None:
        why = Text("the message's place in its queue is not known any more")
        return [Step(None, Text("how far the group is is not known"), why, group)]
    if place.address is None:
        why = Text("broker %(broker_name)s can't be asked", broker_name=place.queue.broker_name)
        return [Step(None, Text("how far the group is is not known"), why, group)]
    try:
        progress = await admin.progress_at(place.address, group, place.queue.topic)
        online = await admin.members_at(place.address, group)
    except AerobeeError as wrong:
        return [Step(None, Text("how far the group is is not known"), text_of(wrong), group)]
    if online is not None and online.message_model == BROADCASTING:
        what = Text("goes to every member; whether it was processed is not known")
        why = Text("the group is broadcasting, so each member keeps its own offset")
        return [Step(None, what, why, group)]
    at = progress.offset_table.get(place.queue)
    if at is None or at.consumer_offset < 0:
        proof = Text("it has no offset in this queue")
        why = _held_up(place, record, online, known.get(group)) or Text(
            "its members have not begun to read the queue"
        )
        return [Step(None, Text("the group has not read the queue"), proof, group, why)]
    proof = Text(
        "its offset is %(consumer_offset)s, the message's %(offset)s",
        consumer_offset=at.consumer_offset,
        offset=place.offset,
    )
    if at.consumer_offset <= place.offset:
        if place.is_gone:
            why = Text("retention took it before the group came to it")
            what = Text("was gone before the group came to it")
        else:
            # What members had pulled that are away is given to others.
            is_pulled = online is not None and at.pull_offset > place.offset
            why = _held_up(place, record, online, known.get(group)) or (
                Text("a member has pulled it, and has not confirmed it yet")
                if is_pulled
                else _before(place.offset - at.consumer_offset)
            )
            what = Text("waits for the group")
        return [Step(None, what, proof, group, why)]
    filtered = None if record is None else _filtered(record, online)
    if filtered is not None:
        why = Text("its filter does not fit: %(wants)s", wants=filtered)
        proof = joined("; ", [proof, filtered])
        return [Step(None, Text("passed: filtered out"), proof, group, why)]
    if not any("processed" in one.what for one in traced):
        proof = Text("%(proof)s; no trace tells whether it was processed", proof=proof)
    return [Step(None, Text("passed by the group"), proof, group)]


def _held_up(
    place: _Place, record: Record | None, online: ConsumerConnection | None, known: GroupRow | None
) -> Text | None:
    """Why a group does not come to a message; None where nothing but its queue keeps it."""
    topic = place.queue.topic
    if known is not None and known.consume_enable is False:
        return Text("it may not consume; change the group so that it may")
    if online is None or not online.connection_set:
        if known is None or known.members is None or known.members_at_least:
            return Text("its broker knows no member; one behind a proxy may be online")
        return None if known.members else Text("no member is online")
    if online.subscription_table and topic not in online.subscription_table:
        return Text("its members do not subscribe to %(topic)s", topic=topic)
    filtered = None if record is None else _filtered(record, online)
    return None if filtered is None else Text("its filter does not fit: %(wants)s", wants=filtered)


def _before(count: int) -> Text:
    """That as many messages of its queue are before a message."""
    if not count:
        return Text("it is the next one of its queue")
    return counted(
        count,
        "1 message of its queue is before it",
        "%(count)s messages of its queue are before it",
    )


def _filtered(record: Record, online: ConsumerConnection | None) -> str | None:
    """The reason why a group's present subscription refuses a message; None if it does not."""
    wanted = None if online is None else online.subscription_table.get(record.topic)
    if wanted is None or wanted.sub_string in (None, "", SUB_ALL):
        return None
    return (
        None
        if _fits(wanted, record.properties)
        else Text("it wants %(sub_string)s", sub_string=wanted.sub_string)
    )


def _fits(wanted: SubscriptionData, pairs: Mapping[str, str]) -> bool:
    if wanted.expression_type == SQL92:
        try:
            return predicate(wanted.sub_string or "")(pairs)
        except SqlError:
            return True
    return pairs.get(props.TAGS, "") in [
        tag.strip() for tag in (wanted.sub_string or "").split("||")
    ]


async def _waits(admin: Asking, for_topic: str, key: str) -> list[Step]:
    """The steps that records prove in topics where messages for `for_topic` wait: for the end of a
    transaction, for a time or for their next try."""
    found, _ = await _query(admin, HALF_TOPIC, key)
    steps = [
        Step(
            one.store_ms,
            Text("prepared in a transaction"),
            Text("a record in %(name)s", name=HALF_TOPIC),
        )
        for one in found
        if one.properties.get(props.REAL_TOPIC) == for_topic
    ]
    for topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
        found, _ = await _query(admin, topic, key)
        for one in found:
            pairs, group, why = one.properties, "", ""
            to = pairs.get(props.REAL_TOPIC, Text("a topic that it does not name"))
            if to.startswith(RETRY_PREFIX):
                group = to.removeprefix(RETRY_PREFIX)
                why = Text(
                    "its consumer failed, and retry %(count)s waits for its time",
                    count=one.reconsume_times,
                )
            until = pairs.get(props.TIMER_OUT_MS, "")
            how = (
                Text("level %(level)s", level=one.queue_id + 1)
                if topic == SCHEDULE_TOPIC
                else Text("until %(until)s ms", until=until)
            )
            steps.append(
                Step(
                    one.store_ms,
                    Text("delayed, %(how)s, for %(to)s", how=how, to=to),
                    Text("a record in %(name)s", name=topic),
                    group,
                    why,
                )
            )
    return steps


async def _traces(admin: Asking, topic: str, key: str, steps: list[Step]) -> dict[str, list[Step]]:
    """The steps that traces tell, by group; what they tell of the sender goes to `steps`."""
    found, wrong = await _query(admin, TRACE_TOPIC, key)
    if wrong is not None:
        steps.append(Step(None, Text("no trace"), joined(": ", [TRACE_TOPIC, wrong])))
    elif not found:
        steps.append(
            Step(None, Text("no trace"), Text("neither its sender nor a consumer was traced"))
        )
    by_group: dict[str, list[Step]] = {}
    proof = Text("a trace in %(name)s", name=TRACE_TOPIC)
    begun: dict[str, str] = {}  # group by request id
    for fields in sorted(_records(found), key=lambda one: one[0] == "SubAfter"):
        if fields[0] == "Pub" and len(fields) > 10 and fields[4:6] == [topic, key]:
            steps.append(
                Step(_ms(fields[1]), Text("sent by group %(group)s", group=fields[3]), proof)
            )
        elif fields[0] == "SubBefore" and len(fields) > 6 and fields[5] == key:
            begun[fields[4]] = fields[3]
            what = Text("given to a consumer, retry %(count)s", count=fields[6])
            by_group.setdefault(fields[3], []).append(Step(_ms(fields[1]), what, proof, fields[3]))
        elif fields[0] == "SubAfter" and len(fields) > 4 and fields[2] == key:
            group = fields[8] if len(fields) > 8 else begun.get(fields[1], "")
            how = Text("processed") if fields[4] == "true" else Text("its consumer failed")
            at = _ms(fields[7]) if len(fields) > 7 else None
            what = Text("%(how)s, after %(ms)s ms", how=how, ms=fields[3])
            by_group.setdefault(group, []).append(Step(at, what, proof, group))
    return by_group


def _records(found: list[Record]) -> list[list[str]]:
    texts = []
    for one in found:
        with suppress(Malformed, CompressionMissing):  # then it is no trace
            texts.append(unpacked(one).decode(errors="replace"))
    return [part.split("\x01") for text in texts for part in text.split("\x02")]


async def _query(admin: Asking, topic: str, key: str) -> tuple[list[Record], str | None]:
    """The records of a topic with a key, the first stored first, and why there are none where that
    failed."""
    found: dict[tuple[bytes, int], Record] = {}
    try:
        async with asyncio.timeout(5):
            for address in (await admin.readable(topic)).values():
                for one in await admin.query_at(address, topic, key, FOUND_MAX):
                    if one.topic == topic:  # a broker's answer proves nothing about another
                        found[one.store_host, one.log_offset] = one
    except NoRouteError:
        return [], ABSENT
    except TimeoutError:
        return [], Text("no answer within 5 s")
    except AerobeeError as wrong:
        return [], text_of(wrong)
    return sorted(found.values(), key=lambda one: (one.store_ms, one.log_offset)), None


def _ms(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None
